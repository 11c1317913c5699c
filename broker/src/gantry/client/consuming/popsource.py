"""The messages of a consumer that pops: `Consumer(mode="pop")`.

The group's members share messages, not queues.  One pop is under way at each broker for each topic, held by the broker
while there is nothing.  A popped message is invisible for the group, and its lease is renewed for as long as this
client works on it (`poprenewal`).  Every message ends in one of these, and is repeated until the broker answers
(`popsettling`):

    acknowledged       it is finished
    changed            it failed: it is visible again after a delay that grows with its attempts
    forwarded          it is a dead letter, by `give_up` or after `redeliveries_max`; the broker does the same when the
                       group's attempts are used up
    left               the consumer stops or dies: it is visible a second after a stop, or when its lease ends

An orderly group is popped queue by queue, one message at a time: the next one follows when the one before is settled,
so a failed message is delivered again before any later one of its queue.

Bounds: a place (a topic on a broker, or a queue of an orderly group) holds at most `_PLACE_MAX` unfinished messages and
one pop more, all places `bytes_max` and one pop each.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gantry.client.consuming.broker_requests import QueueInfo
from gantry.client.consuming.intake import Memory
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.consuming.poprenewal import Held, PopRenewal
from gantry.client.consuming.popsettling import PopSettling
from gantry.client.consuming.ready import Ready
from gantry.client.consuming.source import SourceParts
from gantry.client.consuming.starting import store_begins
from gantry.client.popped import Receipt, matching, receipt_of
from gantry.client.popping import Popping
from gantry.client.received import LEVEL_DEAD, Again, ReceivedMessage
from gantry.client.requests.pop_requests import POP_COUNT_MAX, PopResult, PopSettings
from gantry.client.settings import POP_LADDER_S, StartFrom
from gantry.errors import ClosedError, OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.transport.tasks import cancelled
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_PLACE_MAX = 64  # RocketMQ's popThresholdForQueue is 96
_PAUSE_FIRST_S, _PAUSE_LAST_S = 0.1, 1.0
_LEAVE_S = 3.0  # a broker that does not answer makes the messages visible when their leases end
_HELD_S = 0.05  # an empty answer that comes sooner was not held: the next pop waits a little


class _Window:
    """The unfinished messages of one place."""

    def __init__(self, count_max: int) -> None:
        self.count = 0
        self._count_max = count_max

    @property
    def room(self) -> int:
        return max(0, self._count_max - self.count)


class PopSource:
    """The source of a consumer that pops."""

    def __init__(self, parts: SourceParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._popping = Popping(parts.session, parts.routes)
        # With the tasks of the session: they end after all others, because settling goes on while the consumer stops.
        self._settling = PopSettling(self._popping, parts.group, parts.session.tasks)
        self._renewal = PopRenewal(self._popping, parts.group, parts.client_id, self._settings.pop_invisible_s)
        self._memory = Memory(self._settings.bytes_max)
        self._held: set[Held] = set()  # every message that is not settled; bounded by the windows
        self._ready: Ready[tuple[Held, ReceivedMessage] | None] = Ready()
        self._places: dict[MessageQueue, asyncio.Task[None]] = {}
        self._brokers: dict[str, MessageQueue] = {}  # a place of each broker
        self._tasks: list[asyncio.Task[None]] = []
        self._has_ended = False
        self._may_pop = asyncio.Event()  # the group's begin is stored; an earlier pop would begin with the last message
        self._changed = asyncio.Event()  # a message is not in hand any more
        self._random = random.Random()  # jitter, so that consumers that lost a broker together do not retry together

    @property
    def queues(self) -> list[MessageQueue]:
        """The places that are popped: with queue -1 all queues of a broker."""
        return sorted(place for place in self._places if not is_retry_topic(place.topic))

    def infos(self) -> list[QueueInfo]:
        """Return nothing: a consumer that pops has no queues."""
        return []

    def begin(self) -> None:
        """Start to look for brokers, to pop from them, and to renew leases."""
        self._tasks.append(self._parts.spawn(self._look_regularly(), "gantry-places"))
        self._tasks.append(self._parts.spawn(self._renewal.run(self._brokers, self._held), "gantry-renewal"))

    async def wait_until_begun(self, within_s: float) -> None:
        """Return when it is stored where a new group begins, at the latest after `within_s`."""
        parts = self._parts
        offsets = RemoteOffsets(parts.session, parts.routes, parts.group)
        try:
            now_ms = parts.clock.now_ms()
            await store_begins(parts.routes, offsets, parts.subscriptions, parts.settings, now_ms, within_s)
        finally:
            self._may_pop.set()

    def wake(self) -> None:
        """Let every call of `next` return None; the consumer's life is over."""
        self._ready.put(None)

    async def next(self) -> ReceivedMessage | None:
        """Return the next message; None when the consumer has ended."""
        ready = self._ready
        while True:
            if not ready.items:
                await ready.wait()
                continue
            found = ready.take()
            if found is None or self._parts.is_over():
                ready.put(None)  # for other waiting tasks
                return None
            held, message = found
            if not held.is_over:
                held.in_hand = True
                return message

    async def stop_taking(self) -> None:
        """End pops, and leave what was not handed out to other members."""
        await cancelled([*self._tasks[:1], *self._places.values()])
        await self._leave([held for held in self._held if not held.in_hand and not held.is_over])

    async def idle(self) -> None:
        """Return when no message is in work."""
        while any(held.in_hand and not held.is_over for held in self._held):
            self._changed.clear()
            await self._changed.wait()

    async def end(self) -> None:
        """Settle what is finished and leave the rest to other members; later calls for messages raise ClosedError."""
        self._has_ended = True
        await cancelled(self._tasks)
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await self._leave([held for held in self._held if not held.is_over])
                await self._settling.drained()
                await self._renewal.end(list(self._brokers.values()))
        except TimeoutError:
            text = "%s: stopped before its brokers had answered everything; some messages are delivered again"
            log.warning(text, self._parts.group)

    async def commit(self) -> None:
        """Do nothing: brokers have the progress, message by message."""

    def move(self, targets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: a broker that resets a group ends its leases."""

    def members_changed(self) -> None:
        """Do nothing: members share no queues."""

    def broker_returned(self) -> None:
        """Do nothing: every pop goes to the present master."""

    # Places

    async def _look_regularly(self) -> None:
        await self._may_pop.wait()
        while True:
            is_complete = True
            for subscription in self._parts.subscriptions:
                try:
                    await self._look(subscription)
                except _FAULTS as error:
                    is_absent = isinstance(error, RefusedError) and error.code == ResponseCode.TOPIC_NOT_EXIST
                    if not (is_absent and is_retry_topic(subscription.topic)):
                        is_complete = False  # a group without redeliveries has no retry topic
                        log.debug("%s: %s: %s", self._parts.group, subscription.topic, error)
            await asyncio.sleep(self._settings.rebalance_every_s if is_complete else 1.0)

    async def _look(self, subscription: Subscription) -> None:
        """Pop from the brokers of a topic that are new, and no more from those that do not have it any more."""
        topic = subscription.topic
        is_orderly = await self._popping.is_orderly(self._parts.group, topic)
        targets = await (self._popping.queues if is_orderly else self._popping.targets)(topic)
        gone = [place for place in self._places if place.topic == topic and place not in targets]
        await cancelled([self._places.pop(place) for place in gone])
        for place in targets:
            self._brokers.setdefault(place.broker_name, place)
            if place not in self._places:
                work = self._pop_regularly(place, subscription, is_orderly)
                self._places[place] = self._parts.spawn(work, f"gantry-pop-{topic}-{place.broker_name}")

    async def _pop_regularly(self, place: MessageQueue, subscription: Subscription, is_orderly: bool) -> None:
        settings = PopSettings(
            self._parts.group, subscription, 1 if is_orderly else POP_COUNT_MAX,
            int(self._settings.pop_invisible_s * 1000), self._settings.pull_wait_s,
            # RocketMQ: wherever a group begins, none of its redeliveries is skipped.
            self._settings.start_from is StartFrom.FIRST or is_retry_topic(place.topic),
            is_orderly, "" if is_orderly else self._parts.client_id,
        )  # fmt: skip
        window, pause_s, attempt_id = _Window(1 if is_orderly else _PLACE_MAX), 0.0, ""
        loop = asyncio.get_running_loop()
        while True:
            while not window.room or (self._memory.is_full and window.count):
                await self._memory.wait()
            attempt_id = attempt_id or (uuid.uuid4().hex if is_orderly else "")
            begun_s = loop.time()
            try:
                asked = replace(settings, count_max=min(settings.count_max, window.room))
                result = await self._popping.pop(place, asked, attempt_id)
            except _FAULTS as error:
                is_new, pause_s = not pause_s, min(_PAUSE_LAST_S, max(_PAUSE_FIRST_S, pause_s * 2))
                log.log(logging.WARNING if is_new else logging.DEBUG, "%s: %s", place, error)
                await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
                continue
            attempt_id, took_s = "", loop.time() - begun_s
            self._take(place, subscription, window, result, took_s)
            is_hasty = not result.messages and took_s < _HELD_S
            pause_s = min(_PAUSE_LAST_S, max(_HELD_S, pause_s * 2)) if is_hasty else 0.0
            if is_hasty:
                await asyncio.sleep(pause_s)

    def _take(
        self, place: MessageQueue, subscription: Subscription, window: _Window, result: PopResult, took_s: float
    ) -> None:
        if result.messages:
            self._parts.tallies.pulled(place.topic, len(result.messages), took_s)
        if result.unread:
            work = self._popping.give_back(self._parts.group, place.topic, result.unread)
            self._parts.session.tasks.own(asyncio.create_task(work))
        now_s = asyncio.get_running_loop().time()
        wanted, unwanted = matching(result.messages, subscription)
        for message in [*wanted, *unwanted]:
            held = Held(message, now_s)
            self._held.add(held)
            window.count += 1
            self._memory.bytes += held.bytes
            settled = partial(self._settled, held, window)
            if message in unwanted:
                held.is_over = True
                self._settling.ack(message, settled)
                continue
            queue = MessageQueue(message.topic, place.broker_name, message.stored.queue_id)
            stored = replace(message.stored, topic=message.topic)
            finish, again = partial(self._finish, held, settled), partial(self._again, held, settled)
            self._ready.put((held, ReceivedMessage(stored, queue, finish, again)))

    # Settling

    def _finish(self, held: Held, settled: partial[None], message: ReceivedMessage) -> bool:
        if held.is_over or self._has_ended:
            raise ClosedError(f"{message!r}: too late, the consumer has stopped; the message is delivered again")
        self._put_down(held)
        self._settling.ack(held.message, settled)
        return True

    async def _again(self, held: Held, settled: partial[None], message: ReceivedMessage, wish: Again) -> None:
        if message.is_over:
            return
        if held.is_over or self._has_ended:
            raise ClosedError(f"{message!r}: too late, the consumer has stopped; the message is delivered again")
        message.is_over = True
        self._put_down(held)
        most = self._settings.redeliveries_max
        is_dead = wish.level == LEVEL_DEAD or (most is not None and message.reconsume_times >= most)
        try:
            if is_dead:
                await self._settling.give_up(held.message)
            else:
                await self._settling.change(held.message, _delay_s(wish, message.reconsume_times))
        finally:
            settled()

    def _put_down(self, held: Held) -> None:
        held.is_over = True
        self._changed.set()

    def _settled(self, held: Held, window: _Window) -> None:
        if held in self._held:
            self._held.discard(held)
            window.count -= 1
            self._memory.give_back(held.bytes)

    async def _leave(self, all_held: list[Held]) -> None:
        """Give messages back, so that other members get them in a second."""
        by_topic: dict[str, list[Receipt]] = defaultdict(list)
        for held in all_held:
            self._put_down(held)
            by_topic[held.message.source].append(receipt_of(held.message))
        given = [self._popping.give_back(self._parts.group, *one, _LEAVE_S) for one in by_topic.items()]
        await asyncio.gather(*given)


def _delay_s(wish: Again, redeliveries: int) -> float:
    """Return how long a failed message stays invisible."""
    if wish.after_s is not None:
        return wish.after_s
    level = wish.level or redeliveries + 1
    return POP_LADDER_S[min(level, len(POP_LADDER_S)) - 1]
