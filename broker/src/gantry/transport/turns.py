"""What is done once at the end of a turn of the loop, for all connections that were read in it.

Where sockets are read together (`gathered`), a turn ends behind the last connection, in the same call of the loop and
before output leaves.  Elsewhere it ends when the loop has called everything that was ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
