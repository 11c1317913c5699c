"""Makes the settings, rules and limits of each part from the broker's configuration."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from gantry.append.acks import AckLimits
from gantry.append.admit import MessageLimits
from gantry.append.batch import MessageStamp
from gantry.broker.registration_body import BrokerIdentity
from gantry.broker.settings.config import HOT, BrokerConfig, Role
from gantry.broker.settings.keyrules import RECORD_OVERHEAD_BYTES, body_bytes_most
from gantry.broker.settings.ports import VIP_NONE, Addresses
from gantry.broker.settings.sections import BODY_BYTES_MAX, ReplicationConfig, TransactionProfile
from gantry.broker.settings.sources import flat, replaced
from gantry.consume.handlers import PullLimits
from gantry.consume.lookups import LOOKUP_BYTES_MAX
from gantry.errors import StoreError
from gantry.metadata.clients import ClientLimits
from gantry.pop.assignment import Mode
from gantry.pop.assignment_handlers import AssignmentRules
from gantry.pop.held import HeldLimits
from gantry.pop.service import PopRules
from gantry.replication.in_sync_tracker import InSyncPolicy
from gantry.replication.terms import Terms
from gantry.replication.timers import Waits, derive_waits, slow_after_s
from gantry.schedule import levels
from gantry.schedule.rules import DelayRules
from gantry.store import sizes
from gantry.store.disk import Disk
from gantry.store.settings import StoreSettings
from gantry.store.store import Store
from gantry.store.watermarks import Watermark
from gantry.transaction.checker import CheckPolicy
from gantry.transport.limits import ConnectionLimits

log = logging.getLogger("gantry.broker")

HTTP_NONE = -1


def transaction_rules(config: BrokerConfig) -> CheckPolicy:
    """Return the rules of transaction checks, from the profile and the keys."""
    given = config.transactions
    is_cloud = given.profile is TransactionProfile.CLOUD
    checks_max, age_max_hours = (0, 12.0) if is_cloud else (15, config.store.reserved_hours)
    return CheckPolicy(
        immunity_ms=round(given.immunity_s * 1000),
        checks_max=checks_max if given.checks_max < 0 else given.checks_max,
        age_max_ms=round((age_max_hours if given.age_max_hours < 0 else given.age_max_hours) * 3_600_000),
    )


def delay_rules(config: BrokerConfig) -> DelayRules:
    """Return the rules of delayed messages."""
    delays = config.delays
    return DelayRules(
        levels_ms=levels.parse(delays.levels),
        has_times=delays.times,
        delay_max_ms=delays.ahead_s_max * 1000,
        pending_max=delays.pending_max,
        is_recall_allowed=delays.recall,
    )


def pop_rules(config: BrokerConfig) -> PopRules:
    """Return the rules of popped messages."""
    return PopRules(
        broker=config.name,
        cluster=config.cluster,
        has_times=config.delays.times,
        invisible_ms_max=config.delays.ahead_s_max * 1000,
        leases_max=config.pop.leases_max,
        leases_total_max=config.pop.leases_total_max,
        from_retry_share=config.pop.from_retry_percent / 100,
        bytes_max=config.pull.bytes_default,
    )


def assignment_rules(config: BrokerConfig) -> AssignmentRules:
    """Return the rules of assignments by the broker."""
    pop = config.pop
    return AssignmentRules(Mode(pop.default_mode.value, pop.default_share_queues), pop.balances)


def held_limits(config: BrokerConfig) -> HeldLimits:
    """Return how many pops may wait."""
    return HeldLimits(config.pop.held_max, config.pop.held_per_queue_max)


def store_settings(config: BrokerConfig, addresses: Addresses) -> StoreSettings:
    """Return the store's settings."""
    store = config.store
    return StoreSettings(
        root=store_root(config),
        segment_bytes=store.segment_bytes,
        queue_file_entries=store.queue_file_entries,
        index_slots=store.index_slots,
        index_entries=store.index_entries,
        flush=store.flush,
        flush_interval_ms=store.flush_interval_ms,
        flush_pages=store.flush_pages,
        flush_full_ms=store.flush_full_ms,
        checkpoint_interval_ms=store.checkpoint_interval_ms,
        store_host=addresses.packed,
        warm_bytes=store.warm_bytes,
        reserved_ms=round(store.reserved_hours * 3_600_000),
        delete_hours=frozenset(map(int, store.delete_hours)),
        disk_used_max=store.disk_used_max,
        disk_used_clean=store.disk_used_clean,
        clean_forcibly=store.clean_forcibly,
        disk_used_refuse=store.disk_used_refuse,
        delay_levels_ms=levels.parse(config.delays.levels),
        keeps_tail=bool(config.replication.secret_file),
    )


def settled(
    config: BrokerConfig, addresses: Addresses, http_ports: tuple[int | None, int | None], live: BrokerConfig | None
) -> BrokerConfig:
    """Return the configuration with the chosen ports and the hot keys that were changed since the start.

    http_ports: of health and metrics, and of /ha/v1; None: no port.
    """
    http, ha_api = (HTTP_NONE if port is None else port for port in http_ports)
    vip = VIP_NONE if addresses.vip_port is None else addresses.vip_port
    ha = config.network.ha_port if addresses.ha_port is None else addresses.ha_port
    network = replace(config.network, port=addresses.port, vip_port=vip, http_port=http, ha_port=ha, ha_api_port=ha_api)
    if live is not None:
        values = flat(live)
        config = replaced(config, {key: values[key] for key in HOT}, "changed while it ran")
    return replace(config, network=network)


