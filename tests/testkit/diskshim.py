"""The Python side of shim/diskshim.c: steer it, read what it wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from testkit.shims import build


class Event(NamedTuple):
    """One line of the shim's log; `where` is a path for disk events and the descriptor for a send."""

    ns: int
    kind: str
    where: str
    offset: int = 0
    length: int = 0
    payload: bytes = b""
    failed: int = 0


class DiskShim:
    """One shim for one process; `environment` goes into the process that is to be watched."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        self._control = folder / "control"
        self.environment = {
            "LD_PRELOAD": str(build("diskshim")),
            "DISKSHIM_LOG": str(self._log),
            "DISKSHIM_CONTROL": str(self._control),
        }

    def control(self, word: str) -> None:
        """A word of the shim (see there); replaced atomically, because the process reads it when it likes."""
        unfinished = self._control.with_suffix(".new")
        unfinished.write_text(word)
        unfinished.rename(self._control)

    def events(self) -> list[Event]:
        """What has happened so far, by time."""
        if not self._log.exists():
            return []
        text = self._log.read_text()
        return sorted(_parse(line) for line in text[: text.rfind("\n") + 1].splitlines())


def _parse(line: str) -> Event:
    ns, kind, rest = line.split(" ", 2)
    if kind in ("pwrite", "zero"):
        offset, length, path = rest.split(" ", 2)
        return Event(int(ns), kind, path, int(offset), int(length))
    if kind == "sync-end":
        failed, path = rest.split(" ", 1)
        return Event(int(ns), kind, path, failed=int(failed))
    if kind == "send":
        descriptor, _, payload = rest.partition(" ")
        return Event(int(ns), kind, descriptor, payload=bytes.fromhex(payload))
    assert kind == "sync-begin", line
    return Event(int(ns), kind, rest)


def log_range(event: Event) -> tuple[int, int]:
    """The bytes of the commit log that a pwrite or zero of a segment touched."""
    start = int(event.where.rsplit("/", 1)[1]) + event.offset
    return start, start + event.length
