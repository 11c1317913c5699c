"""Long disk operations without the interpreter's lock: fdatasync on a thread of its own, and cold reads.

A Python thread that returns from fdatasync has to wait for the interpreter's lock before it can report, and then has
to wake the loop.  This thread writes to an eventfd that the loop polls anyway.  It has the contract of
`background.Flusher`: a newer request replaces one that has not begun, so what is written during one sync shares the
next; outcomes are reported on the loop, and a failure is final.

Only for files of the operating system, since it needs their descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gantry.errors import StoreError, SyncFailedError
from gantry.leaves._fast import sysio
from gantry.store.disk import File, RealFile

Done = Callable[[int, StoreError | None], None]


class Poller(Protocol):
    """The part of an event loop that is used here."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> object:
        """Call back whenever fd is readable."""
        ...

    def remove_reader(self, fd: int, /) -> object:
        """Stop calling back for fd."""
        ...


class SyncThread:
    """One flusher; loop thread only."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._thread = sysio.FlushThread()
        self._event = self._thread.event_fd
        self._is_open = True
        self._files: Sequence[File] = ()
        self._target = 0
        self._done: Done | None = None
        poller.add_reader(self._event, self._deliver)

    def request(self, files: Sequence[File], target: int, done: Done) -> None:
        """Sync these files, then call done(target, error) on the loop; replaces a request not begun yet."""
        if not self._is_open:
            raise StoreError("the flusher thread has ended")
        descriptors = []
        for file in files:
            assert isinstance(file, RealFile), f"{file.path} has no descriptor"
            descriptors.append(file.fileno())
        self._files, self._target, self._done = files, target, done
        self._thread.request(descriptors, target)

    def drain(self) -> None:
        """Block until nothing is under way and tell the outcome now."""
        if self._is_open:
            self._thread.drain()
            self._deliver()

    def close(self) -> None:
        """Carry out the waiting request, report it, end the thread."""
        if self._is_open:
            self.drain()
            self._is_open = False
            self._poller.remove_reader(self._event)
            self._thread.close()

    def _deliver(self) -> None:
        reached, failed = self._thread.outcome()
        done = self._done
        if done is None:
            return
        if reached >= 0:
            done(reached, None)
        if failed:
            self._done = None
            names = ", ".join(file.path for file in self._files)
            done(self._target, SyncFailedError(f"fdatasync {names}: {os.strerror(failed)}"))


def read_through(file: RealFile, ranges: Sequence[tuple[int, int]], ahead_bytes: int) -> None:
    """Read these [start, end) into the page cache and discard the bytes.  The cold reader's job, on its thread.

    The kernel is asked to read the `ahead_bytes` behind them as well, and is not waited for.
    """
    failed = sysio.read_through(file.fileno(), ranges, ahead_bytes)
    if failed:
        raise StoreError(f"read {file.path}: {os.strerror(failed)}")


def in_memory(memory: memoryview, base: int, places: Iterable[tuple[int, int]], near_bytes: int) -> bool:
    """Whether these (log offset, size) of a mapped file, and gaps of up to `near_bytes`, are in the page cache."""
    return sysio.in_memory(memory, base, places, near_bytes)
