"""How far a topic has come on one broker, and which topic it is: what is asked, and how the answer reads.

RocketMQ's brokers answer where the queues end; GantryMQ's also say whose they are, for who keeps offsets elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.requests.question import Question, number, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import request


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic on one broker group: where its queues begin and end, and which one it is."""

    ends: dict[MessageQueue, tuple[int, int]]
    cluster_uid: str  # empty: it does not say
    generation: int | None  # which life of its name it is in; None: it does not say


def topic_stats(topic: str) -> Question[TopicStats]:
    """The ends of a topic's queues on one broker."""

    def read(reply: Command) -> TopicStats:
        ends = value(require(reply), _ends)
        generation = number(reply, "generation") if "generation" in reply.ext else None
        return TopicStats(ends, reply.ext.get("clusterUid", ""), generation)

    return Question(request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}), read)


def _ends(source: object) -> dict[MessageQueue, tuple[int, int]]:
    table = documents.mapping(documents.document(source, "a topic's numbers"), "offsetTable")
    found: dict[MessageQueue, tuple[int, int]] = {}
    for key in table:
        row = documents.document(table[key], "a queue's numbers")
        low, high = documents.integer(row, "minOffset"), documents.integer(row, "maxOffset")
        found[MessageQueue.from_json(bodies.loads_object(key.encode()))] = max(0, low), max(0, high)
    return found
