"""Both shells of gantry.mns behind one face, so that a test says once what both have to do.

`shell("asyncio")` runs each call of the asynchronous shell to its end on a loop of its own; `shell("blocking")` gives
the blocking one as it is.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from gantry.mns.account import Account
from gantry.mns.blocking import BlockingAccount
from gantry.mns.blockingchecker import BlockingTransactionChecker
from gantry.mns.blockingtransaction import BlockingTransactionQueue
from gantry.mns.exchange import AccountSettings
from gantry.mns.transactionchecker import TransactionChecker
from gantry.mns.transactionqueue import TransactionQueue
from gantry.mns.transactionrules import TransactionTimes
from gantry.mns.transactionsteps import LocalOutcome

SHELLS = ("asyncio", "blocking")
# Times of a play: the clock of the stand-in moves, nobody waits.
TIMES = TransactionTimes(timeout_s=10, check_within_s=100, life_s=1000, delay_s=2000)


class Awaited:
    """An object of the asynchronous shell whose calls are awaited, and whose blocks are plain `with`."""

    def __init__(self, thing: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._thing, self._loop = thing, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        return self._called(found) if inspect.ismethod(found) else found

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            result = method(*arguments, **more)
            if inspect.isawaitable(result):
                return self._loop.run_until_complete(result)
            if inspect.isasyncgen(result):

                async def collected() -> list[Any]:
                    return [each async for each in result]

                return self._loop.run_until_complete(collected())
            return Awaited(result, self._loop) if type(result).__module__.startswith("gantry.mns") else result

        return call

    def __enter__(self) -> Any:
        self._loop.run_until_complete(self._thing.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self._loop.run_until_complete(self._thing.__aexit__(kind, error, trace))


class Shell:
    """An account of one shell, and what is made of it."""

    def __init__(self, kind: str, account: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.kind, self._plain, self._loop = kind, account, loop
        self.account: Any = Awaited(account, loop) if loop else account

    def transaction_queue(self, name: str = "orders", times: TransactionTimes = TIMES, clock: Any = None) -> Any:
        """Return a transaction queue; its plain object is `.thing`."""
        if self._loop:
            return Awaited(TransactionQueue(self._plain, name, times, clock), self._loop)
        return BlockingTransactionQueue(self._plain, name, times, clock)

    def checker(self, queue: Any, ask: Callable[[str], LocalOutcome]) -> Any:
        """Return a checker that asks this function."""
        if self._loop is None:
            return BlockingTransactionChecker(queue, ask)

        async def ask_it(handle: str) -> LocalOutcome:
            return ask(handle)

        return Awaited(TransactionChecker(queue._thing, ask_it), self._loop)


@contextmanager
def shell(kind: str, endpoint: str, attempts: int = 4, **more: Any) -> Iterator[Shell]:
    """Give one of SHELLS with an account at this endpoint."""
    settings = AccountSettings(endpoint, attempts=attempts, **more)
    if kind == "blocking":
        with BlockingAccount(settings) as account:
            yield Shell(kind, account, None)
        return
    loop = asyncio.new_event_loop()
    try:
        made = Account(settings)
        yield Shell(kind, made, loop)
        loop.run_until_complete(made.connection.close())
    finally:
        loop.close()
