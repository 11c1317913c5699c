"""The producer's side: a message that is sent if, and only if, a business transaction commits.

    with Outbox("postgresql", connect, nameserver="127.0.0.1:9876", group="shop") as outbox:
        with outbox.transaction(session) as tx:
            session.execute(...)
            tx.send(Message("Orders", b"..."))

The stub is written in the caller's own transaction, as the last thing before the commit, and a transaction that was
given up inside of the block is found (`blocks`): so no message is left behind of a business that is not there.  Leaving
the block commits, and what was written is sent in the background (`sending`); an exception rolls back, and nothing is
sent.  When the commit itself fails, its outcome is unknown and nothing is sent here: if it happened, a resend sends the
message when it is due.  A savepoint that is rolled back does not take its messages back.

After the commit nothing is raised, because a caller would repeat its business.

`AsyncOutbox` is the same for coroutines.  `connect` opens the connection that stores places, and closes with it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from gantry.client.producer import Message, Producer
from gantry.client.settings import ProducerSettings
from gantry.clock import Clock, SystemClock
from gantry.guarantee.blocks import async_producer_block, producer_block
from gantry.guarantee.databases import AsyncDatabase, BlockingDatabase
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.loopthread import LoopThread
from gantry.guarantee.producing import (
    OutgoingStub,
    StoredPlace,
    columns_of,
    groups_of,
    withdraw,
    write_places,
    write_stub,
)
from gantry.guarantee.running import run, run_async
from gantry.guarantee.sending import SendingSettings, StubSender
from gantry.guarantee.statements import Statements, statements
from gantry.guarantee.steps import Steps

log = logging.getLogger(__name__)

_START_S = 30.0


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """resend_after_s: when a message is due again that no group has confirmed; choose more than the usual backlog."""

    service: str = "outbox"  # stands in `changed_by`
    resend_after_s: float = 60.0
    sending: SendingSettings = field(default_factory=SendingSettings)
    producer: ProducerSettings = field(default_factory=ProducerSettings)


class _Messages:
    """The messages of one transaction, until it is committed."""

    def __init__(self, outbox: _Common, connection: Any) -> None:
        self.stubs: list[OutgoingStub] = []
        self.is_over = False
        self._outbox = outbox
        self._connection = connection

    def send(self, message: Message, *, key: str = "", groups: Sequence[str] = ()) -> str:
        """Take a message for the groups (empty: those declared for its topic); return its id.

        ValueError for one that would be refused.  At the end of the block it is written down, then committed.
        """
        if self.is_over:
            raise RuntimeError("the transaction has ended; send inside of its block")
        stub = self._outbox.stub(message, key, groups)
        columns_of(stub)
        self.stubs.append(stub)
        return stub.message_id


class OutboxTransaction(_Messages):
    """One transaction of a blocking connection."""

    def withdraw(self, message_id: str) -> bool:
        """Withdraw an earlier message; False: some group had its effect, so roll back what belongs to it."""
        return run(self._outbox.withdrawing(message_id), self._connection)


class AsyncOutboxTransaction(_Messages):
    """One transaction of a connection whose methods are coroutines."""

    async def withdraw(self, message_id: str) -> bool:
        """Withdraw an earlier message; False: some group had its effect, so roll back what belongs to it."""
        return await run_async(self._outbox.withdrawing(message_id), self._connection)


class _Common:
    """What both outboxes know: the statements, the clock, and how a stub is made."""

    def __init__(self, dialect: str, producer: Producer, settings: OutboxSettings, clock: Clock) -> None:
        self.dialect = dialect_of(dialect)
        self.say: Statements = statements(self.dialect, "named")
        self.settings = settings
        self._producer = producer
        self._clock = clock
        self._ids = threading.Lock()  # transactions of several threads

    def stub(self, message: Message, key: str, groups: Sequence[str]) -> OutgoingStub:
        with self._ids:
            message_id = self._producer.next_message_id()
        return OutgoingStub(message_id, message, key, groups_of(groups))

    def writing(self, messages: _Messages) -> Steps[None]:
        """Write what was sent; nothing can be added afterwards."""
        messages.is_over = True
        now_ms = self._clock.now_ms()
        due_ms = now_ms + int(self.settings.resend_after_s * 1000)
        for stub in messages.stubs:
            yield from write_stub(self.say, stub, now_ms, due_ms, self.settings.service)

    def withdrawing(self, message_id: str) -> Steps[bool]:
        return withdraw(self.say, message_id, self._clock.now_ms(), self.settings.service)


class AsyncOutbox:
    """An asynchronous context manager; `connect` is a coroutine function that returns a connection or session."""

    def __init__(
        self,
        dialect: str,
        connect: Callable[[], Awaitable[Any]],
        *,
        nameserver: str | Sequence[str],
        group: str,
        settings: OutboxSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = settings or OutboxSettings()
        self.producer = Producer(group, nameserver=nameserver, settings=settings.producer, clock=clock)
        self._common = _Common(dialect, self.producer, settings, clock or SystemClock())
        self._database = AsyncDatabase(connect)
        self.sender = StubSender(self.producer, self._save, settings.sending)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        await self.producer.start()
        self.sender.start()
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        await self.sender.close()
        await self.producer.stop()

    @asynccontextmanager
    async def transaction(self, connection: Any) -> AsyncIterator[AsyncOutboxTransaction]:
        """Commit the connection's transaction at the end and send its messages; roll back on an exception."""
        tx = self.begin(connection)
        try:
            async with async_producer_block(self._common.dialect, connection, partial(self.writing, tx)):
                yield tx
        finally:
            tx.is_over = True
        self.offer(tx)

    def begin(self, connection: Any) -> AsyncOutboxTransaction:
        """Return the messages of a transaction that another block commits (`Idempotent`)."""
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("the outbox is not open on this event loop, so nothing would be sent; enter it first")
        return AsyncOutboxTransaction(self._common, connection)

    def writing(self, tx: AsyncOutboxTransaction) -> Steps[None]:
        """Write the stubs, as the last thing before the commit."""
        return self._common.writing(tx)

    def offer(self, tx: AsyncOutboxTransaction) -> None:
        """Send the messages of a transaction that was committed."""
        for stub in tx.stubs:
            self.sender.offer(stub)

    async def _save(self, places: Sequence[StoredPlace]) -> None:
        await self._database.run(write_places(self._common.say, places))


