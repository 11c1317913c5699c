"""Messages that wait to be handed out, and the tasks that wait for one.

An `asyncio.Queue` with less work for each item: a task looks first whether there is any (`items`), and waits
only when there is none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ready(Generic[T]):
    """Items in the order in which they were put; belongs to one loop."""

    __slots__ = ("_waiting", "items", "take")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.take = self.items.popleft  # IndexError when there is none

    def put(self, item: T) -> None:
        """Add an item, and wake a task that waits."""
        self.items.append(item)
        if self._waiting:
            self._wake_one()

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Remove the items that are not wanted any more."""
        for _ in range(len(self.items)):
            item = self.items.popleft()
            if is_wanted(item):
                self.items.append(item)

    async def wait(self) -> None:
        """Return when there is an item; another task may take it before the caller does."""
        while not self.items:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(news)
            try:
                await news
            except BaseException:
                if not news.cancelled() and self.items:
                    self._wake_one()  # the item that it was woken for is for another one
                raise
            finally:
                news.cancel()

    def _wake_one(self) -> None:
        while self._waiting:
            news = self._waiting.popleft()
            if not news.done():
                news.set_result(None)
                return
