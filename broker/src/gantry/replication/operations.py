"""What may be done to a register: functions from one record to the next, or to the reason why not.

A caller reads the register, applies one of these, and writes the result on the version that it read; so a record that
somebody else changed meanwhile is never judged by an old reading.  No time and no network here; who waits for what
before he asks is for the master and for `failover.decide`.  broker/docs/failover.md, section 3, is normative.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gantry.replication.members import DISKS_MAX, MEMBERS_MAX, NUMBER_MAX, SyncSet, disk_of, format_set
from gantry.replication.record import Holder, Phase, Record, Store


class Denied(NamedTuple):
    """The operation is not for this record."""

    reason: str


# What a master does


def renew(record: Record, me: Holder, epoch: int, confirmed: int, now_ms: int) -> Record | Denied:
    """RENEW: still here, and confirmed this far.  It changes the record, so an older request of ours fails after it."""
    denied = _not_mine(record, me, epoch)
    if denied is not None:
        return denied
    return replace(record, confirm_floor=max(record.confirm_floor, confirmed), renewed_ms=now_ms)


def change_set(
    record: Record, me: Holder, epoch: int, base: SyncSet, target: SyncSet, min_in_sync: int
) -> Record | Denied:
    """SHRINK, EXPAND or REPLACE, as `insync.Change` says; a set that gets smaller stays at minInSync."""
    denied = _not_mine(record, me, epoch)
    if denied is not None:
        return denied
    if record.in_sync != base:
        return Denied(f"the set is {format_set(record.in_sync)}, expected {format_set(base)}")
    if len(target) < len(base) and len(target) < min_in_sync:
        return Denied(f"{format_set(target)} would be fewer than minInSync {min_in_sync}")
    if me.member not in target or len({member.ordinal for member in target}) != len(target):
        return Denied(f"{format_set(target)} is no set that {me} could lead")
    for member in target - base:
        store = record.store(member.ordinal)
        if store is None or store.disk != disk_of(member.incarnation):
            return Denied(f"{member} is not on the disk that was admitted for ordinal {member.ordinal}")
    return replace(record, in_sync=target, set_version=record.set_version + 1)


def take_next_epoch(record: Record, me: Holder, store_uid: str, log_end: int) -> Record | Denied:
    """SELF-EPOCH: the holder's process was started again and goes on, in an epoch of its own."""
    if record.phase is not Phase.ACTIVE or record.holder is None:
        return Denied(f"the group is {record.phase.value}")
    if record.holder.member != me.member:
        return Denied(f"{record.holder} leads, not {me}")
    store = record.store(me.member.ordinal)
    if store is None or store.uid != store_uid:
        return Denied(f"the store of ordinal {me.member.ordinal} is {store.uid if store else 'none'}, not {store_uid}")
    if log_end < record.confirm_floor:
        return Denied(f"the log ends at {log_end}, and up to {record.confirm_floor} it was confirmed")
    return _next_epoch(record, me, Phase.ACTIVE)


