"""Rules about members and the register: which are healthy, which are electable, and how long to wait for a master.

All functions are pure: they take the members' states and the record that was read, and keep nothing.

Check-quorum.  A master that answers and renews may still be cut off from its slaves.  Then it can confirm nothing,
while the slaves reach each other, clients and the register.  `is_cut_off` judges one observation; `notes` measures for
how long it has been true.  Links that are only slow stop producers as well (`is_linked_late`): the master has measured
that itself, and cannot hand over in time across such a link.  Sealing such a master loses nothing: a seal is allowed at
any time.  The states of the slaves count as well as the master's, because slaves that receive nothing notice it first.

Back-off.  A member may be promoted and never serve: its start takes too long, or it cannot reach its slaves either.
Each mastership without success doubles the patience with the same member, and another electable member is preferred.
So a group whose members all start slowly becomes stable, and one slow member does not delay the others.

Restarts.  A master whose process ends and is started again claims the next epoch by itself, each time before it is
suspected.  After `RESTARTS_MAX` such restarts, with less than the time of suspicion served in between, the coordinator
waits only for a part of that time, so that another member leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member, SyncSet, disk_of
from gantry.replication.record import Holder, RegisterRecord

PATIENCE_S_MAX = 300.0
RESTARTS_MAX = 3
_DOUBLINGS_MAX = 16
_PATIENCE_OF_RESTARTS = 0.25


@dataclass(frozen=True, slots=True)
class HandOver:
    """A decision: ask the master for a planned change to this ordinal."""

    target: int
    reason: str


def patience_s(suspect_after_s: float, tried: int, restarts: int = 0) -> float:
    """Return for how long a master may be unwell before it is sealed.

    tried: how often this member was given the group since a master last served; 0 or 1: the time of suspicion.
    restarts: how often in a row its process was started again and did not serve for that time.
    """
    if restarts >= RESTARTS_MAX:
        return suspect_after_s * _PATIENCE_OF_RESTARTS
    doublings = min(max(0, tried - 1), _DOUBLINGS_MAX)
    return max(suspect_after_s, min(PATIENCE_S_MAX, suspect_after_s * 2.0**doublings))


def is_healthy(state: MemberState, record: RegisterRecord) -> bool:
    """Return whether this is the register's master, in its epoch, and takes writes as far as that depends on it."""
    return _leads(state, record) and state.is_writable


def is_refusing(state: MemberState, record: RegisterRecord) -> bool:
    """Return whether this is the register's master, in its epoch, and reports that it takes no writes (its disk
    hangs).
    """
    return _leads(state, record) and not state.is_writable


def _leads(state: MemberState, record: RegisterRecord) -> bool:
    return state.role is MemberRole.MASTER and state.epoch == record.epoch and state.me == record.holder


def has_resigned(state: MemberState | None, former: Holder | None) -> bool:
    """Return whether the process that led reports that it is not the master any more."""
    return state is not None and state.me == former and state.role is not MemberRole.MASTER


def is_serving(record: RegisterRecord, states: Collection[MemberState], min_in_sync: int) -> bool:
    """Return whether the master is healthy and so many members follow it in its epoch that it can confirm."""
    followers = sum(state.role is MemberRole.SLAVE and state.epoch == record.epoch for state in states)
    is_led = any(is_healthy(state, record) and not state.is_short for state in states)
    return is_led and followers >= min_in_sync - 1


def is_cut_off(record: RegisterRecord, states: Collection[MemberState], min_in_sync: int, replicas: int) -> bool:
    """Return whether the master cannot confirm anything and the other members could without it.

    The master reports that it has too few slaves, or the rest of the group would be too few.  At least one other member
    answers that it follows no master.  Together with those who follow and are in sync these are at least `min_in_sync`,
    and one of them is electable.  A follower outside the set does not count: it is being copied, wherever it follows.

    replicas: size of a group whose master needs the set for each acknowledgement; 0: this master does not need it.
    """
    master = next((state for state in states if is_healthy(state, record)), None)
    if master is None:
        return False
    others = [state for state in states if state.me != record.holder]
    alone = [state for state in others if state.role is MemberRole.NONE]
    electable = [state for state in others if is_electable(state, record)]
    able = {state.member for state in (*alone, *electable)}
    is_left_alone = 0 < replicas - len(alone) < min_in_sync
    is_of_use = bool(alone) and bool(electable) and len(able) >= min_in_sync
    return is_of_use and (master.is_short or is_left_alone)


