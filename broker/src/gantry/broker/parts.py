"""The parts of a running broker, by name.

For code that reads many parts and changes none: metrics and runtime information.  Other code gets the few parts that it
uses as constructor arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.append.acks import Acks
    from gantry.append.admit import WriteGate
    from gantry.append.batch import Appender
    from gantry.append.redelivery import RedeliveryCounts
    from gantry.broker.jobs import Jobs
    from gantry.broker.meters.census import Census
    from gantry.broker.meters.looplag import LoopLag
    from gantry.broker.meters.rates import Rates
    from gantry.broker.registration import RegistrationTask
    from gantry.broker.requests.activity import Activity
    from gantry.broker.requests.router import Router
    from gantry.broker.role.master_role import MasterRole
    from gantry.broker.role.slave_role import SlaveRole
    from gantry.broker.settings.live import LiveConfig
    from gantry.broker.stalled import StalledDisk
    from gantry.clock import SteadyClock
    from gantry.consume.filterdata import ConsumerFilters
    from gantry.consume.handlers import PullHandlers
    from gantry.consume.locks import QueueLocks
    from gantry.consume.statistics import Statistics
    from gantry.metadata.clients import Clients
    from gantry.metadata.disagreements import Disagreements
    from gantry.metadata.groups import Groups
    from gantry.metadata.offsets import Offsets
    from gantry.metadata.topics import Topics
    from gantry.pop.modes import Modes
    from gantry.pop.parts import PopParts
    from gantry.produce.replies import ReplyHandlers
    from gantry.produce.send import SendHandler
    from gantry.replication.losses import Losses
    from gantry.replication.terms import Terms
    from gantry.schedule.service import DelayService
    from gantry.store.store import Store
    from gantry.transaction.batch_handlers import BatchHandlers
    from gantry.transaction.service import CheckService
    from gantry.transport.client import RemotingClient
    from gantry.transport.server import RemotingServer


@dataclass(slots=True)
class Serving:
    """Since when the broker is ready, in milliseconds since 1970; 0: it is not."""

    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts around one opened store; made by `assemble`."""

    clock: SteadyClock
    live: LiveConfig
    store: Store
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    filters: ConsumerFilters
    disagreements: Disagreements
    gate: WriteGate
    acks: Acks
    appender: Appender
    sending: SendHandler
    pulls: PullHandlers
    redeliveries: RedeliveryCounts
    locks: QueueLocks
    replies: ReplyHandlers
    transactions: CheckService
    batches: BatchHandlers
    delays: DelayService
    pops: PopParts
    modes: Modes
    router: Router
    server: RemotingServer
    client: RemotingClient
    registration: RegistrationTask
    rates: Rates
    statistics: Statistics
    loop_lag: LoopLag
    census: Census
    jobs: Jobs
    activity: Activity
    serving: Serving
    stalled: StalledDisk
    group: MasterRole | SlaveRole | None  # of a member of a group
    losses: Losses | None  # of a member of a group
    terms: Terms | None  # of one whose group has a register
