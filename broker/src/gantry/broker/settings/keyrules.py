"""Rules between several keys, which the bounds of a single key cannot express.

A rule names its keys, so that the error can name where each of them was set.  All faults are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.settings.sections import MIB
from gantry.errors import ConfigError
from gantry.model.keys import BYTES, shown
from gantry.replication.handshake import SECRET_BYTES_MIN
from gantry.replication.members import MEMBERS_MAX
from gantry.schedule import levels

# An encoded record is longer than its body; RocketMQ reserves 64 KiB for the rest.
RECORD_OVERHEAD_BYTES = 64 << 10
_PAGE_BYTES = 4096
# RocketMQ maps an index file as a whole, and Java maps less than 2 GiB.
_INDEX_FILE_BYTES_MAX = 2048 * MIB - 1


def body_bytes_most(segment_bytes: int) -> int:
    """Return the largest `messages.body_bytes_max` for segments of this size: two records have to fit."""
    return (segment_bytes - RECORD_OVERHEAD_BYTES) // 2


class Fault(NamedTuple):
    """A broken rule, and its keys."""

    text: str
    keys: tuple[str, ...]


def check(config: BrokerConfig, places: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError naming every rule that is broken, and where its keys were set (`places`, by dotted key)."""
    found = [_told(fault, places or {}) for fault in _faults(config)]
    if found:
        raise ConfigError("; ".join(found))


def _told(fault: Fault, places: Mapping[str, str]) -> str:
    where = ", ".join(f"{key} from {places[key]}" for key in fault.keys if key in places)
    return f"{fault.text} [{where}]" if where else fault.text


def _faults(config: BrokerConfig) -> Iterator[Fault]:
    yield from _of_store(config)
    yield from _of_limits(config)
    yield from _of_a_member(config)
    if config.replication.register:
        yield from _of_a_register(config)


def _of_store(config: BrokerConfig) -> Iterator[Fault]:
    store, body = config.store, config.messages.body_bytes_max
    least = 2 * body + RECORD_OVERHEAD_BYTES
    if store.segment_bytes < least:
        yield Fault(
            f"store.segment_bytes {shown(store.segment_bytes, BYTES)}: expected at least {shown(least, BYTES)} for two "
            f"bodies of messages.body_bytes_max {shown(body, BYTES)}",
            ("store.segment_bytes", "messages.body_bytes_max"),
        )
    if store.segment_bytes % _PAGE_BYTES:
        yield Fault(
            f"store.segment_bytes {store.segment_bytes}: expected a multiple of {_PAGE_BYTES}", ("store.segment_bytes",)
        )
    index = 40 + 4 * store.index_slots + 20 * store.index_entries
    if index > _INDEX_FILE_BYTES_MAX:
        yield Fault(
            f"store.index_slots {store.index_slots} and store.index_entries {store.index_entries} make a file of "
            f"{index} bytes, expected less than 2 GiB: 4 bytes a slot, 20 an entry",
            ("store.index_slots", "store.index_entries"),
        )
    try:
        levels.parse(config.delays.levels)
    except ValueError as error:
        yield Fault(f"delays.levels: {error}", ("delays.levels",))


def _of_limits(config: BrokerConfig) -> Iterator[Fault]:
    network = config.network
    answer = max(config.pull.bytes_max, config.messages.body_bytes_max) + RECORD_OVERHEAD_BYTES
    least = network.output_bytes_high + answer  # a request is read while no more than output_bytes_high waits
    if network.output_bytes_max < least:
        yield Fault(
            f"network.output_bytes_max {shown(network.output_bytes_max, BYTES)}: expected at least "
            f"{shown(least, BYTES)}, for network.output_bytes_high {shown(network.output_bytes_high, BYTES)} and one "
            f"answer of pull.bytes_max {shown(config.pull.bytes_max, BYTES)} or one message of "
            f"messages.body_bytes_max {shown(config.messages.body_bytes_max, BYTES)}; raise it or lower the others",
            ("network.output_bytes_max", "network.output_bytes_high", "pull.bytes_max", "messages.body_bytes_max"),
        )
    # disk_used_max and disk_used_clean are not compared: stock broker.conf files have 88 above the forced 85.


def _of_a_member(config: BrokerConfig) -> Iterator[Fault]:
    if config.role is not Role.ASYNC_MASTER and not config.replication.secret_file:
        yield Fault(
            f"role {config.role}: set replication.secret_file to a file with a secret of {SECRET_BYTES_MIN} bytes or "
            "more, the same on all brokers of the group (haSecretFile in a broker.conf)",
            ("role",),
        )
    is_slave = config.role is Role.SLAVE
    if not config.replication.register and not (0 < config.id < MEMBERS_MAX if is_slave else config.id == 0):
        yield Fault(
            f"id {config.id} with role {config.role}: a master's id is 0, a slave's 1 to {MEMBERS_MAX - 1}",
            ("id", "role"),
        )


def _of_a_register(config: BrokerConfig) -> Iterator[Fault]:
    given = config.replication
    members = len(given.members)
    if not given.secret_file:
        yield Fault(
            "replication.register: set replication.secret_file too, the same on all members", ("replication.register",)
        )
    if (config.role is Role.SLAVE) is (config.id == 0) or config.id not in (0, given.ordinal + 1):
        yield Fault(
            "with replication.register the role is the group's, SYNC_MASTER or ASYNC_MASTER, and id is not set: "
            "who leads stands in the register",
            ("role", "id"),
        )
    if members < 2 or not 0 <= given.ordinal < members:
        yield Fault(
            f"replication.ordinal {given.ordinal} of {members} replication.members: name the replication address of "
            f"each member (2 to {MEMBERS_MAX}) in order, and which of them this is",
            ("replication.ordinal", "replication.members"),
        )
    elif config.role is Role.SYNC_MASTER and (given.min_in_sync or 2) >= members > 2:
        yield Fault(
            f"replication.min_in_sync {given.min_in_sync or 2} with {members} members: one loss would stop writes; "
            "choose less, or add a member",
            ("replication.min_in_sync", "replication.members"),
        )
