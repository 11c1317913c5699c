"""Progress of groups: GET_CONSUME_STATS (208), QUERY_TOPIC_CONSUME_BY_WHO (300), QUERY_TOPICS_BY_CONSUMER (343), and
our own LIST_LAG (24021).  RocketMQ: `AdminBrokerProcessor`.

A group that never committed in a queue counts as being at 0 in RocketMQ's answers.  LIST_LAG returns -1, and where the
queue begins, so that expired messages are not counted as waiting.  `lastTimestamp` is the store time of the last
message that the group has finished.

Thousands of queues are read in slices: other requests are handled in between, and the numbers of one answer may be of
slightly different times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves.frames import Command
from gantry.metadata.clients import Clients
from gantry.metadata.longanswers import LongAnswer
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.metadata.topics import Topics
from gantry.model.route import MessageQueue
from gantry.model.topic import TopicConfig
from gantry.store.keysearch import searched
from gantry.store.store import Store
from gantry.store.timesearch import store_time
from gantry.wire import bodies, headers
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.consume.grouprates import GroupRates
    from gantry.transport.connection import Connection

_LOOKED_AT_ONCE = 32  # a queue costs some 15 us, most of it the record of lastTimestamp
_PAIRS_AT_ONCE = 1000
PAGE_QUEUES_MAX = 4000  # 50 bytes each


class QueueBacklog(NamedTuple):
    """One queue of one group."""

    queue_id: int
    committed: int  # NOT_COMMITTED: never
    low: int
    high: int
    last_ms: int  # 0: unknown


class ProgressHandlers:
    """Handlers of requests about the progress of groups; they change nothing."""

    def __init__(
        self,
        store: Store,
        offsets: Offsets,
        topics: Topics,
        clients: Clients,
        rates: GroupRates,
        broker_name: str,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._clients = clients
        self._rates = rates
        self._broker_name = broker_name

    async def consume_stats(self, connection: Connection, command: Command) -> Command:
        """GET_CONSUME_STATS: a group's progress in one topic, in some, or in all that it ever committed in."""
        header = headers.parse(command.code, command.ext)
        group = header.text("consumerGroup")
        named = [name for name in (header.text("topic") or header.text("topicList")).split(";") if name]
        answer = LongAnswer("ask topic by topic, or LIST_LAG (24021)")
        tps = 0.0
        for topic in named or self._offsets.topics_of(group):
            config = self._topics.get(topic)
            if config is None or self._was_left(group, topic):
                continue
            tps += self._rates.per_second(topic, group)
            async for lag in self._queues(group, config):
                # RocketMQ: a queue without a committed offset counts as read up to 0.
                committed = max(lag.committed, 0)
                wrapper = {
                    "brokerOffset": lag.high,
                    "consumerOffset": committed,
                    "lastTimestamp": lag.last_ms,
                    "pullOffset": self._offsets.pulled.of(group, topic, lag.queue_id, committed, lag.high),
                }
                await answer.add(bodies.member(MessageQueue(topic, self._broker_name, lag.queue_id).to_json(), wrapper))
        body = answer.joined(f'{{"consumeTps":{round(tps, 2)},"offsetTable":{{'.encode(), b"}}")
        return reply(command, body=body)

    def topic_groups(self, connection: Connection, command: Command) -> Command:
        """QUERY_TOPIC_CONSUME_BY_WHO: the groups that subscribe to a topic now, or ever committed in it."""
        topic = headers.parse(command.code, command.ext).text("topic")
        online = [group.name for group in self._clients.consumer_groups() if topic in group.subscriptions]
        groups = sorted({*online, *self._offsets.groups_of(topic)})
        return reply(command, body=bodies.dumps({"groupList": groups}))

    def group_topics(self, connection: Connection, command: Command) -> Command:
        """QUERY_TOPICS_BY_CONSUMER: the topics that a group ever committed in."""
        topics = self._offsets.topics_of(headers.parse(command.code, command.ext).text("group"))
        return reply(command, body=bodies.dumps({"brokerAddr": None, "topicList": sorted(topics)}))

    async def lag(self, connection: Connection, command: Command) -> Command:
        """LIST_LAG: a page of the backlogs of every group in every topic that it subscribes to or committed in.

        unbegun: of this group in this topic, also when nothing is known of it here.
        """
        header = headers.parse(command.code, command.ext)
        begin, limit = max(0, header.integer("begin")), header.integer("limit") or PAGE_QUEUES_MAX
        if header.boolean("unbegun"):
            pairs = [(header.text("group"), header.text("topic"))]
        else:
            pairs = await self._pairs(header.text("group"), header.text("topic"))
        answer = LongAnswer("ask group by group")
        queues = following = 0
        for number, (group, topic) in enumerate(islice(pairs, begin, None), begin + 1):
            config = self._topics.get(topic)
            if config is None:
                continue
            queues += config.read_queues
            await answer.add(bodies.dumps([group, topic, [list(one) async for one in self._queues(group, config)]]))
            if queues >= min(limit, PAGE_QUEUES_MAX) and number < len(pairs):
                following = number
                break
        return reply(command, body=answer.joined(b'{"lag":[', f'],"next":{following or -1}}}'.encode()))

    async def _pairs(self, group: str, topic: str) -> list[tuple[str, str]]:
        """Return (group, topic) in an order that is stable while offsets are only added: pages are counted in it."""
        found: dict[tuple[str, str], None] = {}

        def add(owner: str, name: str) -> None:
            if group in ("", owner) and topic in ("", name):
                found[owner, name] = None

        for number, key in enumerate(self._offsets.keys()):
            name, _, owner = key.partition("@")
            add(owner, name)
            if number % _PAIRS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for online in list(self._clients.consumer_groups()):
            for name in online.subscriptions:
                add(online.name, name)
            await asyncio.sleep(0)
        return list(found)

    def _was_left(self, group: str, topic: str) -> bool:
        """Return whether members are online and none subscribes to the topic: then its offsets there are obsolete."""
        online = self._clients.consumer_group(group)
        return online is not None and bool(online.subscriptions) and topic not in online.subscriptions

    async def _queues(self, group: str, config: TopicConfig) -> AsyncIterator[QueueBacklog]:
        committed = self._offsets.of(group, config.name)
        for queue_id in range(config.read_queues):
            low, high = self._store.queue_range(config.name, queue_id) or (0, 0)
            offset = committed.get(queue_id, NOT_COMMITTED)
            last_ms = await searched(store_time(self._store, config.name, queue_id, offset - 1)) if offset > 0 else 0
            yield QueueBacklog(queue_id, offset, low, high, last_ms or 0)
            # The first one too: most topics have few queues, and there are thousands of topics.
            if queue_id % _LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
