"""Metrics of a group: who of the slaves is in step, and how far behind each is.

Of a broker without replication they have no samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Sample
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole

if TYPE_CHECKING:
    from gantry.broker.parts import Parts


def in_sync(parts: Parts) -> Iterator[Sample]:
    """How many members acknowledge what is confirmed."""
    if isinstance(parts.group, MasterRole):
        yield (), len(parts.group.tracker.in_sync)


def needed(parts: Parts) -> Iterator[Sample]:
    """How many there have to be."""
    if isinstance(parts.group, MasterRole):
        yield (), parts.group.tracker.rules.min_in_sync


def changes(parts: Parts) -> Iterator[Sample]:
    """How often the set changed."""
    if isinstance(parts.group, MasterRole):
        yield (), parts.group.tracker.changes


def connected(parts: Parts) -> Iterator[Sample]:
    """Which links stand."""
    if isinstance(parts.group, MasterRole):
        for place, slave in parts.group.tracker.slaves.items():
            yield (_id(parts.group, place),), int(slave.is_connected)
    elif isinstance(parts.group, SlaveRole):
        yield ("0",), int(not parts.group.is_alone)


def lag_bytes(parts: Parts) -> Iterator[Sample]:
    """How much of the log each slave has not acknowledged."""
    written = parts.store.written.offset
    if isinstance(parts.group, MasterRole):
        for place, slave in parts.group.tracker.slaves.items():
            yield (_id(parts.group, place),), max(0, written - slave.held)
    elif isinstance(parts.group, SlaveRole):
        yield ("0",), max(0, parts.group.master_written - written)


def _id(group: MasterRole, place: int) -> str:
    """The brokerId of a slave: its place in a static pair, its ordinal + 1 where there is a register."""
    return str(place if group.serving_lease is None else place + 1)


def leads(parts: Parts) -> Iterator[Sample]:
    """Whether this member leads; one of a group is 1."""
    if parts.group is not None:
        yield (), int(isinstance(parts.group, MasterRole) and not parts.group.is_sealed)


def epoch(parts: Parts) -> Iterator[Sample]:
    """The epoch that this member leads or follows."""
    if isinstance(parts.group, MasterRole):
        yield (), parts.group.tracker.epoch
    elif isinstance(parts.group, SlaveRole) and not parts.group.is_alone:
        yield (), parts.group.epoch


def serving_lease(parts: Parts) -> Iterator[Sample]:
    """How long a master may serve if nobody answers it from now on."""
    if isinstance(parts.group, MasterRole) and parts.group.serving_lease is not None:
        yield (), max(0.0, parts.group.serving_lease.until_s - parts.clock.monotonic())

def lost_messages(parts: Parts) -> Iterator[Sample]:
    """Messages that were cut from this member's log."""
    if parts.losses is not None:
        yield (), parts.losses.messages


def lost_bytes(parts: Parts) -> Iterator[Sample]:
    """How many bytes of the log they had."""
    if parts.losses is not None:
        yield (), parts.losses.bytes


FAMILIES: tuple[Family, ...] = (
    Family(GAUGE, "gantry_in_sync_members", "Size of the in-sync set, the master too; only on a master.", (), in_sync),
    Family(GAUGE, "gantry_in_sync_members_needed", "With fewer nothing is confirmed; only on a master.", (), needed),
    Family(COUNTER, "gantry_in_sync_changes", "Members that joined or left; only on a master.", (), changes),
    Family(GAUGE, "gantry_group_leads", "1 on the member of a group that leads, 0 on the others.", (), leads),
    Family(GAUGE, "gantry_group_epoch", "The epoch that this member of a group leads or follows.", (), epoch),
    Family(
        GAUGE,
        "gantry_permit_seconds",
        "How long a master of a group with a register may serve if nobody answers it from now on.",
        (),
        serving_lease,
    ),
    Family(
        GAUGE,
        "gantry_replication_connected",
        "Links of replication: on a master to each slave, on a slave to its master (0).",
        ("broker_id",),
        connected,
    ),
    Family(
        GAUGE,
        "gantry_replication_lag_bytes",
        "What a slave does not hold of the master's log; on a slave (0): what it has not received.",
        ("broker_id",),
        lag_bytes,
    ),
    Family(
        COUNTER,
        "gantry_replication_lost_messages",
        "Acknowledged under ASYNC_MASTER, and cut from this member's log because its new master lacks them.",
        (),
        lost_messages,
    ),
    Family(COUNTER, "gantry_replication_lost_bytes", "Bytes of the log that these messages had.", (), lost_bytes),
)
