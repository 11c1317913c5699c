"""Messages on their way to a broker.

The broker is chosen in turn, the queue of the topic by the priority: priority p is queue p - 1.  Single sends of one
turn leave together (`client.producing.gathering`); the messages of one call that have the same priority and no delay
are one batch.  A failed attempt is repeated at another broker, or at the new master, within the time of the call, with
the same message id: after a lost answer a message may be there twice, as with every client.  A delayed message is
never repeated after a lost answer: its handle could then take back one copy only.  No broker makes a topic for a send:
when another server has deleted the queue, the message would come with the next queue of that name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gantry.client.outgoing import JOIN_BYTES_MAX, Outgoing
from gantry.client.producing.gathering import Gathering
from gantry.client.producing.selector import Turn
from gantry.client.producing.sending import Sender
from gantry.client.requests import questions
from gantry.client.requests.question import Question
from gantry.client.results import SendResult
from gantry.client.settings import ProducerSettings
from gantry.errors import GantryError, RefusedError
from gantry.gateway.brokers import Brokers
from gantry.leaves import properties
from gantry.leaves.frames import Command
from gantry.model.message import TIMER_DELAY_MS, UNIQUE_KEY
from gantry.model.route import MessageQueue
from gantry.queues import faults
from gantry.queues.attributes import PRIORITY_DEFAULT, KnownQueue
from gantry.queues.faults import QueueFaultError
from gantry.queues.handles import QueueHandles
from gantry.wire.codes import ResponseCode
from gantry.wire.record import join_batch

IN_FLIGHT_MAX = 4096  # sends under way in this process; others wait
SEND_S = 10.0  # longer than a failover of a few seconds
_SENDER = "gantry-queues"  # producer group
_BATCH_BYTES_MAX = 3 << 20  # brokers take 4 MiB
_Choose = Callable[[Sequence[MessageQueue], Collection[str]], MessageQueue]


@dataclass(frozen=True, slots=True)
class QueuePost:
    """A message to send; `delay_s` None: the queue's own."""

    body: bytes
    priority: int = PRIORITY_DEFAULT
    delay_s: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # of the record, beside ours


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A stored message; `handle` is empty unless it is delayed."""

    message_id: str
    body_md5: str
    handle: str = ""


class QueueSends:
    """Sends for all queues."""

    def __init__(self, brokers: Brokers, handles: QueueHandles, now_ms: Callable[[], int]) -> None:
        self._handles = handles
        self._now_ms = now_ms
        self._ids = brokers.ids
        settings = ProducerSettings(in_flight_max=IN_FLIGHT_MAX)
        self._gathering = Gathering(brokers.session, _SENDER)
        self._sender = Sender(brokers.session, brokers.routes, settings, brokers.random, self._gathering)
        self._lanes = _Lanes(Turn(brokers.random.randrange(1 << 16)))

    async def one(self, queue: KnownQueue, post: QueuePost, within_s: float = SEND_S) -> PostedMessage:
        """Send one message; QueueFaultError when it is invalid, and the errors of sends."""
        _check_size(queue, post.body)
        delay_s = queue.settings.delay_s if post.delay_s is None else post.delay_s
        if delay_s:
            return await self._delayed(queue, post, delay_s, within_s)
        outgoing = self._outgoing(queue, post)
        await self._sender.send(outgoing, self._lanes.chooser(post.priority), _ask, within_s)
        return PostedMessage(outgoing.message_ids[0], md5(post.body))

    async def send(
        self, queue: KnownQueue, posts: Sequence[QueuePost], within_s: float = SEND_S
    ) -> list[PostedMessage | QueueFaultError]:
        """Send messages; each has a result of its own."""
        done: list[PostedMessage | QueueFaultError | None] = [None] * len(posts)
        lanes: dict[int, list[int]] = {}
        alone: list[int] = []
        for index, post in enumerate(posts):
            fault = _size_fault(queue, post.body)
            delay_s = queue.settings.delay_s if post.delay_s is None else post.delay_s
            if fault is not None:
                done[index] = fault
            elif delay_s:
                alone.append(index)
            else:
                lanes.setdefault(post.priority, []).append(index)

        async def by_itself(index: int) -> None:
            try:
                done[index] = await self.one(queue, posts[index], within_s)
            except GantryError as error:
                done[index] = faults.of_error(error)

        async def together(indexes: list[int]) -> None:
            some = [posts[index] for index in indexes]
            for index, result in zip(indexes, await self._batch(queue, some, within_s), strict=True):
                done[index] = result

        works = [together(indexes) if len(indexes) > 1 else by_itself(indexes[0]) for indexes in lanes.values()]
        works += [by_itself(index) for index in alone]
        if len(works) == 1:
            await works[0]
        elif works:
            await asyncio.gather(*works)
        return [one for one in done if one is not None]

    async def _delayed(self, queue: KnownQueue, post: QueuePost, delay_s: int, within_s: float) -> PostedMessage:
        outgoing = self._outgoing(queue, post, {TIMER_DELAY_MS: str(delay_s * 1000)})
        choose = self._lanes.chooser(post.priority)
        result = await self._sender.send(outgoing, choose, _ask, within_s, again_when_unknown=False)
        handle = self._handles.delayed(queue, result.recall_handle) if result.recall_handle else ""
        return PostedMessage(outgoing.message_ids[0], md5(post.body), handle)

    async def _batch(
        self, queue: KnownQueue, posts: list[QueuePost], within_s: float
    ) -> list[PostedMessage | QueueFaultError]:
        """Send messages of one priority as one request; a batch that is refused for good is sent one by one."""
        parts = [self._outgoing(queue, post) for post in posts]
        ids = tuple([part.message_ids[0] for part in parts])
        body = join_batch([(0, part.body, part.properties) for part in parts])
        packed = properties.pack({UNIQUE_KEY: ids[0]})
        batch = Outgoing(queue.name, body, packed, ids, parts[0].born_ms, is_batch=True, may_make_topic=False)
        try:
            if len(body) > _BATCH_BYTES_MAX:
                return await self._singly(posts, parts, within_s)
            await self._sender.send(batch, self._lanes.chooser(posts[0].priority), _ask, within_s)
        except GantryError as error:
            if isinstance(error, RefusedError) and not error.retriable:
                return await self._singly(posts, parts, within_s)
            return [faults.of_error(error) for _ in posts]
        return [
            PostedMessage(message_id, md5(post.body)) for message_id, post in zip(ids, posts, strict=True)
        ]

    async def _singly(
        self, posts: list[QueuePost], parts: list[Outgoing], within_s: float
    ) -> list[PostedMessage | QueueFaultError]:
        async def send(post: QueuePost, part: Outgoing) -> PostedMessage | QueueFaultError:
            try:
                await self._sender.send(part, self._lanes.chooser(post.priority), _ask, within_s)
            except GantryError as error:
                return faults.of_error(error)
            return PostedMessage(part.message_ids[0], md5(post.body))

        return list(await asyncio.gather(*map(send, posts, parts)))

    def _outgoing(self, queue: KnownQueue, post: QueuePost, more: dict[str, str] | None = None) -> Outgoing:
        message_id = self._ids.next()
        pairs = {**post.properties, UNIQUE_KEY: message_id}
        packed = properties.pack(pairs | more if more else pairs)
        may_join = more is None and len(post.body) <= JOIN_BYTES_MAX
        now_ms = self._now_ms()
        return Outgoing(
            queue.name, post.body, packed, (message_id,), now_ms, may_join=may_join, may_make_topic=False
        )


class _Lanes:
    """Chooses the queue of a priority, of the next broker in turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._choosers: dict[int, _Choose] = {}

    def chooser(self, priority: int) -> _Choose:
        found = self._choosers.get(priority)
        if found is None:
            number = priority - 1

            def choose(queues: Sequence[MessageQueue], avoid: Collection[str]) -> MessageQueue:
                lane = [queue for queue in queues if queue.queue_id == number]
                return self._turn.select(lane or queues, avoid)

            found = self._choosers[priority] = choose
        return found


def md5(body: bytes) -> str:
    """Return the digest of a body as clients compare it: hex, in upper case."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def _ask(outgoing: Outgoing, queue: MessageQueue) -> Question[SendResult]:
    question = questions.send(_SENDER, outgoing, queue)

    def read(reply: Command) -> SendResult:
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            raise faults.no_queue(outgoing.topic)  # another attempt would be in vain
        return question.read(reply)

    return Question(question.command, read)


def _size_fault(queue: KnownQueue, body: bytes) -> QueueFaultError | None:
    if not body:
        return faults.invalid("MessageBody is missing or empty")
    if len(body) > queue.settings.size_max:
        return faults.invalid(f"MessageBody has {len(body)} bytes, the queue allows {queue.settings.size_max}")
    return None


def _check_size(queue: KnownQueue, body: bytes) -> None:
    fault = _size_fault(queue, body)
    if fault is not None:
        raise fault
