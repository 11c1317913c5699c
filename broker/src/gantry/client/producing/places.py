"""How many sends may be under way at a time; the others wait in the order of their calls.

A place that is given back goes to the first one that waits, so that a newcomer cannot overtake it.
"""

from __future__ import annotations

import asyncio
from collections import deque


class SendPlaces:
    """Counts places; who got one calls give_back() once."""

    __slots__ = ("_line", "free")

    def __init__(self, count: int) -> None:
        self.free = count
        self._line: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place; False when there is none."""
        if not self.free:
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
            if not is_mine and place.done() and not place.cancelled():
                self.give_back()  # it came together with the end of the time, or with the caller's cancellation

    def give_back(self) -> None:
        """Give a place back."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.free += 1
