"""Forwards published messages to the subscribers.

Each subscription is a consumer group of its own (`subscriptions`).  All servers pop for all groups, so they share the
work, and what one of them leaves undone is visible to the others when its lease ends.  A message is acknowledged when
the subscriber has it: it is forwarded at least once, and a server's end in between forwards it twice.

    delivered             acknowledged
    failed                visible again after the time of the subscription's strategy, the attempts are counted by the
                          broker; after the last retry it is acknowledged and logged
    no broker answers     tried again in the same way, without an end: that is no fault of the subscriber, so the
                          attempts that failed so in this process are not counted.  Those of other servers, and what
                          a server's end left undone, are: the broker only knows how often it gave the message

One task for each subscription and master.  It holds one pop, and delivers what a pop brought side by side.  `follow`
starts and ends tasks as topics, subscriptions and masters come and go, within `FOLLOW_S`; changes that this server made
are followed at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gantry.client.popped import PoppedMessage, Receipt, matching
from gantry.client.requests.pop_requests import ANY_QUEUE, PopSettings, PopStatus
from gantry.errors import GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.gateway.brokers import Brokers
from gantry.model.message import TAGS
from gantry.model.route import MessageQueue
from gantry.model.subscription import ALL_TAGS, Subscription
from gantry.queues import notifications
from gantry.queues.notifications import PublishedMessage
from gantry.queues.subscriptions import TopicSubscription
from gantry.queues.topictable import KnownTopics
from gantry.transport.tasks import Tasks, cancelled, watched

log = logging.getLogger(__name__)

WORKERS_MAX = 4_000  # tasks, each with one held pop
FOLLOW_S = 2.0
_POP_COUNT = 16
_LEASE_S = 30.0  # longer than one attempt with all its waits, and how long a killed server delays its messages
_WAIT_S = 15.0
_PAUSE_S, _PAUSE_MAX_S = 0.5, 10.0
_HASTY_S = 0.1  # an empty answer to a pop that was to be held
_SPARED_MAX = 100_000  # messages whose outages are counted, some 20 MB
_OUTAGES = (UnreachableError, OutcomeUnknownError)

Deliver = Callable[[TopicSubscription, PublishedMessage, PoppedMessage], Awaitable[None]]
"""Has a subscriber have a message; GantryError when it has not."""


@dataclass(frozen=True, slots=True)
class _Key:
    topic: str
    identity: str
    master: str


class FanOut:
    """Forwards for all subscriptions; start() and close() once.  `counts` has delivered, retried and given_up."""

    def __init__(self, brokers: Brokers, topics: KnownTopics, deliver: Deliver, may_push: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._brokers = brokers
        self._topics = topics
        self._deliver = deliver
        self._may_push = may_push
        self._random = random.Random()
        self._subscriptions: dict[tuple[str, str], TopicSubscription] = {}
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._changed = asyncio.Event()
        self._spared: OrderedDict[tuple[str, str], int] = OrderedDict()  # attempts that were outages
        self._is_closed = False
        self._following: asyncio.Task[None] | None = None

    @property
    def workers(self) -> int:
        """How many tasks forward now."""
        return len(self._running)

    def start(self) -> None:
        """Begin to follow topics and subscriptions."""
        if self._is_closed:
            return
        self._topics.on_change = self._changed.set
        self._topics.on_end = self._end
        self._following = watched(self._follow(), "gantry-topics", self._begin_again)

    async def close(self) -> None:
        """End all tasks; what they have leased is forwarded by others, or by this server after its next start."""
        self._is_closed = True
        if self._following is not None:
            await cancelled([self._following])
        await self._tasks.close()

    def _begin_again(self, error: BaseException | None) -> None:
        """Follow again after an error of this program; without it nothing would be forwarded, and nobody told."""
        log.error("forwarding of topics failed and begins again", exc_info=error)
        if not self._is_closed:
            asyncio.get_running_loop().call_later(FOLLOW_S, self.start)

    async def _follow(self) -> None:
        while True:
            self._changed.clear()
            try:
                wanted = await self._wanted()
            except GantryError as error:
                log.info("the list of topics could not be read: %s", error)
            else:
                await self._adjust(wanted)
            try:
                async with asyncio.timeout(FOLLOW_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _wanted(self) -> set[_Key]:
        wanted: set[_Key] = set()
        subscriptions: dict[tuple[str, str], TopicSubscription] = {}
        masters = sorted(await self._brokers.masters())
        for name, topic in sorted((await self._topics.every()).items()):
            for one in topic.subscriptions():
                if one.queue or self._may_push:
                    subscriptions[name, one.identity] = one
                    wanted |= {_Key(name, one.identity, master) for master in masters}
        self._subscriptions = subscriptions
        if len(wanted) > WORKERS_MAX:
            log.error("%d subscriptions times brokers, %d are served; use fewer", len(wanted), WORKERS_MAX)
            order = sorted(wanted, key=lambda key: (key.identity, key.master))
            wanted = set(order[:WORKERS_MAX])
        return wanted

    async def _adjust(self, wanted: set[_Key]) -> None:
        ended = [self._running.pop(key) for key in list(self._running) if key not in wanted]
        if ended:
            await cancelled(ended)
        for key, task in list(self._running.items()):
            if task.done():
                del self._running[key]
                if not task.cancelled() and task.exception() is not None:
                    log.error("forwarding of topic %s failed and begins again", key.topic, exc_info=task.exception())
        for key in wanted - self._running.keys():
            task = self._tasks.own(asyncio.create_task(self._serve(key), name=f"gantry-topic-{key.topic}"))
            self._running[key] = task

    def _end(self, topic: str, identity: str) -> None:
        """Forward nothing any more for a subscription that this server ended."""
        self._subscriptions.pop((topic, identity), None)
        for key in [key for key in self._running if key.topic == topic and key.identity == identity]:
            self._running.pop(key).cancel()

    # One subscription at one master

    async def _serve(self, key: _Key) -> None:
        pause_s = _PAUSE_S
        while True:
            one = self._subscriptions.get((key.topic, key.identity))
            if one is None:
                return
            settings = PopSettings(
                one.group,
                Subscription(key.topic, one.tag or ALL_TAGS),
                _POP_COUNT,
                int(_LEASE_S * 1000),
                _WAIT_S,
                from_first=True,
            )
            try:
                asked_at = asyncio.get_running_loop().time()
                result = await self._brokers.popping.pop(MessageQueue(key.topic, key.master, ANY_QUEUE), settings)
            except GantryError as error:
                log.info("topic %s, subscription %s, %s: %s", key.topic, one.name, key.master, error)
                await asyncio.sleep(pause_s)
                pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
                continue
            if result.status is not PopStatus.FOUND:
                # A broker answers at once when it holds too many pops, or when all that it has was popped.
                is_hasty = asyncio.get_running_loop().time() - asked_at < _HASTY_S
                await asyncio.sleep(pause_s if is_hasty or result.status is PopStatus.TOO_MANY else 0)
                continue
            pause_s = _PAUSE_S
            popped, others = matching(result.messages, settings.subscription)
            done = [message.receipt for message in others if message.receipt is not None]
            tried = await asyncio.gather(
                *(self._forward(key.topic, one, each) for each in popped), return_exceptions=True
            )
            done += [receipt for receipt in tried if isinstance(receipt, Receipt)]
            if done:
                await self._acknowledge(key.topic, one, done)
            for failure in tried:
                # An error of this program.  The others of the pop are acknowledged, or they would come again with it.
                if isinstance(failure, BaseException):
                    raise failure

    async def _forward(self, topic: str, one: TopicSubscription, popped: PoppedMessage) -> Receipt | None:
        """Return the receipt of a message that is to be acknowledged; None when it is tried again."""
        stored, receipt = popped.stored, popped.receipt
        assert receipt is not None, "a message without a receipt was left out before"
        tag = stored.properties.get(TAGS, "")
        message = PublishedMessage(topic, stored.message_id, stored.body, tag, stored.born_ms)
        try:
            await self._deliver(one, message, popped)
        except GantryError as error:
            spared = self._spared.get((one.identity, message.message_id), 0)
            failures = max(1, stored.reconsume_times + 1 - spared)
            if _is_outage(error):
                self._spare(one, message, spared + 1)
                after_s: float | None = notifications.wait_s(one.strategy, failures + spared, self._random)
            else:
                after_s = notifications.retry_after_s(one.strategy, failures, self._random)
            if after_s is None:
                self.counts["given_up"] += 1
                log.error(
                    "topic %s, subscription %s: message %s is given up after %d attempts: %s",
                    topic, one.name, message.message_id, failures, error,
                )
                self._spared.pop((one.identity, message.message_id), None)
                return receipt
            self.counts["retried"] += 1
            await self._later(topic, one, receipt, after_s)
            return None
        self._spared.pop((one.identity, message.message_id), None)
        self.counts["delivered"] += 1
        return receipt

    def _spare(self, one: TopicSubscription, message: PublishedMessage, count: int) -> None:
        self._spared[one.identity, message.message_id] = count
        if len(self._spared) > _SPARED_MAX:
            self._spared.popitem(last=False)

    async def _later(self, topic: str, one: TopicSubscription, receipt: Receipt, after_s: float) -> None:
        try:
            await self._brokers.popping.change(one.group, topic, receipt, after_s)
        except GantryError as error:
            log.info("topic %s, subscription %s: tried again only when the lease ends: %s", topic, one.name, error)

    async def _acknowledge(self, topic: str, one: TopicSubscription, receipts: list[Receipt]) -> None:
        for error in await self._brokers.popping.ack(one.group, topic, receipts):
            if error is not None:
                log.info("topic %s, subscription %s: forwarded again later: %s", topic, one.name, error)


def _is_outage(error: GantryError) -> bool:
    return isinstance(error, _OUTAGES) or (isinstance(error, RefusedError) and error.retriable)
