"""The pull consumer: the caller polls for messages.

    async with PullConsumer("billing", nameserver=..., subscription={"Orders": "paid"}) as consumer:
        while True:
            for message in await consumer.poll():
                ...

With a subscription it is a member of its group and gets a share of the queues (RocketMQ: `DefaultLitePullConsumer`
after `subscribe`).  Without one it is not a member and consumes the queues that `assign` names.

A poll means that the messages of the former polls are done.  That is committed every few seconds and at stop; with
`auto_commit=False` only by `commit()`, which marks everything returned so far as done.  Between two polls messages are
pulled in advance, within the bounds of the settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from gantry.client.connections.replicas import Replicas
from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.intake import Memory, Starts
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.pulledqueue import At, PulledQueue
from gantry.client.consuming.rebalance import Rebalance
from gantry.client.consuming.starting import START_S, store_begins
from gantry.client.consuming.subscribing import check_filters
from gantry.client.filters import Filter, Sql, subscription_to, subscriptions_of
from gantry.client.identity import ClientIdentity
from gantry.client.lifecycle import Lifecycle
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import ConsumerSettings, StartFrom, check_group
from gantry.clock import Clock, SystemClock
from gantry.errors import (
    ClosedError,
    ConfigError,
    OutcomeUnknownError,
    RefusedError,
    RemoteProtocolError,
    UnreachableError,
)
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.model.route import MessageQueue
from gantry.model.subscription import CONSUME_ACTIVELY, Subscription
from gantry.transport.connection import Connection
from gantry.transport.tasks import cancelled
from gantry.wire.codes import RequestCode
from gantry.wire.heartbeat import ConsumerData, Heartbeat

__all__ = ["ConsumerSettings", "MessageQueue", "PullConsumer", "Sql", "StartFrom", "StoredMessage"]

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
Pulling = tuple[PulledQueue, asyncio.Task[None]]


class PullConsumer:
    """Polls for messages; an asynchronous context manager, or start() and stop() once each."""

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str],
        subscription: Mapping[str, Filter] | None = None,
        settings: ConsumerSettings | None = None,
        auto_commit: bool = True,
        clock: Clock | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = settings or ConsumerSettings()
        if self.settings.broadcast:
            raise ConfigError("a pull consumer cannot broadcast; assign all queues of the topic instead")
        self._clock = clock or SystemClock()
        self._auto_commit = auto_commit
        self._subscriptions = (
            () if subscription is None else subscriptions_of(group, subscription, self._clock.now_ms())
        )
        is_member = bool(self._subscriptions)
        self._session = Session(nameserver, self._heartbeat if is_member else None, self._on_request)
        self._routes = Routes(self._session)
        self._identity = ClientIdentity(self._session.nameservers[0], self._clock)
        self._replicas = Replicas(self._session, self._routes)
        self._offsets = RemoteOffsets(self._session, self._routes, group, self._replicas)
        handover_s = self.settings.handover_s
        self._rebalance = Rebalance(self._session, self._routes, group, self._identity.client_id, handover_s)
        self._memory = Memory(self.settings.bytes_max)
        self._queues: dict[MessageQueue, Pulling] = {}
        self._wanted: dict[MessageQueue, Subscription] = {}  # of each of its queues
        self._paused: set[MessageQueue] = set()
        self._has_shared = asyncio.Event()  # set after the first round of rebalancing
        self._news = asyncio.Event()
        self._turn = 0  # the queue that the next poll begins with
        self._life = Lifecycle(
            group, self._session, self._routes, begin=self._begin_work, finish=self._finish_work, wake=self._news.set
        )

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this consumer has now."""
        return sorted(self._queues)

    @property
    def paused(self) -> list[MessageQueue]:
        """The queues whose messages are not returned."""
        return sorted(self._paused)

    async def start(self) -> None:
        """Connect, start to commit regularly, and to share out queues if it is a member.

        Returns when a member has begun its first queues, and with `auto_commit` has stored where, at the latest after
        some 10 s: what is sent from then on is received.
        """
        await self._life.start()

    async def _begin_work(self) -> None:
        await check_filters(self._session, self._routes, self.group, self._identity.client_id, self._subscriptions)
        if self._auto_commit:
            self._life.spawn(self._commit_regularly(), "gantry-commit")
        if self._subscriptions:
            if self._auto_commit:  # else the user's commit is the group's first offset
                where = self._routes, self._offsets, self._subscriptions
                await store_begins(*where, self.settings, self._clock.now_ms())
            self._life.spawn(self._share_regularly(), "gantry-rebalance")
            await self._begun()

    async def _begun(self) -> None:
        try:
            async with asyncio.timeout(START_S):
                await self._has_shared.wait()
                first = [one for one, _ in self._queues.values()]
                await asyncio.gather(*(one.intake.has_begun.wait() for one in first))
        except TimeoutError:
            log.warning("%s: has not begun all of its queues within %g s, and goes on trying", self.group, START_S)

    async def stop(self) -> None:
        """Stop pulling, commit what is done, unregister, and close."""
        await self._life.stop()

    async def _finish_work(self) -> None:
        await self._life.tasks.close()
        await self._leave(list(self._queues))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop; raises the error that ended the consumer, if there was one."""
        await self._life.leave(error)

    # Messages

    async def poll(self, timeout_s: float = 5.0, count_max: int = 32) -> list[StoredMessage]:
        """Return the next messages of any queue that is not paused, empty when none came in time.

        The messages of the former polls are done from now on. ClosedError after `stop`.
        """
        self._check_open()
        for one, _ in self._queues.values():
            one.settle()
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self._life.is_over:
            self._news.clear()
            found = self._take_messages(count_max)
            if found:
                return found
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return []
        self._life.check()
        return []

    async def commit(self) -> None:
        """Mark everything returned so far as done and commit it; raises the errors of the brokers."""
        self._check_open()
        for one, _ in list(self._queues.values()):
            one.settle()
            await self._commit_one(one)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group committed; None when it never did."""
        await self._routes.to_read(queue.topic)
        return await self._offsets.committed(queue)

    # Queues

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic in order; RefusedError 17 when no broker has it."""
        return list(await self._routes.to_read(topic))

    async def assign(self, queues: Iterable[MessageQueue], tags: Filter = "*") -> None:
        """Consume exactly these queues from now on, from the group's committed offset or by the settings."""
        if self._subscriptions:
            raise ConfigError("a consumer with a subscription gets its queues from its group; make one without")
        wanted = {queue: subscription_to(queue.topic, tags) for queue in queues}
        for topic in {queue.topic for queue in wanted}:
            await self._routes.to_read(topic)
        await self._leave([queue for queue in self._queues if wanted.get(queue) != self._wanted.get(queue)])
        for queue, subscription in wanted.items():
            if queue not in self._queues:
                self._begin(queue, subscription, self._offsets)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to return; None until the start is known."""
        return self._ours(queue)[0].position

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset, forwards or back; messages that were pulled in advance are dropped."""
        one, task = self._ours(queue)
        # Before the first await, because another seek or a rebalance has to find the queue in its place.
        self._begin(queue, self._wanted[queue], At(offset))
        try:
            await cancelled([task])
        finally:  # also when the caller is cancelled: the task ends by itself
            one.drop()

    async def seek_to_first(self, queue: MessageQueue) -> None:
        """Continue at the oldest stored message."""
        await self.seek(queue, await self._offsets.min_offset(queue))

    async def seek_to_last(self, queue: MessageQueue) -> None:
        """Continue with messages that are stored from now on."""
        await self.seek(queue, await self._offsets.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message stored at or after a time (ms since the epoch)."""
        await self.seek(queue, await self._offsets.offset_at(queue, timestamp_ms))

    def pause(self, *queues: MessageQueue) -> None:
        """Return no messages of these queues until `resume`; the consumer keeps them and what was pulled."""
        self._paused |= set(queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Return messages of these queues again."""
        self._paused -= set(queues)
        self._news.set()

    def _check_open(self) -> None:
        if self._life.is_over:
            self._life.check()
            raise ClosedError(f"{self.group}: this consumer was stopped; make a new one")

    def _ours(self, queue: MessageQueue) -> Pulling:
        found = self._queues.get(queue)
        if found is None:
            raise ConfigError(f"this consumer does not have {queue} now; it has {len(self._queues)} queues")
        return found

    def _take_messages(self, count_max: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        names = sorted(self._queues)
        self._turn = (self._turn + 1) % max(1, len(names))
        for name in names[self._turn :] + names[: self._turn]:
            if name not in self._paused and len(found) < count_max:
                found += self._queues[name][0].take(count_max - len(found))
        return found

    def _begin(self, queue: MessageQueue, subscription: Subscription, starts: Starts, wait_s: float = 0.0) -> None:
        settings = self.settings
        pulling = PullSettings(
            self.group, subscription, settings.pull_messages_max, wait_s=settings.pull_wait_s, is_lite=True
        )
        one = PulledQueue(queue, pulling, self._memory, self._news.set)
        task = self._life.spawn(self._run(one, starts, wait_s), f"gantry-pull-{queue.topic}-{queue.queue_id}")
        self._queues[queue] = one, task
        self._wanted[queue] = subscription

    async def _run(self, one: PulledQueue, starts: Starts, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        now_ms = self._clock.now_ms()
        await one.intake.run(self._replicas, self._routes, starts, self.settings, now_ms, tells=False)

    async def _leave(self, queues: Sequence[MessageQueue]) -> None:
        gone = [self._queues.pop(queue) for queue in queues]
        for queue in queues:
            self._wanted.pop(queue, None)
            self._replicas.forget(queue)
        try:
            await cancelled([task for _, task in gone])
            for one, _ in gone:
                if self._auto_commit:
                    await self._commit_quietly(one)
        finally:
            for one, _ in gone:
                one.drop()

    async def _share_regularly(self) -> None:
        while True:
            is_complete = True
            for subscription in self._subscriptions:
                share = await self._rebalance.share(subscription.topic, broadcast=False)
                if share is None:
                    is_complete = False
                    continue
                ours = [queue for queue in self._queues if queue.topic == subscription.topic]
                await self._leave([queue for queue in ours if queue not in share.queues])
                for queue in share.queues:
                    if queue not in self._queues:
                        self._begin(queue, subscription, self._offsets, share.wait_s)
            self._has_shared.set()
            await self._rebalance.wait(self.settings.rebalance_every_s if is_complete else 1.0)

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_every_s)
            for one, _ in list(self._queues.values()):
                await self._commit_quietly(one)

    async def _commit_quietly(self, one: PulledQueue) -> None:
        try:
            await self._commit_one(one)
        except _FAULTS as error:
            log.warning("%s: offset %s not committed: %s", one.queue, one.done, error)

    async def _commit_one(self, one: PulledQueue) -> None:
        offset, life = one.to_commit, one.intake.life
        if offset is not None and await self._offsets.commit(one.queue, offset):
            one.was_committed(offset, life)

    # Brokers

    def _heartbeat(self) -> Heartbeat:
        data = ConsumerData(
            self.group,
            self._subscriptions,
            consume_type=CONSUME_ACTIVELY,
            consume_from_where=self.settings.start_from.value,
        )
        return Heartbeat(self._identity.client_id, consumers=(data,))

    def _on_request(self, _: Connection, command: Command) -> bool:
        if command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return False
        self._rebalance.hurry()
        return True
