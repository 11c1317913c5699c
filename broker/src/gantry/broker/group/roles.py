"""Builds a member's role, master or slave, and the watcher of the register if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.part_settings import replication_waits
from gantry.broker.role import master_role, slave_role
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.mastership import Mastership
from gantry.broker.role.membership import Membership
from gantry.broker.role.register_watcher import RegisterWatcher, WatcherHooks
from gantry.broker.role.slave_role import SlaveRole
from gantry.broker.role.slave_tables import AppliedTables
from gantry.broker.settings.config import BrokerConfig
from gantry.broker.stalled import GATE_STALLED
from gantry.consume.slave_reads import MASTER, SlaveReads
from gantry.metadata.journal import BEGIN, FILTER, GROUP, LOCKS, MARKS, MODE, OFFSET, RESETS, SINK, TOPIC
from gantry.metadata.savedtogether import SavedTogether
from gantry.replication.catch_up_pacing import CatchUpPacing
from gantry.replication.in_sync_tracker import InSyncTracker
from gantry.replication.lease_renewal import LeaseRenewal
from gantry.replication.link import Connector
from gantry.replication.link_ends import LinkRules, LinkWaits
from gantry.replication.serving_lease import LeaseNews
from gantry.replication.slave_links import SlaveLinks
from gantry.replication.timers import BEAT_S, LINK_S, derive_serving_waits
from gantry.wire.ha import NONCE_BYTES

if TYPE_CHECKING:
    from gantry.append.acks import Acks
    from gantry.append.admit import WriteGate
    from gantry.broker.durably import Durably
    from gantry.broker.groupprogress import GroupProgress
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.broker.registration import RegistrationTask
    from gantry.broker.requests.activity import Activity
    from gantry.broker.role.member_register import MemberRegister
    from gantry.broker.role.promise_writer import PromiseWriter
    from gantry.consume.filterdata import ConsumerFilters
    from gantry.consume.locks import QueueLocks
    from gantry.metadata.groups import Groups
    from gantry.metadata.offsets import Offsets
    from gantry.metadata.topics import Topics
    from gantry.pop.modes import Modes
    from gantry.replication.losses import Losses
    from gantry.schedule.service import DelayService
    from gantry.store.background import Background
    from gantry.store.store import Store
    from gantry.transaction.decisions import Decisions

# A new master listens soon after it is named.
_AGAIN_FIRST_S, _AGAIN_S = 0.02, 0.25


@dataclass(frozen=True, slots=True)
class Ground:
    """What a member's role is built on, before the other parts of its broker exist."""

    machine: Machine
    background: Background
    member: Membership
    promise_writer: PromiseWriter
    mastership: Mastership | None  # None: this life follows
    losses: Losses | None = None
    register: MemberRegister | None = None  # None: a static pair


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of a broker that its role works with."""

    store: Store
    topics: Topics
    groups: Groups
    progress: GroupProgress
    filters: ConsumerFilters
    modes: Modes
    delays: DelayService
    decisions: Decisions
    gate: WriteGate
    acks: Acks
    activity: Activity
    registration: RegistrationTask
    durably: Durably
    restart: Callable[[str], None]  # end, and start again in this process

    @property
    def offsets(self) -> Offsets:
        """The offsets of groups; clients' ones get in by `progress.commits`."""
        return self.progress.commits.offsets

    @property
    def locks(self) -> QueueLocks:
        """The queue locks of orderly consumers."""
        return self.progress.locks


def make_role(config: BrokerConfig, ground: Ground, shared: Shared) -> tuple[MasterRole | SlaveRole, SlaveReads | None]:
    """The role that this life has in its group, and which readers it sends to other members.

    Wired, not started.  None: all readers read here.
    """
    if ground.mastership is None:
        slave = _slave_role(config, ground, shared)
        return slave, _slave_reads(config, shared.store, lambda: MASTER, lambda: slave.is_alone)
    master = _master_role(config, ground, ground.mastership, shared)
    if config.replication.slave_read:
        return master, _slave_reads(config, shared.store, _slave_to_read(master.tracker, ground.member), lambda: False)
    # Also where slaves are not read: a new master shows less than it has, and must not throw readers back.
    has_register = ground.member.has_register
    return master, _slave_reads(config, shared.store, lambda: MASTER, lambda: False) if has_register else None


def _slave_reads(
    config: BrokerConfig, store: Store, slave_to_read: Callable[[], int], is_alone: Callable[[], bool]
) -> SlaveReads:
    return SlaveReads(config.id, config.store.warm_bytes, slave_to_read, is_alone, store.next_queue_offset)


def _slave_to_read(tracker: InSyncTracker, member: Membership) -> Callable[[], int]:
    """Places of slaves are broker ids in a static pair, and one less than them with a register."""

    def broker_id() -> int:
        place = tracker.slave_to_read()
        return MASTER if place < 0 else place + member.has_register

    return broker_id


def make_watcher(
    config: BrokerConfig, ground: Ground, register: MemberRegister, parts: Parts, restart: Callable[[str], None]
) -> RegisterWatcher:
    """Return the watcher that keeps this member in step with the register; connected, not started."""
    member, role, mastership, registration = ground.member, parts.group, ground.mastership, parts.registration
    assert role is not None
    lease_renewal = None
    if mastership is not None and isinstance(role, MasterRole):
        assert mastership.serving_lease is not None
        registration.stand_as(MASTER, mastership.tracker.epoch)
        lease_renewal = LeaseRenewal(
            register.writer,
            member.me,
            mastership.tracker,
            mastership.serving_lease,
            ground.machine.clock,
            mastership.seen,
            role.settled,
        )
    outside = WatcherHooks(
        restart,
        registration.complaints.say,
        lambda epoch: registration.stand_as(member.place + 1, epoch),
        lambda: GATE_STALLED in parts.gate.reasons,
    )
    return RegisterWatcher(register, role, ground.promise_writer, config.replication, outside, lease_renewal)


