"""The next step of a cluster, if any: one action at a time; pure.

Nothing is remembered: the next step is computed from the present state each time, so a plan may be interrupted
anywhere.

    Configure    a member runs with another value of a key that it applies while it runs
    Reclone      a user wants a member's log copied again; refused while the member is in the in-sync set
    Resize       the set gets the members that it lacks, or loses its last one
    HandOver     the last member is to be removed, and is the master
    Forget       a member is gone for good, its volume too: the register forgets the disk, then the volume goes
    Replace      a pod is of an older template: a rolling update by role

A step that takes a member away waits until all others work and are in sync.  So at most one member is missing, and
writing goes on where all but one suffice.  Slaves are replaced first, by ordinal.  The master comes last and hands over
before it is stopped, so the group has two short pauses at most.  A broken member is replaced before any healthy one,
because the update may repair it; one that cannot start does not wait for the others.  Members are removed before others
are replaced, unless the terms on which the group still works need them.

A member whose server works is not broken, whatever another container of its pod does; a pod of the present template has
to be ready with all of them, so a roll does not spread a container that does not come up.

An order that a member refused is given again after a while (`orders`), when there is nothing else to do: a rolling
update may solve it.  Groups wait for each other, but not for a group with an unreachable member: that may take days.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gantry.broker.settings.config import HOT
from gantry_operator.desired.brokers import as_run
from gantry_operator.podseen import Pod
from gantry_operator.snapshot import Denied, GroupSeen, Snapshot
from gantry_operator.steps import Configure, Forget, HandOver, Hold, Reclone, Replace, Resize, Step


def next_step(snapshot: Snapshot) -> Step | None:
    """Return the next step; None when the cluster is as specified."""
    at_once = [step for group in snapshot.groups for step in _at_once(group)]
    fresh = next((step for step in at_once if _denied(step) is None), None)
    if fresh is not None:
        return fresh
    turn = _turn(snapshot.groups)
    if turn is not None and not isinstance(turn, Hold):
        return turn
    again = next((step for step in at_once if (denied := _denied(step)) is not None and denied.is_due), None)
    return again or turn


def _turn(groups: Sequence[GroupSeen]) -> Step | None:
    held: Step | None = None
    for group in groups:
        turn = _in_turn(group)
        if turn is not None and not (isinstance(turn, Hold) and group.absent):
            return turn
        held = held or turn
    return held


def _at_once(group: GroupSeen) -> Iterator[Step]:
    """Yield steps that take no member away."""
    for ordinal in group.answers:
        keys = differing(group, ordinal)
        # Together first, since one may need the other; then alone, where they were refused together.
        yield from (Configure(group, ordinal, each) for each in (keys, *({key: keys[key]} for key in keys)) if each)
    for ordinal in range(group.size):
        pod = group.pod(ordinal)
        if pod is not None and pod.reclone:
            yield Reclone(group, ordinal, _why_not_reclone(group, ordinal, pod))
    replicas = group.group.cluster.brokers.replicas
    if group.replicas is not None and group.replicas < replicas:
        yield Resize(group, replicas)
    for ordinal in _forgettable(group):
        yield Forget(group, ordinal)


def differing(group: GroupSeen, ordinal: int) -> dict[str, str]:
    """Return the wanted values of keys that a member applies while it runs, and that have another value there."""
    wanted, config = as_run(group.group), group.answers[ordinal].config
    return {key: str(wanted[key]) for key in sorted(HOT) if key in config and config[key] != wanted[key]}


class RefusedConfig(NamedTuple):
    """The values that one member refuses to run with."""

    ordinal: int
    keys: str
    reason: str
    is_mended: bool  # its pod is going to be replaced, and the next one starts with them


def refused(group: GroupSeen) -> Iterator[RefusedConfig]:
    """Yield the refused values of a group's members, by ordinal."""
    outdated = {pod.name for pod in group.outdated}
    for ordinal in sorted(group.answers):
        step = Configure(group, ordinal, differing(group, ordinal))
        denied = _denied(step)
        if step.keys and denied is not None:
            yield RefusedConfig(ordinal, ", ".join(step.keys), denied.reason, group.group.pod(ordinal) in outdated)


def settled(step: Step | None) -> Step | None:
    """Return the step for conditions: a refused order that is given again must not change them."""
    denied = None if step is None else _denied(step)
    if denied is None:
        return step
    return _not_handed_over(step, denied) if isinstance(step, HandOver) else None


