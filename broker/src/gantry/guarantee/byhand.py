"""What people look at and settle by hand, as steps; each change writes who did it and when.

`rearm` sends a message again that arrived without an effect, or never.  An effect outside of the database whose outcome
is unknown stays untouched by it (the next copy asks the hook), unless the person says that it did not happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gantry.guarantee.statements import DELIVERY_COLUMNS, LOG_COLUMNS, Statements
from gantry.guarantee.steps import Query, Steps

Found = dict[str, object]
GROUPS_MAX = 10_000
SETTLING = ("rearm", "close", "confirm")
_STUB_COLUMNS = (
    "topic", "message_keys", "tags", "properties", "status", "groups_expected", "created_at_ms", "changed_at_ms",
    "changed_by", "body_bytes",
)  # fmt: skip


def groups(say: Statements) -> Steps[list[Found]]:
    """Return the declared groups: topic, consumer_group, resend_by."""
    rows = (yield Query(say.declared, {})).rows
    return _named(("topic", "consumer_group", "resend_by"), rows)


def listed(say: Statements, what: str, group: str, now_ms: int, limits: dict[str, object]) -> Steps[list[Found]]:
    """Return a list for a group: exhausted, stuck, overdue, unsettled, or all of a state.

    limits: resends_max, before_ms, rows_max.
    """
    values = {"consumer_group": group, "now_ms": now_ms, **limits}
    if what == "unsettled":
        return _named(LOG_COLUMNS, (yield Query(say.unsettled, values)).rows)
    text = say.in_state if what in ("open", "closed", "legacy") else getattr(say, what)
    return _named(DELIVERY_COLUMNS, (yield Query(text, {**values, "state": what})).rows)


def totals(say: Statements, now_ms: int) -> Steps[list[Found]]:
    """Return per group its open deliveries, the oldest, those that are due, and how many there are in each state."""
    found: dict[str, Found] = {}
    empty = {"open": 0, "due": 0, "oldest_ms": None, "confirmed": 0, "void": 0, "closed": 0, "legacy": 0}
    for group, state, count in (yield Query(say.totals, {})).rows:
        found.setdefault(str(group), {"consumer_group": str(group), **empty})[str(state)] = int(str(count))
    for group, _, oldest, due in (yield Query(say.backlog, {"now_ms": now_ms})).rows:
        row = found.setdefault(str(group), {"consumer_group": str(group), **empty})
        row |= {"due": int(str(due or 0)), "oldest_ms": oldest}
    return [found[group] for group in sorted(found)]


def shown(say: Statements, message_id: str) -> Steps[Found | None]:
    """Return all that is known of a message; None when there is none of this id."""
    values = {"message_id": message_id}
    stubs = _named(_STUB_COLUMNS, (yield Query(say.show_stub, values)).rows)
    if not stubs:
        return None
    deliveries = _named(DELIVERY_COLUMNS, (yield Query(say.show_deliveries, values)).rows)
    logged = _named(LOG_COLUMNS, (yield Query(say.show_log, values)).rows)
    return {"message_id": message_id, **stubs[0], "deliveries": deliveries, "log": logged}


def every_group(say: Statements, now_ms: int) -> Steps[list[str]]:
    """Return the groups that are declared, and those that have open deliveries or log rows without."""
    declared = (yield Query(say.declared, {})).rows
    with_open = (yield Query(say.backlog, {"now_ms": now_ms})).rows
    logged = yield from logged_groups(say)
    return sorted({str(group) for _, group, _ in declared} | {str(row[0]) for row in with_open} | set(logged))


def logged_groups(say: Statements) -> Steps[list[str]]:
    """Return the groups that have log rows, each by one look into an index."""
    found: list[str] = []
    while len(found) < GROUPS_MAX:
        ((group,),) = (yield Query(say.logged_group, {"after": found[-1] if found else ""})).rows
        if group is None:
            break
        found.append(str(group))
    return found


@dataclass(frozen=True, slots=True)
class DecisionByHand:
    """What a person decided: who and when, for which message and group.

    had_no_effect: with `rearm`: the person knows that the effect whose outcome is unknown did not happen.
    """

    how: str
    message_id: str
    consumer_group: str
    now_ms: int
    changed_by: str
    had_no_effect: bool = False


def settle(say: Statements, decision: DecisionByHand) -> Steps[None]:
    """Rearm (send again, as often as a new one), close (give up) or confirm (it is done); UndoneError: roll back."""
    named = {
        "message_id": decision.message_id,
        "consumer_group": decision.consumer_group,
        "now_ms": decision.now_ms,
        "changed_by": decision.changed_by,
    }
    text = {"rearm": say.rearm, "close": say.close, "confirm": say.confirm_by_hand}[decision.how]
    if decision.how == "rearm":
        # The order of locks is that of consumers: the log row first.
        yield Query(say.unrefuse, named)
        if decision.had_no_effect:
            yield Query(say.clear, named)
    if (yield Query(text, named)).changed != 1:
        raise UndoneError


class UndoneError(Exception):
    """Nothing was changed: the delivery is not there, or settled already."""


def forget(say: Statements, group: str, before_ms: int) -> Steps[int]:
    """Delete log rows of before that nothing needs, a bounded number; return how many."""
    return (yield Query(say.forget, {"consumer_group": group, "before_ms": before_ms})).changed


def forget_stubs(say: Statements, before_ms: int, rows_max: int) -> Steps[int]:
    """Delete finished stubs of before with their deliveries; return how many."""
    rows = (yield Query(say.finished, {"before_ms": before_ms, "rows_max": rows_max})).rows
    for (message_id,) in rows:
        for text in say.forget_stub:
            yield Query(text, {"message_id": message_id})
    return len(rows)


def _named(names: Sequence[str], rows: Sequence[Sequence[object]]) -> list[Found]:
    return [dict(zip(names, (_plain(value) for value in row), strict=True)) for row in rows]


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (int, str)) else str(value)
