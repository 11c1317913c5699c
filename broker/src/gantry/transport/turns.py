"""What is done once at the end of a turn of the loop, for all connections that were read in it.

Where sockets are read together (`gathered`), a turn ends behind the last connection, in the same call of the loop and
before output leaves.  Elsewhere it ends when the loop has called everything that was ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_WORK_S = 0.005  # what other clients wait for at most, besides one request of each that is served before them


class Turns:
    """Calls functions at the end of the turn that is going on; one for everything that shares a server's turns."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] | None = None  # of a turn that will say when it ends

    def soon(self, call: Callable[[], None]) -> None:
        """Call a function before sockets are read again."""
        if self._calls is None:
            asyncio.get_running_loop().call_soon(call)
        else:
            self._calls.append(call)

    def begin(self) -> None:
        """A turn begins whose end is told."""
        self._calls = []

    def end(self) -> None:
        """Call what is due, in order, and what that asks for; after an exception the loop calls the rest."""
        calls, count = self._calls or [], 0
        try:
            for call in calls:  # the list grows meanwhile
                count += 1
                call()
        finally:
            self._calls = None
            for call in calls[count:]:
                asyncio.get_running_loop().call_soon(call)


class TurnTime:
    """How long a turn of the loop may go on with requests that can wait for the next one.

    One read brings up to ten thousand requests of one connection.  All of them at once would make every other client
    wait.  So each connection is served one request, and more while there is time.
    """

    def __init__(self, clock: Callable[[], float], work_s: float = _WORK_S) -> None:
        self._clock = clock
        self._work_s = work_s
        self._end: float | None = None

    def is_over(self) -> bool:
        """Return whether further requests have to wait; the first call in a turn starts its time."""
        now = self._clock()
        if self._end is None:
            self._end = now + self._work_s
            asyncio.get_running_loop().call_soon(self._forget)
        return now >= self._end

    def _forget(self) -> None:
        self._end = None
