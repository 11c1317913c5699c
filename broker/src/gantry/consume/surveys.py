"""Requests of tools about groups: QUERY_CONSUME_TIME_SPAN (303), QUERY_CORRECTION_OFFSET (308), CLONE_GROUP_OFFSET
(314), GET_BROKER_CONSUME_STATS (317), VIEW_BROKER_STATS_DATA (315).  RocketMQ: `AdminBrokerProcessor`.

A group without an offset in a queue counts as being at 0, as in RocketMQ's answers.  Only the cloning changes anything.
Thousands of queues are read in slices, as in `progress`; an answer about more queues than a frame holds is refused,
with what to ask instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.consume.statistics import Statistics
from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients
from gantry.metadata.commits import no_room
from gantry.metadata.groups import Groups
from gantry.metadata.longanswers import LongAnswer
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics
from gantry.model.route import MessageQueue
from gantry.model.topic import TopicConfig
from gantry.store.keysearch import searched
from gantry.store.store import Store
from gantry.store.timesearch import store_time
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_LOOKED_AT_ONCE = 32
_QUEUES_MAX = 40_000  # of one answer; 170 bytes each
_NEVER = (1 << 63) - 1  # Java's Long.MAX_VALUE: no correction


class SurveyHandlers:
    """Handlers of requests that compare groups; `statistics` has the sampled counters."""

    def __init__(
        self,
        store: Store,
        offsets: Offsets,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        statistics: Statistics,
        clock: Clock,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._statistics = statistics
        self._clock = clock

    async def time_span(self, connection: Connection, command: Command) -> Command:
        """QUERY_CONSUME_TIME_SPAN: when the messages of each queue were stored, and the last that a group finished."""
        header = headers.parse(command.code, command.ext)
        topic, group = header.text("topic"), header.text("group")
        config = self._topics.get(topic)
        if config is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        answer = LongAnswer("the topic has too many queues")
        for queue_id in range(config.write_queues):
            span = await self._span(topic, queue_id, max(self._offsets.query(group, topic, queue_id), 0))
            await answer.add(bodies.dumps(span))
        return reply(command, body=answer.joined(b'{"consumeTimeSpanSet":[', b"]}"))

    async def _span(self, topic: str, queue_id: int, committed: int) -> dict[str, object]:
        low, high = self._store.queue_range(topic, queue_id) or (0, 0)

        async def stored_ms(offset: int) -> int:
            found = await searched(store_time(self._store, topic, queue_id, offset))
            return -1 if found is None else found

        first_ms = await stored_ms(low)
        waits_ms = await stored_ms(max(committed, low)) if committed < high else -1
        return {
            "consumeTimeStamp": await stored_ms(committed - 1) if committed > 0 else first_ms,
            "delayTime": max(self._clock.now_ms() - waits_ms, 0) if waits_ms >= 0 else 0,
            "maxTimeStamp": await stored_ms(high - 1),
            "messageQueue": MessageQueue(topic, self._statistics.broker_name, queue_id).to_json(),
            "minTimeStamp": first_ms,
        }

    async def correction(self, connection: Connection, command: Command) -> Command:
        """QUERY_CORRECTION_OFFSET: by queue, the smallest offset of all groups but some; none where the group that is
        compared is behind it.
        """
        header = headers.parse(command.code, command.ext)
        topic, compared = header.text("topic"), header.text("compareGroup")
        left_out = set(header.text("filterGroups").split(","))
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            await asyncio.sleep(0)
            for queue_id, offset in self._offsets.of(group, topic).items():
                low, _ = self._store.queue_range(topic, queue_id) or (0, 0)
                if group not in left_out and offset >= low:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, _NEVER))
        for queue_id, offset in self._offsets.of(compared, topic).items():
            if smallest.get(queue_id, _NEVER) > offset:
                smallest[queue_id] = _NEVER
        return reply(command, body=bodies.dumps({"correctionOffsets": {str(key): smallest[key] for key in smallest}}))

    async def clone(self, connection: Connection, command: Command) -> Command:
        """CLONE_GROUP_OFFSET: copy the offsets of one group to another, in one topic or in all of the first group."""
        header = headers.parse(command.code, command.ext)
        source, target = header.text("srcGroup"), header.text("destGroup")
        if self._groups.get(target) is None:
            return reply(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} not exist!")
        topic = header.text("topic")
        for name in [topic] if topic else self._offsets.topics_of(source):
            is_read = header.boolean("offline") or not self._has_left(source, name)
            if self._topics.get(name) is not None and is_read:
                if self._offsets.of(source, name) and not self._offsets.has_room(target, name):
                    return reply(command, ResponseCode.SYSTEM_BUSY, no_room(target, name))
                self._offsets.clone(source, target, name)
                await asyncio.sleep(0)
        await self._offsets.saved()
        return reply(command)

    def _has_left(self, group: str, topic: str) -> bool:
        online = self._clients.consumer_group(group)
        return online is not None and bool(online.subscriptions) and topic not in online.subscriptions

    async def all_groups(self, connection: Connection, command: Command) -> Command:
        """GET_BROKER_CONSUME_STATS: the progress of every group in every topic that it reads, and the total backlog."""
        only_ordered = headers.parse(command.code, command.ext).boolean("isOrder")
        answer = LongAnswer("ask group by group (208), or `gantry lag`")
        queues = behind = 0
        for group in sorted(config.name for config in self._groups.all()):
            await asyncio.sleep(0)
            tables = []
            for topic in self._offsets.topics_of(group):
                config = self._topics.get(topic)
                if config is None or (only_ordered and not config.order) or self._has_left(group, topic):
                    continue
                queues += config.write_queues
                if queues > _QUEUES_MAX:
                    remark = f"more than {_QUEUES_MAX} queues; ask group by group (208), or `gantry lag`"
                    return reply(command, ResponseCode.SYSTEM_ERROR, remark)
                table, more = await self._stats(group, config)
                behind += more
                tables.append(table)
            if tables:
                await answer.add(b"{" + bodies.dumps(group) + b":[" + b",".join(tables) + b"]}")
        head = bodies.dumps({"brokerAddr": self._statistics.address, "totalDiff": behind, "totalInflightDiff": 0})
        return reply(command, body=answer.joined(head[:-1] + b',"consumeStatsList":[', b"]}"))

    async def _stats(self, group: str, config: TopicConfig) -> tuple[bytes, int]:
        rows, behind = [], 0
        for queue_id in range(config.write_queues):
            if queue_id % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            _, high = self._store.queue_range(config.name, queue_id) or (0, 0)
            committed = max(self._offsets.query(group, config.name, queue_id), 0)
            last = store_time(self._store, config.name, queue_id, committed - 1)
            last_ms = await searched(last) if committed else None
            wrapper = {
                "brokerOffset": high,
                "consumerOffset": committed,
                "lastTimestamp": last_ms or 0,
                "pullOffset": self._offsets.pulled.of(group, config.name, queue_id, committed, high),
            }
            behind += high - committed
            queue = MessageQueue(config.name, self._statistics.broker_name, queue_id)
            rows.append(bodies.member(queue.to_json(), wrapper))
        tps = self._statistics.per_second("GROUP_GET_NUMS", f"{config.name}@{group}")
        head = f'{{"consumeTps":{round(tps, 2)},"offsetTable":{{'.encode()
        return head + b",".join(rows) + b"}}", behind

    def view(self, connection: Connection, command: Command) -> Command:
        """VIEW_BROKER_STATS_DATA: one statistic over the last minute, hour and day."""
        header = headers.parse(command.code, command.ext)
        name, key = header.text("statsName"), header.text("statsKey")
        found = self._statistics.windows(name, key)
        if found is None:
            return reply(command, ResponseCode.SYSTEM_ERROR, f"The stats <{name[:80]}> <{key[:200]}> not exist")
        return reply(command, body=bodies.dumps(found))
