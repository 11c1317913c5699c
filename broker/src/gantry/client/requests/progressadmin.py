"""What an administrator asks about progress and connections, request by request (facts: protocol, section 2.21)."""

from __future__ import annotations

from dataclasses import dataclass

from gantry.client.requests.question import Question, document, require, value
from gantry.leaves.frames import Command
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from gantry.wire.headers import to_ext

EARLIEST_MS = 0
LATEST_MS = -1
_LAG_FIELDS = 5


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far one group is in one queue."""

    group: str
    queue: MessageQueue
    committed: int  # -1: the group never committed here
    min_offset: int
    max_offset: int
    last_ms: int  # when the last message was stored that the group has finished; 0: none, or it is gone

    @property
    def lag(self) -> int:
        """Messages that the group has not finished; all that are there when it never committed."""
        return self.max_offset - max(self.committed, self.min_offset)


@dataclass(frozen=True, slots=True)
class LagPage:
    """A part of a broker's list."""

    queues: tuple[QueueLag, ...]
    following: int  # where the next page begins, -1 at the end


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """One member of a group, as a broker knows it."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to go on: at an instant, or in one queue at an offset."""

    at_ms: int = EARLIEST_MS
    queue_id: int = -1  # -1: all
    offset: int = -1  # -1: at_ms says it


def lag(broker: str, group: str, topic: str, begin: int) -> Question[LagPage]:
    """Every group in every topic, from a place on; GantryMQ's own request, which RocketMQ's brokers do not know."""

    def make(source: object) -> LagPage:
        body = documents.document(source, "a list of lags")
        found: list[QueueLag] = []
        for row in documents.array(body, "lag"):
            if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
                raise ValueError("lag has a row that is none")
            owner, name, queues = str(row[0]), str(row[1]), row[2]
            found += [_queue_lag(broker, owner, name, one) for one in queues]
        return LagPage(tuple(found), documents.integer(body, "next", -1))

    ext = to_ext(begin=begin, group=group or None, topic=topic or None)
    return Question(request(RequestCode.LIST_LAG, ext), lambda reply: value(require(reply), make))


def reset(group: str, topic: str, target: Target) -> Question[dict[MessageQueue, int]]:
    """Let a group go on elsewhere, also while its members work; where each queue is now."""
    ext = to_ext(
        group=group,
        topic=topic,
        timestamp=target.at_ms,
        isForce=True,
        queueId=target.queue_id if target.queue_id >= 0 else None,
        offset=target.offset if target.offset >= 0 else None,
    )

    def read(reply: Command) -> dict[MessageQueue, int]:
        return value(require(reply), lambda _: offsets_of(reply.body))

    return Question(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext), read)


def consumer_connections(group: str) -> Question[list[ClientConnection]]:
    """The members of a consumer group on one broker; none when it is not online there."""
    return _connections(
        request(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}), ResponseCode.CONSUMER_NOT_ONLINE
    )


def producer_connections(group: str) -> Question[list[ClientConnection]]:
    """The members of a producer group on one broker."""
    return _connections(
        request(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group}), ResponseCode.SYSTEM_ERROR
    )


def running_info(group: str, client_id: str) -> Question[dict[str, object]]:
    """What one member of a consumer group says about itself: RocketMQ's `ConsumerRunningInfo`."""
    ext = to_ext(consumerGroup=group, clientId=client_id, jstackEnable=False)
    return Question(request(RequestCode.GET_CONSUMER_RUNNING_INFO, ext), lambda reply: document(require(reply)))


def _connections(command: Command, nobody: int) -> Question[list[ClientConnection]]:
    def read(reply: Command) -> list[ClientConnection]:
        if reply.code == nobody:
            return []
        return value(require(reply), _members)

    return Question(command, read)


def _members(source: object) -> list[ClientConnection]:
    body = documents.document(source, "a list of connections")
    rows = [documents.document(one, "a connection") for one in documents.array(body, "connectionSet")]
    return [
        ClientConnection(
            documents.text(row, "clientId"),
            documents.text(row, "clientAddr"),
            documents.text(row, "language"),
            documents.integer(row, "version"),
        )
        for row in rows
    ]


def _queue_lag(broker: str, group: str, topic: str, row: object) -> QueueLag:
    if not isinstance(row, list) or len(row) != _LAG_FIELDS or not all(isinstance(one, int) for one in row):
        raise ValueError(f"lag of {group} in {topic} is not five numbers")
    queue_id, committed, low, high, last_ms = row
    return QueueLag(group, MessageQueue(topic, broker, queue_id), committed, low, high, last_ms)


def offsets_of(body: bytes) -> dict[MessageQueue, int]:
    """The queues of a reset and where to go on in them, in Java's form or C++'s; ValueError for anything else."""
    source = bodies.loads_object(body)
    table = source.get("offsetTable")
    if isinstance(table, list):
        rows = [documents.document(one, "a queue") for one in table]
        return {MessageQueue.from_json(row): documents.integer(row, "offset") for row in rows}
    found = documents.mapping(source, "offsetTable")
    return {MessageQueue.from_json(bodies.loads_object(key.encode())): documents.integer(found, key) for key in found}
