"""What is worth an Event of Kubernetes: what changed from one status to the next, and what was done.

What an operator saw before it died is in the status, so whoever comes after it tells what changed meanwhile, once.
An Event that cannot be written is none: nothing waits for it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from gantry.failover.decide import Decision, Force, Promote, Recover, Seal
from gantry.replication.members import format_set
from gantry_operator.api.brokercluster import GROUP, KIND, VERSION, Document, Key
from gantry_operator.kube import KubeError

log = logging.getLogger("gantry.operator")
NORMAL, WARNING = "Normal", "Warning"
_MESSAGE_CHARS_MAX = 1000
# Conditions of which people want to hear; the value is the bad one.
_ALARMS = {"Stalled": "True", "MemberUnreachable": "True", "LeaseRenewalFailing": "True", "Diverged": "True"}


class News(NamedTuple):
    """One Event."""

    kind: str
    reason: str
    message: str


def changed(former: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[News]:
    """From one status to the next."""
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
    requests = {each["name"]: each for each in former.get("requests", [])}
    for each in told.get("requests", []):
        if requests.get(each["name"]) != each:
            kind = WARNING if each["outcome"].startswith(("refused", "outdated")) else NORMAL
            yield News(kind, "Requested", f"{each['name']}={each['value']}: {each['outcome']}")


def _masters(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[News]:
    master = now.get("master")
    if master and (then.get("epoch"), then.get("master")) != (now["epoch"], master):
        former = (then.get("master") or {}).get("pod")
        was = f", after {former}" if former and former != master["pod"] else ""
        reason = "MasterChanged" if was else "MasterBegan"
        yield News(NORMAL, reason, f"{master['pod']} leads epoch {now['epoch']}{was}")


def decided(group: str, decision: Decision) -> News | None:
    """Of the failover loop; None for what is no step."""
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


class Creates(Protocol):
    """The API server, as `kube.Kube` asks it."""

    async def create(self, document: Document) -> bool: ...


class Recorder:
    """Writes them; an Event of the same text within a second is one."""

    def __init__(self, kube: Creates) -> None:
        self._kube = kube

    async def record(self, key: Key, uid: str, news: Iterable[News], now: str) -> None:
        """All of these, of this cluster."""
        for each in news:
            try:
                await self._kube.create(_event(key, uid, each, now))
            except KubeError as error:
                log.warning("%s/%s: an event was not written: %s", key.namespace, key.name, error)


def _event(key: Key, uid: str, news: News, now: str) -> Document:
    digest = hashlib.sha256("\n".join([*news, now]).encode()).hexdigest()[:16]
    involved = {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "namespace": key.namespace, "name": key.name,
        "uid": uid,
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": key.namespace, "name": f"{key.name}.{digest}"},
        "involvedObject": involved,
        "type": news.kind,
        "reason": news.reason,
        "message": news.message[:_MESSAGE_CHARS_MAX],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "gantry-operator"},
    }