class Outbox:
    """A context manager for programs without an event loop: it has one of its own, in a thread, for the sending."""

    def __init__(
        self,
        dialect: str,
        connect: Callable[[], Any],
        *,
        nameserver: str | Sequence[str],
        group: str,
        settings: OutboxSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or OutboxSettings()
        self._producer = Producer(group, nameserver=nameserver, settings=self._settings.producer, clock=clock)
        self._common = _Common(dialect, self._producer, self._settings, clock or SystemClock())
        self._database = BlockingDatabase(connect)
        self._thread = LoopThread("outbox")
        self.sender: StubSender | None = None

    def __enter__(self) -> Self:
        self._thread.open(self._start, _START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.close(self._stop, self._settings.sending.drain_s + _START_S)

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[OutboxTransaction]:
        """Commit the connection's transaction at the end and send its messages; roll back on an exception."""
        tx = self.begin(connection)
        try:
            with producer_block(self._common.dialect, connection, partial(self.writing, tx)):
                yield tx
        finally:
            tx.is_over = True
        self.offer(tx)

    def begin(self, connection: Any) -> OutboxTransaction:
        """Return the messages of a transaction that another block commits (`Idempotent`)."""
        self._thread.check_open()
        return OutboxTransaction(self._common, connection)

    def writing(self, tx: OutboxTransaction) -> Steps[None]:
        """Write the stubs, as the last thing before the commit."""
        return self._common.writing(tx)

    def offer(self, tx: OutboxTransaction) -> None:
        """Send the messages of a transaction that was committed."""
        if not self._thread.soon(self._offer, tx.stubs):  # it was closed in between
            log.warning("%d messages were committed while the outbox was closed; a resend is due", len(tx.stubs))

    def _offer(self, stubs: Sequence[OutgoingStub]) -> None:
        assert self.sender is not None
        for stub in stubs:
            self.sender.offer(stub)

    async def _start(self) -> None:
        self.sender = StubSender(self._producer, self._save, self._settings.sending)
        await self._producer.start()
        self.sender.start()

    async def _stop(self) -> None:
        assert self.sender is not None
        await self.sender.close()
        await self._producer.stop()

    async def _save(self, places: Sequence[StoredPlace]) -> None:
        await self._database.run(write_places(self._common.say, places))
