"""The outbox whose message is a transactional one: its checker is the stub table.

    async with TransactionalOutbox("postgresql", connect, nameserver=..., group="shop") as outbox:
        async with outbox.transaction(session, Message("Orders", b"...")) as message_id:
            await session.execute(...)

Entering sends the half message, leaving writes the stub, commits the database's transaction and then the message.  The
broker asks about a half whose end did not come: a stub means commit.  No stub means rollback, but only when the half is
older than `running_max_s`, because a transaction that still runs has its stub where nobody else sees it.  One that runs
longer and commits afterwards is not lost either: its stub has no place, and is sent by a resend when it is due.

Its place is not known, so its first resend does not wait for a backlog: choose `resend_after_s` above the usual one.

`BlockingTransactionalOutbox` is the same for programs without a loop, as `Outbox` is: it has a loop in a thread, which
sends the halves and answers the broker's checks.

Compared with `outbox`: consumers have the message as soon as the transaction commits, also when this process dies
there; it costs a half message and its end, and one message a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from gantry.client.transaction import (
    Message,
    Outcome,
    Rollback,
    StoredMessage,
    Transaction,
    TransactionProducer,
    TransactionSettings,
)
from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError, RefusedError
from gantry.guarantee.blocks import async_producer_block, producer_block
from gantry.guarantee.checkages import CheckAges
from gantry.guarantee.databases import AsyncDatabase, BlockingDatabase, Database
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.loopthread import LoopThread
from gantry.guarantee.producing import OutgoingStub, columns_of, committed, groups_of, write_stub
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Steps
from gantry.guarantee.units import AbortedTransactionError

_START_S = 30.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionalRules:
    """running_max_s: longer than any transaction of this kind runs; resend_after_s as in `OutboxSettings`."""

    service: str = "outbox"
    resend_after_s: float = 300.0
    running_max_s: float = 60.0
    settings: TransactionSettings = field(default_factory=TransactionSettings)


class _Halves:
    """What both kinds have: the producer of halves, its checker, and the stub of a half."""

    def __init__(
        self,
        dialect: str,
        database: Database,
        nameserver: str | Sequence[str],
        group: str,
        rules: TransactionalRules | None,
        clock: Clock | None,
    ) -> None:
        self.dialect = dialect_of(dialect)
        self.rules = rules or TransactionalRules()
        self._say = statements(self.dialect, "named")
        self._clock = clock or SystemClock()
        self._ages = CheckAges(self._clock)
        self._database = database
        settings = self.rules.settings
        self.producer = TransactionProducer(group, self._check, nameserver=nameserver, settings=settings, clock=clock)

    def half(self, message: Message, groups: tuple[str, ...]) -> Transaction:
        """Return the half to enter; ValueError for a message whose stub could not be written."""
        columns_of(OutgoingStub("M", message, groups=groups))
        return self.producer.transaction(message)

    def writing(self, stub: OutgoingStub, written: list[str]) -> Steps[None]:
        """Write the stub, and note that it is written: only the commit is left."""
        now_ms = self._clock.now_ms()
        due_ms = now_ms + int(self.rules.resend_after_s * 1000)
        yield from write_stub(self._say, stub, now_ms, due_ms, self.rules.service)
        written.append(stub.message_id)

    async def _check(self, half: StoredMessage) -> Outcome:
        status = await self._database.run(committed(self._say, half.message_id))
        if status:
            return Outcome.ROLLBACK if status == "void" else Outcome.COMMIT
        age_ms = self._ages.measure_age_ms(half)
        return Outcome.ROLLBACK if age_ms > self.rules.running_max_s * 1000 else Outcome.UNKNOWN


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
        self._halves = _Halves(dialect, AsyncDatabase(connect), nameserver, group, rules, clock)
        self.producer = self._halves.producer

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
        named = groups_of(groups)
        half = self._halves.half(message, named)
        written: list[str] = []
        writing = partial(self._halves.writing, OutgoingStub(half.message_id, message, groups=named), written)
        async with _refused_late(half, written), half:
            try:
                async with async_producer_block(self._halves.dialect, connection, writing):
                    yield half.message_id
            except BaseException as error:
                _decide(half, written, error)
                raise


class BlockingTransactionalOutbox:
    """The same as a context manager for programs without a loop; `connect` returns a blocking connection."""

    def __init__(
        self,
        dialect: str,
        connect: Callable[[], Any],
        *,
        nameserver: str | Sequence[str],
        group: str,
        rules: TransactionalRules | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._halves = _Halves(dialect, BlockingDatabase(connect), nameserver, group, rules, clock)
        self._thread = LoopThread("transactional outbox")
        settings = self._halves.rules.settings
        # Both bound themselves; this is for a loop that hangs.
        self._begin_s = settings.sending.timeout_s + 2 * settings.end_timeout_s + _START_S
        self._end_s = 3 * settings.end_timeout_s + _START_S

    def __enter__(self) -> Self:
        self._thread.open(self._halves.producer.start, _START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.close(self._halves.producer.stop, _START_S)

    @contextmanager
    def transaction(self, connection: Any, message: Message, *, groups: Sequence[str] = ()) -> Iterator[str]:
        """Yield the message id; commit both at the end, roll both back on an exception of the block.

        Errors of the half are raised before the block begins.  After the commit nothing is raised.
        """
        self._thread.check_open()
        named = groups_of(groups)
        half = self._thread.wait(self._begun(message, named), self._begin_s)
        written: list[str] = []
        writing = partial(self._halves.writing, OutgoingStub(half.message_id, message, groups=named), written)
        try:
            with producer_block(self._halves.dialect, connection, writing):
                yield half.message_id
        except BaseException as error:
            _decide(half, written, error)
            self._end(half, error)
            if isinstance(error, Rollback):
                return  # an instruction, as with coroutines
            raise
        self._end(half, None)

    async def _begun(self, message: Message, groups: tuple[str, ...]) -> Transaction:
        return await self._halves.half(message, groups).__aenter__()

    def _end(self, half: Transaction, error: BaseException | None) -> None:
        """Send the outcome of a half.  What cannot be sent is decided by a check, so nothing is raised."""
        kind = None if error is None else type(error)
        try:
            self._thread.wait(half.__aexit__(kind, error, None), self._end_s)
        except RefusedError as refusal:
            _warn(half, refusal)
        except (GantryError, TimeoutError, RuntimeError) as failure:
            log.warning("the outcome of message %s is left to a check: %s", half.message_id, failure)


def _decide(half: Transaction, written: Sequence[str], error: BaseException) -> None:
    """Choose the outcome of a half whose block raised: an error of the commit leaves it to the checker."""
    if written and not isinstance(error, AbortedTransactionError):
        half.leave()
    else:
        half.rollback()


@asynccontextmanager
async def _refused_late(half: Transaction, written: Sequence[str]) -> AsyncIterator[None]:
    """The database has committed, so a broker that rolled the half back before is no error of the business."""
    try:
        yield
    except RefusedError as error:
        if not written:
            raise
        _warn(half, error)


def _warn(half: Transaction, error: RefusedError) -> None:
    log.warning("message %s is sent by a resend, its half was rolled back: %s", half.message_id, error)
