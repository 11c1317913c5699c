"""What a consumer does with the tables, as steps.

An effect in the database: `arrive`, the effect and the caller's COMMIT are one transaction.  An effect outside of it:
`begin_outside` and COMMIT; the effect; `finish_outside` and COMMIT.  What the answers mean:

    RUN        the effect is ours to carry out now
    DONE       it is there, or there must be none: acknowledge
    LATER      another process works on it: let it be delivered again, never acknowledge
    ASK        another process began and its time is over: ask whether the effect happened, then `settle_outside`

What the hook answers is true of the attempt of one owner.  So `settle_outside` names the owner that was seen, and
changes nothing when the row has another one by then.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from gantry.guarantee import rules
from gantry.guarantee.rules import LogFinding
from gantry.guarantee.statements import Statements
from gantry.guarantee.steps import Query, Steps


class Decision(enum.Enum):
    """What to do with a message that came."""

    RUN = "run"
    DONE = "done"
    LATER = "later"
    ASK = "ask"


class KeyState(enum.Enum):
    """What a key outside of the database says (`keys`)."""

    OURS = "ours"
    ELSEWHERE = "elsewhere"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A copy of a message as it reached a consumer group; `topic` is the one that the copy stands in."""

    consumer_group: str
    message_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int

    def names(self) -> dict[str, object]:
        """Return the parameters that name the delivery."""
        return {"consumer_group": self.consumer_group, "message_id": self.message_id}

    def place(self) -> dict[str, object]:
        """Return the parameters of a log row, without its time."""
        place = {"topic": self.topic, "broker": self.broker, "queue_id": self.queue_id}
        return {**self.names(), **place, "queue_offset": self.queue_offset}


def arrive(say: Statements, arrival: Arrival, now_ms: int, changed_by: str) -> Steps[Decision]:
    """Decide about an effect in this database; RUN holds the rows until the caller's transaction ends.

    LATER is the answer also where the row that was there is gone again: its owner rolled back in between.
    """
    _check(arrival)
    logged = yield Query(say.log, {**arrival.place(), "received_at_ms": now_ms})
    named = {**arrival.names(), "now_ms": now_ms, "changed_by": changed_by}
    if logged.changed == 1:
        if (yield from _confirm(say.confirm, say, named)):
            return Decision.RUN
        yield Query(say.refuse, arrival.names())  # the row must not say that the effect is there
        return Decision.DONE
    seen, _ = yield from _look(say, arrival, now_ms)
    if seen in (LogFinding.DONE, LogFinding.REFUSED):
        if seen is LogFinding.DONE:
            yield Query(say.confirm, named)
        return Decision.DONE
    return Decision.ASK if seen is LogFinding.UNKNOWN else Decision.LATER


def arrive_with_key(
    say: Statements, arrival: Arrival, held: KeyState, now_ms: int, changed_by: str
) -> Steps[Decision]:
    """As `arrive`, knowing what a key outside of the database says: only reads where that can be enough."""
    if held in (KeyState.ELSEWHERE, KeyState.DONE):
        if (yield from is_there(say, arrival)):
            return Decision.DONE
        if held is KeyState.ELSEWHERE:
            return Decision.LATER
    return (yield from arrive(say, arrival, now_ms, changed_by))


def begin_outside(
    say: Statements, arrival: Arrival, owner: str, now_ms: int, until_ms: int, changed_by: str
) -> Steps[tuple[Decision, str]]:
    """Begin an effect outside of the database; commit before it is carried out.  It is `owner`'s until `until_ms`.

    With ASK, also return whose time is over.
    """
    _check(arrival)
    rules.check_texts(owner=owner)
    values = {**arrival.place(), "received_at_ms": now_ms, "owner": owner, "owner_until_ms": until_ms}
    logged = yield Query(say.log_begun, values)
    named = {**arrival.names(), "now_ms": now_ms, "changed_by": changed_by}
    if logged.changed == 1:
        if (yield from _confirm(say.begin, say, named)):
            return Decision.RUN, ""
        yield Query(say.refuse, arrival.names())
        return Decision.DONE, ""
    seen, former = yield from _look(say, arrival, now_ms)
    if seen in (LogFinding.DONE, LogFinding.REFUSED):
        if seen is LogFinding.DONE:
            yield Query(say.confirm, named)
        return Decision.DONE, ""
    if seen is LogFinding.UNKNOWN:
        yield Query(say.suspect, {**named, "owner": former})
        return Decision.ASK, former
    return Decision.LATER, ""


