"""The transactional producer: a message is delivered if, and only if, a local transaction was committed.

    producer = TransactionProducer("orders", checker, nameserver="127.0.0.1:9876")

    async with producer.transaction(Message("Orders", b"...")) as tx:
        database.execute("INSERT INTO orders ...", tx.message_id)
        database.commit()

Entering the block sends the *half* message, which consumers cannot see.  Leaving it sends the outcome:

    normally             commit: the message is delivered
    by Rollback          rollback: it is never delivered; the exception ends here
    as the caller chose  tx.commit(), tx.rollback() or tx.leave(), also when an exception follows
    by anything else     unknown: nothing is sent.  The database may have committed before its connection
                         failed, so the checker decides

For an unknown outcome, and for one that did not reach the broker, the broker asks the *checker* of any member of the
group, also of one that was started later.  The checker looks the message id up in the database, and returns COMMIT,
ROLLBACK or UNKNOWN (ask later).  A checker that raises or takes too long counts as UNKNOWN.  While the block runs, this
process answers UNKNOWN without a call of its checker.

If entering raises, the local transaction was not executed.  A half that was stored but not safely is rolled back.  One
whose answer was lost may be stored; the checker is then asked for its message id, which is in no database.  Such a half
is not sent again: two halves with one id would be two messages.

If leaving raises RefusedError, the broker refused the outcome: it was decided otherwise before, for example by an
operator, or the broker does not know the half.

Hooks of `TransactionSettings.sending` apply to the sending of the half; they cannot change the message id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.hooks import Sending, around_send
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.outgoing import Ids, Outgoing, prepare
from gantry.client.producing.sending import Sender
from gantry.client.producing.transactionchecks import CheckCounts, Checker, Checks, CheckSettings
from gantry.client.producing.transactionpresence import Presence
from gantry.client.requests.question import Question
from gantry.client.requests.transaction_requests import Half, Outcome, Prepared, as_half, end
from gantry.client.requests.transaction_requests import prepare as prepare_half
from gantry.client.results import SendResult
from gantry.client.settings import ProducerSettings, check_group
from gantry.clock import Clock, SystemClock
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model.message import Message, StoredMessage
from gantry.model.route import MessageQueue
from gantry.transport.connection import Connection
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.heartbeat import Heartbeat

__all__ = [
    "CheckCounts",
    "CheckSettings",
    "Checker",
    "Message",
    "Outcome",
    "Rollback",
    "StoredMessage",
    "Transaction",
    "TransactionProducer",
    "TransactionSettings",
]

log = logging.getLogger(__name__)

# A refusal with one of these codes is final: the half is decided, or unknown.  After any other (no master, too busy, no
# room, no such topic now, RocketMQ's 604 for a commit after the message's own immunity time) a check decides.
_FINAL = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,  # no such half, or not of this group
        ResponseCode.TRANSACTION_SHOULD_COMMIT,
        ResponseCode.TRANSACTION_SHOULD_ROLLBACK,
    }
)


class Rollback(Exception):  # noqa: N818  it is an instruction, not an error
    """Raise it inside a transaction to roll the message back; it does not leave the `async with`."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings for sending halves and answering checks."""

    sending: ProducerSettings = field(default_factory=ProducerSettings)
    checks: CheckSettings = field(default_factory=CheckSettings)
    end_timeout_s: float = 3.0  # for the broker to confirm an outcome; then the checker decides


