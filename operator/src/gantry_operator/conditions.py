"""The conditions of a cluster's status, computed from a snapshot; pure.

Ready, Reconciling and Stalled follow kstatus; the others are what an operator on call needs.  Texts name the field or
the pod and what to do.  They hold no number that changes by itself, so the status of an unchanged cluster is never
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gantry.broker.settings.config import HOT
from gantry_operator import troubles
from gantry_operator.api.doorspec import DOORS
from gantry_operator.desired.brokers import as_run
from gantry_operator.doorseen import DoorSeen
from gantry_operator.plan import refused, settled
from gantry_operator.podseen import Pod, seconds_of
from gantry_operator.snapshot import GroupSeen, Snapshot
from gantry_operator.steps import Hold, Replace, Step

# A volume is bound, and a node found, within this time where there is one.
PLACED_S = 60.0
# By how much clocks of nodes may differ, beyond the lease.
_CLOCKS_S = 30.0
_NAMED_MAX = 5


class Condition(NamedTuple):
    """One condition, without the time of its last change."""

    kind: str
    holds: bool
    reason: str
    message: str


def conditions(snapshot: Snapshot, image: str, now_s: float, step: Step | None) -> list[Condition]:
    """Return all conditions; `step` is the plan's next step."""
    step = settled(step)
    return [
        _ready(snapshot, step),
        _reconciling(snapshot, step),
        _stalled(snapshot, image, now_s),
        *lasting(snapshot),
        _paused(snapshot),
        _config_applied(snapshot),
        _image(snapshot),
        _volumes(snapshot),
        _unreachable(snapshot),
        _renewal(snapshot, now_s),
        _diverged(snapshot),
        *_doors(snapshot),
    ]


def lasting(snapshot: Snapshot) -> list[Condition]:
    """Return the conditions that depend only on registers and failover loops; written also for a Stalled cluster."""
    return [_in_sync(snapshot), _failover_possible(snapshot)]


def _ready(snapshot: Snapshot, step: Step | None) -> Condition:
    without = [each.group.short for each in snapshot.groups if not each.is_writable]
    if without:  # first, since a name server is ready when it knows a master
        return Condition("Ready", False, "NoMaster", f"no master that serves in {', '.join(without)}")
    if snapshot.nameservers_ready == 0:
        return Condition("Ready", False, "NoNameServer", "no name server is ready: clients cannot find the brokers")
    for kind in (seen.kind for seen in snapshot.doors.values()):
        if snapshot.doors_ready(kind) == 0:
            said = f"none of the {kind.words} is ready: {kind.callers} cannot connect"
            return Condition("Ready", False, kind.missing, said)
    served = "every group has a master that serves"
    if _is_held_back(snapshot):
        return Condition("Ready", False, "Changing", f"{served}; a change waits for the end of the pause")
    if step is not None:
        return Condition("Ready", False, "Changing", f"{served}; a change is on its way")
    if said := _refused(snapshot):
        return Condition("Ready", False, "ConfigRefused", f"{served}; {said}")
    return Condition("Ready", True, "AllGroupsWritable", served)


def _reconciling(snapshot: Snapshot, step: Step | None) -> Condition:
    cluster = snapshot.cluster
    ready = sum(pod.is_ready for each in snapshot.groups for pod in each.pods.values())
    is_missing = ready < cluster.brokers.groups * cluster.brokers.replicas
    is_missing = is_missing or snapshot.nameservers_ready < cluster.nameservers or _waits_for_doors(snapshot)
    if _is_held_back(snapshot):
        return Condition("Reconciling", True, "Paused", _held_back(snapshot))
    if isinstance(step, Hold):
        return Condition("Reconciling", True, "Waiting", step.reason)
    if isinstance(step, Replace):
        said = "pods are replaced one after the other, masters last"
        return Condition("Reconciling", True, "RollingUpdate", said)
    if step is not None:
        said = "members are told, added or taken away one after the other"
        return Condition("Reconciling", True, type(step).__name__, said)
    if is_missing or not all(each.is_writable for each in snapshot.groups):
        return Condition("Reconciling", True, "PodsNotReady", "pods are not ready yet, or not again")
    if _refused(snapshot):
        return Condition("Reconciling", False, "ConfigRefused", "")
    return Condition("Reconciling", False, "UpToDate", "")


def _is_held_back(snapshot: Snapshot) -> bool:
    """Return whether a paused cluster differs from its specification."""
    differs = bool(snapshot.unapplied) or any(each.outdated for each in snapshot.groups)
    return snapshot.cluster.wishes.is_paused and differs


def _held_back(snapshot: Snapshot) -> str:
    names = [*snapshot.unapplied, *(f"Pod {pod.name}" for each in snapshot.groups for pod in each.outdated)]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    said = ", ".join(names[:_NAMED_MAX])
    return f"not as the specification says: {said}{more}; remove gantrymq.io/pause-reconciliation to have them changed"


