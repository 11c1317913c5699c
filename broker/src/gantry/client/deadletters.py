"""Dead letters: messages whose delivery to a group failed too often; to read and to replay.


A replay sends a copy of a dead letter to the group's retry topic, so that only this group gets it, with the topic that
it was first sent to and a new count of attempts.  Or, on request, the copy goes to that topic itself, and every group
that subscribes to it gets it again.  The copy has the same body, message id and birth time; its property GANTRY_REPLAYS
counts the replays.  The dead letter stays until its segment is deleted.

A replay continues where the last one ended.  The broker keeps that position as the offset of the group TOOLS_CONSUMER
in the dead-letter topic, and it moves when the copy is acknowledged.  So after an interruption (Ctrl-C, a refusal, a
crash) at most one message is replayed twice.  Messages that become dead letters during a replay are left for the next
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.lifecycle import Lifecycle
from gantry.client.outgoing import Outgoing
from gantry.client.requests import admin_requests, questions
from gantry.client.requests.question import Question, number, require
from gantry.client.requests.questions import PullSettings
from gantry.errors import CorruptRecordError, RefusedError, RemoteProtocolError
from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.leaves.records import Record
from gantry.model.names import DLQ_PREFIX, dlq_topic, group_of, retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription
from gantry.wire.codes import ResponseCode
from gantry.wire.record import message

REPLAYS = "GANTRY_REPLAYS"
PROGRESS_GROUP = "TOOLS_CONSUMER"  # exists on every broker
PRODUCER_GROUP = "gantry-dlq"

_KEPT_SYS_FLAGS = 0x703  # compressed, its kind, many tags
# Properties that a copy does not have: it is not a dead letter, not delayed and no half message.
_SPENT = frozenset(
    b"DELAY REAL_TOPIC REAL_QID WAIT RECONSUME_TIME MAX_RECONSUME_TIMES DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID "
    b"TRAN_MSG __transactionId__ TRAN_PREPARED_QUEUE_OFFSET POP_CK TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS "
    b"TIMER_OUT_MS TIMER_DEL_UNIQKEY __STARTDELIVERTIME RETRY_TOPIC GANTRY_REPLAYS".split()
)
_EMPTY = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True, slots=True)
class DeadQueue:
    """One queue of dead letters; those from `replayed_to` on have not been replayed."""

    group: str
    queue: MessageQueue
    start: int
    end: int
    replayed_to: int
    oldest_ms: int  # when its first dead letter was stored; -1 without any
    newest_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter, with its body as it is stored."""

    queue: MessageQueue
    record: Record
    properties: dict[str, str]

    @property
    def message_id(self) -> str:
        """The producer's unique id, else the offset id of the dead letter."""
        return self.properties.get("UNIQ_KEY") or records.offset_message_id(
            self.record.store_host, self.record.log_offset
        )

    @property
    def origin_topic(self) -> str:
        """The topic that it was first sent to; empty when that is unknown."""
        return self.properties.get("RETRY_TOPIC") or self.properties.get("DLQ_ORIGIN_TOPIC", "")

    @property
    def replays(self) -> int:
        """How often it was replayed before."""
        said = self.properties.get(REPLAYS, "")
        return int(said) if said.isdecimal() and len(said) < 10 else 0

    def body(self) -> bytes:
        """Return the decompressed body; RemoteProtocolError when it cannot be decompressed."""
        return message(self.record).body


def copy_of(letter: DeadLetter, topic: str) -> Outgoing:
    """Return the message that a replay sends to `topic`."""
    record = letter.record
    pairs = [pair for pair in record.properties.split(properties.PAIR_END) if pair]
    kept = [pair for pair in pairs if pair.partition(properties.NAME_END)[0] not in _SPENT]
    text = b"".join([pair + properties.PAIR_END for pair in kept])
    if letter.origin_topic:
        text = properties.add(text, b"RETRY_TOPIC", letter.origin_topic.encode())
    return Outgoing(
        topic,
        record.body,
        properties.add(text, REPLAYS.encode(), b"%d" % (letter.replays + 1)),
        (letter.message_id,),
        record.born_ms,
        record.flag,
        record.sys_flag & _KEPT_SYS_FLAGS,
    )


