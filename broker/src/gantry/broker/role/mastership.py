"""The state of a master's epoch, made before the other parts: the epoch, the in-sync set, the serving lease."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gantry.broker.part_settings import replication_rules
from gantry.broker.role.membership import Membership, take_epoch
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.replication.in_sync_tracker import InSyncTracker, Term
from gantry.replication.insync import InSyncChange
from gantry.replication.serving_lease import ServingLease
from gantry.replication.timers import derive_serving_waits
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.broker.machine import Machine
    from gantry.broker.role.member_register import MemberRegister
    from gantry.clock import Clock
    from gantry.replication.register import Seen
    from gantry.store.store import Store

_LATE = {
    "self": ResponseCode.FLUSH_DISK_TIMEOUT,
    "gone": ResponseCode.SLAVE_NOT_AVAILABLE,
    "slow": ResponseCode.FLUSH_SLAVE_TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Mastership:
    """One epoch of one master. With a register: its record at the beginning of the epoch, and the serving lease."""

    tracker: InSyncTracker
    clock: Clock
    seen: Seen | None = None
    serving_lease: ServingLease | None = None

    def may_serve(self) -> bool:
        """Return whether this master may serve now: always without a register, else while its lease is valid."""
        return self.serving_lease is None or self.serving_lease.is_valid(self.clock.monotonic())

    def why_late(self, end: int) -> int:
        """Return the send status of a message that ends at `end` and was not confirmed in time."""
        return _LATE[self.tracker.why_late(end, self.clock.monotonic())]


def begin(
    config: BrokerConfig,
    member: Membership,
    store: Store,
    machine: Machine,
    register: MemberRegister | None,
    seen: Seen | None,
) -> Mastership | None:
    """Begin the epoch that the register gave this member, or without a register the next one. None: a slave."""
    if config.role is Role.SLAVE:
        return None
    end, clock, rules = store.written.offset, machine.clock, replication_rules(config)
    if register is None or seen is None:
        ends = store.reader.log_start, end
        store.in_reserve(partial(take_epoch, member, machine.disk, store.settings.root, *ends))
        return Mastership(InSyncTracker(end, store.confirmed.offset, Term(member.epochs.last_epoch), rules), clock)
    term = Term(seen.record.epoch, member.me.member, seen.record.in_sync, clock.monotonic())
    waits = derive_serving_waits(config.replication.renew_every_s)
    serving_lease = ServingLease(waits.fresh_s, waits.heard_s)

    def note_change(change: InSyncChange) -> None:
        # Who joins may be elected from the moment at which the register is asked: a master is not alone any more.
        serving_lease.count(tracker.insync.others)
        register.hurry()

    tracker = InSyncTracker(end, store.confirmed.offset, term, rules, note_change)
    return Mastership(tracker, clock, seen, serving_lease)
