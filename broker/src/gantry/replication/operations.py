"""The operations on a register: pure functions from one record to the next, or to the reason why it is not allowed.

A caller reads the register, applies one operation, and writes the result on the version that it read.  So the write
fails when another process changed the record meanwhile.  When an operation is due is decided by the master and by
`failover.decide`.  broker/docs/failover.md, section 3, is normative.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gantry.replication.members import DISKS_MAX, MEMBERS_MAX, NUMBER_MAX, SyncSet, format_set
from gantry.replication.record import Holder, MemberDisk, Phase, RegisterRecord
from gantry.replication.terms import LeaderTerms, Terms


class Denied(NamedTuple):
    """The operation is not allowed on this record."""

    reason: str


# Operations of a master


def renew(
    record: RegisterRecord, me: Holder, epoch: int, confirmed: int, now_ms: int, said: LeaderTerms | None = None
) -> RegisterRecord | Denied:
    """RENEW: extend the lease, raise the confirm floor, and write the master's terms. The record changes, so older
    requests of this master fail.
    """
    denied = _not_mine(record, me, epoch)
    if denied is not None:
        return denied
    return replace(record, confirm_floor=max(record.confirm_floor, confirmed), renewed_ms=now_ms, leader_terms=said)


def change_set(
    record: RegisterRecord, me: Holder, epoch: int, base: SyncSet, target: SyncSet, min_in_sync: int
) -> RegisterRecord | Denied:
    """SHRINK, EXPAND or REPLACE, as in `insync.InSyncChange`; a set that gets smaller keeps at least `min_in_sync`
    members.
    """
    denied = _not_mine(record, me, epoch)
    if denied is not None:
        return denied
    if record.in_sync != base:
        return Denied(f"the set is {format_set(record.in_sync)}, expected {format_set(base)}")
    if len(target) < len(base) and len(target) < min_in_sync:
        return Denied(f"{format_set(target)} would be fewer than minInSync {min_in_sync}")
    if me.member not in target or len({member.ordinal for member in target}) != len(target):
        return Denied(f"{format_set(target)} is no set that {me} could lead")
    strange = _on_other_disks(record, target - base)
    return strange or replace(record, in_sync=target, set_version=record.set_version + 1)


def take_next_epoch(
    record: RegisterRecord, me: Holder, store_uid: str, log_end: int, terms: Terms | None = None
) -> RegisterRecord | Denied:
    """SELF-EPOCH: a new process of the holder begins the next epoch, on these terms."""
    if record.phase is not Phase.ACTIVE or record.holder is None:
        return Denied(f"the group is {record.phase.value}")
    if record.holder.member != me.member:
        return Denied(f"{record.holder} leads, not {me}")
    store = record.store(me.member.ordinal)
    if store is None or store.uid != store_uid:
        return Denied(f"the store of ordinal {me.member.ordinal} is {store.uid if store else 'none'}, not {store_uid}")
    if log_end < record.confirm_floor:
        return Denied(f"the log ends at {log_end}, and up to {record.confirm_floor} it was confirmed")
    taken = _next_epoch(record, me, Phase.ACTIVE)
    return taken if isinstance(taken, Denied) else replace(taken, leader_terms=_said(taken, terms))


def hand_over(record: RegisterRecord, me: Holder, epoch: int, target: Holder, keep: int = 0) -> RegisterRecord | Denied:
    """HANDOVER: another member of the set leads the next epoch; the caller has checked that it is ready.

    keep: > 0 when this member stops afterwards: it leaves the set with the same write, if at least `keep` others
    remain.
    """
    denied = _not_mine(record, me, epoch)
    if denied is not None:
        return denied
    if target.member not in record.in_sync or target.member == me.member:
        return Denied(f"{target} is not another member of {format_set(record.in_sync)}")
    handed = _next_epoch(record, target, Phase.ACTIVE)
    others = record.in_sync - {me.member}
    if isinstance(handed, Denied) or not 0 < keep <= len(others):
        return handed
    return replace(handed, in_sync=others, set_version=record.set_version + 1)


# Operations of a coordinator


def bootstrap(cluster_uid: str, lease_duration_s: int) -> RegisterRecord:
    """BOOTSTRAP: the first record of a group whose disks are all empty."""
    return RegisterRecord(cluster_uid, 1, Phase.BOOTSTRAPPING, lease_duration_s=lease_duration_s)


def recreate(
    cluster_uid: str, promises: Iterable[int], stores: tuple[tuple[int, MemberDisk], ...], lease_duration_s: int
) -> RegisterRecord | Denied:
    """RECREATE: a record for a lost or outdated register; `promises` and `stores` are those of *every* member."""
    epoch = max(promises, default=0) + 1
    if epoch > NUMBER_MAX:
        return Denied("there is no epoch left")
    return RegisterRecord(cluster_uid, epoch, Phase.RECOVERING, stores=stores, lease_duration_s=lease_duration_s)


def seal(record: RegisterRecord) -> RegisterRecord | Denied:
    """SEAL: end the epoch; the group has no master, and the set is frozen. A sealed group may be sealed again."""
    if record.phase not in (Phase.ACTIVE, Phase.SEALED):
        return Denied(f"a group that is {record.phase.value} has no master to seal")
    return _next_epoch(record, None, Phase.SEALED)


def promote(
    record: RegisterRecord, chosen: Holder, in_sync: SyncSet, terms: Terms | None = None
) -> RegisterRecord | Denied:
    """PROMOTE: `chosen` leads the sealed epoch, which it promised; every member of `in_sync` has all acknowledged
    messages. terms: those that `chosen` said with its promise.
    """
    if record.phase is Phase.ACTIVE:
        return Denied(f"{record.holder} leads")
    if chosen.member not in in_sync:
        return Denied(f"{chosen} is not in {format_set(in_sync)}")
    if record.phase is Phase.SEALED and not in_sync <= record.in_sync:
        return Denied(f"{format_set(in_sync)} are not all in the sealed set {format_set(record.in_sync)}")
    strange = _on_other_disks(record, in_sync)
    return strange or replace(
        record, phase=Phase.ACTIVE, holder=chosen, in_sync=in_sync, set_version=record.set_version + 1,
        leader_terms=_said(record, terms),
    )  # fmt: skip


def force(record: RegisterRecord, chosen: Holder, log_end: int, terms: Terms | None = None) -> RegisterRecord | Denied:
    """FORCE: on an operator's request `chosen` leads the sealed epoch alone; messages that only others have are
    lost.
    """
    if record.phase is not Phase.SEALED:
        return Denied(f"the group is {record.phase.value}")
    alone = frozenset({chosen.member})
    return _on_other_disks(record, alone) or replace(
        record, phase=Phase.ACTIVE, holder=chosen, in_sync=alone, set_version=record.set_version + 1,
        confirm_floor=min(record.confirm_floor, log_end), leader_terms=_said(record, terms),
    )  # fmt: skip


def last(record: RegisterRecord, lease_duration_s: int) -> RegisterRecord:
    """Return the record with another duration of the lease, in seconds, from the next renewal on."""
    return replace(record, lease_duration_s=lease_duration_s)


def admit(record: RegisterRecord, ordinal: int, store_uid: str) -> RegisterRecord | Denied:
    """ADMIT: give a new disk of an ordinal a number that no earlier disk had."""
    if not 0 <= ordinal < MEMBERS_MAX or not store_uid:
        return Denied(f"ordinal {ordinal} with the store {store_uid!r}")
    if record.holder is not None and record.holder.member.ordinal == ordinal:
        return Denied(f"ordinal {ordinal} leads")
    former = dict(record.stores).get(ordinal)
    if former is not None and former.uid == store_uid:
        return record
    disk = 0 if former is None else former.disk + 1
    if disk >= DISKS_MAX:
        return Denied(f"ordinal {ordinal} has had {DISKS_MAX} disks")
    return _with_store(record, ordinal, MemberDisk(store_uid, disk))


def remove(record: RegisterRecord, ordinal: int) -> RegisterRecord | Denied:
    """REMOVE: take an ordinal out of the group; it must have left the set before."""
    if any(member.ordinal == ordinal for member in record.in_sync):
        return Denied(f"ordinal {ordinal} is in {format_set(record.in_sync)}")
    former = dict(record.stores).get(ordinal)
    return record if former is None else _with_store(record, ordinal, MemberDisk("", former.disk))


def _on_other_disks(record: RegisterRecord, members: SyncSet) -> Denied | None:
    """Return why these members may not be in the set; None when each is on the disk that was admitted for it."""
    strange = next((member for member in sorted(members) if not record.has_disk(member)), None)
    if strange is None:
        return None
    return Denied(f"{strange} is not on the disk that was admitted for ordinal {strange.ordinal}")


def _said(record: RegisterRecord, terms: Terms | None) -> LeaderTerms | None:
    """Return the terms of a process that leads this epoch and has not renewed yet."""
    if terms is None:
        return None
    return LeaderTerms(record.epoch, terms.is_sync, terms.min_in_sync, record.lease_duration_s)


def _with_store(record: RegisterRecord, ordinal: int, store: MemberDisk) -> RegisterRecord:
    others = [entry for entry in record.stores if entry[0] != ordinal]
    return replace(record, stores=tuple(sorted([*others, (ordinal, store)])))


def _not_mine(record: RegisterRecord, me: Holder, epoch: int) -> Denied | None:
    if record.holder != me or record.epoch != epoch:
        return Denied(f"{record.holder or 'nobody'} leads in epoch {record.epoch}, not {me} in {epoch}")
    return None


def _next_epoch(record: RegisterRecord, holder: Holder | None, phase: Phase) -> RegisterRecord | Denied:
    if record.epoch >= NUMBER_MAX:
        return Denied("there is no epoch left")
    return replace(record, epoch=record.epoch + 1, holder=holder, phase=phase)
