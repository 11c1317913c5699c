"""What people are told: `status` of a BrokerCluster, from a snapshot; pure.

Conditions follow kstatus: Ready, Reconciling, Stalled, and FailoverPossible beside them.  A condition keeps its time
until its status changes, and its text holds no number that moves by itself, so an unchanged cluster is never written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gantry_operator.plan import Hold, Replace
from gantry_operator.snapshot import GroupSeen, Snapshot

Document = dict[str, Any]


class Condition(NamedTuple):
    """One of them, without its time."""

    kind: str
    holds: bool
    reason: str
    message: str


def status_of(snapshot: Snapshot, image: str, now: str, step: Replace | Hold | None = None) -> Document:
    """The whole of it; `now` is for conditions that have just changed, `step` what a rolling update does next."""
    cluster = snapshot.cluster
    former = {each["type"]: each for each in cluster.status.get("conditions", [])}
    members = cluster.brokers.groups * cluster.brokers.replicas
    in_sync = sum(len(each.register.in_sync) for each in snapshot.groups if each.register is not None)
    ready = sum(pod.is_ready for each in snapshot.groups for pod in each.pods.values())
    return {
        "observedGeneration": cluster.generation,
        "image": image,
        "groupCount": cluster.brokers.groups,
        "summary": {
            "masters": f"{sum(each.is_writable for each in snapshot.groups)}/{cluster.brokers.groups}",
            "inSync": f"{in_sync}/{members}",
            "ready": f"{ready}/{members}",
            "updated": f"{members - sum(len(each.outdated) for each in snapshot.groups)}/{members}",
            "nameservers": f"{snapshot.nameservers_ready}/{cluster.nameservers}",
        },
        "conditions": [
            documented(each, former.get(each.kind), cluster.generation, now) for each in _conditions(snapshot, step)
        ],
        "groups": [_group(each) for each in snapshot.groups],
    }


def stalled(former_status: Any, generation: int, reason: str, message: str, now: str) -> Document:
    """Of a cluster about which nothing can be done: `message` says what to change."""
    former = {each["type"]: each for each in former_status.get("conditions", [])}
    said = [
        Condition("Ready", False, reason, message),
        Condition("Reconciling", False, reason, ""),
        Condition("Stalled", True, reason, message),
    ]
    conditions = [documented(each, former.get(each.kind), generation, now) for each in said]
    return {"observedGeneration": generation, "conditions": conditions}


def is_settled(status: Document) -> bool:
    """Whether nothing is left to wait for."""
    found = {each["type"]: each["status"] for each in status["conditions"]}
    return found.get("Ready") == "True" and found.get("Reconciling") == "False"


def _conditions(snapshot: Snapshot, step: Replace | Hold | None) -> list[Condition]:
    cluster = snapshot.cluster
    without = [each.group.short for each in snapshot.groups if not each.is_writable]
    alone = [each.group.short for each in snapshot.groups if each.register is None or len(each.register.in_sync) < 2]
    if snapshot.nameservers_ready == 0:
        ready = Condition("Ready", False, "NoNameServer", "no name server is ready: clients cannot find the brokers")
    elif without:
        ready = Condition("Ready", False, "NoMaster", f"no master that serves in {', '.join(without)}")
    else:
        ready = Condition("Ready", True, "AllGroupsWritable", "every group has a master that serves")
    members = cluster.brokers.groups * cluster.brokers.replicas
    missing = members - sum(pod.is_ready for each in snapshot.groups for pod in each.pods.values())
    missing += cluster.nameservers - snapshot.nameservers_ready
    if step is not None:
        text = step.reason if isinstance(step, Hold) else "pods are replaced one after the other, masters last"
        moving = Condition("Reconciling", True, "RollingUpdate", text)
    elif missing or without:
        moving = Condition("Reconciling", True, "PodsNotReady", "pods are not ready yet, or not again")
    else:
        moving = Condition("Reconciling", False, "UpToDate", "")
    if alone:
        text = f"one member or none is in sync in {', '.join(alone)}: nobody could take over"
        possible = Condition("FailoverPossible", False, "NobodyInSync", text)
    else:
        possible = Condition("FailoverPossible", True, "CandidateAvailable", "")
    return [ready, moving, Condition("Stalled", False, "NoError", ""), possible]


def documented(condition: Condition, former: Document | None, generation: int, now: str) -> Document:
    """As it stands in a status; it keeps the time of `former` while it says the same."""
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


def _group(seen: GroupSeen) -> Document:
    document: Document = {"name": seen.group.short, "lease": seen.group.name, "syncSet": []}
    if seen.register is None:
        return document | {"epoch": 0, "phase": "None"}
    told = {
        "epoch": seen.register.epoch,
        "phase": seen.register.phase,
        "syncSet": sorted(member.ordinal for member in seen.register.in_sync),
    }
    if seen.register.master is not None:  # the API server keeps no null, and what differs from it would be told again
        told["master"] = {"ordinal": seen.register.master, "pod": seen.master_pod}
    return document | told
