"""The orderly consumer: each queue's messages one after the other, by one member of the group at a time.

    async with OrderlyConsumer("billing", nameserver=..., subscription={"Orders": "*"}, listener=handle) as consumer:
        await consumer.wait()

Messages that were sent with one key stand in one queue, so they are handled in the order in which they were sent.  The
listener's return means done; after its exception, or `message.retry(after_s)`, the same message comes again after a
pause, and its queue waits for it, as long as it takes.

The broker's queue locks see to it that no two members work on one queue, whatever happens to them (see `lease`); a
queue changes hands when the old member has ended its work, committed, and given the lock back (`orderlyqueue`).  If it
died, the lock ends a minute later.  Members in other languages take part: the protocol is RocketMQ's.
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
from gantry.client.consuming.direct import DirectConsumption
from gantry.client.consuming.errands import Description, Errands
from gantry.client.consuming.intake import Memory
from gantry.client.consuming.offsets import Offsets
from gantry.client.consuming.orderlyqueue import OrderlyQueue, Surroundings
from gantry.client.consuming.queuelocks import QueueLocks
from gantry.client.consuming.rebalance import Rebalance
from gantry.client.consuming.subscribing import start_checked, subscriptions_of
from gantry.client.filters import Filter, Sql
from gantry.client.identity import Identity
from gantry.client.life import Life, begun, cancelled, to_the_end
from gantry.client.received import ReceivedMessage
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings, OrderSettings, StartFrom
from gantry.client.tallies import Tallies
from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError
from gantry.model.names import retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["ConsumerSettings", "Listener", "OrderSettings", "OrderlyConsumer", "ReceivedMessage", "Sql", "StartFrom"]

log = logging.getLogger(__name__)

_LOOK_S = 0.25  # how often leases are looked at; asking has its own periods


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
            raise ConfigError("an orderly consumer shares queues with its group; broadcast has no order to keep")
        self._order = order or OrderSettings()
        self._clock = clock or SystemClock()
        # As all members have it, Java's too: a broker keeps one list of topics for a group.
        self._subscriptions = subscriptions_of(group, subscription, self._clock.now_ms(), with_retries=True)
        self._retry_topic = retry_topic(group)
        self._tallies = Tallies(self._clock)
        direct = DirectConsumption(group, listener, self.settings.hooks, True)
        self._errands = Errands(group, lambda: self._rebalance.hurry(), self._move, self._describe, direct)
        self._session = Session(
            nameserver, self._heartbeat, self._errands.serve, timeout_s=self.settings.request_timeout_s
        )
        self._routes = Routes(self._session)
        self._started_ms = self._clock.now_ms()
        self._identity = Identity(self._session.nameservers[0], self._clock)
        # The locks see to the hand-over; nobody has to wait for it.
        self._rebalance = Rebalance(self._session, self._routes, group, self._identity.client_id, 0.0)
        self._locks = QueueLocks(self._session, self._routes, group, self._identity.client_id)
        self._replicas = Replicas(self._session, self._routes)
        self._around = Surroundings(
            self._session,
            self._routes,
            self._replicas,
            Offsets(self._session, self._routes, group, self._replicas),
            Memory(self.settings.bytes_max),
            self.settings,
            self._order,
            self._clock,
            listener,
            asyncio.Semaphore(self.settings.concurrency),
            self._tallies,
        )
        self._queues: dict[MessageQueue, tuple[OrderlyQueue, asyncio.Task[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._taken = asyncio.Event()  # there are queues without a lock
        self._life = Life(group)

    @property
    def client_id(self) -> str:
        """Who this member is to the brokers and to the others."""
        return self._identity.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours to work on now: our share, and locked; the retry topic's left out."""
        now = asyncio.get_running_loop().time()
        found = (one for one, _ in self._queues.values() if not one.is_leaving and one.lease.is_held(now))
        return sorted(one.queue for one in found if one.queue.topic != self._retry_topic)

    async def start(self) -> None:
        """1. connections, 2. progress is committed, 3. locks are kept, 4. queues are shared out."""
        self._life.begin()
        await start_checked(self._session, self._routes, self.group, self.client_id, self._subscriptions)
        self._tasks = [
            self._life.spawn(self._share_regularly(), "gantry-rebalance"),  # the first to end at stop()
            self._life.spawn(self._commit_regularly(), "gantry-commit"),
            self._life.spawn(self._lock_regularly(), "gantry-locks"),
        ]

    async def stop(self) -> None:
        """1. take no new queues, 2. let listeners end, 3. commit and give back the locks, 4. say goodbye, 5. close."""
        self._life.end()
        try:
            await self._finish()
        finally:
            await to_the_end(self._close())  # also when this call is cancelled

    async def _close(self) -> None:
        await cancelled([*self._tasks, *(task for _, task in self._queues.values())])
        await self._errands.stop()
        await self._replicas.close()
        await self._routes.close()
        await self._session.close()

    async def _finish(self) -> None:
        await cancelled(self._tasks[:1])
        working = [task for _, task in self._queues.values()]
        for one, _ in self._queues.values():
            one.leave()
        if working:
            # The locks are kept meanwhile.
            await asyncio.wait(working, timeout=self.settings.stop_timeout_s)
        await cancelled(working)
        await cancelled(self._tasks)
        await self._session.say_goodbye(self.client_id, consumers=self.group)

    async def wait(self) -> None:
        """Until stop(); raises what broke the consumer, if something did."""
        await self._life.wait()

    async def commit(self) -> None:
        """Tell the brokers now how far we have come; it happens by itself every few seconds."""
        await asyncio.gather(*(one.commit() for one, _ in self._queues.values()))

    async def __aenter__(self) -> Self:
        """start()"""
        await begun(self)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """stop(); raises what broke the consumer, if something did."""
        await self.stop()
        self._life.left(error)

    async def _share_regularly(self) -> None:
        while True:
            is_complete = True
            for subscription in self._subscriptions:
                share = await self._rebalance.share(subscription.topic, broadcast=False)
                if share is None:
                    # A group whose messages are never brought again has no retry topic.
                    is_complete = is_complete and subscription.topic == self._retry_topic
                else:
                    self._take(subscription, share.queues)
            await self._rebalance.wait(self.settings.rebalance_every_s if is_complete else 1.0)

    def _take(self, subscription: Subscription, queues: list[MessageQueue]) -> None:
        """Leave what is no longer ours, begin what is new; what is still being left is taken when that has ended."""
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
            # Nothing of it runs any more, and its progress is committed.
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
        """The group was reset: what came of these queues is forgotten."""
        for queue, offset in targets.items():
            if queue in self._queues:
                self._queues[queue][0].move(offset)

    def _describe(self) -> Description:
        settings, queues = self.settings, [one.info() for one, _ in self._queues.values()]
        nameserver = ";".join(self._session.nameservers)
        about = nameserver, self._started_ms, settings.concurrency, True, self._subscriptions, queues
        return Description(*about, self._tallies.to_json())
