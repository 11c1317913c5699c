"""Build a broker's role in its group: a master's or a slave's, and the watcher of the register, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gantry.broker.durably import Durably
from gantry.broker.role import master_role, slave_role
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.membership import Membership, take_epoch
from gantry.broker.role.register_watcher import Outside as WatcherOutside
from gantry.broker.role.register_watcher import RegisterWatcher
from gantry.broker.role.register_watcher import Rules as WatcherRules
from gantry.broker.role.slave_role import SlaveRole
from gantry.broker.role.slave_tables import Tables
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.shares import replication_rules, replication_waits
from gantry.broker.stalled import GATE_STALLED
from gantry.consume.sharing import MASTER, Sharing
from gantry.metadata.journal import FILTER, LOCKS, MARKS, OFFSET, SINK, Journal
from gantry.replication.catch_up_pacing import CatchUpPacing
from gantry.replication.in_sync_tracker import InSyncTracker, Term
from gantry.replication.lease_renewal import LeaseRenewal
from gantry.replication.link import Connector
from gantry.replication.serving_lease import ServingLease
from gantry.replication.slave_links import SlaveLinks
from gantry.wire.ha import NONCE_BYTES

if TYPE_CHECKING:
    from gantry.broker.group.fencing import Fencing
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.replication.register import Register, Seen
    from gantry.store.background import Background

# A slave's word lasts a little longer than the time between two renewals, so that one of them may get lost.
_GRANT_RENEWALS = 1.2
_GRANT_BEATS = 3  # and beats come so often in that time
# A master that has just been named listens in a moment.
_AGAIN_FIRST_S, _AGAIN_S = 0.02, 0.25


@dataclass(frozen=True, slots=True)
class Ground:
    """What a member stands on besides the parts of its broker."""

    machine: Machine
    background: Background
    member: Membership
    promise_writer: PromiseWriter
    seen: Seen | None  # the register as it was when this member was given the group; None: it was not, or there is none
    restart: Callable[[str], None]  # end, and start again in this process


def make_group(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> MasterRole | SlaveRole:
    """The part in the group that the configuration gives this broker, wired."""
    is_slave = config.role is Role.SLAVE
    make = _slave_role if is_slave else _master_role
    group = make(config, parts, ground, durably)
    # Also where slaves are not read: a new master shows less than it has, and must not throw readers back.
    if config.replication.slave_read or is_slave or ground.member.has_register:
        parts.pulls.sharing = Sharing(
            config.id,
            config.store.warm_bytes,
            _reader(group, ground.member)
            if isinstance(group, MasterRole) and config.replication.slave_read
            else lambda: MASTER,
            (lambda: group.is_alone) if isinstance(group, SlaveRole) else lambda: False,
            parts.store.next_queue_offset,
        )
    return group


def _reader(group: MasterRole, member: Membership) -> Callable[[], int]:
    """Places of slaves are broker ids in a static pair, and one less than them with a register."""

    def reader() -> int:
        place = group.tracker.reader()
        return MASTER if place < 0 else place + member.has_register

    return reader


def make_watcher(
    config: BrokerConfig, parts: Parts, ground: Ground, register: Register, fencing: Fencing
) -> RegisterWatcher:
    """What keeps this member in step with the register; wired, not started."""
    member, group, clock = ground.member, parts.group, ground.machine.clock
    assert group is not None
    replication = config.replication
    rules = WatcherRules(replication.renew_every_s, replication.members)
    watcher = RegisterWatcher(register, member, parts.store, group, ground.promise_writer, clock, rules)
    registration = parts.registration

    def stand_as_slave(epoch: int) -> None:
        registration.stand_as(member.place + 1, epoch)

    watcher.outside = WatcherOutside(
        fencing.step_down,
        ground.restart,
        registration.complaints.say,
        stand_as_slave,
        lambda: GATE_STALLED in parts.gate.reasons,
    )
    if isinstance(group, MasterRole):
        registration.stand_as(MASTER, group.tracker.epoch)
        serving_lease = ServingLease(replication.renew_every_s * _GRANT_RENEWALS)
        tracker = group.tracker
        lease_renewal = LeaseRenewal(register, member.me, tracker, serving_lease, clock, ground.seen)
        watcher.lease_renewal = lease_renewal
        lease_renewal.settled = group.settled
        group.tracker.on_change = lambda change: watcher.hurry()
        group.serving_lease = serving_lease
        parts.activity.is_permitted = lambda: serving_lease.is_valid(clock.monotonic())
        parts.pulls.is_permitted = parts.activity.is_permitted
        if config.role is Role.ASYNC_MASTER:
            parts.acks.is_permitted = parts.activity.is_permitted
    else:
        group.outside = replace(group.outside, master=lambda: watcher.master, expect_news=watcher.expect_news)
    return watcher


def _nonce(machine: Machine) -> bytes:
    return machine.chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")


def _master_role(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> MasterRole:
    store, machine, member = parts.store, ground.machine, ground.member
    log_start, end = store.reader.log_start, store.written.offset
    if ground.seen is not None:
        record = ground.seen.record
        term = Term(record.epoch, member.me.member, record.in_sync, machine.clock.monotonic())
    else:
        store.in_reserve(lambda: take_epoch(member, machine.disk, store.settings.root, log_start, end))
        term = Term(member.epochs.last_epoch)
    tracker = InSyncTracker(end, store.confirmed.offset, term, replication_rules(config))
    journal = Journal(lambda: store.reader.log_start)
    source = master_role.Source(store, tracker, journal, config.name, member)
    tables = master_role.Tables(
        parts.topics,
        parts.groups,
        parts.offsets,
        lambda: parts.delays.document() if parts.activity.is_on else None,
        {
            OFFSET: parts.offsets,
            MARKS: parts.offsets.marks,
            LOCKS: parts.locks,
            FILTER: parts.filters,
            SINK: parts.batches.decisions,
        },
    )
    group = MasterRole(store, tracker, source, tables, journal, parts.gate)
    if member.has_register:
        source.grant_s = config.replication.renew_every_s * _GRANT_RENEWALS
    catch_up_pacing = CatchUpPacing(machine.wanted_s)
    slave_links = SlaveLinks(member.keys, term.epoch, source, machine.clock, lambda: _nonce(machine), catch_up_pacing)
    if member.has_register:
        slave_links.beat_s = min(slave_links.beat_s, source.grant_s / _GRANT_BEATS)
        slave_links.silence_s = replication_waits(config.replication).link_s
        slave_links.is_granted = lambda: GATE_STALLED not in parts.gate.reasons
    group.wire(slave_links, config.role is Role.SYNC_MASTER)
    parts.acks.why_late = group.why_late
    parts.activity.why_not = group.why_not
    durably.watch(group)
    group.kept_listeners.append(durably.look)
    return group


def _slave_role(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> SlaveRole:
    machine, registration = ground.machine, parts.registration
    place = slave_role.Place(machine.disk, parts.store.settings.root, ground.background.housekeeper, config.name)
    locks, filters, offsets, clock = parts.locks, parts.filters, parts.offsets, machine.clock
    decisions = parts.batches.decisions
    followed: Mapping[str, tuple[Callable[[], list[str]], Callable[[str, object], None]]] = {
        MARKS: (offsets.marks.keys, offsets.follow_marks),
        LOCKS: (locks.keys, lambda group, owners: locks.follow(group, owners, clock.monotonic())),
        FILTER: (filters.keys, filters.follow),
        SINK: (decisions.keys, decisions.follow),
    }
    tables = Tables(
        parts.topics, parts.groups, offsets, parts.delays.follow, durably, followed, decisions.save_if_changed
    )
    outside = slave_role.Outside(
        lambda: config.replication.master or registration.master_ha,
        lambda: registration.master_address,
        lambda: registration.topic_changed(""),
        ground.restart,
    )
    group = SlaveRole(parts.store, ground.member, ground.promise_writer, place, tables, parts.gate, outside)
    say = parts.registration.complaints.say
    parts.activity.why_not = lambda: group.remark
    connector = Connector(ground.member.keys, group, machine.clock, lambda: _nonce(machine), say)
    if ground.member.has_register:
        connector.first_s, connector.again_s = _AGAIN_FIRST_S, _AGAIN_S
        connector.silence_s = replication_waits(config.replication).link_s
    group.wire(connector)
    return group