def hand_over(record: Record, me: Holder, epoch: int, target: Holder, keep: int = 0) -> Record | Denied:
    """HANDOVER: another member of the set leads the next epoch; whether it is ready is for the caller.

    keep: > 0 when this member stops afterwards: it leaves the set with the same write, if at least so many stay.
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


# What a coordinator does


def bootstrap(cluster_uid: str, lease_duration_s: int) -> Record:
    """BOOTSTRAP: the first record of a group whose every disk is empty."""
    return Record(cluster_uid, 1, Phase.BOOTSTRAPPING, lease_duration_s=lease_duration_s)


def recreate(
    cluster_uid: str, promises: Iterable[int], stores: tuple[tuple[int, Store], ...], lease_duration_s: int
) -> Record | Denied:
    """RECREATE: the register is gone, or older than a promise; `promises` and `stores` are those of *every* member."""
    epoch = max(promises, default=0) + 1
    if epoch > NUMBER_MAX:
        return Denied("there is no epoch left")
    return Record(cluster_uid, epoch, Phase.RECOVERING, stores=stores, lease_duration_s=lease_duration_s)


def seal(record: Record) -> Record | Denied:
    """SEAL: the epoch ends, nobody leads, the set is frozen.  A sealed group may be sealed again."""
    if record.phase not in (Phase.ACTIVE, Phase.SEALED):
        return Denied(f"a group that is {record.phase.value} has no master to seal")
    return _next_epoch(record, None, Phase.SEALED)


def promote(record: Record, chosen: Holder, in_sync: SyncSet) -> Record | Denied:
    """PROMOTE: `chosen` leads the sealed epoch; `in_sync` promised it and have everything that was acknowledged."""
    if record.phase is Phase.ACTIVE:
        return Denied(f"{record.holder} leads")
    if chosen.member not in in_sync:
        return Denied(f"{chosen} is not in {format_set(in_sync)}")
    if record.phase is Phase.SEALED and not in_sync <= record.in_sync:
        return Denied(f"{format_set(in_sync)} are not all in the sealed set {format_set(record.in_sync)}")
    for member in in_sync:
        store = record.store(member.ordinal)
        if store is None or store.disk != disk_of(member.incarnation):
            return Denied(f"{member} is not on the disk that was admitted for ordinal {member.ordinal}")
    return replace(
        record, phase=Phase.ACTIVE, holder=chosen, in_sync=in_sync, set_version=record.set_version + 1
    )


def force(record: Record, chosen: Holder, log_end: int) -> Record | Denied:
    """FORCE: by a person's word `chosen` leads the sealed epoch alone, and what it lacks of the set is given up."""
    if record.phase is not Phase.SEALED:
        return Denied(f"the group is {record.phase.value}")
    store = record.store(chosen.member.ordinal)
    if store is None or store.disk != disk_of(chosen.member.incarnation):
        return Denied(f"{chosen.member} is not on the disk that was admitted for ordinal {chosen.member.ordinal}")
    alone = frozenset({chosen.member})
    return replace(
        record, phase=Phase.ACTIVE, holder=chosen, in_sync=alone, set_version=record.set_version + 1,
        confirm_floor=min(record.confirm_floor, log_end),
    )  # fmt: skip


def last(record: Record, lease_duration_s: int) -> Record:
    """For how long a renewal is good from the next one on."""
    return replace(record, lease_duration_s=lease_duration_s)


def admit(record: Record, ordinal: int, store_uid: str) -> Record | Denied:
    """ADMIT: another disk stands under an ordinal; it gets a number that none had before."""
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
    return _with_store(record, ordinal, Store(store_uid, disk))


def remove(record: Record, ordinal: int) -> Record | Denied:
    """REMOVE: the ordinal goes; it must have left the set before."""
    if any(member.ordinal == ordinal for member in record.in_sync):
        return Denied(f"ordinal {ordinal} is in {format_set(record.in_sync)}")
    former = dict(record.stores).get(ordinal)
    return record if former is None else _with_store(record, ordinal, Store("", former.disk))


def _with_store(record: Record, ordinal: int, store: Store) -> Record:
    others = [entry for entry in record.stores if entry[0] != ordinal]
    return replace(record, stores=tuple(sorted([*others, (ordinal, store)])))


def _not_mine(record: Record, me: Holder, epoch: int) -> Denied | None:
    if record.holder != me or record.epoch != epoch:
        return Denied(f"{record.holder or 'nobody'} leads in epoch {record.epoch}, not {me} in {epoch}")
    return None


def _next_epoch(record: Record, holder: Holder | None, phase: Phase) -> Record | Denied:
    if record.epoch >= NUMBER_MAX:
        return Denied("there is no epoch left")
    return replace(record, epoch=record.epoch + 1, holder=holder, phase=phase)
