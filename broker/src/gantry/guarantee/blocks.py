"""A producer's block: the transaction of its business, with the stubs as the last thing before the commit.

`unit` ends the transaction.  Here it gets a mark at its begin (`producing.mark`), so that a transaction that the
database gave up inside of the block is found at its end: otherwise the stubs would be committed without the business,
or a part of the business without the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gantry.guarantee.dialects import Dialect
from gantry.guarantee.producing import mark, unmark
from gantry.guarantee.running import run, run_async
from gantry.guarantee.steps import Steps
from gantry.guarantee.units import AbortedTransactionError, async_unit, unit

Writing = Callable[[], Steps[None]]


@contextmanager
def producer_block(dialect: Dialect, connection: Any, writing: Writing) -> Iterator[None]:
    """Write what `writing` says when the block ends, and commit; roll back on an exception.

    AbortedTransactionError: certainly nothing of the block's last transaction was committed.
    """
    with unit(connection):
        is_marked = run(mark(dialect, _is_begun(connection)), connection)
        yield
        run(writing(), connection)
        if is_marked:
            try:
                run(unmark(), connection)
            except Exception as error:
                raise _given_up(error) from error


@asynccontextmanager
async def async_producer_block(dialect: Dialect, connection: Any, writing: Writing) -> AsyncIterator[None]:
    """As `producer_block`, on a connection whose methods are coroutines."""
    async with async_unit(connection):
        is_marked = await run_async(mark(dialect, _is_begun(connection)), connection)
        yield
        await run_async(writing(), connection)
        if is_marked:
            try:
                await run_async(unmark(), connection)
            except Exception as error:
                raise _given_up(error) from error


def _is_begun(connection: Any) -> bool:
    """Whether a driver of SQLite says that a transaction has begun; SQLAlchemy has a method of this name."""
    return getattr(connection, "in_transaction", None) is True


def _given_up(error: Exception) -> AbortedTransactionError:
    return AbortedTransactionError(
        "the transaction was rolled back or committed inside of the block, by the database (MySQL and MariaDB: a "
        "deadlock) or the program, so a commit would store a part of the business without the rest; let the error "
        f"leave the block and repeat the whole block: {error}"
    )