def is_linked_late(record: RegisterRecord, states: Collection[MemberState], min_in_sync: int) -> bool:
    """Return whether the master says that its links make acknowledgements late, and enough others could do without it.

    One of them is electable.  A member whose late link has ended is out of the set and counts as well: the next master
    has little to copy to one that has what was confirmed at the last renewal.
    """
    is_late = any(is_healthy(state, record) and state.are_links_late for state in states)
    others = [state for state in states if state.me != record.holder]
    is_led = any(is_electable(state, record) for state in others)
    able = [state for state in others if is_admitted(state, record) and state.log_end >= record.confirm_floor]
    return is_late and is_led and len(able) >= min_in_sync


def is_electable(state: MemberState, record: RegisterRecord) -> bool:
    """Return whether this member has all that was acknowledged: in sync, on its disk, up to the confirm floor."""
    return is_admitted(state, record) and state.member in record.in_sync and state.log_end >= record.confirm_floor


def furthest(
    able: Collection[MemberState], preferred: int, rank: Callable[[MemberState], int] = lambda state: 0
) -> MemberState:
    """Return the able member that leads: the furthest log, then the least rank, then room on the disk, then the ordinal
    `preferred`.
    """
    most = max(state.advance for state in able)

    def order(state: MemberState) -> tuple[int, bool, bool, int]:
        ordinal = state.member.ordinal
        return rank(state), state.is_disk_full, ordinal != preferred, ordinal

    return min((state for state in able if state.advance == most), key=order)


def set_of_next(
    record: RegisterRecord, able: Collection[MemberState], states: Collection[MemberState], min_in_sync: int
) -> SyncSet:
    """Return the set of the next epoch: `able`, and where they are fewer than minInSync all of the sealed set.

    Every member of the sealed set has all that was acknowledged, also one that was not heard.  While nothing can be
    acknowledged without it, it stays electable: the members that are heard now may be the next to fail.  Only a member
    that is known to have lost its disk or its newest records is no copy any more.
    """
    members = frozenset(state.member for state in able)
    if len(members) >= min_in_sync:
        return members
    lost = {state.member.ordinal for state in states if not is_electable(state, record)}
    return members | {each for each in record.in_sync if each.ordinal not in lost and record.has_disk(each)}


def is_burdened(state: MemberState, record: RegisterRecord) -> bool:
    """Return whether this is the register's master, and its disk is full or makes acknowledgements late."""
    return is_healthy(state, record) and (state.is_disk_full or state.is_disk_late)


def heir_of_burdened(record: RegisterRecord, states: Collection[MemberState]) -> int | None:
    """Return the ordinal that a master with a full or slow disk should hand over to; None when no member is in sync and
    has room.  Under a full disk the heir has the whole log; under a slow one more is written all the time.
    """
    master = next((state for state in states if is_burdened(state, record)), None)
    able = [
        (-state.log_end, state.member.ordinal)
        for state in states
        if master is not None
        and is_electable(state, record)
        and (state.role, state.epoch) == (MemberRole.SLAVE, record.epoch)
        and not state.is_disk_full
        and (state.log_end >= master.log_end or not master.is_disk_full)
    ]
    return min(able)[1] if able else None


def have_all_lost(states: Collection[MemberState], record: RegisterRecord) -> bool:
    """Return whether every member of the set answers, each as another incarnation, and at least one on its old disk."""
    now = {state.member.ordinal: state.member for state in states}
    if any(now.get(member.ordinal, member) == member for member in record.in_sync):
        return False
    return any(is_same_disk(now[member.ordinal], member) for member in record.in_sync)


def is_admitted(state: MemberState, record: RegisterRecord) -> bool:
    """Return whether the register knows the disk of this member."""
    return record.disk_number(state.member.ordinal, state.store_uid) is not None


def is_same_disk(one: Member, other: Member) -> bool:
    """Return whether both are the same ordinal on the same disk."""
    return one.ordinal == other.ordinal and disk_of(one.incarnation) == disk_of(other.incarnation)
