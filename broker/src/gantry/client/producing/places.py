"""How many sends may be under way at a time; the others wait in the order of their calls.

A place that is given back goes to the first one that waits.  A newcomer cannot overtake it, nor between the moment
when it gets the place and that when its task runs: it waits behind, also when another place is free.
"""

from __future__ import annotations

import asyncio
from collections import deque


class SendPlaces:
    """Counts places; a caller that got one calls give_back() once."""

    __slots__ = ("_line", "_waking", "free")

    def __init__(self, count: int) -> None:
        self.free = count
        self._line: deque[asyncio.Future[None]] = deque()
        self._waking = 0  # places that were given to callers whose tasks have not run since

    def take(self) -> bool:
        """Take a place; False when there is none, or others are first."""
        if not self.free or self._waking:
            return False
        self.free -= 1
        return True

    async def wait(self, deadline: float) -> None:
        """Wait for a place and take it; TimeoutError when there is none until this loop time."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        is_mine = False
        try:
            async with asyncio.timeout_at(deadline):
                await place
            is_mine = True
        finally:
            if place.done() and not place.cancelled():
                self._waking -= 1
                if not is_mine:
                    self.give_back()  # it came together with the end of the time, or with the caller's cancellation
                if self.free and not self._waking:
                    self._give_free()

    def give_back(self) -> None:
        """Return a place; the first caller that waits gets it."""
        self.free += 1
        self._give_free()

    def _give_free(self) -> None:
        """Give the free places to the first that wait."""
        while self.free and self._line:
            place = self._line.popleft()
            if not place.done():
                self.free -= 1
                self._waking += 1
                place.set_result(None)