def _nonce(machine: Machine) -> bytes:
    return machine.chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")


def _master_role(config: BrokerConfig, ground: Ground, mastership: Mastership, shared: Shared) -> MasterRole:
    machine, member, gate = ground.machine, ground.member, shared.gate
    tables = master_role.ReplicatedTables(
        shared.topics,
        shared.groups,
        shared.progress.commits.merge,
        lambda: shared.delays.document() if shared.activity.is_on else None,
        {
            OFFSET: shared.offsets,
            MARKS: shared.offsets.marks,
            RESETS: shared.offsets.places,
            BEGIN: shared.offsets.begins,
            LOCKS: shared.locks,
            FILTER: shared.filters,
            MODE: shared.modes,
            SINK: shared.decisions,
        },
    )

    def ended(epoch: int) -> None:
        shared.activity.end(lambda: f"this master was sealed in epoch {epoch}; ask the group's next one")
        shared.acks.seal()
        if member.has_register:
            shared.registration.stand_as(member.place + 1, epoch)

    role = MasterRole(shared.store, mastership, tables, gate, config, member, ended)
    epoch, pacing = mastership.tracker.epoch, CatchUpPacing(machine.wanted_s)
    rules = LinkRules(BEAT_S, LINK_S, lambda: True)
    if member.has_register:
        silence_s = replication_waits(config.replication).link_s
        beat_s = derive_serving_waits(config.replication.renew_every_s).beat_s
        rules = LinkRules(beat_s, silence_s, lambda: GATE_STALLED not in gate.reasons)
    role.wire(SlaveLinks(member.keys, epoch, role.feed, machine.clock, lambda: _nonce(machine), pacing, rules))
    shared.activity.wait(role.why_not)
    shared.durably.watch(role, mastership.tracker.who_lacks)
    role.kept_listeners.append(shared.durably.look)
    if role.serving_lease is not None:
        # Without a lease it refuses everybody, so no name server may call it the master.

        def told(has_lease: bool) -> None:
            shared.registration.stand_as(MASTER if has_lease else member.place + 1, epoch)

        role.lease_news = LeaseNews(role.serving_lease, told)
    return role


def _progress_saves(shared: Shared) -> Callable[[], Awaitable[bool]]:
    """Return what saves a slave's changes that its master may answer when they are durable there."""
    progress, modes = shared.progress, shared.modes

    async def save_modes() -> bool:
        for _ in modes.saving(always=True):
            await asyncio.sleep(0)
        return await shared.durably.caught_up()

    tables = progress.firsts, progress.owners, SavedTogether(lambda: modes.changes, save_modes)

    async def save() -> bool:
        are_saved = [await table.saved() for table in tables]
        return all(are_saved) and await shared.durably.caught_up()

    return save


def _slave_role(config: BrokerConfig, ground: Ground, shared: Shared) -> SlaveRole:
    machine, register = ground.machine, ground.register
    registration, replication = shared.registration, config.replication
    place = slave_role.MemberFolder(
        machine.disk, shared.store.settings.root, ground.background.housekeeper, config.name
    )
    locks, filters, offsets, clock = shared.locks, shared.filters, shared.offsets, machine.clock
    decisions, topics, groups = shared.decisions, shared.topics, shared.groups
    followed: Mapping[str, tuple[Callable[[], list[str]], Callable[[str, object], None]]] = {
        TOPIC: (topics.names, topics.follow),
        GROUP: (lambda: [group.name for group in groups.all()], groups.follow),
        OFFSET: (offsets.keys, offsets.follow),
        MARKS: (offsets.marks.keys, offsets.follow_marks),
        RESETS: (offsets.places.keys, offsets.follow_places),
        BEGIN: (offsets.begins.keys, offsets.follow_begins),
        LOCKS: (locks.keys, lambda group, owners: locks.follow(group, owners, clock.monotonic())),
        FILTER: (filters.keys, filters.follow),
        MODE: (shared.modes.keys, shared.modes.follow),
        SINK: (decisions.keys, decisions.follow),
    }
    tables = AppliedTables(
        topics,
        groups,
        offsets,
        shared.progress.commits.merge,
        shared.delays.follow,
        shared.durably,
        followed,
        decisions.file.save_if_changed,
        _progress_saves(shared),
    )
    outside = slave_role.SlaveHooks(
        (lambda: replication.master or registration.master_ha) if register is None else lambda: register.master,
        lambda: registration.master_address,
        lambda: registration.topic_changed(""),
        shared.restart,
        (lambda: None) if register is None else register.expect_master,
    )
    role = SlaveRole(shared.store, ground.member, ground.promise_writer, place, tables, shared.gate, outside)
    shared.activity.wait(lambda: role.remark)
    waits = LinkWaits()
    if register is not None:
        waits = LinkWaits(_AGAIN_FIRST_S, _AGAIN_S, replication_waits(replication).link_s)
    say = registration.complaints.say
    role.wire(Connector(ground.member.keys, role, clock, lambda: _nonce(machine), say, waits))
    return role
