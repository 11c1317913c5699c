"""Reading ahead: several pieces of a task at a time, handed over in their order.

Brokers answer a pull with so many messages at most, Apache's with 32; a task that asks for one answer after the other
waits more than it works.  So each lane is a thread with its own connections; lane n reads pieces n, n + lanes, and
so on.  The caller gets the results piece by piece, as from a single lane: a repeated task has the same rows in the
same order.

What waits is bounded: a lane that is WAITING_MAX results ahead pauses.  An error is raised where its piece would come;
then, or when the caller stops, all lanes end, at the latest with the answer that they wait for.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from enum import Enum
from typing import Generic, TypeVar

P = TypeVar("P")
R = TypeVar("R")

WAITING_MAX = 2
_LOOK_S = 0.2
Read = Callable[[P], Iterator[R]]


def in_order(pieces: Sequence[P], lanes: int, opened: Callable[[], AbstractContextManager[Read[P, R]]]) -> Iterator[R]:
    """Yield the results of all pieces; `opened` returns the function with which a lane reads a piece."""
    count = min(lanes, len(pieces))
    if count <= 1:
        with opened() as read:
            for piece in pieces:
                yield from read(piece)
        return
    done = threading.Event()
    with ThreadPoolExecutor(count, "gantrymq-ahead") as pool:
        try:
            running = [_Lane(pieces[number::count], opened, done, pool) for number in range(count)]
            for number in range(len(pieces)):
                yield from running[number % count].piece()
        finally:
            done.set()


class _End(Enum):
    PIECE = "of a piece"
    LANE = "of a lane, which may have failed"


class _Lane(Generic[P, R]):
    """One thread that reads its pieces, and the queue of its results."""

    def __init__(
        self,
        pieces: Sequence[P],
        opened: Callable[[], AbstractContextManager[Read[P, R]]],
        done: threading.Event,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._pieces = pieces
        self._opened = opened
        self._done = done
        self._waiting: queue.Queue[R | _End] = queue.Queue(WAITING_MAX)
        self._run_of = pool.submit(self._run)

    def piece(self) -> Iterator[R]:
        """Yield the results of the lane's next piece; raise the lane's exception if it failed."""
        while True:
            found = self._waiting.get()
            if found is _End.LANE:
                self._run_of.result()  # raises
            if isinstance(found, _End):
                return
            yield found

    def _run(self) -> None:
        try:
            with self._opened() as read:
                for piece in self._pieces:
                    for result in read(piece):
                        if not self._put(result):
                            return
                    if not self._put(_End.PIECE):
                        return
        finally:
            self._put(_End.LANE)

    def _put(self, what: R | _End) -> bool:
        """Queue a result; return False when the caller wants no more."""
        while not self._done.is_set():
            try:
                self._waiting.put(what, timeout=_LOOK_S)
            except queue.Full:
                continue
            return True
        return False
