"""One transaction of a transaction queue as a state machine, without input or output.

    stage         next action      done: the next stage                        failed: the next stage
    NEW           PREPARE          PREPARED                                    ABANDONED
    PREPARED      LOG              LOGGED                                      UNDOING
    LOGGED        LOCAL            COMMITTING, ROLLING_BACK, LEFT (unknown)    LEFT
    COMMITTING    COMMIT           SETTLED                                     LEFT
    ROLLING_BACK  ROLLBACK         SETTLED                                     LEFT
    UNDOING       ROLLBACK         ABANDONED                                   ABANDONED
    SETTLED       CONFIRM          DONE                                        UNCONFIRMED

A producer begins at NEW.  A checker that received an operation log begins at LOGGED, and its LOCAL is the question to
the application; from there on both do the same, so the table says once what each of them leaves to whom.

    ABANDONED     the local transaction was not begun; the prepared message is never visible and ends with its life
    LEFT          the operation log is there still; the next check decides
    UNCONFIRMED   settled; the next check finds it so and confirms
    DONE          nothing is left

The invariant: LOCAL comes only after the operation log is stored, and CONFIRM only after the message is settled.  So
while an application may have committed and the message is not settled, there is an operation log.  `crashplaces` says
for each instant between two steps what a crash leaves.

Commit and rollback are idempotent by the receipt handle: the first of them makes it void.  A void handle means settled
before, by this process or another, or that the life of the message has ended; the server's answer is the same.  The
time tells them apart, with a margin on the safe side: `after_commit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Stage(Enum):
    """How far a transaction is; the module has the table."""

    NEW = auto()
    PREPARED = auto()
    LOGGED = auto()
    COMMITTING = auto()
    ROLLING_BACK = auto()
    UNDOING = auto()
    SETTLED = auto()
    DONE = auto()
    UNCONFIRMED = auto()
    LEFT = auto()
    ABANDONED = auto()


class Action(Enum):
    """What a shell has to do next."""

    PREPARE = auto()
    LOG = auto()
    LOCAL = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    CONFIRM = auto()


class LocalOutcome(Enum):
    """What the application says of a local transaction.

    ROLLED_BACK is a promise: it is not committed and never will be.  A checker that only found nothing may not say so
    unless it left a fence (`fence`); a transaction that runs still could commit later.
    """

    COMMITTED = auto()
    ROLLED_BACK = auto()
    UNKNOWN = auto()


class Settlement(Enum):
    """How a commit or a rollback ended."""

    NOW = auto()  # by this call
    BEFORE = auto()  # the handle was void: settled before, by the other side or an attempt whose answer was lost
    LATE = auto()  # a commit that came when the life of the message may have ended: it may be lost


_ACTIONS = {
    Stage.NEW: Action.PREPARE,
    Stage.PREPARED: Action.LOG,
    Stage.LOGGED: Action.LOCAL,
    Stage.COMMITTING: Action.COMMIT,
    Stage.ROLLING_BACK: Action.ROLLBACK,
    Stage.UNDOING: Action.ROLLBACK,
    Stage.SETTLED: Action.CONFIRM,
}
_DONE = {
    Stage.NEW: Stage.PREPARED,
    Stage.PREPARED: Stage.LOGGED,
    Stage.COMMITTING: Stage.SETTLED,
    Stage.ROLLING_BACK: Stage.SETTLED,
    Stage.UNDOING: Stage.ABANDONED,
    Stage.SETTLED: Stage.DONE,
}
_DECIDED = {
    LocalOutcome.COMMITTED: Stage.COMMITTING,
    LocalOutcome.ROLLED_BACK: Stage.ROLLING_BACK,
    LocalOutcome.UNKNOWN: Stage.LEFT,
}
_FAILED = {
    Stage.NEW: Stage.ABANDONED,
    Stage.PREPARED: Stage.UNDOING,
    Stage.LOGGED: Stage.LEFT,
    Stage.COMMITTING: Stage.LEFT,
    Stage.ROLLING_BACK: Stage.LEFT,
    Stage.UNDOING: Stage.ABANDONED,
    Stage.SETTLED: Stage.UNCONFIRMED,
}


@dataclass(slots=True)
class TransactionSteps:
    """One transaction; a shell does `action`, and reports it by one of `done`, `decided` and `failed`."""

    stage: Stage = Stage.NEW
    outcome: LocalOutcome = LocalOutcome.UNKNOWN

    @property
    def action(self) -> Action | None:
        """What is to be done next; None when the transaction has ended for this process."""
        return _ACTIONS.get(self.stage)

    def done(self) -> None:
        """The action was carried out; a settlement of any kind counts, a void log handle too."""
        assert self.stage is not Stage.LOGGED, "the end of the local transaction comes with its outcome: decided()"
        self.stage = _DONE[self.stage]

    def decided(self, outcome: LocalOutcome) -> None:
        """The local transaction has ended, or the application has answered."""
        assert self.stage is Stage.LOGGED, f"an outcome at the stage {self.stage.name}"
        self.outcome = outcome
        self.stage = _DECIDED[outcome]

    def failed(self) -> None:
        """The action was refused, or whether it was carried out is unknown."""
        self.stage = _FAILED[self.stage]


def after_commit(next_visible_ms: int | None, now_ms: int, ends_ms: int) -> Settlement:
    """Judge the answer to a commit.

    `next_visible_ms` is that of the answer, None when the handle was void.  `now_ms` is the server's clock at the
    latest, `ends_ms` the end of the message's life at the earliest.  A message that would become visible only when its
    life has ended is late, although the server took the commit.
    """
    if next_visible_ms is None:
        return Settlement.LATE if now_ms >= ends_ms else Settlement.BEFORE
    return Settlement.LATE if next_visible_ms >= ends_ms else Settlement.NOW