class DeadLetters:
    """Reads and replays dead letters; an asynchronous context manager."""

    def __init__(self, *, nameserver: str | Sequence[str], timeout_s: float = 5.0) -> None:
        self._session = Session(nameserver, timeout_s=timeout_s)
        self._routes = Routes(self._session)
        self._life = Lifecycle("dead letters", self._session)
        self._offsets = RemoteOffsets(self._session, self._routes, PROGRESS_GROUP)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        """Start; connections are made when they are needed."""
        await self._life.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._life.leave(error)

    async def groups(self) -> list[str]:
        """Return the groups that have a dead-letter topic."""
        topics = await self._session.ask_nameserver(admin_requests.topic_list())
        return [group_of(topic) or "" for topic in sorted(topics) if topic.startswith(DLQ_PREFIX)]

    async def queues(self, group: str) -> list[DeadQueue]:
        """Return a group's queues of dead letters; RefusedError 17 when it never had one, 16 when its topic is not
        readable.
        """
        topic = dlq_topic(group)
        queues = await self._routes.to_read(topic)
        if not queues:
            # RocketMQ: brokers before 4.9 create these topics for writing only.
            remark = f"{topic} is not readable; make it readable with `gantry topic create '{topic}' --queues 1`"
            raise RefusedError(ResponseCode.NO_PERMISSION, remark)
        return [await self._looked_at(group, queue) for queue in queues]

    async def letters(self, found: DeadQueue, start: int, end: int | None = None) -> AsyncIterator[DeadLetter]:
        """Yield the dead letters of a queue from an offset on, oldest first."""
        offset, end = max(start, found.start), found.end if end is None else min(end, found.end)
        while offset < end:
            offset, page = await self._page(found.queue, offset)
            for record in page:
                if record.queue_offset < end:
                    yield DeadLetter(found.queue, record, properties.parse(record.properties))

    async def replay(self, letter: DeadLetter, topic: str) -> None:
        """Send a copy and wait for its acknowledgement."""
        queues = await self._routes.to_write(topic)
        # On the dead letter's own broker where possible: the group's consumers read the retry topic of every broker.
        near = [queue for queue in queues if queue.broker_name == letter.queue.broker_name] or queues
        target = near[letter.record.queue_offset % len(near)]
        question = questions.send(PRODUCER_GROUP, copy_of(letter, topic), target)
        await self._session.ask(self._routes.master(target), question, self._timeout_s)

    async def passed(self, letter: DeadLetter) -> None:
        """Let the next replay begin after this dead letter."""
        await self._offsets.commit(letter.queue, letter.record.queue_offset + 1)

    async def _looked_at(self, group: str, queue: MessageQueue) -> DeadQueue:
        start, end = await self._offsets.min_offset(queue), await self._offsets.max_offset(queue)
        committed = await self._offsets.committed(queue)
        times = [await self._stored_ms(queue, offset) if start < end else -1 for offset in (start, end - 1)]
        return DeadQueue(group, queue, start, end, max(start, min(committed or 0, end)), times[0], times[1])

    async def _stored_ms(self, queue: MessageQueue, offset: int) -> int:
        _, page = await self._page(queue, offset, 1)
        return page[0].store_ms if page else -1

    async def _page(self, queue: MessageQueue, offset: int, count_max: int = 32) -> tuple[int, list[Record]]:
        settings = PullSettings(PROGRESS_GROUP, Subscription(queue.topic), count_max, wait_s=0.0)
        asked = questions.pull(queue, offset, settings)

        def read(reply: Command) -> tuple[int, list[Record]]:
            require(reply, *_EMPTY)
            following = number(reply, "nextBeginOffset")
            if reply.code == ResponseCode.SUCCESS:
                return following, list(_records(reply.body))
            # Always advance, whatever offset the broker returns.
            return max(following, offset + 1), []

        return await self._session.ask(self._routes.master(queue), Question(asked.command, read), self._timeout_s)


async def paced(letters: AsyncIterator[DeadLetter], rate: float) -> AsyncIterator[DeadLetter]:
    """Yield the same, evenly, at most `rate` each second."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    async for letter in letters:
        await asyncio.sleep(max(0.0, due - loop.time()))
        due = max(due, loop.time()) + 1 / rate
        yield letter


async def only(letters: AsyncIterator[DeadLetter], message_ids: Collection[str]) -> AsyncIterator[DeadLetter]:
    """Yield those with one of these ids; all when no id is given."""
    async for letter in letters:
        if not message_ids or letter.message_id in message_ids:
            yield letter


def target_topic(letter: DeadLetter, group: str, to_origin: bool) -> str:
    """Return the topic that a replay sends to; empty when it should be the original one and that is unknown."""
    return letter.origin_topic if to_origin else retry_topic(group)


def _records(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        try:
            record = records.view(data, at, len(data), True)
        except CorruptRecordError as error:
            raise RemoteProtocolError(f"answer with {at} good bytes, then: {error}") from error
        yield record
        at += record.size
