"""Building a broker's part in its group: a master's, a slave's, or none; and its office, where there is a register."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gantry.broker.durably import Durably
from gantry.broker.role import following, mastering
from gantry.broker.role.followed import Tables
from gantry.broker.role.following import Following
from gantry.broker.role.mastering import Mastering
from gantry.broker.role.membership import Membership, take_epoch
from gantry.broker.role.office import Office
from gantry.broker.role.office import Outside as OfficeOutside
from gantry.broker.role.office import Rules as OfficeRules
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.shares import replication_rules, replication_waits
from gantry.broker.stalled import GATE_STALLED
from gantry.consume.sharing import MASTER, Sharing
from gantry.metadata.journal import FILTER, LOCKS, MARKS, OFFSET, SINK, Journal
from gantry.replication.hub import Hub
from gantry.replication.leftovers import Leftovers
from gantry.replication.link import Connector
from gantry.replication.mastery import Mastery, Term
from gantry.replication.permit import Permit
from gantry.replication.tenure import Tenure
from gantry.wire.ha import NONCE_BYTES

if TYPE_CHECKING:
    from gantry.broker.group.sealing import Sealing
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.broker.role.vowing import Vowing
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
    vowing: Vowing
    seen: Seen | None  # the register as it was when this member was given the group; None: it was not, or there is none
    restart: Callable[[str], None]  # end, and start anew in this process


def make_group(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> Mastering | Following:
    """The part in the group that the configuration gives this broker, wired."""
    is_slave = config.role is Role.SLAVE
    make = _following if is_slave else _mastering
    group = make(config, parts, ground, durably)
    # Also where slaves are not read: a new master shows less than it has, and must not throw readers back.
    if config.replication.slave_read or is_slave or ground.member.has_register:
        parts.pulls.sharing = Sharing(
            config.id,
            config.store.warm_bytes,
            _reader(group, ground.member)
            if isinstance(group, Mastering) and config.replication.slave_read
            else lambda: MASTER,
            (lambda: group.is_alone) if isinstance(group, Following) else lambda: False,
            parts.store.next_queue_offset,
        )
    return group


def _reader(group: Mastering, member: Membership) -> Callable[[], int]:
    """Places of slaves are broker ids in a static pair, and one less than them with a register."""

    def reader() -> int:
        place = group.mastery.reader()
        return MASTER if place < 0 else place + member.has_register

    return reader


def make_office(
    config: BrokerConfig, parts: Parts, ground: Ground, register: Register, sealing: Sealing
) -> Office:
    """What keeps this member in step with the register; wired, not started."""
    member, group, clock = ground.member, parts.group, ground.machine.clock
    assert group is not None
    replication = config.replication
    rules = OfficeRules(replication.renew_every_s, replication.members)
    office = Office(register, member, parts.store, group, ground.vowing, clock, rules)
    registration = parts.registration

    def stand_as_slave(epoch: int) -> None:
        registration.stand_as(member.place + 1, epoch)

    office.outside = OfficeOutside(
        sealing.step_down,
        ground.restart,
        registration.complaints.say,
        stand_as_slave,
        lambda: GATE_STALLED in parts.gate.reasons,
    )
    if isinstance(group, Mastering):
        registration.stand_as(MASTER, group.mastery.epoch)
        permit = Permit(replication.renew_every_s * _GRANT_RENEWALS)
        office.tenure = tenure = Tenure(register, member.me, group.mastery, permit, clock, ground.seen)
        tenure.settled = group.settled
        group.mastery.on_change = lambda change: office.hurry()
        group.permit = permit
        parts.activity.is_permitted = lambda: permit.is_valid(clock.monotonic())
        parts.pulls.is_permitted = parts.activity.is_permitted
        if config.role is Role.ASYNC_MASTER:
            parts.acks.is_permitted = parts.activity.is_permitted
    else:
        group.outside = replace(group.outside, master=lambda: office.master, expect_news=office.expect_news)
    return office


def _nonce(machine: Machine) -> bytes:
    return machine.chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")


def _mastering(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> Mastering:
    store, machine, member = parts.store, ground.machine, ground.member
    log_start, end = store.reader.log_start, store.written.offset
    if ground.seen is not None:
        record = ground.seen.record
        term = Term(record.epoch, member.me.member, record.in_sync, machine.clock.monotonic())
    else:
        store.in_reserve(lambda: take_epoch(member, machine.disk, store.settings.root, log_start, end))
        term = Term(member.epochs.last_epoch)
    mastery = Mastery(end, store.confirmed.offset, term, replication_rules(config))
    journal = Journal(lambda: store.reader.log_start)
    source = mastering.Source(store, mastery, journal, config.name, member)
    tables = mastering.Tables(
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
    group = Mastering(store, mastery, source, tables, journal, parts.gate)
    if member.has_register:
        source.grant_s = config.replication.renew_every_s * _GRANT_RENEWALS
    leftovers = Leftovers(machine.wanted_s)
    hub = Hub(member.keys, term.epoch, source, machine.clock, lambda: _nonce(machine), leftovers)
    if member.has_register:
        hub.beat_s = min(hub.beat_s, source.grant_s / _GRANT_BEATS)
        hub.silence_s = replication_waits(config.replication).link_s
        hub.is_granted = lambda: GATE_STALLED not in parts.gate.reasons
    group.wire(hub, config.role is Role.SYNC_MASTER)
    parts.acks.why_late = group.why_late
    parts.activity.why_not = group.why_not
    durably.watch(group)
    group.kept_listeners.append(durably.look)
    return group


def _following(config: BrokerConfig, parts: Parts, ground: Ground, durably: Durably) -> Following:
    machine, registration = ground.machine, parts.registration
    place = following.Place(machine.disk, parts.store.settings.root, ground.background.housekeeper, config.name)
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
    outside = following.Outside(
        lambda: config.replication.master or registration.master_ha,
        lambda: registration.master_address,
        lambda: registration.topic_changed(""),
        ground.restart,
    )
    group = Following(parts.store, ground.member, ground.vowing, place, tables, parts.gate, outside)
    say = parts.registration.complaints.say
    parts.activity.why_not = lambda: group.remark
    connector = Connector(ground.member.keys, group, machine.clock, lambda: _nonce(machine), say)
    if ground.member.has_register:
        connector.first_s, connector.again_s = _AGAIN_FIRST_S, _AGAIN_S
        connector.silence_s = replication_waits(config.replication).link_s
    group.wire(connector)
    return group
