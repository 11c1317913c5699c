"""The queues' ends of a topic, and its generation: GET_TOPIC_STATS_INFO (202).  RocketMQ: `AdminBrokerProcessor`.

Programs that keep offsets outside of the broker, like Spark's checkpoints, have to detect that a topic was deleted and
made again.  So the answer has two more header fields, which RocketMQ's clients ignore and its brokers do not send:

    clusterUid   of the cluster, or of the folder of a broker that is in no group
    generation   the topic's generation (`store.generations`); a number of this broker group alone

Thousands of queues are read in slices; other requests are handled in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves.frames import Command
from gantry.metadata.longanswers import LongAnswer
from gantry.metadata.topics import Topics
from gantry.model.route import MessageQueue
from gantry.store.keysearch import searched
from gantry.store.store import Store
from gantry.store.timesearch import offset_by_time, store_time
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_PUT_WINDOW_S = 60


class TopicStatsHandlers:
    """Handler of GET_TOPIC_STATS_INFO; `cluster_uid` may change once, when a slave first connects to its master."""

    def __init__(
        self, store: Store, topics: Topics, clock: Clock, broker_name: str, cluster_uid: Callable[[], str]
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._broker_name = broker_name
        self._cluster_uid = cluster_uid

    async def stats(self, connection: Connection, command: Command) -> Command:
        """GET_TOPIC_STATS_INFO: first and next offset of each queue, the rate of messages, cluster and generation."""
        topic = headers.parse(command.code, command.ext).text("topic")
        config = self._topics.get(topic)
        if config is None:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        # The generation first: a client that gets ends of the next one with it asks again, and finds another number.
        ext = {"clusterUid": self._cluster_uid(), "generation": str(self._store.generations.of(topic))}
        answer, recent = LongAnswer("the topic has too many queues"), 0
        since_ms = self._clock.now_ms() - _PUT_WINDOW_S * 1000
        for queue_id in range(config.write_queues):
            low, high = self._store.queue_range(topic, queue_id) or (0, 0)
            last_ms = await searched(store_time(self._store, topic, queue_id, high - 1)) or 0
            if last_ms >= since_ms:
                recent += high - await searched(offset_by_time(self._store, topic, queue_id, since_ms))
            offsets = {"lastUpdateTimestamp": last_ms, "maxOffset": high, "minOffset": low}
            await answer.add(bodies.member(MessageQueue(topic, self._broker_name, queue_id).to_json(), offsets))
        tps = str(round(recent / _PUT_WINDOW_S, 2)).encode()
        body = answer.joined(b'{"offsetTable":{', b'},"topicPutTps":' + tps + b"}")
        return reply(command, ext=ext, body=body)
