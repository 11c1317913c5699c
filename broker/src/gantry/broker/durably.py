"""Waits until an administrator's change is on the disk.

A created or deleted topic or group is in memory at once, but the reply has to wait until a kill -9 cannot undo it.
Otherwise a deleted topic would come back with its messages, because a start creates every topic whose queues it finds,
and a disabled group would consume again.  Each writer counts the changes that it was asked to make durable, and those
that are.  A waiter notes the present counts and continues when all writers have reached them; later changes of others
do not delay it.

When the disk hangs, the reply after `wait_s` says that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol


class Writer(Protocol):
    """Makes changes durable in the order in which they were asked for."""

    @property
    def asked(self) -> int:
        """The number of changes that it was asked for."""
        ...

    @property
    def kept(self) -> int:
        """How many of them, from the first on, are durable."""
        ...


def own_disk(number: int) -> str:
    """Return who lacks a change that a writer of our own has not made durable."""
    return "the disk of this broker"


class Durably:
    """The waiting requests of one loop; call `look` whenever a writer has made progress."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._writers: dict[Writer, Callable[[int], str]] = {}
        self._waiting: dict[asyncio.Future[None], Sequence[tuple[Writer, int]]] = {}

    def watch(self, writer: Writer, who: Callable[[int], str] = own_disk) -> None:
        """Add a writer to wait for. who: returns who lacks its change with this number."""
        self._writers[writer] = who

    def look(self) -> None:
        """Wake the waiters whose changes are durable."""
        for future, wanted in list(self._waiting.items()):
            if _are_kept(wanted) and not future.done():
                future.set_result(None)

    def noted(self) -> Callable[[], bool]:
        """Return a function that tells whether every change up to now is durable."""
        wanted = [(writer, writer.asked) for writer in self._writers]
        return lambda: _are_kept(wanted)

    async def caught_up(self) -> bool:
        """Wait until every change up to now is durable. Return False after `wait_s`."""
        return not await self.lacking()

    async def lacking(self) -> str:
        """Wait until every change up to now is durable. Return who lacks one after `wait_s`; empty: nobody."""
        wanted = [(writer, writer.asked) for writer in self._writers]
        if _are_kept(wanted):
            return ""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = wanted
        try:
            async with asyncio.timeout(self._wait_s):
                await future
        except TimeoutError:
            return next(self._writers[writer](count) for writer, count in wanted if writer.kept < count)
        finally:
            del self._waiting[future]
        return ""


def _are_kept(wanted: Sequence[tuple[Writer, int]]) -> bool:
    return all(writer.kept >= count for writer, count in wanted)
