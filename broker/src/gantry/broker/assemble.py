"""Builds all parts of a broker, and connects their notifications.

Every part gets the parts that it calls as constructor arguments.  Notifications in the other direction are all
registered in this file:

    a mark moved          confirmed -> acks (they listen by themselves), dispatched -> held pulls
    the store failed      -> the broker ends; a deleted segment is still read -> its readers' connections are closed
    a topic changed       -> the cache of admission, the name servers; deleted -> queues, offsets, held pulls
    a group changed       -> notices to its consumers (they listen by themselves); a queue's lock that was wanted ended
    a group was removed, a heartbeat came -> filters, disagreements of members (they listen by themselves)
    tables are durable    -> administrators' requests that wait for it
    a connection closed   -> registrations of clients, held pulls
    halves, ops dispatched -> the book of transactions (it listens by itself)
    ended leases dispatched -> the reviver (it listens by itself); a group was deleted -> its leases
    delayed ones dispatched, deliveries confirmed -> the book of delays (it listens by itself)
    everything about a group of master and slaves -> see master role, following
    a hot key changed     -> admission, pull checks, what name servers are told

`assemble` builds everything around one opened store and starts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gantry.append.acks import Acks, flush_is_late
from gantry.append.admit import Admission, WriteGate
from gantry.append.batch import Appender, MessageStamp
from gantry.broker import tables
from gantry.broker.complaints import Complaints
from gantry.broker.durably import Durably
from gantry.broker.group.roles import Ground, Shared, make_role
from gantry.broker.groupprogress import make_progress
from gantry.broker.jobs import Job, Jobs
from gantry.broker.machine import Machine
from gantry.broker.meters.census import Census
from gantry.broker.meters.looplag import LoopLag
from gantry.broker.meters.puttimes import counters
from gantry.broker.meters.rates import Rates
from gantry.broker.part_settings import (
    ack_limits,
    ack_mark,
    client_limits,
    connection_limits,
    delay_rules,
    identity,
    lookup_bytes_max,
    message_limits,
    pull_settings,
    replication_waits,
    store_root,
    transaction_rules,
)
from gantry.broker.parts import Parts, Serving
from gantry.broker.periodic import DELIVERY, REVIVE
from gantry.broker.periodic import table as job_table
from gantry.broker.permitted_topics import PermittedTopics
from gantry.broker.pops import assignments, make_pops
from gantry.broker.registration import RegistrationTask
from gantry.broker.releasing import Releasing
from gantry.broker.requests.activity import Activity
from gantry.broker.requests.admin import AdminHandlers
from gantry.broker.requests.disk_handlers import DiskHandlers
from gantry.broker.requests.handlers import Handlers
from gantry.broker.requests.router import Router, table
from gantry.broker.role.mastership import Mastership
from gantry.broker.role.membership import KeyFile, Membership, cluster_uid
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.settings.live import LiveConfig
from gantry.broker.settings.ports import Addresses
from gantry.broker.stalled import StalledDisk
from gantry.broker.topiccontent import delete_content
from gantry.consume.filter import fault_of
from gantry.consume.filterdata import ConsumerFilters
from gantry.consume.handlers import PullHandlers
from gantry.consume.hold import HeldPulls
from gantry.consume.lock_handlers import LockHandlers
from gantry.consume.lookups import LookupHandlers
from gantry.consume.progress import ProgressHandlers
from gantry.consume.pull import PullChecks
from gantry.consume.relays import RelayHandlers
from gantry.consume.resets import ResetHandlers
from gantry.consume.sendback import SendBack
from gantry.consume.statistics import Statistics, counted
from gantry.consume.surveys import SurveyHandlers
from gantry.consume.topicstats import TopicStatsHandlers
from gantry.metadata.client_handlers import ClientHandlers
from gantry.metadata.clients import Clients
from gantry.metadata.connection_handlers import ConnectionHandlers
from gantry.metadata.disagreements import Disagreements
from gantry.metadata.group_handlers import GroupHandlers
from gantry.metadata.notices import ChangeNotices
from gantry.metadata.offset_handlers import OffsetHandlers
from gantry.metadata.topic_handlers import TopicHandlers
from gantry.model.topic import PERM_READ, PERM_WRITE
from gantry.pop.held import HeldRequests
from gantry.pop.modes import Modes
from gantry.produce.replies import ReplyHandlers
from gantry.produce.send import SendHandler
from gantry.schedule.handlers import DelayHandlers
from gantry.schedule.intake import DelayIntake, waiting
from gantry.schedule.service import DelayService
from gantry.store.background import Background
from gantry.store.store import Store
from gantry.transaction.batch_handlers import Copies, batches_of
from gantry.transaction.checker import Book
from gantry.transaction.ends import Ends
from gantry.transaction.handlers import TransactionHandlers
from gantry.transaction.intake import HalfIntake
from gantry.transaction.service import CheckContext, CheckService
from gantry.transaction.settle import Settling
from gantry.transport.client import RemotingClient
from gantry.transport.connection import Connection
from gantry.transport.server import RemotingServer, Together
from gantry.transport.turns import Turns

log = logging.getLogger("gantry.broker")


@dataclass(frozen=True, slots=True)
class Opened:
    """What all parts are built on."""

    store: Store
    machine: Machine
    background: Background
    addresses: Addresses
    ground: Ground | None = None  # of a member of a group

    def __post_init__(self) -> None:
        # No stored time is ahead of the clock from here on, whichever broker's clock it was of.
        self.machine.steady.reach(self.store.latest_ms)

    @property
    def member(self) -> Membership | None:
        """The member of a group that this broker is; None without a group."""
        return None if self.ground is None else self.ground.member

    @property
    def mastership(self) -> Mastership | None:
        """The epoch that this broker leads; None for a slave or without a group."""
        return None if self.ground is None else self.ground.mastership

    @property
    def has_register(self) -> bool:
        """Whether a register named this member the master."""
        return self.mastership is not None and self.mastership.seen is not None

    def may_serve(self) -> bool:
        """Return whether this broker may serve now; only a register can end that."""
        return self.mastership is None or self.mastership.may_serve()


def assemble(
    config: BrokerConfig, opened: Opened, fail: Callable[[str], None], restart: Callable[[str], None] = lambda why: None
) -> tuple[Parts, list[Job]]:
    """Build a broker around an opened store; metadata is loaded here, nothing is started.

    fail, restart: called with the reason when the process has to end, or the broker has to start again.
    """
    store, packed, clock = opened.store, opened.addresses.packed, opened.machine.steady
    live, gate, activity = LiveConfig(config, store.settings.segment_bytes), WriteGate(), Activity(opened.may_serve)
    complaints, durably = Complaints(log, clock), Durably(config.messages.ack_wait_s)
    state = tables.states(store_root(config), opened.machine.disk, opened.background.housekeeper, complaints, durably)
    topics, groups, offsets = tables.metadata(config, clock, opened.machine.clock, state)
    _hear_store(store, durably, fail)
    tables.agree(store, topics, offsets, config.role)
    clients = Clients(client_limits(config))
    filters = ConsumerFilters(state("consumerFilter.json"), clock, complaints.say)
    notices = ChangeNotices(clients, groups, clock)
    client, locks_file = RemotingClient(chance=opened.machine.chance), state("queueLocks.json")
    progress = make_progress(
        config, store, (topics, offsets, locks_file), durably, client, (complaints, clock)
    )
    replies = ReplyHandlers(clients, clock, packed)

    marks = MessageStamp(config.cluster, config.messages.region, packed)
    admission = Admission(topics, groups, gate, message_limits(config, marks), config.name)
    acks = _acks(config, opened)
    appender = Appender(store, acks, gate, marks, opened.machine.unique_ids(packed[:-4]).next)
    turns = Turns()
    settling = Settling(store, Book(), acks, gate, topics, clock, turns.soon)
    copies, outside = Copies(config.name, durably.caught_up, durably.noted), _outside(config, clients, complaints)
    batches = batches_of(settling, store, state("sinkDecisions.json"), gate, clock, copies)
    transactions = CheckService(store, offsets, clock, settling, transaction_rules(config), outside, batches.decisions)
    delays = DelayService(store, state("delayOffset.json"), topics, gate, clock, delay_rules(config), complaints.say)
    delay_intake = DelayIntake(
        clock, delays.rules, lambda: waiting(store, delays.book), config.name, topics.is_http_queue
    )
    settling.redirect = delay_intake.redirect
    intake = HalfIntake(
        lambda: len(transactions.book.open),
        config.transactions.open_max if config.transactions.enabled else 0,
        transactions.group_rule.note_plain,
    )
    sending = SendHandler(admission, appender, config.messages.batch_messages_max, intake, delay_intake)
    checks = PullChecks(topics, groups, clients, filters, opened.addresses.advertised)

    permitted = PermittedTopics(topics, config.permission)
    registration = RegistrationTask(
        client,
        config.name_servers,
        identity(config, opened.addresses),
        permitted,
        complaints,
        config.registration.period_s,
        config.registration.timeout_s,
    )
    shared = Shared(
        store, topics, groups, progress, filters, Modes(state("messageRequestMode.json")), delays,
        batches.decisions, gate, acks, activity, registration, durably, restart,
    )
    role, slave_reads = (None, None) if opened.ground is None else make_role(config, opened.ground, shared)
    pulls, pops = (
        PullHandlers(store, checks, progress.commits, clock, pull_settings(config), slave_reads, opened.may_serve),
        make_pops(
            config, shared, state("consumerOrderInfo.json"), checks, opened.machine,
            (complaints.say, opened.may_serve, turns.soon),
        ),
    )
    rates, statistics = (
        Rates(lambda: counters(appender.messages, pulls.counts, acks.latencies), clock),
        Statistics(
            lambda: counted(store, pulls.counts, admission.redeliveries, config.cluster),
            clock,
            config.name,
            opened.addresses.advertised,
        ),
    )
    handlers = Handlers(
        clients=ClientHandlers(clients, topics, groups, clock, fault_of),
        topics=TopicHandlers(topics, offsets),
        groups=GroupHandlers(groups, offsets),
        offsets=OffsetHandlers(offsets, topics, groups, progress.starts, progress.commits, progress.firsts, clients),
        lookups=LookupHandlers(store, clock, lookup_bytes_max(config)),
        send_back=SendBack(store, acks, admission, topics, groups, delay_intake),
        progress=ProgressHandlers(store, offsets, topics, clients, pulls.rates, config.name),
        topic_stats=TopicStatsHandlers(
            store, topics, clock, config.name, cluster_uid(opened.member, opened.machine, store.settings.root)
        ),
        connections=ConnectionHandlers(clients, clock),
        relays=RelayHandlers(clients, topics, store, config.name),
        surveys=SurveyHandlers(store, offsets, topics, groups, clients, statistics, clock),
        resets=ResetHandlers(store, offsets, topics, groups, clients, pulls.held, config.name),
        locks=LockHandlers(progress.locks, topics, groups, config.name, clock, progress.grants),
        replies=replies,
        admin=AdminHandlers(live, store, appender, acks, sending, rates, clock),
        transactions=TransactionHandlers(transactions, store, clock),
        batches=batches,
        delays=DelayHandlers(delays, store, acks, topics, clock, config.name),
        pops=pops.pops,
        popped=pops.acks,
        assignments=assignments(live, shared, progress.routes, clients),
        polling=pops.polling,
        owners=pops.owners,
        queue_stats=pops.stats,
        disk=DiskHandlers(store, topics, offsets),
        lacking=durably.lacking,
        caught_up=registration.caught_up,
    )
    router = Router(
        sending,
        activity.guarded_pulls(pulls.pull_run) if opened.has_register else pulls.pull_run,
        activity.guarded_ends(Ends(settling, store).end_run),
        activity.guarded_send_backs(handlers.send_back.runs.take),
        activity.guarded(table(handlers)),
        complaints,
        turns.soon,
    )
    parts = Parts(
        clock=clock,
        live=live,
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        clients=clients,
        filters=filters,
        disagreements=Disagreements(clients, complaints.say),
        gate=gate,
        acks=acks,
        appender=appender,
        sending=sending,
        pulls=pulls,
        redeliveries=admission.redeliveries,
        locks=progress.locks,
        replies=replies,
        transactions=transactions,
        batches=batches,
        delays=delays,
        pops=pops,
        modes=shared.modes,
        router=router,
        server=RemotingServer(
            router.on_requests,
            on_close=lambda connection: _connection_went(connection, clients, pulls.held, pops.polling.held),
            limits=connection_limits(config),
            together=Together(config.network.together, turns, clock.monotonic, router.on_sends),
        ),
        client=client,
        registration=registration,
        rates=rates,
        statistics=statistics,
        loop_lag=LoopLag(clock),
        census=Census(store, topics, groups, offsets, clients, clock),
        jobs=Jobs(clock, lambda name: fail(f"the periodic job {name!r} failed")),
        activity=activity,
        serving=Serving(),
        stalled=StalledDisk(store.stalling, gate, replication_waits(config.replication).flush_s),
        group=role,
        losses=None if opened.ground is None else opened.ground.losses,
        terms=None if opened.ground is None or opened.ground.register is None else opened.ground.member.terms,
    )
    _wire(parts, admission, notices, handlers.resets, fail)
    _obey(parts, admission, checks, permitted)
    return parts, job_table(parts, notices, _key_file(config, opened.member))


def _key_file(config: BrokerConfig, member: Membership | None) -> KeyFile | None:
    return None if member is None else KeyFile(config.replication.secret_file, member.keys)


def _acks(config: BrokerConfig, opened: Opened) -> Acks:
    """Parked replies: how long they may wait, what is said then, and whether the serving lease counts.

    A master that answers before its slaves have the message must not do so when another one may lead.
    """
    mastership, needs_lease = opened.mastership, opened.has_register and config.role is Role.ASYNC_MASTER
    return Acks(
        ack_mark(config, opened.store),
        opened.machine.clock,
        ack_limits(config),
        flush_is_late if mastership is None else mastership.why_late,
        opened.may_serve if needs_lease else None,
    )


def _hear_store(store: Store, durably: Durably, fail: Callable[[str], None]) -> None:
    """What has to be heard of the store before anything can confirm or delete."""
    store.on_failed(lambda error: fail(f"the store failed: {error}"))
    durably.watch(store.deleting)
    store.deleting.on_kept(durably.look)


def _wire(
    parts: Parts, admission: Admission, notices: ChangeNotices, resets: ResetHandlers, fail: Callable[[str], None]
) -> None:
    """Register the notifications of the module's list."""
    store, topics, held = parts.store, parts.topics, parts.pulls.held
    parts.locks.on_free(notices.look_again)
    admission.is_orderly = lambda group: parts.locks.holds_any(group, parts.clock.monotonic())
    parts.clients.on_beat(parts.filters.heard)
    parts.clients.on_change(parts.filters.group_changed)
    store.on_dispatched(held.on_dispatched)
    parts.delays.on_earlier = lambda: parts.jobs.hurry(DELIVERY)
    resets.on_reset = parts.pops.polling.held.wake
    parts.pops.reviver.on_work = lambda: parts.jobs.hurry(REVIVE)
    parts.offsets.log_end = lambda: store.written.offset
    topics.on_change(admission.topic_changed)
    topics.on_change(parts.registration.topic_changed)
    parts.client.lost_listeners.append(parts.registration.connection_lost)
    releasing = Releasing(parts.server)
    store.retention.dropping.listen(releasing.lingers, releasing.hangs)
    if parts.live.current.role is not Role.SLAVE:  # a slave hears from its master where in the log that was
        topics.on_delete(lambda topic: delete_content(topic, parts))
        parts.groups.on_change(parts.pops.service.group_changed)
        parts.groups.on_change(parts.pops.stats.group_changed)
        parts.groups.on_change(lambda name: None if parts.groups.get(name) else parts.modes.forget_group(name))


def _obey(parts: Parts, admission: Admission, checks: PullChecks, permitted: PermittedTopics) -> None:
    """Apply the hot keys, now and after every change."""

    def obey(config: BrokerConfig) -> None:
        admission.checks_type = config.topics.check_message_type
        admission.set_writable(config.permission & PERM_WRITE != 0)
        admission.limits = replace(admission.limits, body_bytes_max=config.messages.body_bytes_max)
        checks.is_readable = config.permission & PERM_READ != 0
        if permitted.permission != config.permission:
            permitted.permission = config.permission
            parts.registration.changed()

    parts.live.on_change(obey)
    obey(parts.live.current)


def _outside(config: BrokerConfig, clients: Clients, complaints: Complaints) -> CheckContext:
    def subscribed(name: str) -> Iterable[str]:
        group = clients.consumer_group(name)
        return () if group is None else list(group.subscriptions)

    return CheckContext(clients.producers, subscribed, complaints.say, config.name)


def _connection_went(connection: Connection, clients: Clients, *held: HeldPulls | HeldRequests) -> None:
    for of_connection in (clients, *held):
        of_connection.connection_closed(connection)
