"""A transaction queue for programs without asyncio; everything as in `transactionqueue`.

    queue = BlockingTransactionQueue(account, "orders")
    with queue.transaction(b"...") as transaction:
        record(cursor, sql, transaction.handle, now_ms)
        database.commit()

Threads may share the account; a transaction queue and its checkers belong to one thread, because its counts do.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError
from gantry.mns import queuecalls, transactioncalls
from gantry.mns.blocking import BlockingAccount
from gantry.mns.errors import QueueAlreadyExistError, UnsafeQueueError
from gantry.mns.settling import LocalRollback, QueueSettling, TransactionTally, outcome_of_block
from gantry.mns.transactioncalls import PreparedMessage
from gantry.mns.transactionrules import TransactionTimes, log_queue, refuse_late_log, unsafe
from gantry.mns.transactionsteps import LocalOutcome, Settlement, TransactionSteps
from gantry.mns.values import QueueAttributes

log = logging.getLogger(__name__)
LOOK_S = 60.0  # somebody may change the attributes of the queues


class BlockingTransactionQueue:
    """The queue NAME and its operation log NAME-operation-log-queue; looked at before the first use and each minute."""

    def __init__(
        self, account: BlockingAccount, name: str, times: TransactionTimes | None = None, clock: Clock | None = None
    ) -> None:
        self.name = queuecalls.checked_name(name)
        self.log_name = log_queue(name)
        self.times = times or TransactionTimes()
        self.tally = TransactionTally()
        self.open: set[str] = set()  # handles whose blocks run in this process
        self.clock = clock or SystemClock()
        self.perform = account.connection.perform
        self._life_s = self._delay_s = 0
        self._unsafe = ""  # what is wrong with the attributes
        self._looked_at = 0.0

    def create(self) -> None:
        """Make both queues, or take those that are there; UnsafeQueueError when their attributes are not safe."""
        for name, attributes in ((self.name, self.times.attributes), (self.log_name, QueueAttributes())):
            try:
                self.perform(queuecalls.create(name, attributes))
            except QueueAlreadyExistError:
                log.info("queue %s is there with other attributes; they are checked", name)
        self.look()

    def delete(self, *, with_log: bool) -> None:
        """Delete the queue; its operation log too, if `with_log`."""
        for name in (self.name, self.log_name)[: 1 + with_log]:
            self.perform(queuecalls.delete(name))

    def look(self) -> int:
        """Return the life of messages in seconds; UnsafeQueueError when the attributes of a queue are not safe."""
        life_s = self.life()
        if self._unsafe:
            raise UnsafeQueueError(self._unsafe)
        return life_s

    def life(self) -> int:
        """Return the same for a check, also of a queue that became unsafe: what was prepared has to be settled."""
        now = self.clock.monotonic()
        if self._unsafe or not self._life_s or now - self._looked_at > LOOK_S:
            queue = (self.perform(queuecalls.get(self.name))).attributes
            logs = (self.perform(queuecalls.get(self.log_name))).attributes
            self._unsafe = unsafe(self.name, self.times, queue, logs)
            self._life_s, self._delay_s, self._looked_at = queue.life_s or 0, queue.delay_s or 0, now
            if self._unsafe:
                log.error("%s; nothing is prepared, and what was prepared is settled", self._unsafe)
        return self._life_s

    def transaction(self, body: str | bytes, priority: int | None = None) -> BlockingTransaction:
        """Return a transaction to enter."""
        return BlockingTransaction(self, body, priority)

    def prepare(self, body: str | bytes, priority: int | None = None) -> PreparedMessage:
        """Store a message that nobody sees, without an operation log: only the caller can settle it."""
        life_s = self.look()
        prepared = self.perform(transactioncalls.prepare(self.name, body, life_s, self._delay_s, priority))
        self.tally.prepared += 1
        return prepared

    def commit(self, prepared: PreparedMessage) -> Settlement:
        """Make it visible after a second.

        BEFORE: its handle is void, because it was committed or rolled back before; the server does not say which.
        LateCommitError: its life may have ended.
        """
        return self._settle_by_hand(prepared, LocalOutcome.COMMITTED)

    def rollback(self, prepared: PreparedMessage) -> Settlement:
        """Delete it.  BEFORE: its handle is void, and a message that was committed before stays committed."""
        return self._settle_by_hand(prepared, LocalOutcome.ROLLED_BACK)

    def _settle_by_hand(self, prepared: PreparedMessage, outcome: LocalOutcome) -> Settlement:
        settling = QueueSettling(self.name, prepared.handle, "", prepared.ends_ms, self.tally)
        settling.decided(outcome)
        call = settling.call()
        assert call is not None, "an outcome that is known has a request"
        settling.answered(self.perform(call))
        settling.raise_if_late()
        assert settling.settlement is not None, "it was answered"
        return settling.settlement

    def settle(self, settling: QueueSettling) -> None:
        """Send what is left of a transaction whose outcome is decided."""
        while (call := settling.call()) is not None:
            try:
                settling.answered(self.perform(call))
            except GantryError as error:
                settling.failed(error)


class BlockingTransaction:
    """One message and its local transaction; made by `BlockingTransactionQueue.transaction`, entered once."""

    def __init__(self, queue: BlockingTransactionQueue, body: str | bytes, priority: int | None) -> None:
        self.prepared: PreparedMessage | None = None
        self.settlement: Settlement | None = None  # None: while it runs, and when it is left to a check
        self._queue = queue
        self._body = body
        self._priority = priority
        self._log_handle = ""
        self._steps = TransactionSteps()
        self._said: LocalOutcome | None = None

    @property
    def handle(self) -> str:
        """The receipt handle that the local transaction has to store."""
        assert self.prepared is not None, "the transaction is entered first"
        return self.prepared.handle

    def commit(self) -> None:
        """Commit at the end of the block, even when an exception follows."""
        self._said = LocalOutcome.COMMITTED

    def rollback(self) -> None:
        """Roll back at the end of the block."""
        self._said = LocalOutcome.ROLLED_BACK

    def leave(self) -> None:
        """Settle nothing: a check decides."""
        self._said = LocalOutcome.UNKNOWN

    def __enter__(self) -> Self:
        """Prepare the message and store its operation log; when this raises, the message is never visible."""
        assert self.prepared is None, "a transaction is entered once"
        began = self._queue.clock.monotonic()
        self.prepared = self._queue.prepare(self._body, self._priority)
        self._steps.done()
        self._queue.open.add(self.handle)
        try:
            self._store_log(began)
        except BaseException as error:
            self._queue.open.discard(self.handle)
            self._steps.failed()
            if isinstance(error, GantryError):
                self._queue.settle(self._settling())
            raise
        self._steps.done()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Settle the message; see the module."""
        self._queue.open.discard(self.handle)
        settling = self._settling()
        settling.decided(outcome_of_block(error, self._said))
        self._queue.settle(settling)
        self.settlement = settling.settlement
        settling.raise_if_late()
        return isinstance(error, LocalRollback)

    def _store_log(self, began: float) -> None:
        queue = self._queue
        self._log_handle = queue.perform(transactioncalls.log(queue.name, self.handle, queue.times.timeout_s))
        refuse_late_log(queue.name, queue.clock.monotonic() - began)

    def _settling(self) -> QueueSettling:
        assert self.prepared is not None, "only a prepared message is settled"
        return QueueSettling(
            self._queue.name, self.handle, self._log_handle, self.prepared.ends_ms, self._queue.tally, self._steps
        )
