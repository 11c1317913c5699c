"""The orderly consumer: each queue's messages are processed one after the other, by one member of the group at a time.

    async with OrderlyConsumer("billing", nameserver=..., subscription={"Orders": "*"}, listener=handle) as consumer:
        await consumer.wait()

Messages that were sent with the same key are in the same queue, so they are processed in the order in which they were
sent.  When the listener returns, the message is done.  After its exception, or `message.retry(after_s)`, the same
message is delivered again after a pause, and its queue waits for it without a limit.

The broker's queue locks guarantee that no two members process one queue (see `queue_lock`).  A queue moves when the old
member has finished its work, committed, and given the lock back (`orderlyqueue`).  If that member died, the lock ends a
minute later.  Members in other languages can take part: the protocol is RocketMQ's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Self

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consumer import Listener
from gantry.client.consuming.broker_requests import BrokerRequests, Description
from gantry.client.consuming.direct import DirectConsumption
from gantry.client.consuming.intake import Memory
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.orderlyqueue import OrderlyQueue, Surroundings
from gantry.client.consuming.queuelocks import QueueLockClient
from gantry.client.consuming.rebalance import Rebalance
from gantry.client.consuming.starting import store_begins
from gantry.client.consuming.subscribing import check_filters
from gantry.client.filters import Filter, Sql, subscriptions_of
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.received import ReceivedMessage
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings, OrderSettings, StartFrom
from gantry.client.tallies import Tallies
from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError
from gantry.model.names import retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.transport.tasks import Tasks, cancelled
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["ConsumerSettings", "Listener", "OrderSettings", "OrderlyConsumer", "ReceivedMessage", "Sql", "StartFrom"]

log = logging.getLogger(__name__)

_LOOK_S = 0.25  # how often leases are checked; lock requests have their own periods


class OrderlyConsumer:
    """A member of a group; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter],
        listener: Listener,
        settings: ConsumerSettings | None = None,
        order: OrderSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or ConsumerSettings()
        if self.settings.broadcast:
            raise ConfigError("an orderly consumer cannot broadcast: it shares the queues with its group")
        self._order = order or OrderSettings()
        self._clock = clock or SystemClock()
        # With the retry topic, as Java members have it: a broker keeps one list of topics for a group.
        self._subscriptions = subscriptions_of(group, subscription, self._clock.now_ms(), with_retries=True)
        self._retry_topic = retry_topic(group)
        self._tallies = Tallies(self._clock)
        direct = DirectConsumption(group, listener, self.settings.hooks, True)
        tasks = Tasks()
        self._broker_requests = BrokerRequests(
            group, lambda: self._rebalance.hurry(), self._move, self._describe, direct, tasks
        )
        self._session = Session(
            nameserver, self._heartbeat, self._broker_requests.serve, timeout_s=self.settings.request_timeout_s
        )
        self._routes = Routes(self._session)
        self._started_ms = self._clock.now_ms()
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        # Without a handover time: the locks already prevent two owners.
        self._rebalance = Rebalance(self._session, self._routes, group, self._identity.client_id, 0.0)
        self._locks = QueueLockClient(self._session, self._routes, group, self._identity.client_id)
        self._replicas = Replicas(self._session, self._routes)
        self._around = Surroundings(
            self._session,
            self._routes,
            self._replicas,
            RemoteOffsets(self._session, self._routes, group, self._replicas),
            Memory(self.settings.bytes_max),
            self.settings,
            self._order,
            self._clock,
            listener,
            asyncio.Semaphore(self.settings.concurrency),
            self._tallies,
        )
        self._queues: dict[MessageQueue, tuple[OrderlyQueue, asyncio.Task[None]]] = {}
        self._sharing: list[asyncio.Task[None]] = []  # one task, from the start on
        self._taken = asyncio.Event()  # there are queues without a lock
        self._life = Lifecycle(
            group, self._session, self._routes, tasks, begin=self._begin_work, finish=self._finish_work
        )

    @property
    def client_id(self) -> str:
        """The id of this member for brokers and other members."""
        return self._identity.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member may process now: assigned and locked, without those of the retry topic."""
        now = asyncio.get_running_loop().time()
        found = (one for one, _ in self._queues.values() if not one.is_leaving and one.lease.is_held(now))
        return sorted(one.queue for one in found if one.queue.topic != self._retry_topic)

    async def start(self) -> None:
        """Connect, start to commit regularly and to keep locks, and begin to share out queues.

        Returns when it is stored where a new group begins, at the latest after 5 s: what is sent from then on is
        received.
        """
        await self._life.start()

    async def _begin_work(self) -> None:
        await check_filters(self._session, self._routes, self.group, self.client_id, self._subscriptions)
        where = self._routes, self._around.offsets, self._subscriptions
        await store_begins(*where, self.settings, self._clock.now_ms())
        self._sharing = [self._life.spawn(self._share_regularly(), "gantry-rebalance")]
        self._life.spawn(self._commit_regularly(), "gantry-commit")
        self._life.spawn(self._lock_regularly(), "gantry-locks")

    async def stop(self) -> None:
        """Take no new queues, wait for listeners, commit, give back the locks, unregister, and close."""
        await self._life.stop()

    async def _finish_work(self) -> None:
        await cancelled(self._sharing)
        working = [task for _, task in self._queues.values()]
        for one, _ in self._queues.values():
            one.leave()
        if working:
            # The locks are renewed meanwhile.
            await asyncio.wait(working, timeout=self.settings.stop_timeout_s)
        await cancelled(working)

    async def wait(self) -> None:
        """Wait until stop() was called; raises the error that ended the consumer, if there was one."""
        await self._life.wait()

    async def commit(self) -> None:
        """Commit the progress now; this also happens every few seconds."""
        await asyncio.gather(*(one.commit() for one, _ in self._queues.values()))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop; raises the error that ended the consumer, if there was one."""
        await self._life.leave(error)

    async def _share_regularly(self) -> None:
        while True:
            is_complete = True
            for subscription in self._subscriptions:
                share = await self._rebalance.share(subscription.topic, broadcast=False)
                if share is None:
                    # A group without redeliveries has no retry topic.
                    is_complete = is_complete and subscription.topic == self._retry_topic
                else:
                    self._take(subscription, share.queues)
            await self._rebalance.wait(self.settings.rebalance_every_s if is_complete else 1.0)

    def _take(self, subscription: Subscription, queues: list[MessageQueue]) -> None:
        """Leave the queues that are no longer assigned, begin the new ones; one that is still being left is taken
        later.
        """
        for queue, (one, _) in self._queues.items():
            if queue.topic == subscription.topic and queue not in queues:
                one.leave()
        settings = self.settings
        for queue in queues:
            if queue not in self._queues:
                pulling = PullSettings(
                    self.group, subscription, settings.pull_messages_max, wait_s=settings.pull_wait_s
                )
                one = OrderlyQueue(queue, pulling, self._around)
                task = self._life.spawn(self._attend(one), f"gantry-queue-{queue.topic}-{queue.queue_id}")
                self._queues[queue] = one, task
                self._taken.set()

    async def _attend(self, one: OrderlyQueue) -> None:
        try:
            await one.run()
        finally:
            # All its tasks have ended, and its progress is committed.
            one.lease.end()
            self._replicas.forget(one.queue)
            await self._locks.unlock([one.queue])
            del self._queues[one.queue]
            self._rebalance.hurry()

    async def _lock_regularly(self) -> None:
        loop = asyncio.get_running_loop()
        order = self._order
        while True:
            now = loop.time()
            due = [
                one
                for one, _ in self._queues.values()
                if one.lease.is_due(now, order.renew_every_s, order.retry_every_s)
                and (not one.is_leaving or one.lease.is_held(now))
            ]
            if due:
                await self._locks.lock([(one.queue, one.lease) for one in due])
                for one in due:
                    one.look()
            self._taken.clear()
            try:
                async with asyncio.timeout(min(_LOOK_S, order.retry_every_s)):
                    await self._taken.wait()
            except TimeoutError:
                pass

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_every_s)
            await self.commit()

    def _heartbeat(self) -> Heartbeat:
        data = ConsumerData(
            self.group, self._subscriptions, consume_from_where=self.settings.start_from.value
        )
        return Heartbeat(self.client_id, consumers=(data,))

    def _move(self, targets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets of a reset."""
        for queue, offset in targets.items():
            if queue in self._queues:
                self._queues[queue][0].move(offset)

    def _describe(self) -> Description:
        settings, queues = self.settings, [one.info() for one, _ in self._queues.values()]
        nameserver = ";".join(self._session.nameservers)
        about = nameserver, self._started_ms, settings.concurrency, True, self._subscriptions, queues
        return Description(*about, self._tallies.to_json())
