"""The objects whose methods the table of requests names; see `router.table`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantry.broker.requests.admin import AdminHandlers
    from gantry.broker.requests.disk_handlers import DiskHandlers
    from gantry.consume.lock_handlers import LockHandlers
    from gantry.consume.lookups import LookupHandlers
    from gantry.consume.progress import ProgressHandlers
    from gantry.consume.relays import RelayHandlers
    from gantry.consume.resets import ResetHandlers
    from gantry.consume.sendback import SendBack
    from gantry.consume.surveys import SurveyHandlers
    from gantry.consume.topicstats import TopicStatsHandlers
    from gantry.metadata.client_handlers import ClientHandlers
    from gantry.metadata.connection_handlers import ConnectionHandlers
    from gantry.metadata.group_handlers import GroupHandlers
    from gantry.metadata.offset_handlers import OffsetHandlers
    from gantry.metadata.topic_handlers import TopicHandlers
    from gantry.pop.acknowledge import AckHandlers
    from gantry.pop.assignment_handlers import AssignmentHandlers
    from gantry.pop.owner_handlers import OwnerHandlers
    from gantry.pop.polling import Polling
    from gantry.pop.pop import PopHandlers
    from gantry.pop.stats_handlers import QueueStatsHandlers
    from gantry.produce.replies import ReplyHandlers
    from gantry.schedule.handlers import DelayHandlers
    from gantry.transaction.batch_handlers import BatchHandlers
    from gantry.transaction.handlers import TransactionHandlers


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers of the table."""

    clients: ClientHandlers
    topics: TopicHandlers
    groups: GroupHandlers
    offsets: OffsetHandlers
    lookups: LookupHandlers
    send_back: SendBack
    progress: ProgressHandlers
    topic_stats: TopicStatsHandlers
    connections: ConnectionHandlers
    relays: RelayHandlers
    surveys: SurveyHandlers
    resets: ResetHandlers
    locks: LockHandlers
    replies: ReplyHandlers
    admin: AdminHandlers
    transactions: TransactionHandlers
    batches: BatchHandlers
    delays: DelayHandlers
    pops: PopHandlers
    popped: AckHandlers
    assignments: AssignmentHandlers
    polling: Polling
    owners: OwnerHandlers
    queue_stats: QueueStatsHandlers
    disk: DiskHandlers
    lacking: Callable[[], Awaitable[str]]  # waits until all changes so far are durable; who lacks one, empty: nobody
    caught_up: Callable[[], Awaitable[None]]  # waits until the name servers know all topic changes so far
