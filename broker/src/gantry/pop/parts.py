"""The parts of POP consumption, made and connected.

Inside, every part gets what it calls as a constructor argument.  Other parts of a broker are connected in
`broker/assemble.py`; the seams for them are

    pops.hold           keeps a pop that found nothing; `pops.try_again` is called when messages come
    pops.orderly        answers orderly pops, and `acks.orderly` requests with their handles
    reviver.renews      says until when a lease goes on whose owner is alive
    orderly.locks.keeps says whether the owner of a batch in order is alive
    reviver.on_copies   told of the topic of new messages in a retry topic
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from gantry.consume.pull import PullChecks
from gantry.metadata.state import State
from gantry.model import httpqueue
from gantry.model.topic import TopicConfig
from gantry.pop import handle, records, recovery
from gantry.pop.acknowledge import AckHandlers
from gantry.pop.held import HeldLimits, HeldRequests
from gantry.pop.keeping import QueueKeeper
from gantry.pop.order_table import OrderTable
from gantry.pop.orderly import OrderlyPops
from gantry.pop.orderly_acks import OrderlyAcks
from gantry.pop.owner_handlers import OwnerHandlers
from gantry.pop.owners import Owners
from gantry.pop.polling import Polling
from gantry.pop.pop import PopHandlers
from gantry.pop.revive import Reviver
from gantry.pop.service import PopContext, PopService
from gantry.pop.stats_handlers import QueueStatsHandlers
from gantry.schedule.waiting import WaitingCounts

if TYPE_CHECKING:
    from gantry.schedule.places import DelayedEntry


@dataclass(frozen=True, slots=True)
class PopParts:
    """Everything of POP that other parts of a broker use."""

    service: PopService
    reviver: Reviver
    pops: PopHandlers
    acks: AckHandlers
    orderly: OrderlyPops
    polling: Polling
    owners: OwnerHandlers
    stats: QueueStatsHandlers
    keeper: QueueKeeper

    def recover(self, pending: list[DelayedEntry]) -> Iterator[None]:
        """Read the book back before the first request is served, in small slices; see `recovery`.  Empties the list."""
        following = yield from recovery.read_back(self.service, pending)
        pending.clear()
        context = self.service.context
        if self.service.rules.has_times:
            topic, queues = self.service.rules.revive_topic, records.REVIVE_QUEUES
            context.topics.ensure(TopicConfig(topic, read_queues=queues, write_queues=queues))
        yield from self.orderly.table.catch_up()
        self.service.begin()
        self.reviver.begin(following)
        self.keeper.begin()
        self.orderly.begin()
        self.owners.owners.begin(context.clock.monotonic())

    def topic_deleted(self, name: str) -> None:
        """Forget what groups popped of a deleted topic; those that wait for it ask again."""
        self.service.topic_deleted(name)
        self.stats.topic_deleted(name)
        self.orderly.table.forget(lambda queue: queue[1] == name)
        self.polling.held.wake_topic(name)


def make(
    context: PopContext,
    order_state: State,
    checks: PullChecks,
    chance: Random,
    soon: Callable[[Callable[[], None]], object],
    held_limits: HeldLimits,
    waiting: WaitingCounts,
) -> PopParts:
    """Make the parts and connect what happens inside; of them only the table of orderly pops listens from here on.

    order_state: the file consumerOrderInfo.json.  waiting: counts delayed messages.
    """
    service = PopService(context)
    reviver = Reviver(service)
    pops, acks = PopHandlers(service, checks, chance), AckHandlers(service, reviver, soon)
    table = OrderTable(context.store, order_state, context.offsets.places.of)
    context.store.on_dispatched(table.on_dispatched)
    orderly = OrderlyPops(service, pops.taker, table)
    pops.in_order, acks.orderly = orderly.take, OrderlyAcks(orderly)
    held = HeldRequests(held_limits, lambda call: asyncio.get_running_loop().call_soon(call), context.may_serve)
    polling, owners = Polling(held, pops, context.clock), OwnerHandlers(Owners(), service)
    pops.hold, reviver.renews = polling.hold, owners.renews
    orderly.locks.keeps, owners.in_order = owners.keeps, orderly.release
    held.on_first = lambda: context.store.on_dispatched(held.on_dispatched)
    polling.would_find_in_order = orderly.would_find
    service.book.on_room, orderly.on_free = polling.more_is_visible, polling.more_is_visible
    stats, keeper = QueueStatsHandlers(service, waiting), QueueKeeper(service, reviver)
    return PopParts(service, reviver, pops, acks, orderly, polling, owners, stats, keeper)


def retry_topics(topic: TopicConfig) -> list[str]:
    """Return the retry topics that are deleted with a topic: those of the group that consumes it as an HTTP queue."""
    if not httpqueue.is_queue(topic.attributes):
        return []
    return [handle.retry_topic(topic.name, httpqueue.GROUP, flag) for flag in (handle.RETRY_V1, handle.RETRY_V2)]
