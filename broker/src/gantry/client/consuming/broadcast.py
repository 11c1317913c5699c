"""The offsets of a broadcasting consumer, in a local file.  RocketMQ: `LocalFileOffsetStore`.

Every member of a broadcasting group gets every message, so each member has its own progress, and no broker keeps it.
The file is `<folder>/<group>/offsets.json` in RocketMQ's form; Java consumers can use it too.  It is replaced as a
whole, and the former one stays as `offsets.json.bak`, so that one of the two can be read after a crash.

A folder belongs to one member: two members with one folder would overwrite each other's progress.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.settings import ConsumerSettings
from gantry.errors import ConfigError, OutcomeUnknownError
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire import bodies

log = logging.getLogger(__name__)

_BYTES_MAX = 64 << 20  # more than a hundred thousand queues
_WRITE_S = 5.0  # the time-out of a commit at a broker: stop() has to end even when the disk hangs


class LocalOffsets:
    """One member's offsets, with the methods `start` and `commit` of `RemoteOffsets`."""

    def __init__(self, folder: str | Path, group: str, remote: RemoteOffsets) -> None:
        self.path = Path(folder) / group / "offsets.json"
        self._remote = remote
        self._table: dict[MessageQueue, int] | None = None  # None until the file was read
        self._changes = 0
        self._written = 0  # so many of the changes are in the file
        self._file = asyncio.Lock()
        self._saving: set[asyncio.Task[None]] = set()

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        """Return the offset at which this member stopped; without one, the offset that the settings name."""
        offset = (await self._loaded()).get(queue)
        return await self._remote.start(queue, settings, now_ms) if offset is None else offset

    async def commit(self, queue: MessageQueue, offset: int) -> bool:
        """Write the offset to the file. Return True; OutcomeUnknownError when it was not written in time."""
        try:
            async with asyncio.timeout(_WRITE_S):
                table = await self._loaded()
                table[queue] = offset
                self._changes += 1
                # Shielded: a cancelled caller leaves a thread that writes, and the next commit has to wait for it.
                saving = asyncio.ensure_future(self._save(table, self._changes))
                self._saving.add(saving)
                saving.add_done_callback(self._saved)
                await asyncio.shield(saving)
        except TimeoutError:
            raise OutcomeUnknownError(f"{self.path}: not written within {_WRITE_S:g} s; check its disk") from None
        return True

    def _saved(self, saving: asyncio.Task[None]) -> None:
        self._saving.discard(saving)
        if not saving.cancelled():
            saving.exception()  # retrieved even when no caller waits any more

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
    """Return the file's contents. RocketMQ writes the queues themselves as JSON keys, which only fastjson and `read`
    accept.
    """
    rows = (f"{bodies.dumps(queue.to_json()).decode()}:{offset}" for queue, offset in sorted(table.items()))
    return ('{"offsetTable":{' + ",".join(rows) + "}}").encode()


def read(contents: bytes) -> dict[MessageQueue, int]:
    """Return the table in a file's contents; ValueError when they are invalid."""
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


def own_offsets(settings: ConsumerSettings, offsets: RemoteOffsets, group: str) -> RemoteOffsets | LocalOffsets:
    """Return where a member keeps its progress: in its file when it broadcasts and has one, else at the brokers."""
    is_local = settings.broadcast and settings.offsets_folder is not None
    return LocalOffsets(settings.offsets_folder or "", group, offsets) if is_local else offsets
