"""The outbox whose message is a transactional one: its checker is the stub table.

    async with TransactionalOutbox("postgresql", connect, nameserver=..., group="shop") as outbox:
        async with outbox.transaction(session, Message("Orders", b"...")) as message_id:
            await session.execute(...)

Entering sends the half message, leaving writes the stub, commits the database's transaction and then the message.  The
broker asks about a half whose end did not come: a stub means commit.  No stub means rollback, but only when the half is
older than `running_max_s`, because a transaction that still runs has its stub where nobody else sees it.  One that runs
longer and commits afterwards is not lost either: its stub has no place, and is sent by a resend when it is due.

Its place is not known, so its first resend does not wait for a backlog: choose `resend_after_s` above the usual one.

Compared with `outbox`: consumers have the message as soon as the transaction commits, also when this process dies
there; it costs a half message and its end, and one message a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from gantry.client.transaction import (
    Message,
    Outcome,
    StoredMessage,
    Transaction,
    TransactionProducer,
    TransactionSettings,
)
from gantry.clock import Clock, SystemClock
from gantry.errors import RefusedError
from gantry.guarantee.databases import AsyncDatabase
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.producing import OutgoingStub, columns_of, committed, write_stub
from gantry.guarantee.running import run_async
from gantry.guarantee.statements import statements
from gantry.guarantee.units import async_unit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionalRules:
    """running_max_s: longer than any transaction of this kind runs; resend_after_s as in `OutboxSettings`."""

    service: str = "outbox"
    resend_after_s: float = 300.0
    running_max_s: float = 60.0
    settings: TransactionSettings = field(default_factory=TransactionSettings)


class TransactionalOutbox:
    """An asynchronous context manager; `connect` is a coroutine function that returns a connection or session."""

    def __init__(
        self,
        dialect: str,
        connect: Callable[[], Awaitable[Any]],
        *,
        nameserver: str | Sequence[str],
        group: str,
        rules: TransactionalRules | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._say = statements(dialect_of(dialect), "named")
        self._rules = rules or TransactionalRules()
        self._clock = clock or SystemClock()
        self._database = AsyncDatabase(connect)
        settings = self._rules.settings
        self.producer = TransactionProducer(group, self._check, nameserver=nameserver, settings=settings, clock=clock)

    async def __aenter__(self) -> Self:
        await self.producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producer.stop()

    @asynccontextmanager
    async def transaction(
        self, connection: Any, message: Message, *, groups: Sequence[str] = ()
    ) -> AsyncIterator[str]:
        """Yield the message id; commit both at the end, roll both back on an exception of the block."""
        columns_of(OutgoingStub("M", message, groups=tuple(groups)))  # refused before the half is sent
        half = self.producer.transaction(message)
        begun_commit = False
        async with self._refused_late(half, lambda: begun_commit), half:
            try:
                async with async_unit(connection):
                    yield half.message_id
                    now_ms = self._clock.now_ms()
                    due_ms = now_ms + int(self._rules.resend_after_s * 1000)
                    stub = OutgoingStub(half.message_id, message, groups=tuple(groups))
                    await run_async(write_stub(self._say, stub, now_ms, due_ms, self._rules.service), connection)
                    begun_commit = True
            except BaseException:
                # An error of the commit leaves its outcome unknown: the checker decides.
                if begun_commit:
                    half.leave()
                else:
                    half.rollback()
                raise

    @asynccontextmanager
    async def _refused_late(self, half: Transaction, is_committed: Callable[[], bool]) -> AsyncIterator[None]:
        """The database has committed, so a broker that rolled the half back before is no error of the business."""
        try:
            yield
        except RefusedError as error:
            if not is_committed():
                raise
            log.warning("message %s is sent by a resend, its half was rolled back: %s", half.message_id, error)

    async def _check(self, half: StoredMessage) -> Outcome:
        status = await self._database.run(committed(self._say, half.message_id))
        if status:
            return Outcome.ROLLBACK if status == "void" else Outcome.COMMIT
        age_ms = self._clock.now_ms() - half.born_ms
        return Outcome.ROLLBACK if age_ms > self._rules.running_max_s * 1000 else Outcome.UNKNOWN
