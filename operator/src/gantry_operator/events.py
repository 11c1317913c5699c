"""Events of Kubernetes: made from changes between two statuses, and from decisions.

The status holds what the last operator saw, so its successor reports each later change once.  `recording` writes the
Events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gantry.failover.decide import Decision, Force, Promote, Recover, Seal
from gantry.replication.members import format_set

NORMAL, WARNING = "Normal", "Warning"
# Conditions whose changes are worth an Event; the value is the bad one.
_ALARMS = {"Stalled": "True", "MemberUnreachable": "True", "LeaseRenewalFailing": "True", "Diverged": "True"}


class News(NamedTuple):
    """One Event: Normal or Warning, reason, message."""

    kind: str
    reason: str
    message: str


def changed(former: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[News]:
    """Yield the Events for the changes from one status to the next."""
    before = {each["type"]: each for each in former.get("conditions", [])}
    for each in told["conditions"]:
        then = before.get(each["type"], {"status": "", "reason": ""})
        if (then["status"], then["reason"]) == (each["status"], each["reason"]):
            continue
        if _ALARMS.get(each["type"]) == each["status"]:
            yield News(WARNING, each["reason"], each["message"])
        elif each["type"] == "Ready" and each["status"] == "True":
            yield News(NORMAL, "Ready", each["message"])
        elif each["type"] == "Paused" and (each["status"] == "True" or then["status"] == "True"):
            yield News(NORMAL, "Paused" if each["status"] == "True" else "Resumed", each["message"])
    groups = {each["name"]: each for each in former.get("groups", [])}
    for each in told.get("groups", []):
        yield from _masters(groups.get(each["name"], {}), each)
        yield from _losses(groups.get(each["name"], {}), each)
    requests = {each["name"]: each for each in former.get("requests", [])}
    for each in told.get("requests", []):
        if requests.get(each["name"]) != each:
            kind = WARNING if each["outcome"].startswith(("refused", "outdated")) else NORMAL
            yield News(kind, "Requested", f"{each['name']}={each['value']}: {each['outcome']}")


def _losses(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[News]:
    lost, before = now.get("lostMessages", 0), then.get("lostMessages", 0)
    if lost > before:
        said = f"{now['name']}: a failover took messages that ASYNC_MASTER had acknowledged, {lost} over all time"
        yield News(WARNING, "MessagesLost", f"{said}; the log of the member that cut them names the place")


def _masters(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[News]:
    master = now.get("master")
    if master and (then.get("epoch"), then.get("master")) != (now["epoch"], master):
        former = (then.get("master") or {}).get("pod")
        was = f", after {former}" if former and former != master["pod"] else ""
        reason = "MasterChanged" if was else "MasterBegan"
        yield News(NORMAL, reason, f"{master['pod']} leads epoch {now['epoch']}{was}")


def decided(group: str, decision: Decision) -> News | None:
    """Return the Event for a decision of a failover loop; None when it is not a step of a failover."""
    match decision:
        case Seal(reason):
            return News(WARNING, "FailoverBegan", f"{group} is sealed: {reason}")
        case Promote(chosen, equals):
            return News(NORMAL, "Promoted", f"{group}: {chosen.member} shall lead, in sync {format_set(equals)}")
        case Force(chosen, _):
            return News(WARNING, "Forced", f"{group}: {chosen.member} shall lead alone, what it lacks is given up")
        case Recover(reason, _):
            return News(WARNING, "RegisterRecovered", f"{group}: {reason}")
        case _:
            return None