def settings_of_folder(config: BrokerConfig, disk: Disk, settings: StoreSettings) -> StoreSettings:
    """Return the settings with the sizes that the folder was made with; StoreError when the limits do not fit them."""
    found = sizes.of_folder(disk, settings)
    needed = 2 * config.messages.body_bytes_max + RECORD_OVERHEAD_BYTES
    if found.segment_bytes < needed:
        raise StoreError(
            f"{settings.root} has segments of {found.segment_bytes} bytes, expected at least {needed} for two bodies "
            f"of messages.body_bytes_max {config.messages.body_bytes_max}; set messages.body_bytes_max "
            f"(maxMessageSize in a broker.conf) to {body_bytes_most(found.segment_bytes)} or less"
        )
    if found.sizes != settings.sizes:
        log.info(
            "%s keeps the sizes that it was made with (bytes of a segment, entries of a queue file, slots and entries "
            "of an index): %s, not %s",
            settings.root,
            found.sizes,
            settings.sizes,
        )
    return found


def replication_rules(config: BrokerConfig) -> InSyncPolicy:
    """Return how many members acknowledge a message, and how long the group waits for them."""
    given, is_sync = config.replication.min_in_sync, config.role is Role.SYNC_MASTER
    waits = replication_waits(config.replication)
    if is_sync:
        waits = replace(waits, slow_s=slow_after_s(config.replication.ack_timeout_s))
    return InSyncPolicy(given or (2 if is_sync else 1), waits, is_sync)


def terms_of(config: BrokerConfig) -> Terms:
    """Return what the configuration of a member says about its group."""
    given, rules = config.replication, replication_rules(config)
    members = max(1, len(given.members))
    return Terms(rules.is_sync, rules.min_in_sync, given.renew_every_s, config.store.segment_bytes, members)


def replication_waits(given: ReplicationConfig) -> Waits:
    """Return how long the group waits for a member."""
    waits = derive_waits(given.renew_every_s) if given.register else Waits()
    return replace(waits, max_lag_s=given.max_lag_s) if given.max_lag_s else waits


def ack_limits(config: BrokerConfig) -> AckLimits:
    """Return how long a producer's reply waits, for the disk or for slaves, and how many bytes of replies may wait."""
    wait_s = config.messages.ack_wait_s
    if config.role is Role.SYNC_MASTER:
        wait_s = config.replication.ack_timeout_s
    return AckLimits(wait_s, config.messages.parked_bytes_max)


def ack_mark(config: BrokerConfig, store: Store) -> Watermark:
    """Return the mark at which producers are answered: an ASYNC_MASTER with slaves does not wait for them."""
    if config.replication.secret_file and config.role is Role.ASYNC_MASTER:
        return store.share
    return store.confirmed


def store_root(config: BrokerConfig) -> str:
    """Return the absolute path of the store's folder."""
    return os.path.abspath(os.path.expanduser(config.store.root))


def identity(config: BrokerConfig, addresses: Addresses) -> BrokerIdentity:
    """Return this broker's identity for name servers."""
    return BrokerIdentity(config.cluster, config.name, config.id, addresses.advertised, addresses.ha)


def message_limits(config: BrokerConfig, marks: MessageStamp) -> MessageLimits:
    """Return the limits of a message's size."""
    return MessageLimits(config.messages.body_bytes_max, marks.properties_bytes_max)


def client_limits(config: BrokerConfig) -> ClientLimits:
    """Return the limits of client registrations."""
    clients = config.clients
    return ClientLimits(
        registrations_max=clients.registrations_max,
        groups_per_connection_max=clients.groups_per_connection_max,
        topics_per_group_max=clients.topics_per_group_max,
    )


def pull_settings(config: BrokerConfig) -> PullLimits:
    """Return the limits of one pull and of a batch of pulls, whose last one may return a largest message."""
    pull, settings = config.pull, PullLimits()
    room = output_room(config) - BODY_BYTES_MAX - RECORD_OVERHEAD_BYTES
    return replace(
        settings,
        run_bytes_max=max(0, min(settings.run_bytes_max, room)),
        count_max=pull.count_max,
        bytes_default=pull.bytes_default,
        bytes_max=pull.bytes_max,
        held_max=pull.held_max,
        suspend_ms_max=pull.suspend_ms_max,
    )


def output_room(config: BrokerConfig) -> int:
    """Return the bytes that one batch of requests may add to what waits for a client; more closes the connection."""
    return config.network.output_bytes_max - config.network.output_bytes_high


def lookup_bytes_max(config: BrokerConfig) -> int:
    """Return the bytes of records in one answer to a question by key; the first record is given whatever its size."""
    return min(LOOKUP_BYTES_MAX, output_room(config) - RECORD_OVERHEAD_BYTES)


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Return the limits of one connection."""
    network = config.network
    return ConnectionLimits(
        idle_s=network.idle_s,
        output_bytes_high=network.output_bytes_high,
        output_bytes_max=network.output_bytes_max,
        connections_max=network.connections_max,
    )
