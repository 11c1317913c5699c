"""Transactions that their database ends when the process stands still between two statements.

A process that is suspended keeps its connection, and with it the locks on rows: every other process that needs one of
them would wait until it goes on.  The limit is set inside of each transaction, so it needs nothing of the connection.
SQLite has none: there a process that is suspended within a transaction holds up all who write, until it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gantry.guarantee.databases import Database
from gantry.guarantee.steps import Query, Steps

T = TypeVar("T")


class IdleLimited:
    """A database whose transactions have the limit; `texts` are `Statements.idle_limit`."""

    def __init__(self, database: Database, texts: Sequence[str]) -> None:
        self._database = database
        self._begin, self._end = texts[:1], texts[1:]

    async def run(self, steps: Steps[T]) -> T:
        """Run steps in a transaction with the limit; returns and raises what `Database.run` does."""
        return await self._database.run(self._limited(steps))

    def _limited(self, steps: Steps[T]) -> Steps[T]:
        for text in self._begin:
            yield Query(text, {})
        result = yield from steps
        for text in self._end:
            yield Query(text, {})
        return result
