"""A job in slices that need old records, without a page fault on the event loop.

A job is an iterator.  Before a slice it yields the (log offset, size) of the records that the slice will read; those
that are cold are brought in by the cold reader, and the job goes on when they are there.  So what a slice has learnt of
the state may be old when it goes on, and it looks again.  A job that yields nothing only gives way to others.

One job at a time.  `go_on` is called again and again by its owner; between two calls the job goes on by itself for as
long as it waits for the cold reader only.  So its pace does not depend on how often the owner calls.
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

    def _step(self) -> None:
        steps = self._steps
        assert steps is not None
        self._is_stepping = True
        try:
            wanted = next(steps, None)
        except BaseException:
            self._steps = None
            raise
        finally:
            self._is_stepping = False
        if wanted is None:
            self._steps = None
            return
        cold = [place for place in wanted if self._store.reader.is_cold([place])]
        if cold:
            self._is_coming = True
            self._is_stepping = True
            self._store.bring_in(cold, self._came)
            self._is_stepping = False

    def _came(self) -> None:
        self._is_coming = False
        # Called at once where the cold reader's queue is full: then the owner's next call goes on.
        if self._may_step:
            self._step()
