"""Metrics of replication: the in-sync set, links and lag of slaves, the epoch and losses.

A broker without replication has no samples of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gantry.broker.metrics.family import COUNTER, GAUGE, Family, Read, Sample
from gantry.replication.hastate import MemberRole

if TYPE_CHECKING:
    from gantry.broker.parts import Parts
    from gantry.broker.role.role_metrics import RoleMetrics


def _of_role(read: Callable[[RoleMetrics], float | None]) -> Read:
    """The one sample of a role; none where the role has no such value."""

    def samples(parts: Parts) -> Iterator[Sample]:
        value = None if parts.group is None else read(parts.group.metrics())
        if value is not None:
            yield (), value

    return samples


def _by_broker(read: Callable[[RoleMetrics], Mapping[str, int]]) -> Read:
    """One sample for each link of a role, with the brokerId at its other end."""

    def samples(parts: Parts) -> Iterator[Sample]:
        if parts.group is not None:
            for broker_id, value in read(parts.group.metrics()).items():
                yield (broker_id,), int(value)

    return samples


def leads(parts: Parts) -> Iterator[Sample]:
    """Whether this member leads; one of a group is 1."""
    if parts.group is not None:
        yield (), int(parts.group.status() is MemberRole.MASTER)


def terms(parts: Parts) -> Iterator[Sample]:
    """What this member's configuration says about its group, as labels."""
    if parts.terms is not None:
        said = parts.terms.to_document()
        yield tuple(str(said[name]) for name in ("role", "minInSync", "renewEveryMs", "segmentBytes", "members")), 1


def lost_messages(parts: Parts) -> Iterator[Sample]:
    """Messages that were cut from this member's log."""
    if parts.losses is not None:
        yield (), parts.losses.messages


def lost_bytes(parts: Parts) -> Iterator[Sample]:
    """How many bytes of the log they had."""
    if parts.losses is not None:
        yield (), parts.losses.bytes


FAMILIES: tuple[Family, ...] = (
    Family(
        GAUGE,
        "gantry_in_sync_members",
        "Size of the in-sync set, the master too; only on a master.",
        (),
        _of_role(lambda role: role.in_sync),
    ),
    Family(
        GAUGE,
        "gantry_in_sync_members_needed",
        "With fewer nothing is confirmed; only on a master.",
        (),
        _of_role(lambda role: role.in_sync_needed),
    ),
    Family(
        COUNTER,
        "gantry_in_sync_changes",
        "Members that joined or left; only on a master.",
        (),
        _of_role(lambda role: role.in_sync_changes),
    ),
    Family(GAUGE, "gantry_group_leads", "1 on the member of a group that leads, 0 on the others.", (), leads),
    Family(
        GAUGE,
        "gantry_group_epoch",
        "The epoch that this member of a group leads or follows.",
        (),
        _of_role(lambda role: role.epoch),
    ),
    Family(
        GAUGE,
        "gantry_replication_terms",
        "1, with what this member's configuration says about its group; the weakest of all members count.",
        ("role", "min_in_sync", "renew_every_ms", "segment_bytes", "members"),
        terms,
    ),
    Family(
        GAUGE,
        "gantry_permit_seconds",
        "How long a master of a group with a register may serve if nobody answers it from now on.",
        (),
        _of_role(lambda role: role.serving_lease_s),
    ),
    Family(
        GAUGE,
        "gantry_replication_connected",
        "Links of replication: on a master to each slave, on a slave to its master (0).",
        ("broker_id",),
        _by_broker(lambda role: role.connected),
    ),
    Family(
        GAUGE,
        "gantry_replication_lag_bytes",
        "What a slave does not hold of the master's log; on a slave (0): what it has not received.",
        ("broker_id",),
        _by_broker(lambda role: role.lag_bytes),
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