def _not_handed_over(step: HandOver, denied: Denied) -> Hold:
    group = step.group
    return Hold(f"{group.group.short}: {group.master_pod} is to go and still leads: {denied.reason}")


def _denied(step: Step) -> Denied | None:
    """Return the last refusal of a step's order; None when it was not refused."""
    return step.group.denied.get(step.order) if isinstance(step, Configure | HandOver | Forget) else None


def _why_not_reclone(group: GroupSeen, ordinal: int, pod: Pod) -> str:
    if pod.reclone != pod.uid:
        return f"the annotation names {pod.reclone[:40]}, this pod is {pod.uid}: it was meant for another one"
    if group.register is None or ordinal in group.register.ordinals:
        return "it is in sync: the register counts on what it has"
    return "" if ordinal in group.answers else "it does not answer"


def _forgettable(group: GroupSeen) -> Iterator[int]:
    cluster, register = group.group.cluster, group.register
    if not cluster.drops_claims or register is None or group.replicas != cluster.brokers.replicas:
        return
    known = {ordinal for ordinal, store in register.stores.items() if store.uid}
    for ordinal in sorted((known | group.claims.keys()) - set(range(cluster.brokers.replicas))):
        if group.pod(ordinal) is None and ordinal not in register.ordinals:
            yield ordinal


def _in_turn(group: GroupSeen) -> Step | None:
    """Return the next step that takes a member away, if any."""
    if group.replicas is not None and not group.revision:
        return Hold(f"{group.group.short}: its template is not known to the API server's controllers yet")
    if group.set_replicas > group.group.cluster.brokers.replicas and _may_be_fewer(group):
        return _smaller(group)
    return _roll(group) if group.outdated else None


def _may_be_fewer(group: GroupSeen) -> bool:
    """Return whether the present terms of the pods allow one member fewer; else the new terms are rolled out first."""
    terms = [pod.terms.min_in_sync for pod in group.pods.values() if pod.terms is not None]
    return group.set_replicas - 1 >= max(terms, default=1) or not group.outdated


def _smaller(group: GroupSeen) -> Step:
    last = group.set_replicas - 1
    others = [ordinal for ordinal in range(group.size) if ordinal != last]
    reason = _why_not_away(group, others)
    if reason:
        return Hold(reason)
    assert group.register is not None
    if group.register.master != last:
        return Resize(group, last)
    able = [each for each in others if each < group.group.cluster.brokers.replicas]
    step = HandOver(group, able[0])
    denied = _denied(step)
    return step if denied is None or denied.is_due else _not_handed_over(step, denied)


def _why_not_away(group: GroupSeen, others: list[int]) -> str:
    """Return why no member may be taken away now; an empty text when all of `others` work and are in sync."""
    name = group.group.short
    pods = [group.pod(ordinal) for ordinal in others]
    if any(pod is None or pod.is_going for pod in pods) or any(pod.is_going for pod in group.pods.values()):
        return f"{name}: a pod is on its way out, or its successor on its way in"
    outdated = {pod.name for pod in group.outdated}
    if any(pod is not None and not (pod.works if pod.name in outdated else pod.is_ready) for pod in pods):
        return f"{name}: a pod is not ready"
    if group.register is None or not group.register.ordinals.issuperset(others):
        return f"{name}: a member is not in sync"
    return f"{name}: nobody leads" if group.register.master is None else ""


def _roll(group: GroupSeen) -> Step:
    """Return the next step of a rolling update: slaves first, the master last."""
    outdated = group.outdated
    stuck = [pod for pod in outdated if pod.trouble and not pod.works and not pod.is_going]
    if stuck:
        return Replace(stuck[0])  # it does not come up as it is, whatever the others do
    broken = [ordinal for ordinal in range(group.size) if (pod := group.pod(ordinal)) is not None and not pod.works]
    if len(broken) == 1:
        mended = [pod for pod in outdated if not pod.works and not pod.is_going]
        others = [ordinal for ordinal in range(group.size) if ordinal not in broken]
        if mended and all(group.pod(ordinal) is not None for ordinal in others):
            return Replace(mended[0])
    reason = _why_not_away(group, list(range(group.size)))
    if reason:
        return Hold(reason)
    slaves = [pod for pod in outdated if pod.name != group.master_pod]
    return Replace(slaves[0] if slaves else outdated[0])
