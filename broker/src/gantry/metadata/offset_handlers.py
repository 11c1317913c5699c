"""Requests for consumer offsets: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15),
GET_ALL_CONSUMER_OFFSET (43).  RocketMQ: `ConsumerManageProcessor`, `AdminBrokerProcessor`.

A group that never committed an offset begins where its clients are configured to, except on a young queue: while
the queue's first message is there and near the end of the log, every group begins at 0.  Without this rule a consumer
that starts a second after its producer would miss the messages of that second.  A queue without messages counts as
young too, as with RocketMQ 4: a client that begins at the end asks for the end in a second request, and would skip a
message that comes between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata import longanswers
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.metadata.topics import Topics
from gantry.store.store import Store
from gantry.wire import headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection


class OffsetHandlers:
    """Handlers of requests for offsets; `young_bytes`: how near the end of the log a young queue's first message is."""

    def __init__(self, offsets: Offsets, topics: Topics, groups: Groups, store: Store, young_bytes: int) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store
        self._young_bytes = young_bytes

    def query(self, connection: Connection, command: Command) -> Command:
        """QUERY_CONSUMER_OFFSET: where to go on; 22 tells a client to begin as it is configured."""
        header = headers.parse(command.code, command.ext)
        group, topic, queue_id = header.text("consumerGroup"), header.text("topic"), header.integer("queueId")
        offset = self._offsets.query(group, topic, queue_id)
        # A starting member queries first; after that its pull at the offset need not be answered with a reset.
        self._offsets.was_told(group, topic, queue_id)
        if offset == NOT_COMMITTED and header.boolean("setZeroIfNotFound") and self._is_young(topic, queue_id):
            offset = 0
        if offset == NOT_COMMITTED:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")
        return reply(command, ext=headers.to_ext(offset=offset))

    def update(self, connection: Connection, command: Command) -> Command:
        """UPDATE_CONSUMER_OFFSET: store the next offset of a group in a queue."""
        header = headers.parse(command.code, command.ext)
        group, topic = header.text("consumerGroup"), header.text("topic")
        queue_id, offset = header.integer("queueId"), header.integer("commitOffset")
        why = self._why_not(group, topic, queue_id, offset)
        if why is not None:
            return refusal(command, why)
        if self._offsets.is_reset(group, topic, queue_id):
            return reply(command, remark="Offset has been previously reset")
        if self._is_of_another_life(topic, queue_id, offset):
            return reply(command, remark="Offset lies behind the end of a topic that was made again")
        self._offsets.commit(group, topic, queue_id, offset)
        return reply(command)

    async def all(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_CONSUMER_OFFSET: all offsets, in the form of consumerOffset.json."""
        keys, value = self._offsets.keys(), self._offsets.value
        every = ((key, queues) for key in keys if (queues := value(key)) is not None)
        body = await longanswers.table(self._offsets.head(), "offsetTable", every, "ask group by group (208)")
        return reply(command, body=body)

    def _why_not(self, group: str, topic: str, queue_id: int, offset: int) -> Refusal | None:
        if self._groups.get(group) is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if self._topics.get(topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not self._has_queue(topic, queue_id):
            return Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, {topic} has {self._queues(topic)} queues",
            )
        if offset < 0:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"commitOffset[{offset}] is illegal")
        return None

    def _queues(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queues, config.write_queues)

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        return 0 <= queue_id < self._queues(topic)

    def _is_of_another_life(self, topic: str, queue_id: int, offset: int) -> bool:
        """Return whether this offset belongs to a deleted topic of the same name, not to the present one."""
        _, end = self._store.queue_range(topic, queue_id) or (0, 0)
        return offset > end and self._store.generations.of(topic) > 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        low, end = self._store.queue_range(topic, queue_id) or (0, 0)
        if end == 0:
            return self._has_queue(topic, queue_id)
        found = self._store.reader.entry(topic, queue_id, 0)
        if found is None or low > 0:
            return False
        log_offset, _, _ = found
        return self._store.written.offset - log_offset <= self._young_bytes
