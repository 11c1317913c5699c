"""From the outcome of a local transaction to its end: commit or rollback, then the confirmation of the log.

Producers and checkers do the same here, on asyncio and blocking.  A shell performs `call()`, reports by `answered` or
`failed`, and repeats that until there is no call.  Counts and log lines are made here, so that both shells have them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import TracebackType

from gantry.errors import GantryError
from gantry.mns import transactioncalls
from gantry.mns.errors import LateCommitError
from gantry.mns.exchange import Call
from gantry.mns.transactionrules import ends_ms_of_log, handle_in, log_queue
from gantry.mns.transactionsteps import Action, LocalOutcome, Settlement, Stage, TransactionSteps
from gantry.mns.values import QueueMessage

log = logging.getLogger(__name__)


class LocalRollback(Exception):  # noqa: N818  it is an instruction, not an error
    """Raise it inside a transaction to roll the message back; it does not leave the `with`."""


@dataclass(slots=True)
class TransactionTally:
    """Counts since a transaction queue was made; each says what happened, not what was tried.

    `late` above 0 asks for a person: a committed local transaction may have lost its message.
    """

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    settled_before: int = 0  # the handle was void: the other side was first, or an answer was lost
    late: int = 0  # commits that came when the life may have ended
    left: int = 0  # to the next check: unknown outcome, or the server could not be reached
    unconfirmed: int = 0  # settled; its operation log was not deleted by this process: a check has or will have it
    checked: int = 0  # operation logs that a checker received
    unreadable: int = 0  # operation logs without a receipt handle; they end with their life


@dataclass(slots=True)
class QueueSettling:
    """One transaction from its outcome on; `steps` stands at LOGGED when it is made."""

    queue: str
    handle: str
    log_handle: str
    ends_ms: int
    tally: TransactionTally
    steps: TransactionSteps = field(default_factory=lambda: TransactionSteps(Stage.LOGGED))
    settlement: Settlement | None = None  # None: not settled by this process

    def decided(self, outcome: LocalOutcome) -> None:
        """The outcome of the local transaction; UNKNOWN leaves it to the next check."""
        self.steps.decided(outcome)
        if self.steps.stage is Stage.LEFT:
            self.tally.left += 1

    def call(self) -> Call[Settlement] | None:
        """Return the next request, or None at the end."""
        match self.steps.action:
            case Action.COMMIT:
                return transactioncalls.commit(self.queue, self.handle, self.ends_ms)
            case Action.ROLLBACK:
                return transactioncalls.rollback(self.queue, self.handle)
            case Action.CONFIRM:
                return transactioncalls.confirm(self.queue, self.log_handle)
            case _:
                return None

    def answered(self, settlement: Settlement) -> None:
        """The request of `call` was answered."""
        if self.steps.stage is not Stage.SETTLED:
            self.settlement = settlement
            self._count(settlement)
        elif settlement is Settlement.BEFORE:
            self.tally.unconfirmed += 1
        self.steps.done()

    def failed(self, error: GantryError) -> None:
        """The request of `call` failed; what it did is perhaps unknown."""
        was = self.steps.stage
        self.steps.failed()
        if self.steps.stage is Stage.LEFT:
            self.tally.left += 1
        elif self.steps.stage is Stage.UNCONFIRMED:
            self.tally.unconfirmed += 1
        log.warning("queue %s: %s of %s failed, a check repeats it: %s", self.queue, was.name, self.handle, error)

    def raise_if_late(self) -> None:
        """Raise LateCommitError after a commit that came too late."""
        if self.settlement is Settlement.LATE:
            raise LateCommitError(self.queue, self.handle)

    def _count(self, settlement: Settlement) -> None:
        if settlement is Settlement.LATE:
            self.tally.late += 1
            log.error("%s", LateCommitError(self.queue, self.handle))
        elif settlement is Settlement.BEFORE:
            self.tally.settled_before += 1
        elif self.steps.outcome is LocalOutcome.COMMITTED:
            self.tally.committed += 1
        else:
            self.tally.rolled_back += 1


def of_log(queue: str, message: QueueMessage, life_s: int, tally: TransactionTally) -> QueueSettling | None:
    """Begin a check with the operation log that was received; None when there is no receipt handle in it."""
    tally.checked += 1
    try:
        handle = handle_in(message.text)
    except ValueError as error:
        tally.unreadable += 1
        log.error("queue %s: %s", log_queue(queue), error)
        return None
    return QueueSettling(queue, handle, message.handle, ends_ms_of_log(message.enqueued_ms, life_s), tally)


def outcome_of_block(error: BaseException | None, said: LocalOutcome | None) -> LocalOutcome:
    """Return the outcome of a `with` block that was left with `error` after the program had said `said`."""
    if isinstance(error, LocalRollback):
        # Commit and rollback were both asked for: only a check can know which is right.
        return LocalOutcome.UNKNOWN if said is LocalOutcome.COMMITTED else LocalOutcome.ROLLED_BACK
    if said is not None:
        return said
    return LocalOutcome.COMMITTED if error is None else LocalOutcome.UNKNOWN


class Asking:
    """Around a question to the application: any error of it is logged, and the outcome stays UNKNOWN.

    So does an answer that is no LocalOutcome: True or None may mean anything, and it must not end the checker.
    """

    def __init__(self, queue: str, handle: str) -> None:
        self.outcome = LocalOutcome.UNKNOWN
        self._of = (queue, handle)

    def __enter__(self) -> Asking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        answer: object = self.outcome
        if error is None and not isinstance(answer, LocalOutcome):
            text = "queue %s: the check of %s answered %.100r, expected a LocalOutcome; the next check repeats it"
            log.error(text, *self._of, answer)
            self.outcome = LocalOutcome.UNKNOWN
        if not isinstance(error, Exception):
            return False
        self.outcome = LocalOutcome.UNKNOWN
        log.error("queue %s: the check of %s failed, the next check repeats it", *self._of, exc_info=error)
        return True
