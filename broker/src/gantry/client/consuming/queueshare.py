"""The queues of one member of a group: shared out by the members, pulled, and committed.

Every member that pulls has one.  It asks for its share every few seconds and when the group changes, begins the queues
that are new to it (`intake`), and gives up those that others have now: nothing of them is handed out any more, running
messages get half of the handover time, and what is finished is committed.  Failed messages go back to their broker
(`redelivery`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gantry.client.connections.replicas import Replicas
from gantry.client.consuming.broadcast import LocalOffsets, own_offsets
from gantry.client.consuming.broker_requests import QueueInfo
from gantry.client.consuming.delivery import Delivery
from gantry.client.consuming.intake import Intake, Memory
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.ready import Ready
from gantry.client.consuming.rebalance import Rebalance, Share
from gantry.client.consuming.redelivery import Redelivery
from gantry.client.consuming.source import SourceParts
from gantry.client.received import ReceivedMessage
from gantry.client.requests.questions import PullSettings
from gantry.client.settings import StartFrom
from gantry.errors import ClosedError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.model.message import RETRY_TOPIC, StoredMessage
from gantry.model.names import retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.transport.tasks import cancelled

log = logging.getLogger(__name__)

_RETRY_TOPIC_ROUNDS = 30  # seconds in which a missing retry topic is looked for every second


class QueueShare:
    """The source of a consumer that pulls."""

    def __init__(self, parts: SourceParts) -> None:
        self.group = parts.group
        self.settings = parts.settings
        self._subscriptions = parts.subscriptions
        self._retry_topic = retry_topic(parts.group)
        self._tallies, self._clock = parts.tallies, parts.clock
        self._spawn, self._is_over = parts.spawn, parts.is_over
        session, self._routes = parts.session, parts.routes
        self._replicas = Replicas(session, self._routes)
        offsets = RemoteOffsets(session, self._routes, self.group, self._replicas)
        self._offsets = own_offsets(self.settings, offsets, self.group)
        self._rebalance = Rebalance(session, self._routes, self.group, parts.client_id, self.settings.handover_s)
        self._memory = Memory(self.settings.bytes_max)
        self._intakes: dict[MessageQueue, tuple[Intake, asyncio.Task[None]]] = {}
        self._leaving: list[Intake] = []  # queues that go to other members, until their progress is committed
        # With the life of the intake; bounded by the windows.
        self._ready: Ready[tuple[Intake, int, ReceivedMessage] | None] = Ready()
        self._redelivery = Redelivery(session, self._routes, self.group, self.settings, self._hand_out)
        self._tasks: list[asyncio.Task[None]] = []
        self._has_shared = asyncio.Event()  # set after the first round of rebalancing

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, without those of the retry topic."""
        return sorted(queue for queue in self._intakes if queue.topic != self._retry_topic)

    def infos(self) -> list[QueueInfo]:
        """Return the state of each queue, for tools."""
        return [intake.info() for intake, _ in self._intakes.values()]

    def members_changed(self) -> None:
        """Share the queues out again, now."""
        self._rebalance.hurry()

    def broker_returned(self) -> None:
        """Keep the queues until all members are back."""
        self._rebalance.broker_returned()

    def begin(self) -> None:
        """Start to commit regularly, and to share out and pull queues."""
        self._tasks.append(self._spawn(self._commit_regularly(), "gantry-commit"))
        self._tasks.append(self._spawn(self._share_regularly(), "gantry-rebalance"))

    async def wait_until_begun(self, within_s: float) -> None:
        """Return when this member has begun its first queues and their offsets are stored, at the latest after
        `within_s`.  A topic that does not exist is not waited for: nothing of it can be skipped.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._has_shared.wait()
                first = [intake for intake in self._all() if intake.queue.topic != self._retry_topic]
                await asyncio.gather(*(intake.has_begun.wait() for intake in first))
                await self._commit(first)
        except TimeoutError:
            log.warning("%s: has not begun all of its queues within %g s, and goes on trying", self.group, within_s)

    def wake(self) -> None:
        """Let every call of `next` return None; the consumer's life is over."""
        self._ready.put(None)

    async def stop_taking(self) -> None:
        """End pulling, and hand out no failed message again."""
        self._redelivery.stop()
        await cancelled([*self._tasks, *(task for _, task in self._intakes.values())])

    async def idle(self) -> None:
        """Return when no message is in work, in any queue."""
        await asyncio.gather(*(intake.idle() for intake in self._all()))

    async def end(self) -> None:
        """Commit what is finished; later calls for messages have no effect."""
        intakes = self._all()
        for intake in intakes:
            intake.drop()  # before the commit: a later ack would not be part of it
        await self._commit(intakes)

    async def commit(self) -> None:
        """Commit the progress of all queues."""
        await self._commit([intake for intake, _ in self._intakes.values()])

    def _all(self) -> list[Intake]:
        return [*self._leaving, *(intake for intake, _ in self._intakes.values())]

    async def next(self) -> ReceivedMessage | None:
        """Return the next message of a queue that this member still has; None when the consumer has ended."""
        ready = self._ready
        while True:
            if not ready.items:
                await ready.wait()
                continue
            found = ready.take()
            if found is None or self._is_over():
                ready.put(None)  # for other waiting tasks
                return None
            intake, life, message = found
            if not intake.is_leaving and life == intake.life:
                intake.hand_out(message.stored.queue_offset)
                return message

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
        if intake.is_dropped and self._is_over():
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

    def move(self, targets: Mapping[MessageQueue, int]) -> None:
        """Continue at the offsets of a reset; waiting messages and those in work no longer count."""
        for queue, offset in targets.items():
            if queue in self._intakes:
                self._intakes[queue][0].move(offset)
        self._redelivery.drop(targets.keys())
        self._forget_former_lives()

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
            self._has_shared.set()
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
                self._intakes[queue] = intake, self._spawn(running, f"gantry-pull-{queue.topic}-{queue.queue_id}")

    async def _run(self, intake: Intake, wait_s: float) -> None:
        settings = self.settings
        # A broker stores the begin of members that begin at the end, when it answers them.
        has_place = settings.start_from is StartFrom.FIRST or (settings.start_from is StartFrom.LAST and not wait_s)
        if not has_place and intake.queue.topic != self._retry_topic:
            await self._hold_place(intake.queue)
        await asyncio.sleep(wait_s)
        if intake.queue.topic == self._retry_topic:
            # RocketMQ: wherever a group begins, none of its redeliveries is skipped.
            settings = replace(settings, start_from=StartFrom.FIRST)
        now_ms, tells = self._clock.now_ms(), not settings.broadcast
        await intake.run(self._replicas, self._routes, self._offsets, settings, now_ms, tells)

    async def _hold_place(self, queue: MessageQueue) -> None:
        """Store where the group begins in a queue before reading it, and before waiting for its former owner, who may
        have begun nothing.
        """
        if self.settings.broadcast or not isinstance(self._offsets, RemoteOffsets):
            return
        try:
            await self._offsets.commit_start(queue, self.settings, self._clock.now_ms())
        except (RefusedError, UnreachableError, OutcomeUnknownError) as error:
            log.warning("%s: where the group begins is not stored yet: %s", queue, error)

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
