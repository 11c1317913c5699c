"""Waiting until what an administrator changed is on the disk.

A topic or a group that was made or deleted is in memory at once, and the reply may not leave before a kill -9 could
no longer undo it: a deleted topic would come back with its messages, because the start makes every topic again whose
queues it finds, and a group that was told not to consume would consume.  Each writer counts what it was asked to make
durable and how far it has come; who waits notes what was asked until now and hears when all writers are that far.
What others ask meanwhile does not hold it up.

A disk that takes nothing is no reason to wait for ever: after `wait_s` the reply says that the outcome is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol


class Writer(Protocol):
    """Makes things durable in the order in which it was asked."""

    @property
    def asked(self) -> int:
        """How many changes it was given."""
        ...

    @property
    def kept(self) -> int:
        """How many of them, from the first on, are durable."""
        ...


class Durably:
    """One loop's waiters; `look` has to be called whenever a writer has come further."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._writers: list[Writer] = []
        self._waiting: dict[asyncio.Future[None], Sequence[tuple[Writer, int]]] = {}

    def watch(self, writer: Writer) -> None:
        """Wait for this one, too."""
        self._writers.append(writer)

    def look(self) -> None:
        """Let those go whose changes are durable."""
        for future, wanted in list(self._waiting.items()):
            if _are_kept(wanted) and not future.done():
                future.set_result(None)

    def noted(self) -> Callable[[], bool]:
        """A look whether everything that was asked until now is durable."""
        wanted = [(writer, writer.asked) for writer in self._writers]
        return lambda: _are_kept(wanted)

    async def caught_up(self) -> bool:
        """True when everything that was asked until now is durable; False when it took too long."""
        wanted = [(writer, writer.asked) for writer in self._writers]
        if _are_kept(wanted):
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = wanted
        try:
            async with asyncio.timeout(self._wait_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True


def _are_kept(wanted: Sequence[tuple[Writer, int]]) -> bool:
    return all(writer.kept >= count for writer, count in wanted)