def _refused(snapshot: Snapshot) -> str:
    """Name the values that members refuse although their pods have the present template; empty: none."""
    told = [
        f"{each.group.pod(found.ordinal)} refuses {found.keys}: {found.reason}"
        for each in snapshot.groups
        for found in refused(each)
        if not found.is_mended
    ]
    more = f" and {len(told) - _NAMED_MAX} more" if len(told) > _NAMED_MAX else ""
    hint = "change spec.brokers.config, or have the pods replaced by gantrymq.io/manual-rolling-update"
    return f"{'; '.join(told[:_NAMED_MAX])}{more}; {hint}" if told else ""


def _stalled(snapshot: Snapshot, image: str, now_s: float) -> Condition:
    if snapshot.missing_secrets:
        said = (
            f"spec.imagePullSecrets: there is no Secret {', '.join(snapshot.missing_secrets)} in this namespace; make "
            "it, or take its name from the list"
        )
        return Condition("Stalled", True, "SecretMissing", said)
    troubled = [(group, pod) for group in snapshot.groups for pod in group.pods.values() if pod.trouble]
    for group, pod in troubled:
        if _is_over(pod, now_s):
            return Condition("Stalled", True, troubles.REASONS[pod.trouble], troubles.of_member(group, pod, image))
    for pod in snapshot.nameservers:
        if pod.trouble and _is_over(pod, now_s):
            return Condition("Stalled", True, troubles.REASONS[pod.trouble], troubles.of_nameserver(pod, image))
    for kind, pod in ((each, pod) for each in DOORS for pod in snapshot.door_pods.get(each.component, ())):
        if pod.trouble and not pod.is_going and _is_over(pod, now_s):
            return Condition("Stalled", True, troubles.REASONS[pod.trouble], troubles.of_door(kind, pod, image))
    if said := _refused(snapshot):
        return Condition("Stalled", True, "ConfigRefused", said)
    return Condition("Stalled", False, "NoError", "")


def _is_over(pod: Pod, now_s: float) -> bool:
    """Return whether the pod has been in trouble for longer than the trouble may last by itself."""
    return not pod.trouble_since or now_s - seconds_of(pod.trouble_since) >= PLACED_S


def _in_sync(snapshot: Snapshot) -> Condition:
    wanted = range(snapshot.cluster.brokers.replicas)
    missing = [
        each.group.pod(ordinal)
        for each in snapshot.groups
        for ordinal in wanted
        if each.register is None or ordinal not in each.register.ordinals
    ]
    if "Lease" in snapshot.unseen:
        return Condition("InSync", False, "NotRead", "the registers cannot be read")
    if missing:
        return Condition("InSync", False, "MembersBehind", f"not in sync: {', '.join(missing)}")
    return Condition("InSync", True, "AllInSync", "")


def _failover_possible(snapshot: Snapshot) -> Condition:
    for each in snapshot.groups:
        if each.unwatched:
            said = f"{each.group.short} has no failover loop: {each.unwatched}"
            return Condition("FailoverPossible", False, "NotWatched", said)
    if not snapshot.groups:
        said = "no failover loop: the specification does not say how many groups there are, and none is there"
        return Condition("FailoverPossible", False, "NotWatched", said)
    for each in snapshot.groups:
        if each.blocked:
            return Condition("FailoverPossible", False, "Blocked", f"{each.group.short}: {each.blocked}")
    if "Lease" in snapshot.unseen:
        return Condition("FailoverPossible", False, "NotRead", "the registers cannot be read")
    alone = [each.group.short for each in snapshot.groups if each.register is None or len(each.register.in_sync) < 2]
    if alone:
        text = f"one member or none is in sync in {', '.join(alone)}: no other member could become the master"
        return Condition("FailoverPossible", False, "NobodyInSync", text)
    if snapshot.cluster.wishes.is_failover_paused or not snapshot.cluster.brokers.failover.is_automatic:
        said = "by hand only: spec.brokers.failover.mode is Manual, or gantrymq.io/pause-failover is set"
        return Condition("FailoverPossible", False, "NotAutomatic", said)
    return Condition("FailoverPossible", True, "CandidateAvailable", "")


def _paused(snapshot: Snapshot) -> Condition:
    if snapshot.cluster.wishes.is_paused:
        said = "nothing is changed while gantrymq.io/pause-reconciliation is set; failover goes on"
        return Condition("Paused", True, "Requested", said)
    return Condition("Paused", False, "NotRequested", "")


def waiting(group: GroupSeen) -> Mapping[str, list[str]]:
    """Return by key the pods that still run with another value and need a restart for the new one."""
    wanted = as_run(group.group)
    found: dict[str, list[str]] = {}
    for ordinal, answer in sorted(group.answers.items()):
        for key, value in wanted.items():
            if key in answer.config and answer.config[key] != value and key not in HOT:
                found.setdefault(key, []).append(group.group.pod(ordinal))
    return dict(sorted(found.items()))


