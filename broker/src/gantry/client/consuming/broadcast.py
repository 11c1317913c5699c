"""How far a broadcasting consumer has come, in a file of its own.  RocketMQ: `LocalFileOffsetStore`.

Every member of a broadcasting group gets every message, so progress is the member's and not the group's, and no broker
keeps it.  The file is `<folder>/<group>/offsets.json` in RocketMQ's form; a Java consumer that is pointed at it goes on
from there, and the reverse.  It is replaced as a whole, and the one before stays as `offsets.json.bak`: whatever a
crash leaves, one of the two can be read.

A folder belongs to one member: two that share one would overwrite each other's progress.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from gantry.client.consuming.offsets import Offsets
from gantry.client.settings import ConsumerSettings
from gantry.errors import ConfigError, OutcomeUnknownError
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire import bodies

log = logging.getLogger(__name__)

_BYTES_MAX = 64 << 20  # more than a hundred thousand queues
_WRITE_S = 5.0  # as long as a broker may take for a commit: stop() must end though the disk hangs


class LocalOffsets:
    """One member's offsets; `start` and `commit` as `Offsets` has them."""

    def __init__(self, folder: str | Path, group: str, remote: Offsets) -> None:
        self.path = Path(folder) / group / "offsets.json"
        self._remote = remote
        self._table: dict[MessageQueue, int] | None = None  # until it was read
        self._changes = 0
        self._written = 0  # how many of the changes the file has
        self._file = asyncio.Lock()
        self._saving: set[asyncio.Task[None]] = set()

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Where this member stopped; where the settings say when it never was there."""
        offset = (await self._loaded()).get(queue)
        return await self._remote.start(queue, settings, now_ms) if offset is None else offset

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Keep it; returns True when the file has it, OutcomeUnknownError when it was not written, or not in time."""
        try:
            async with asyncio.timeout(_WRITE_S):
                table = await self._loaded()
                table[queue] = offset
                self._changes += 1
                # Shielded: who is cancelled leaves a thread that writes, and the next one must wait for it.
                saving = asyncio.ensure_future(self._save(table, self._changes))
                self._saving.add(saving)
                saving.add_done_callback(self._saved)
                await asyncio.shield(saving)
        except TimeoutError:
            raise OutcomeUnknownError(f"{self.path}: not written within {_WRITE_S:g} s; look at its disk") from None
        return True

    def _saved(self, saving: asyncio.Task[None]) -> None:
        self._saving.discard(saving)
        if not saving.cancelled():
            saving.exception()  # heard, also when nobody waits for it any more

    async def _save(self, table: dict[MessageQueue, int], mine: int) -> None:
        async with self._file:
            if self._written >= mine:
                return  # another commit wrote this one too
            changes, text = self._changes, write(table)
            try:
                await asyncio.to_thread(_replace, self.path, text)
            except OSError as error:
                raise OutcomeUnknownError(f"{self.path}: not written: {error}") from error
            self._written = changes

    async def _loaded(self) -> dict[MessageQueue, int]:
        async with self._file:
            if self._table is None:
                self._table = await asyncio.to_thread(_read, self.path)
            return self._table


def write(table: dict[MessageQueue, int]) -> bytes:
    """The file's contents: RocketMQ writes the queues themselves as keys, which only fastjson and we read."""
    rows = (f"{bodies.dumps(queue.to_json()).decode()}:{offset}" for queue, offset in sorted(table.items()))
    return ('{"offsetTable":{' + ",".join(rows) + "}}").encode()


def read(contents: bytes) -> dict[MessageQueue, int]:
    """The table in a file; ValueError for anything else."""
    source = documents.mapping(bodies.loads_object(contents), "offsetTable")
    return {
        MessageQueue.from_json(bodies.loads_object(key.encode())): documents.integer(source, key) for key in source
    }


def _read(path: Path) -> dict[MessageQueue, int]:
    problem = ""
    for name in (path, path.with_name(path.name + ".bak")):
        try:
            with name.open("rb") as file:
                return read(file.read(_BYTES_MAX))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problem = problem or f"{name} cannot be read: {error}"
            log.warning("%s", problem)
    if problem:
        raise ConfigError(f"{problem}; remove it to begin where the settings say")
    return {}


def _replace(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())  # macOS has no fdatasync
    if path.exists():
        before = path.with_name(path.name + ".bak")
        before.unlink(missing_ok=True)
        os.link(path, before)  # a link, so that there is no moment without the file itself
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
