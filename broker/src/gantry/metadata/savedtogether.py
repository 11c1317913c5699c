"""Answers that wait until a table is saved: those that come together share one save.

A save writes a whole file, so one for each waiting request would cost too much when a group of many queues starts.
The first caller saves what was changed until then.  All who come meanwhile share the next save.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SavedTogether:
    """The saves of one table.  Loop thread only.

    changes     how many changes were made that have to be saved before they are answered
    save        returns whether everything that was changed before its call is durable now
    """

    def __init__(self, changes: Callable[[], int], save: Callable[[], Awaitable[bool]]) -> None:
        self._changes = changes
        self._save = save
        self._turn = asyncio.Lock()
        self._kept = changes()  # so many changes are durable
        self._asked = 0
        self._tried = 0  # calls up to this number were part of a save that has ended
        self._calls: set[asyncio.Future[bool]] = set()
        self._task: asyncio.Future[None] | None = None

    @property
    def is_saved(self) -> bool:
        """Whether every change is durable."""
        return self._kept >= self._changes()

    def has(self, number: int) -> bool:
        """Return whether the changes up to this number are durable."""
        return self._kept >= number

    async def saved(self, wanted: int | None = None) -> bool:
        """Return when every change before the call is durable, or those up to the number `wanted`; False: the disk did
        not take them in time.
        """
        wanted = self._changes() if wanted is None else wanted
        if self._kept >= wanted:
            return True
        self._asked = number = self._asked + 1
        await asyncio.sleep(0)  # for what else came in this turn
        async with self._turn:
            if self._kept < wanted and self._tried < number:
                tried, taken = self._asked, self._changes()
                if await self._save():
                    self._kept = taken
                self._tried = tried
            return self._kept >= wanted

    def then(self, call: Callable[[bool], None], wanted: int) -> None:
        """Call the function with the result of `saved`; at once when that is durable already."""
        if self.has(wanted):
            call(True)
            return
        waiting = asyncio.ensure_future(self.saved(wanted))
        self._calls.add(waiting)
        waiting.add_done_callback(self._calls.discard)
        waiting.add_done_callback(lambda done: None if done.cancelled() else call(done.result()))

    def soon(self) -> None:
        """Save in the background what nobody waits for."""
        if not self.is_saved and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._save_all())

    async def _save_all(self) -> None:
        # What came during a save is part of the next one.
        while not self.is_saved and await self.saved():
            pass
