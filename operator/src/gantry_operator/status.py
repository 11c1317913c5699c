"""The `status` of a BrokerCluster, computed from a snapshot; pure.

A condition keeps its time until its status changes, and no number in it changes by itself, so the status of an
unchanged cluster is never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_COMPONENT
from gantry_operator.api.doorspec import DOORS
from gantry_operator.api.wishes import FORCE, ROLL, ForcedFailover
from gantry_operator.conditions import Condition, lasting
from gantry_operator.desired import binding
from gantry_operator.snapshot import GroupSeen, Register, Snapshot

Document = dict[str, Any]
_CHOICE = "expected GROUP/ORDINAL@EPOCH, such as b0/1@7"


def status_of(snapshot: Snapshot, found: Iterable[Condition], now: str) -> Document:
    """Return the whole status; `now` is the time of conditions that have just changed."""
    cluster = snapshot.cluster
    members = cluster.brokers.groups * cluster.brokers.replicas
    return {
        "observedGeneration": cluster.generation,
        "image": snapshot.image or str(cluster.status.get("image", "")),
        "groupCount": cluster.brokers.groups,
        "selector": f"{LABEL_CLUSTER}={cluster.key.name},{LABEL_COMPONENT}=broker",
        "mode": cluster.brokers.promise.role,
        "flush": cluster.brokers.promise.flush,
        "binding": {"name": binding.name_of(cluster)},
        **_doors(snapshot),
        "summary": {
            **_summary(snapshot),
            "updated": f"{members - sum(len(each.outdated) for each in snapshot.groups)}/{members}",
            "nameservers": f"{snapshot.nameservers_ready}/{cluster.nameservers}",
        },
        "conditions": documents(found, cluster.status, cluster.generation, now),
        "requests": requests(snapshot),
        "groups": _groups(snapshot),
    }


def _doors(snapshot: Snapshot) -> Document:
    """Return the parts about doors; a null removes that of a door that the cluster has no more."""
    found: Document = {}
    for kind in DOORS:
        name, former = kind.component, snapshot.cluster.status.get(kind.component)
        seen = snapshot.doors.get(name)
        if seen is not None:
            told = {"replicas": seen.replicas, "ready": snapshot.doors_ready(kind), "endpoint": seen.endpoint}
            is_told = bool(seen.node_port) or "nodePort" in (former or {})
            found[name] = told | ({"nodePort": seen.node_port or None} if is_told else {})
        elif former is not None:
            found[name] = None
    return found


def stalled(reason: str, message: str) -> list[Condition]:
    """Return the conditions of a cluster that cannot be reconciled; `message` says what to change."""
    return [
        Condition("Ready", False, reason, message),
        Condition("Reconciling", False, reason, ""),
        Condition("Stalled", True, reason, message),
    ]


def going(waits_for: str) -> list[Condition]:
    """Return the conditions of a cluster that is being deleted."""
    said = f"the cluster is being deleted; {waits_for}"
    return [Condition("Ready", False, "Deleting", said), Condition("Reconciling", True, "Deleting", said)]


def live(snapshot: Snapshot, said: Iterable[Condition], now: str) -> Document:
    """Return the status of a cluster that is not reconciled now: the conditions `said`, the present state of registers
    and failover loops, and the last values of everything else.
    """
    cluster = snapshot.cluster
    former = cluster.status
    told = documents([*said, *lasting(snapshot)], former, cluster.generation, now)
    kinds = {each["type"] for each in told}
    others = [each for each in former.get("conditions", []) if each["type"] not in kinds]
    status: Document = {**former, "observedGeneration": cluster.generation, "conditions": [*told, *others]}
    if snapshot.groups:
        status["groups"] = _groups(snapshot)
    if not snapshot.unseen & {"Pod", "Lease"}:
        status["summary"] = {**former.get("summary", {}), **_summary(snapshot)}
    return status


def _summary(snapshot: Snapshot) -> Document:
    """Return the summary in numbers, from registers and pods of brokers."""
    groups, cluster = snapshot.groups, snapshot.cluster
    members = cluster.brokers.groups * cluster.brokers.replicas
    in_sync = sum(len(each.register.in_sync) for each in groups if each.register is not None)
    ready = sum(pod.is_ready for each in groups for pod in each.pods.values())
    return {
        "masters": f"{sum(each.is_writable for each in groups)}/{cluster.brokers.groups}",
        "inSync": f"{in_sync}/{members}",
        "ready": f"{ready}/{members}",
    }


def _groups(snapshot: Snapshot) -> list[Document]:
    former = {each["name"]: each for each in snapshot.cluster.status.get("groups", [])}
    is_read = "Lease" not in snapshot.unseen
    return [_group(each, former.get(each.group.short, {}), is_read) for each in snapshot.groups]


def hindered(found: Iterable[Condition], reason: str, message: str) -> list[Condition]:
    """Return the conditions of a cluster of which something cannot be done: Stalled says what, and it is neither Ready
    nor up to date; all other conditions are unchanged.
    """
    return [_hindered(each, reason, message) for each in found]


def not_applied(found: Iterable[Condition], failure: str) -> list[Condition]:
    """Return the conditions of a cluster with objects that could not be applied in this pass: it is not up to date."""
    said = f"not applied, and tried again: {failure}; where that stays, correct the field or the webhook that it names"
    return [
        each._replace(holds=each.kind == "Reconciling", reason="NotApplied", message=said)
        if each.kind == "Reconciling" or (each.kind == "Ready" and each.holds)
        else each
        for each in found
    ]


def _hindered(condition: Condition, reason: str, message: str) -> Condition:
    match condition:
        case Condition("Stalled", holds, _, text):
            return Condition("Stalled", True, reason, f"{message}; {text}" if holds else message)
        case Condition("Ready", True, _, text):
            return Condition("Ready", False, reason, f"{text}; {message}")
        case Condition("Reconciling", False):
            return Condition("Reconciling", False, reason, "")
        case _:
            return condition


def is_settled(status: Document) -> bool:
    """Return whether the cluster is Ready and InSync, and not Reconciling."""
    found = {each["type"]: each["status"] for each in status["conditions"]}
    return (found.get("Ready"), found.get("Reconciling"), found.get("InSync")) == ("True", "False", "True")


def waits_for_people(status: Document) -> bool:
    """Return whether only values of the configuration that members refuse keep the cluster from being settled."""
    found = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    is_denied = found.get("Ready") == found.get("Reconciling") == ("False", "ConfigRefused")
    return is_denied and found.get("InSync", ("", ""))[0] == "True"


def documents(found: Iterable[Condition], former: Mapping[str, Any], generation: int, now: str) -> list[Document]:
    """Return conditions in the form of a status."""
    before = {each["type"]: each for each in former.get("conditions", [])}
    return [documented(each, before.get(each.kind), generation, now) for each in found]


def documented(condition: Condition, former: Document | None, generation: int, now: str) -> Document:
    """Return one condition in the form of a status, with the time of `former` while its status is the same."""
    value = "True" if condition.holds else "False"
    since = former["lastTransitionTime"] if former is not None and former["status"] == value else now
    return {
        "type": condition.kind,
        "status": value,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def requests(snapshot: Snapshot) -> list[Document]:
    """Return the outcomes of requests by annotations; an outcome is kept as long as the annotation exists."""
    wishes, told = snapshot.cluster.wishes, []
    former = {each["name"]: each for each in snapshot.cluster.status.get("requests", [])}
    if wishes.force:
        before = former.get(FORCE, {})
        is_done = before.get("value") == wishes.force and str(before.get("outcome", "")).startswith("done")
        outcome = before["outcome"] if is_done else _forced(snapshot, wishes.choice)
        told.append({"name": FORCE, "value": wishes.force, "outcome": outcome})
    if wishes.roll:
        is_left = any(each.outdated or not each.revision for each in snapshot.groups)
        told.append({"name": ROLL, "value": wishes.roll, "outcome": "under way" if is_left else "done"})
    return told


def _forced(snapshot: Snapshot, choice: ForcedFailover | None) -> str:
    if choice is None:
        return f"refused: it cannot be read; {_CHOICE}"
    brokers = snapshot.cluster.brokers
    if choice.group >= brokers.groups or choice.ordinal >= brokers.replicas:
        return f"refused: there is no member b{choice.group}/{choice.ordinal}; {_CHOICE}"
    group = snapshot.groups[choice.group]
    register = group.register
    if register is None:
        return "waiting: the group has no register yet"
    if register.epoch in (choice.epoch, choice.epoch + 1) and register.master == choice.ordinal:
        return f"done: {group.master_pod} leads in epoch {register.epoch}"
    if _is_past(register, choice):
        return f"outdated: it was for epoch {choice.epoch}, the group is in another one"
    return f"refused: {group.refused}" if group.refused else "under way"


def _is_past(register: Register, choice: ForcedFailover) -> bool:
    if register.epoch == choice.epoch + 1:
        return register.master is not None
    return register.epoch != choice.epoch


def _group(seen: GroupSeen, former: Mapping[str, Any], is_read: bool) -> Document:
    document: Document = {"name": seen.group.short, "lease": seen.group.name, "syncSet": []}
    # Members that cut the same messages count them each, and one that does not answer has lost no less than before.
    lost = max([former.get("lostMessages", 0), *(answer.lost for answer in seen.answers.values())])
    if lost:
        document["lostMessages"] = lost
    if seen.register is None:
        return document | {"epoch": 0, "phase": "None" if is_read else "Unknown"}
    told: Document = {
        "epoch": seen.register.epoch, "phase": seen.register.phase, "syncSet": sorted(seen.register.ordinals),
    }  # fmt: skip
    if seen.register.master is not None:  # the API server keeps no null, and what differs from it would be told again
        told["master"] = {"ordinal": seen.register.master, "pod": seen.master_pod}
    return document | told