class Transaction:
    """One message and its local transaction; made by `TransactionProducer.transaction`, entered once."""

    def __init__(
        self, message: Message, outgoing: Outgoing, begin: _Begin, finish: _Finish, opened: set[str]
    ) -> None:
        self.message = message
        self.message_id = outgoing.message_ids[0]  # the checker is asked for it: store it with the local change
        self.half: Half | None = None
        self.outcome: Outcome | None = None  # as it was sent to the broker; None while the transaction runs
        self.is_settled = False  # whether the broker has confirmed the outcome
        self._outgoing = outgoing
        self._begin = begin
        self._finish = finish
        self._open = opened  # message ids whose local transaction runs in this process
        self._said: Outcome | None = None

    def __repr__(self) -> str:
        state = "open" if self.outcome is None else self.outcome.name
        return f"Transaction({self.message.topic} {self.message_id} {state})"

    def commit(self) -> None:
        """Commit at the end of the block, even when an exception follows."""
        self._said = Outcome.COMMIT

    def rollback(self) -> None:
        """Roll back at the end of the block."""
        self._said = Outcome.ROLLBACK

    def leave(self) -> None:
        """Send no outcome: the checker decides."""
        self._said = Outcome.UNKNOWN

    async def __aenter__(self) -> Self:
        """Send the half; when this raises, the local transaction is not executed."""
        assert self.half is None and self.outcome is None, "a transaction is entered once"
        self._open.add(self.message_id)
        try:
            self.half = await self._begin(self._outgoing)
        except BaseException:
            self._open.discard(self.message_id)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Send the outcome; RefusedError when the broker refuses it."""
        try:
            return await self._end(error)
        finally:
            self._open.discard(self.message_id)

    async def _end(self, error: BaseException | None) -> bool:
        assert self.half is not None
        is_rollback = isinstance(error, Rollback)
        self.outcome = self._decided(error)
        if self.outcome is Outcome.UNKNOWN:
            return is_rollback
        try:
            self.is_settled = await self._finish(self.half, self.outcome)
        except RefusedError as refusal:
            if error is None or is_rollback:
                raise
            log.error("%r: the broker refused the outcome: %s", self, refusal)
        return is_rollback

    def _decided(self, error: BaseException | None) -> Outcome:
        if isinstance(error, Rollback):
            # Commit and rollback were both requested: only the checker can know which is right.
            return Outcome.UNKNOWN if self._said is Outcome.COMMIT else Outcome.ROLLBACK
        if self._said is not None:
            return self._said
        return Outcome.COMMIT if error is None else Outcome.UNKNOWN


class TransactionProducer:
    """Sends transactional messages and answers checks; an asynchronous context manager, or start() and stop().

    No other kind of producer may use the group.  Every member has to be able to check every other member's messages.
    """

    def __init__(
        self,
        group: str,
        checker: Checker,
        *,
        nameserver: str | Sequence[str],
        settings: TransactionSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self._settings = settings or TransactionSettings()
        self._clock = clock or SystemClock()
        self._session = Session(nameserver, self._heartbeat, self._on_request)
        self._routes = Routes(self._session, new_topics=True)
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        self._sender = Sender(self._session, self._routes, self._settings.sending, self._identity.random)
        self._open: set[str] = set()  # message ids of blocks that run
        self._checks = Checks(group, checker, self._settings.checks, self._open.__contains__)
        self._presence = Presence(self._session)
        self._life = Lifecycle(group, self._session, self._routes, begin=self._begin_work)

    @property
    def check_counts(self) -> CheckCounts:
        """The counts of checks so far."""
        return self._checks.counts

    async def start(self) -> None:
        """Start to answer checks, and connect to every broker that can be reached."""
        await self._life.start()

    async def _begin_work(self) -> None:
        for number in range(self._settings.checks.concurrency):
            self._life.spawn(self._checks.work(), f"gantry-checker-{number}")
        await self._presence.meet()
        self._life.spawn(self._presence.keep(), "gantry-presence")

    async def stop(self) -> None:
        """Answer no more checks, unregister, and close. Open transactions are left to other members."""
        await self._life.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._life.leave(error)

    def transaction(
        self, message: Message, *, key: str = "", queue: MessageQueue | None = None, immunity_s: int | None = None
    ) -> Transaction:
        """Return a transaction to enter; ValueError when the message is invalid.

        `key` and `queue` choose the queue as in `Producer.send`. Brokers ask for an unknown outcome after their
        time-out (6 s),
        or after `immunity_s` for this message.
        """
        outgoing = self._prepare(message, self._identity.message_ids, immunity_s)

        async def begin(outgoing: Outgoing) -> Half:
            sending = Sending(self.group, [message])
            with around_send(self._settings.sending.hooks, sending):
                (sent,) = sending.messages
                if sent is not message:
                    outgoing = self._prepare(sent, _Same(outgoing.message_ids[0]), immunity_s)
                prepared = await self._begin(outgoing, key, queue)
                half, where = prepared.half, (prepared.offset_message_id,)
                sending.result = SendResult((half.message_id,), where, prepared.queue, half.half_offset)
                return half

        return Transaction(message, outgoing, begin, self._finish, self._open)

    def _prepare(self, message: Message, ids: Ids, immunity_s: int | None) -> Outgoing:
        settings = self._settings.sending
        now_ms = self._clock.now_ms()
        ready = prepare(message, ids, now_ms, settings.compress_over_bytes, settings.compression)
        return as_half(ready, self.group, immunity_s)

    async def send(
        self,
        message: Message,
        execute: Callable[[Transaction], Awaitable[Outcome]],
        *,
        key: str = "",
        queue: MessageQueue | None = None,
    ) -> Transaction:
        """Send the half, execute the local transaction, and send the outcome that `execute` returned.

        An exception of `execute` is raised here, and leaves the outcome unknown.
        """
        async with self.transaction(message, key=key, queue=queue) as transaction:
            match await execute(transaction):
                case Outcome.COMMIT:
                    transaction.commit()
                case Outcome.ROLLBACK:
                    transaction.rollback()
                case _:
                    transaction.leave()
        return transaction

    async def _begin(self, outgoing: Outgoing, key: str, queue: MessageQueue | None) -> Prepared:
        def ask(outgoing: Outgoing, queue: MessageQueue) -> Question[Prepared]:
            return prepare_half(self.group, outgoing, queue)

        choose = self._sender.chooser(key, queue)
        prepared = await self._sender.send(outgoing, choose, ask, again_when_unknown=False)
        if prepared.code == ResponseCode.SUCCESS:
            return prepared
        name = ResponseCode(prepared.code).name
        is_settled = False
        try:
            is_settled = await self._finish(prepared.half, Outcome.ROLLBACK)
        except RefusedError as error:
            log.warning("%s: the rollback of an unsafe half failed: %s", prepared.half.message_id, error)
        remark = "rolled back" if is_settled else "its rollback is left to a check"
        where = prepared.half.broker_name
        raise RefusedError(prepared.code, f"{where}: the half message is not safe ({name}), {remark}")

    async def _finish(self, half: Half, outcome: Outcome) -> bool:
        """Send the outcome. Return whether the broker has confirmed it; RefusedError for a final refusal.

        When the group has another master by now, the outcome is sent there: halves have the same offsets on it.
        """
        asked = self._master_of(half)
        if asked and await self._told(asked, half, outcome):
            return True
        self._routes.doubt(half.topic)
        with contextlib.suppress(RefusedError, UnreachableError, TimeoutError):
            async with asyncio.timeout(self._settings.end_timeout_s):
                await self._routes.to_read(half.topic)
        master = self._master_of(half)
        if master and master != asked and await self._told(master, half, outcome):
            return True
        log.warning("%s: %s %s is left to a check", self.group, outcome.name, half.message_id)
        return False

    def _master_of(self, half: Half) -> str:
        try:
            return self._routes.master(MessageQueue(half.topic, half.broker_name, 0))
        except UnreachableError:
            return ""

    async def _told(self, address: str, half: Half, outcome: Outcome) -> bool:
        question = end(self.group, half, outcome, from_check=False)
        try:
            await self._session.ask(address, question, self._settings.end_timeout_s)
        except RefusedError as error:
            if error.code in _FINAL:
                raise
            log.warning("%s: %s %s: %s", self.group, outcome.name, half.message_id, error)
        except (UnreachableError, OutcomeUnknownError) as error:
            log.warning("%s: %s %s: %s", self.group, outcome.name, half.message_id, error)
        else:
            return True
        return False

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._identity.client_id, (self.group,))

    def _on_request(self, connection: Connection, command: Command) -> bool:
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return False
        self._checks.offer(connection, command)
        return True


class _Same:
    """Returns the id that the message already has."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id

    def next(self) -> str:
        return self._message_id


_Begin = Callable[[Outgoing], Awaitable[Half]]
_Finish = Callable[[Half, Outcome], Awaitable[bool]]
