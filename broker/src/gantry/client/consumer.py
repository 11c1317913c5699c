"""The consumer: messages of a group's topics, shared among the group's members.

    async with Consumer("billing", nameserver="10.0.0.1:9876", subscription={"Orders": "paid || refunded"}) as consumer:
        async for message in consumer:
            ...
            await message.ack()

or with a listener, called by up to `concurrency` tasks at a time; its return acks, its exception retries:

    async with Consumer("billing", nameserver=..., subscription=..., listener=handle) as consumer:
        await consumer.wait()

Every message is delivered at least once.  Progress is committed with every pull, every 5 s, when a queue goes to
another member, and at stop; it never passes an unfinished message.  Duplicates have the same message id.  They occur
for messages that were in work at a crash, or took too long when their queue moved to another member.

A failed message is sent back to its broker and delivered again later, to any member.  After the last attempt it becomes
a dead letter of the group (see `redelivery`).  The group's retry topic is subscribed to automatically; its messages are
delivered with the topic that they were sent to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.broadcast import LocalOffsets, own_offsets
from gantry.client.consuming.broker_requests import BrokerRequests, Description
from gantry.client.consuming.delivery import Delivery, ended
from gantry.client.consuming.direct import DirectConsumption
from gantry.client.consuming.intake import Intake, Memory
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.ready import Ready
from gantry.client.consuming.rebalance import Rebalance, Share
from gantry.client.consuming.redelivery import Redelivery
from gantry.client.consuming.subscribing import check_filters
from gantry.client.filters import Filter, Sql, subscriptions_of
from gantry.client.hooks import called
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.received import ReceivedMessage
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.client.tallies import Tallies
from gantry.clock import Clock, SystemClock
from gantry.errors import ClosedError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.message import RETRY_TOPIC, StoredMessage
from gantry.model.names import retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import BROADCASTING, CLUSTERING, Subscription
from gantry.transport.tasks import Tasks, cancelled
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["Consumer", "ConsumerSettings", "Listener", "ReceivedMessage", "Sql", "StartFrom"]

Listener = Callable[[ReceivedMessage], Awaitable[None]]

log = logging.getLogger(__name__)

_RETRY_TOPIC_ROUNDS = 30  # seconds in which a missing retry topic is looked for every second


class Consumer:
    """A member of a group; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter],
        listener: Listener | None = None,
        settings: ConsumerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or ConsumerSettings()
        self._clock = clock or SystemClock()
        self._subscriptions = subscriptions_of(
            group, subscription, self._clock.now_ms(), with_retries=not self.settings.broadcast
        )
        self._retry_topic = retry_topic(group)
        self._listener = listener
        self._tallies = Tallies(self._clock)
        direct = None if listener is None else DirectConsumption(group, listener, self.settings.hooks, False)
        tasks = Tasks()
        self._broker_requests = BrokerRequests(
            group, lambda: self._rebalance.hurry(), self._move, self._describe, direct, tasks
        )
        timeout_s = self.settings.request_timeout_s
        self._session = Session(
            nameserver, self._heartbeat, self._broker_requests.serve, self._broker_returned, timeout_s
        )
        self._routes = Routes(self._session)
        self._started_ms = self._clock.now_ms()
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        self._replicas = Replicas(self._session, self._routes)
        offsets = RemoteOffsets(self._session, self._routes, group, self._replicas)
        self._offsets = own_offsets(self.settings, offsets, group)
        self._rebalance = Rebalance(
            self._session, self._routes, group, self._identity.client_id, self.settings.handover_s
        )
        self._memory = Memory(self.settings.bytes_max)
        self._intakes: dict[MessageQueue, tuple[Intake, asyncio.Task[None]]] = {}
        self._leaving: list[Intake] = []  # queues that go to other members, until their progress is committed
        # With the life of the intake; bounded by the windows.
        self._ready: Ready[tuple[Intake, int, ReceivedMessage] | None] = Ready()
        self._redelivery = Redelivery(self._session, self._routes, group, self.settings, self._hand_out)
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._iterating: set[asyncio.Task[Any]] = set()  # tasks that may have unfinished messages
        self._life = Lifecycle(
            group, self._session, self._routes, tasks,
            begin=self._begin_work, finish=self._finish_work, wake=lambda: self._ready.put(None),
        )  # fmt: skip

    @property
    def client_id(self) -> str:
        """The id of this member for brokers and other members."""
        return self._identity.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, without those of the retry topic."""
        return sorted(queue for queue in self._intakes if queue.topic != self._retry_topic)

    async def start(self) -> None:
        """Connect, start to commit regularly, start listeners, and begin to share out and pull queues."""
        await self._life.start()

    async def _begin_work(self) -> None:
        await check_filters(self._session, self._routes, self.group, self.client_id, self._subscriptions)
        self._tasks.append(self._life.spawn(self._commit_regularly(), "gantry-commit"))
        if self._listener is not None:
            count = self.settings.concurrency
            self._workers = [self._life.spawn(self._work(self._listener), f"gantry-listener-{n}") for n in range(count)]
        self._tasks.append(self._life.spawn(self._share_regularly(), "gantry-rebalance"))

    async def stop(self) -> None:
        """Stop pulling, wait for messages in work, commit, unregister, and close.

        A cancelled call closes the consumer at once, because it would otherwise keep its queues.
        """
        await self._life.stop()

    async def _finish_work(self) -> None:
        self._redelivery.stop()
        await cancelled([*self._tasks, *(task for _, task in self._intakes.values())])
        if self._workers:
            await asyncio.wait(self._workers, timeout=self.settings.stop_timeout_s)
        await self._life.tasks.close()  # also listeners
        intakes = [*self._leaving, *(intake for intake, _ in self._intakes.values())]
        await self._let_go(intakes)
        for intake in intakes:
            intake.drop()  # before the commit: a later ack would not be part of it
        await self._commit(intakes)

    async def _let_go(self, intakes: Sequence[Intake]) -> None:
        """Wait for unfinished messages of iterating tasks, but not for those of the task that called stop()."""
        others: set[asyncio.Future[Any]] = {task for task in self._iterating if task is not asyncio.current_task()}
        if not others:
            return
        idle: asyncio.Future[Any] = asyncio.ensure_future(asyncio.gather(*(intake.idle() for intake in intakes)))
        try:
            async with asyncio.timeout(self.settings.stop_timeout_s):
                while others and not idle.done():
                    done, _ = await asyncio.wait({idle, *others}, return_when=asyncio.FIRST_COMPLETED)
                    others -= done
        except TimeoutError:
            log.warning("%s: stopped with messages in hand after %g s", self.group, self.settings.stop_timeout_s)
        finally:
            idle.cancel()
            await asyncio.wait([idle])

    async def wait(self) -> None:
        """Wait until stop() was called; raises the error that ended the consumer, if there was one."""
        await self._life.wait()

    async def commit(self) -> None:
        """Commit the progress now; this also happens every few seconds."""
        await self._commit([intake for intake, _ in self._intakes.values()])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop; raises the error that ended the consumer, if there was one."""
        await self._life.leave(error)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Return the consumer; the iteration ends at stop()."""
        assert self._listener is None, "messages go to the listener"
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message of any queue."""
        task = asyncio.current_task()
        if task is not None and task not in self._iterating:
            self._iterating = {task, *(one for one in self._iterating if not one.done())}
        found = await self._next()
        if found is None:
            await self.wait()
            raise StopAsyncIteration
        return found

    # Work

    async def _next(self) -> ReceivedMessage | None:
        """Return the next message of a queue that this member still has; None when the consumer has ended."""
        ready = self._ready
        while True:
            if not ready.items:
                await ready.wait()
                continue
            found = ready.take()
            if found is None or self._life.is_over:
                ready.put(None)  # for other waiting tasks
                return None
            intake, life, message = found
            if not intake.is_leaving and life == intake.life:
                intake.hand_out(message.stored.queue_offset)
                return message

    async def _work(self, listener: Listener) -> None:
        while True:
            message = await self._next()
            if message is None:
                return
            if message.decode_error:
                # Another member may be able to decode it; after the last attempt it is a dead letter.  Members that
                # broadcast get no message again.
                await (message.ack() if self.settings.broadcast else message.retry())
                continue
            # A separate task: an exception of the listener is a value here, and a cancelled worker leaves it running.
            call = called(listener, message, self.group, self.settings.hooks, self._tallies)
            task = self._life.tasks.own(asyncio.create_task(call))
            await ended(task)
            if task.cancelled() or task.exception() is not None:
                log.error("%r: the listener failed", message, exc_info=None if task.cancelled() else task.exception())
                await message.retry()
            else:
                await message.ack()

    def _deliverer(self) -> Callable[[Intake, StoredMessage], None]:
        """Return what takes the messages of one queue."""
        delivery: Delivery | None = None

        def deliver(intake: Intake, stored: StoredMessage) -> None:
            nonlocal delivery
            if delivery is None or delivery.life != intake.life:
                delivery = Delivery(intake, self._redelivery, self._is_too_late)
            if stored.topic == self._retry_topic:
                stored = replace(stored, topic=stored.properties.get(RETRY_TOPIC, stored.topic))
            message = ReceivedMessage(stored, intake.queue, delivery.finish, delivery.again)
            self._ready.put((intake, intake.life, message))

        return deliver

    def _is_too_late(self, intake: Intake, message: ReceivedMessage) -> bool:
        if intake.is_dropped and self._life.is_over:
            raise ClosedError(f"{message!r}: too late, the consumer has stopped; the message is delivered again")
        log.warning("%r: too late, its queue has another owner or was reset; the message is delivered again", message)
        return False

    def _hand_out(self, intake: Intake, message: ReceivedMessage) -> None:
        self._ready.put((intake, intake.life, message))

    def _forget_former_lives(self) -> None:
        """Remove waiting messages of queues that other members have now, or that were reset.

        No window counts them, so with slow listeners they would accumulate at every rebalance.
        """
        self._ready.keep(lambda found: found is None or (not found[0].is_leaving and found[1] == found[0].life))

    # Queues

    async def _share_regularly(self) -> None:
        patience = _RETRY_TOPIC_ROUNDS
        while True:
            is_complete = True
            for subscription in self._subscriptions:
                share = await self._rebalance.share(subscription.topic, self.settings.broadcast)
                if share is None:
                    # A group without redeliveries has no retry topic.
                    is_retry = subscription.topic == self._retry_topic
                    patience -= is_retry
                    is_complete = is_complete and is_retry and patience < 0
                else:
                    await self._give_up(subscription.topic, share.queues)
                    self._take(subscription, share)
            await self._rebalance.wait(self.settings.rebalance_every_s if is_complete else 1.0)

    async def _give_up(self, topic: str, kept: list[MessageQueue]) -> None:
        """Release the queues that this member no longer has; they are committed when this returns."""
        lost = [queue for queue in self._intakes if queue.topic == topic and queue not in kept]
        if not lost:
            return
        log.info("%s: %d queues of %s go to other members", self.group, len(lost), topic)
        tasks = []
        # Before the first await, so that no message of these queues is handed out any more.
        for queue in lost:
            intake, task = self._intakes.pop(queue)
            intake.is_leaving = True
            self._leaving.append(intake)
            self._replicas.forget(queue)
            tasks.append(task)
        self._redelivery.drop(lost)
        self._forget_former_lives()
        await cancelled(tasks)
        await asyncio.gather(*(intake.leave(self.settings.handover_s / 2) for intake in self._leaving))
        await self._commit(self._leaving)
        self._leaving.clear()

    def _take(self, subscription: Subscription, share: Share) -> None:
        """Start to pull the queues that are new to this member."""
        settings = self.settings
        for queue in share.queues:
            if queue not in self._intakes:
                pulling = PullSettings(
                    self.group, subscription, settings.pull_messages_max, wait_s=settings.pull_wait_s
                )
                intake = Intake(queue, pulling, self._memory, self._deliverer(), self._tallies)
                running = self._run(intake, share.wait_s)
                self._intakes[queue] = intake, self._life.spawn(running, f"gantry-pull-{queue.topic}-{queue.queue_id}")

    async def _run(self, intake: Intake, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        settings = self.settings
        if intake.queue.topic == self._retry_topic:
            # RocketMQ: wherever a group begins, none of its redeliveries is skipped.
            settings = replace(settings, start_from=StartFrom.FIRST)
        now_ms, tells = self._clock.now_ms(), not settings.broadcast
        await intake.run(self._replicas, self._routes, self._offsets, settings, now_ms, tells)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_every_s)
            await self.commit()

    async def _commit(self, intakes: Sequence[Intake]) -> None:
        if self.settings.broadcast and not isinstance(self._offsets, LocalOffsets):
            return
        await asyncio.gather(*(self._commit_one(intake) for intake in intakes))

    async def _commit_one(self, intake: Intake) -> None:
        offset = intake.to_commit
        if offset is None:
            return
        try:
            if await self._offsets.commit(intake.queue, offset):
                intake.committed = offset
        except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
            log.warning("%s: offset %d not committed: %s", intake.queue, offset, error)

    # Brokers

    def _heartbeat(self) -> Heartbeat:
        model = BROADCASTING if self.settings.broadcast else CLUSTERING
        data = ConsumerData(
            self.group,
            self._subscriptions,
            message_model=model,
            consume_from_where=self.settings.start_from.value,
        )
        return Heartbeat(self.client_id, consumers=(data,))

    def _broker_returned(self) -> None:
        self._rebalance.broker_returned()

    def _move(self, targets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets of a reset; waiting messages and those in work no longer count."""
        for queue, offset in targets.items():
            if queue in self._intakes:
                self._intakes[queue][0].move(offset)
        self._redelivery.drop(targets.keys())
        self._forget_former_lives()

    def _describe(self) -> Description:
        settings, queues = self.settings, [intake.info() for intake, _ in self._intakes.values()]
        nameserver = ";".join(self._session.nameservers)
        about = nameserver, self._started_ms, settings.concurrency, False, self._subscriptions, queues
        return Description(*about, self._tallies.to_json())
