"""The request for the offsets of a topic's queues on one broker.

GantryMQ's brokers also return which topic it is (cluster and generation), for clients that store offsets elsewhere.
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
    """A topic on one broker group: (first, next) offset of each queue, and which topic it is."""

    ends: dict[MessageQueue, tuple[int, int]]
    cluster_uid: str  # empty: unknown
    generation: int | None  # counts how often a topic of this name was created; None: unknown


def topic_stats(topic: str) -> Question[TopicStats]:
    """Ask one broker for the offsets of a topic's queues."""

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
