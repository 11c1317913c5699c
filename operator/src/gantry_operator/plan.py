"""Which pod to replace next, if any: a rolling update by role; pure.

One group at a time, one member at a time, and only while everybody else is at work and in sync: so a group never has
fewer than all but one, and writing goes on where all but one are enough.  Slaves come first, by ordinal; the master
comes last, hands over before it goes, and so the group has two short pauses at most.  A member that is broken anyway is
replaced before any healthy one: it may be the update that mends it.

Nothing is remembered: what is left to do is read off the pods each time, so it may be broken off anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from gantry_operator.snapshot import GroupSeen, Pod, Snapshot


class Replace(NamedTuple):
    """Delete this pod; the set makes it anew."""

    pod: Pod


class Hold(NamedTuple):
    """There is something to replace, and not now."""

    reason: str


def roll(snapshot: Snapshot) -> Replace | Hold | None:
    """The next step; None: every pod is as it should be."""
    for group in snapshot.groups:
        if group.outdated:
            return _of_group(group)
    return None


def _of_group(group: GroupSeen) -> Replace | Hold:
    name = group.group.short
    broken = [pod for pod in group.pods.values() if not pod.is_ready]
    if len(group.pods) < len(group.group.pods) or any(pod.is_going for pod in group.pods.values()):
        return Hold(f"{name}: a pod is on its way out, or its successor on its way in")
    if broken:
        mendable = [pod for pod in group.outdated if not pod.is_ready]
        return Replace(mendable[0]) if len(broken) == 1 and mendable else Hold(f"{name}: a pod is not ready")
    if group.register is None or len(group.register.in_sync) < len(group.group.pods):
        return Hold(f"{name}: a member is not in sync")
    slaves = [pod for pod in group.outdated if pod.name != group.master_pod]
    return Replace(slaves[0] if slaves else group.outdated[0])
