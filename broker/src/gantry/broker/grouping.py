"""Building a broker's part in its group: a master's, a slave's, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker import following, mastering
from gantry.broker.config import BrokerConfig, Role
from gantry.broker.durably import Durably
from gantry.broker.following import Following
from gantry.broker.mastering import Mastering
from gantry.broker.membership import Membership, take_epoch
from gantry.broker.shares import replication_rules
from gantry.consume.sharing import MASTER, Sharing
from gantry.metadata.journal import Journal
from gantry.replication.hub import Hub
from gantry.replication.link import Connector
from gantry.replication.mastery import Mastery
from gantry.wire.ha import NONCE_BYTES

if TYPE_CHECKING:
    from gantry.broker.machine import Machine
    from gantry.broker.parts import Parts
    from gantry.store.background import Background

@dataclass(frozen=True, slots=True)
class Ground:
    """What a member stands on besides the parts of its broker."""

    machine: Machine
    background: Background
    member: Membership
    durably: Durably
    restart: Callable[[str], None]  # end, and start anew in this process


def make_group(config: BrokerConfig, parts: Parts, ground: Ground) -> Mastering | Following:
    """The part in the group that the configuration gives this broker, wired."""
    is_slave = config.role is Role.SLAVE
    group = _following(config, parts, ground) if is_slave else _mastering(config, parts, ground)
    if config.replication.slave_read or is_slave:
        parts.pulls.sharing = Sharing(
            config.id,
            config.store.warm_bytes,
            group.mastery.reader if isinstance(group, Mastering) else lambda: MASTER,
            (lambda: group.is_alone) if isinstance(group, Following) else lambda: False,
            parts.store.next_queue_offset,
        )
    return group


def _nonce(machine: Machine) -> bytes:
    return machine.chance.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")


def _mastering(config: BrokerConfig, parts: Parts, ground: Ground) -> Mastering:
    store, machine, member = parts.store, ground.machine, ground.member
    log_start, end = store.reader.log_start, store.written.offset
    epoch = take_epoch(member, machine.disk, store.settings.root, log_start, end)
    mastery = Mastery(end, store.confirmed.offset, epoch, replication_rules(config))
    journal = Journal()
    source = mastering.Source(store, mastery, journal, config.name, member)
    tables = mastering.Tables(
        parts.topics, parts.groups, parts.offsets, lambda: parts.delays.document() if parts.activity.is_on else None
    )
    group = Mastering(store, mastery, source, tables, journal, parts.gate)
    hub = Hub(member.secret, epoch, source, machine.clock, lambda: _nonce(machine))
    group.wire(hub, config.role is Role.SYNC_MASTER)
    parts.acks.why_late = group.why_late
    parts.activity.why_not = group.why_not
    ground.durably.watch(group)
    group.kept_listeners.append(ground.durably.look)
    return group


def _following(config: BrokerConfig, parts: Parts, ground: Ground) -> Following:
    machine, registration = ground.machine, parts.registration
    place = following.Place(
        machine.disk, parts.store.settings.root, ground.background.housekeeper, config.name, config.id
    )
    tables = following.Tables(parts.topics, parts.groups, parts.offsets, parts.delays.follow, ground.durably)
    outside = following.Outside(
        lambda: config.replication.master or registration.master_ha,
        lambda: registration.master_address,
        lambda: registration.topic_changed(""),
        ground.restart,
    )
    group = Following(parts.store, ground.member, place, tables, parts.gate, outside)
    say = parts.registration.complaints.say
    parts.activity.why_not = lambda: group.remark
    group.wire(Connector(ground.member.secret, group, machine.clock, lambda: _nonce(machine), say))
    return group
