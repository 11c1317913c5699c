"""A job in slices that need old records, without a page fault on the event loop.

A job is an iterator.  Before a slice it yields the (log offset, size) of the records that the slice will read; those
that are cold are brought in by the cold reader, and the job goes on when they are there.  So what a slice has learnt of
the state may be old when it goes on, and it looks again.  A job that yields nothing only gives way to others.

One job at a time.  `go_on` is called again and again by its owner.  Once the job has waited for the cold reader it goes
on by itself, a slice for each turn of that reader, so its pace does not depend on how often the owner calls.  It ends
when the store is closed: a slow disk may answer after its owner has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.store.store import Store

Places = Sequence[tuple[int, int]]
Steps = Iterator[Places]


class ColdSteps:
    """Carries one kind of job out.  Loop thread only."""

    def __init__(self, store: Store, begin: Callable[[], Steps]) -> None:
        """begin: makes the job; called when none is under way."""
        self._store = store
        self._begin = begin
        self._steps: Steps | None = None
        self._is_coming = False  # the cold reader is at it
        self._is_stepping = False

    def go_on(self) -> Iterator[None]:
        """Begin the job, or go on with it, in slices, until it ends or waits for the cold reader."""
        if self._steps is None:
            self._steps = self._begin()
        while self._may_step:
            self._step()
            yield

    @property
    def _may_step(self) -> bool:
        return self._steps is not None and not self._is_coming and not self._is_stepping

    def _step(self, is_by_itself: bool = False) -> None:
        steps = self._steps
        assert steps is not None
        self._is_stepping = True
        try:
            wanted = next(steps, None)
            if wanted is None:
                self._steps = None
                return
            cold = [place for place in wanted if self._store.reader.is_cold([place])]
            if cold or is_by_itself:
                self._is_coming = True
                self._store.bring_in(cold, self._came)
        except BaseException:
            self._steps, self._is_coming = None, False
            raise
        finally:
            self._is_stepping = False

    def _came(self) -> None:
        self._is_coming = False
        if self._store.is_closed:
            self._steps = None
            return
        # Called at once where the cold reader's queue is full: then the owner's next call goes on.
        if self._may_step:
            self._step(is_by_itself=True)