def finish_outside(say: Statements, arrival: Arrival, owner: str, now_ms: int, changed_by: str) -> Steps[bool]:
    """Say that the effect is there; False: another owner took it over, and there may be two of it."""
    named = {**arrival.names(), "now_ms": now_ms, "changed_by": changed_by}
    finished = yield Query(say.finish, {**named, "owner": owner})
    yield Query(say.confirm, named)
    return finished.changed == 1


def fail_outside(say: Statements, arrival: Arrival, owner: str) -> Steps[None]:
    """Say that the effect failed for certain: the next delivery begins again."""
    yield Query(say.release, {**arrival.names(), "owner": owner})


def settle_outside(
    say: Statements, arrival: Arrival, former: str, happened: bool, owner: str, now_ms: int, until_ms: int, by: str
) -> Steps[Decision]:
    """After ASK: `former`'s effect happened (DONE), or not and it is ours now (RUN); LATER: another was faster."""
    named = {**arrival.names(), "now_ms": now_ms, "changed_by": by}
    if happened:
        finished = yield Query(say.finish, {**named, "owner": former})
        if finished.changed != 1:
            return Decision.LATER
        yield Query(say.confirm, named)
        return Decision.DONE
    values = {**named, "former_owner": former, "owner": owner, "owner_until_ms": until_ms}
    taken = yield Query(say.take, values)
    return Decision.RUN if taken.changed == 1 else Decision.LATER


def refuse(say: Statements, arrival: Arrival, now_ms: int, changed_by: str) -> Steps[None]:
    """After the effect was refused by its database and undone: the row stays, so that a person sees it."""
    named = {**arrival.names(), "now_ms": now_ms, "changed_by": changed_by}
    yield Query(say.revert, named)
    yield Query(say.refuse, named)


def _confirm(text: str, say: Statements, named: dict[str, object]) -> Steps[bool]:
    if (yield Query(text, named)).changed == 1:
        return True
    return rules.may_have_effect((yield Query(say.verdict, named)).rows)


def _look(say: Statements, arrival: Arrival, now_ms: int) -> Steps[tuple[LogFinding, str]]:
    answer = yield Query(say.look, arrival.names())
    if not answer.rows:
        return LogFinding.HELD, ""
    effect, owner, until_ms = answer.rows[0]
    return rules.judge(str(effect), int(str(until_ms)), now_ms), str(owner)


def _check(arrival: Arrival) -> None:
    rules.check_texts(
        consumer_group=arrival.consumer_group, message_id=arrival.message_id, topic=arrival.topic, broker=arrival.broker
    )


def is_logged(say: Statements, arrival: Arrival) -> Steps[bool]:
    """Return whether the transaction still has the log row, at its end; False after a rollback in between."""
    return bool((yield Query(say.look, arrival.names())).rows)


def is_there(say: Statements, arrival: Arrival) -> Steps[bool]:
    """Return whether there is nothing left to do for this group; reads only.

    An effect that is there is not enough while its delivery is open (a person rearmed it): it has to be confirmed.
    """
    answer = yield Query(say.settled, arrival.names())
    if not answer.rows:
        return False
    effect, state = (str(each) for each in answer.rows[0])
    return effect == LogFinding.REFUSED.value or (effect == LogFinding.DONE.value and state != "open")
