"""Whom to look at, and when: keys, each at most once in the queue and never worked on twice at a time.

A key that is added while it is worked on comes again right afterwards.  One whose work failed comes again after a pause
that doubles, up to a minute; whatever happens, each known key comes again every `RESYNC_S`: an event that was missed
costs that much and nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

RESYNC_S = 60.0
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0

K = TypeVar("K", bound=Hashable)


class Worklist(Generic[K]):
    """`work` answers after how many seconds it wants the key again; None: the key is not there any more."""

    def __init__(self, work: Callable[[K], Awaitable[float | None]], failed: Callable[[K, Exception], None]) -> None:
        self._work = work
        self._failed = failed
        self._due: dict[K, float] = {}
        self._pauses: dict[K, float] = {}
        self._working: set[K] = set()
        self._changed = asyncio.Event()

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Soon, or after that time; an earlier appointment stays."""
        due = asyncio.get_running_loop().time() + after_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    async def run(self, expected: type[Exception] | tuple[type[Exception], ...]) -> None:
        """Work until cancelled; an exception that is not expected ends everything."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                key = await self._next()
                self._working.add(key)
                tasks.create_task(self._do(key, expected))

    async def _next(self) -> K:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            waiting = {key: due for key, due in self._due.items() if key not in self._working}
            if waiting:
                key = min(waiting, key=lambda each: waiting[each])
                left = waiting[key] - loop.time()
                if left <= 0:
                    del self._due[key]
                    return key
            else:
                left = RESYNC_S
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _do(self, key: K, expected: type[Exception] | tuple[type[Exception], ...]) -> None:
        try:
            after_s = await self._work(key)
            self._pauses.pop(key, None)
        except expected as error:
            self._failed(key, error)
            after_s = self._pauses.get(key, PAUSE_S_MIN)
            self._pauses[key] = min(2 * after_s, PAUSE_S_MAX)
        self._working.discard(key)
        if after_s is not None:
            self.add(key, min(after_s, RESYNC_S))
        self._changed.set()