def _config_applied(snapshot: Snapshot) -> Condition:
    late = {key for each in snapshot.groups for key in waiting(each)}
    pods = {pod for each in snapshot.groups for pods in waiting(each).values() for pod in pods}
    denied = [f"{each.group.pod(found.ordinal)}: {found.keys}: {found.reason}"
              for each in snapshot.groups for found in refused(each)]  # fmt: skip
    if denied and not late:
        return Condition("ConfigApplied", False, "Refused", "; ".join(denied[:_NAMED_MAX]))
    if late:
        said = f"{', '.join(sorted(late))}: after a restart of {', '.join(sorted(pods))}"
        return Condition("ConfigApplied", False, "WaitsForRestart", said)
    silent = [each.group.pod(ordinal) for each in snapshot.groups for ordinal in _silent(each)]
    if silent:
        return Condition("ConfigApplied", False, "NotAnswering", f"not known of {', '.join(silent)}")
    return Condition("ConfigApplied", True, "Applied", "")


def _silent(group: GroupSeen) -> Iterator[int]:
    wanted = range(group.group.cluster.brokers.replicas)
    return (ordinal for ordinal in wanted if ordinal not in group.answers)


def _image(snapshot: Snapshot) -> Condition:
    held = snapshot.cluster.image.held
    if held is not None:
        return Condition("ImageUpToDate", False, held.reason, held.message)
    return Condition("ImageUpToDate", True, "UpToDate", "")


def _volumes(snapshot: Snapshot) -> Condition:
    if "PersistentVolumeClaim" in snapshot.unseen:
        return Condition("VolumesMatch", False, "NotRead", "the volume claims cannot be listed")
    if not snapshot.volumes:
        return Condition("VolumesMatch", True, "Match", "")
    said = "; ".join(snapshot.volumes)
    return Condition("VolumesMatch", False, "Differ", f"{said}; {_EXCHANGE}")


_EXCHANGE = (
    "a volume keeps its size and class; to exchange one, while all members are in sync: kubectl delete pvc NAME "
    "--wait=false, then delete its pod, and wait until it is in sync again"
)


def _unreachable(snapshot: Snapshot) -> Condition:
    lost = [
        pod for each in snapshot.groups for ordinal in sorted(each.absent) if (pod := each.pod(ordinal)) is not None
    ]
    if not lost:
        return Condition("MemberUnreachable", False, "AllAnswer", "")
    said = "; ".join(f"{pod.name} on node {pod.node} does not answer" for pod in lost)
    node = lost[0].node
    hint = f"if that node is lost for good: kubectl taint nodes {node} node.kubernetes.io/out-of-service=:NoExecute"
    return Condition("MemberUnreachable", True, "NoAnswer", f"{said}; {hint}")


def _renewal(snapshot: Snapshot, now_s: float) -> Condition:
    late = [
        each.group.short
        for each in snapshot.groups
        if each.register is not None
        and each.register.phase == "Active"
        and each.is_writable
        and each.register.renewed_s + each.register.lease_s + _CLOCKS_S < now_s
    ]
    if late:
        said = (
            f"the masters of {', '.join(late)} serve and do not renew their Leases; look at the Role of their service "
            "accounts, and whether they reach the API server"
        )
        return Condition("LeaseRenewalFailing", True, "NotRenewed", said)
    return Condition("LeaseRenewalFailing", False, "Renewed", "")


def _diverged(snapshot: Snapshot) -> Condition:
    refused = [
        (each.group.pod(ordinal), answer.refused, pod.uid)
        for each in snapshot.groups
        for ordinal, answer in sorted(each.answers.items())
        if answer.refused and (pod := each.pod(ordinal)) is not None
    ]
    if refused:
        name, reason, uid = refused[0]
        said = f"{name}: {reason}; to copy it again: kubectl annotate pod {name} gantrymq.io/reclone={uid}"
        return Condition("Diverged", True, "RefusedByMaster", said)
    return Condition("Diverged", False, "NoneRefused", "")


def _waits_for_doors(snapshot: Snapshot) -> bool:
    return any(
        seen.is_rolling or not seen.is_made or snapshot.doors_ready(seen.kind) < seen.replicas
        for seen in snapshot.doors.values()
    )


def _doors(snapshot: Snapshot) -> Iterator[Condition]:
    """Yield the condition of each door; none for a door that the cluster does not have."""
    return (_door(snapshot, seen) for seen in snapshot.doors.values())


def _door(snapshot: Snapshot, seen: DoorSeen) -> Condition:
    kind, words = seen.kind.condition, seen.kind.words
    if seen.fault is not None:
        return Condition(kind, False, seen.fault.reason, seen.fault.message)
    if not seen.is_made:
        return Condition(kind, False, "NotApplied", f"there is no Deployment of the {words} yet")
    if seen.is_rolling:
        return Condition(kind, False, "RollingUpdate", f"pods of the {words} are replaced, one after the other")
    if snapshot.doors_ready(seen.kind) < seen.replicas:
        return Condition(kind, False, "PodsNotReady", f"not all of the {words} are ready")
    if not seen.endpoint:
        return Condition(kind, False, "NoAddress", "the load balancer of the Service has no address yet")
    return Condition(kind, True, "AllReady", "")
