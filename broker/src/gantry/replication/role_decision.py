"""A member's role by the register: lead, claim the next epoch, follow, or stand by.

A pure function of the record and the member's own state.  The caller reads the register live, and writes the record of
a `Claim` on the version that it read.

    Lead      the record names this process, in an epoch in which this disk has neither led nor followed: it was
              promoted, it was handed the group, or its claim was written
    Claim     the record names this member's former process: SELF-EPOCH, because a restarted process does not know
              what its slaves have, and never continues the old epoch
    Follow    another member leads
    Stand     no member leads, or the register does not know this disk yet; with the reason, for people

A disk that was not admitted does not follow: after the first byte it would not count as unused any more.
broker/docs/failover.md, sections 3 and 5, is normative.
"""

from __future__ import annotations

from typing import NamedTuple

from gantry.replication import operations
from gantry.replication.members import disk_of
from gantry.replication.operations import Denied
from gantry.replication.record import Holder, Phase, RegisterRecord
from gantry.replication.terms import Terms


class OwnState(NamedTuple):
    """What the member knows about itself: its identity, log and promise."""

    me: Holder
    cluster_uid: str  # empty: it never met its group
    store_uid: str
    log_end: int
    last_epoch: int  # the last one in which this disk led or followed
    promise: int
    terms: Terms | None = None


class Lead(NamedTuple):
    """The member is the master in this epoch."""

    epoch: int


class Claim(NamedTuple):
    """Write this record, then lead its epoch."""

    record: RegisterRecord


class Follow(NamedTuple):
    """Follow this ordinal, which leads the epoch."""

    ordinal: int
    epoch: int


class Stand(NamedTuple):
    """The member neither leads nor follows, for this reason."""

    reason: str


RoleDecision = Lead | Claim | Follow | Stand


def decide_role(record: RegisterRecord | None, known: OwnState) -> RoleDecision:
    """Return the member's role. record: None when there is no register."""
    if record is None:
        return Stand("the group has no register yet; a coordinator makes it when every member answers")
    member = known.me.member
    if known.cluster_uid not in ("", record.cluster_uid):
        return Stand(
            f"this folder is of the cluster {known.cluster_uid}, the register of {record.cluster_uid}; "
            "choose another folder, or empty it"
        )
    if record.disk_number(member.ordinal, known.store_uid) != disk_of(member.incarnation):
        return Stand(f"the register does not know the disk of ordinal {member.ordinal} yet")
    holder = record.holder
    if record.phase is not Phase.ACTIVE or holder is None:
        return Stand(f"nobody leads: the group is {record.phase.value} in epoch {record.epoch}")
    if holder.member.ordinal != member.ordinal:
        return Follow(holder.member.ordinal, record.epoch)
    if known.promise > record.epoch:
        return Stand(f"epoch {known.promise} was promised, the register is at {record.epoch}")
    if holder == known.me and known.last_epoch < record.epoch:
        return Lead(record.epoch)
    claimed = operations.take_next_epoch(record, known.me, known.store_uid, known.log_end, known.terms)
    return Stand(claimed.reason) if isinstance(claimed, Denied) else Claim(claimed)
