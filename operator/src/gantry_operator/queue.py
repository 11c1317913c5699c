"""The worklist: keys of objects that need a pass, each at most once, and never worked on twice at a time.

A key that is added while it is worked on gets another pass right afterwards.  One whose work failed, by any exception,
is repeated after a pause that doubles, up to a minute; other keys go on.  Each known key gets a pass at least every
`RESYNC_S`, so a missed event causes at most that delay.

Keys may be added before `run` begins.  After `close` no key is begun any more, and `run` ends when the present ones are
done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

RESYNC_S = 60.0
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
_JITTER = (0.75, 1.25)

K = TypeVar("K", bound=Hashable)


class Worklist(Generic[K]):
    """A worklist; `work` returns in how many seconds the key is due again, None when its object does not exist."""

    def __init__(self, work: Callable[[K], Awaitable[float | None]], failed: Callable[[K, Exception], None]) -> None:
        self._work = work
        self._failed = failed
        self._due: dict[K, float] = {}
        self._pauses: dict[K, float] = {}
        self._working: dict[K, float] = {}  # since when
        self._is_closed = False
        self._changed = asyncio.Event()

    def add(self, key: K, after_s: float = 0.0) -> None:
        """Make a key due after this time; an earlier due time is kept."""
        due = asyncio.get_running_loop().time() + after_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    def close(self) -> None:
        """Begin no more keys; `run` ends when the present ones are done."""
        self._is_closed = True
        self._changed.set()

    @property
    def due(self) -> int:
        """Return how many keys are due now, or are worked on."""
        now = asyncio.get_running_loop().time()
        return len(self._working) + sum(key not in self._working and due <= now for key, due in self._due.items())

    @property
    def oldest_s(self) -> float:
        """Return for how many seconds the oldest of those has been due."""
        waiting = [due for key, due in self._due.items() if key not in self._working]
        since = min([*waiting, *self._working.values()], default=float("inf"))
        return max(0.0, asyncio.get_running_loop().time() - since)

    async def run(self) -> None:
        """Work until closed or cancelled; an exception of `work` is passed to `failed` and ends nothing."""
        async with asyncio.TaskGroup() as tasks:
            while (key := await self._next()) is not None:
                self._working[key] = asyncio.get_running_loop().time()
                tasks.create_task(self._do(key))

    async def _next(self) -> K | None:
        loop = asyncio.get_running_loop()
        while not self._is_closed:
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
        return None

    async def _do(self, key: K) -> None:
        try:
            after_s = await self._work(key)
            self._pauses.pop(key, None)
        except Exception as error:  # noqa: BLE001  one object's pass must not end those of all others
            self._failed(key, error)
            pause_s = self._pauses.get(key, PAUSE_S_MIN)
            self._pauses[key] = min(2 * pause_s, PAUSE_S_MAX)
            after_s = pause_s * random.uniform(*_JITTER)  # keys that failed together are not repeated together
        del self._working[key]
        if after_s is not None:
            self.add(key, min(after_s, RESYNC_S))
        self._changed.set()
