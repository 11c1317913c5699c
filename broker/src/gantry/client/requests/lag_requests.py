"""Requests about progress and connections (facts: protocol, section 2.21)."""

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
    """One group's progress in one queue."""

    group: str
    queue: MessageQueue
    committed: int  # -1: the group never committed here
    min_offset: int
    max_offset: int
    last_ms: int  # when the last finished message was stored; 0: none, or it is deleted

    @property
    def lag(self) -> int:
        """The number of stored messages that the group has not finished; all when it never committed."""
        return self.max_offset - max(self.committed, self.min_offset)


@dataclass(frozen=True, slots=True)
class LagPage:
    """One page of a broker's list."""

    queues: tuple[QueueLag, ...]
    following: int  # start of the next page, -1 at the end


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """One member of a group, according to a broker."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to continue: at a time, or in one queue at an offset."""

    at_ms: int = EARLIEST_MS
    queue_id: int = -1  # -1: all
    offset: int = -1  # -1: use at_ms


def lag(broker: str, group: str, topic: str, begin: int, unbegun: bool = False) -> Question[LagPage]:
    """Ask for the progress of every group in every topic, from a position on; only GantryMQ's brokers support it.

    unbegun: of this group in this topic, also when the broker does not know that the group reads it.
    """

    def make(source: object) -> LagPage:
        body = documents.document(source, "a list of lags")
        found: list[QueueLag] = []
        for row in documents.array(body, "lag"):
            if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
                raise ValueError("lag has a row that is none")
            owner, name, queues = str(row[0]), str(row[1]), row[2]
            found += [_queue_lag(broker, owner, name, one) for one in queues]
        return LagPage(tuple(found), documents.integer(body, "next", -1))

    ext = to_ext(begin=begin, group=group or None, topic=topic or None, unbegun=unbegun or None)
    return Question(request(RequestCode.LIST_LAG, ext), lambda reply: value(require(reply), make))


def reset(group: str, topic: str, target: Target) -> Question[dict[MessageQueue, int]]:
    """Move a group's offsets, also while its members consume; the answer is the new offsets."""
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
    """Ask one broker for the members of a consumer group; none when no member is connected."""
    return _connections(
        request(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}), ResponseCode.CONSUMER_NOT_ONLINE
    )


def producer_connections(group: str) -> Question[list[ClientConnection]]:
    """Ask one broker for the members of a producer group."""
    return _connections(
        request(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group}), ResponseCode.SYSTEM_ERROR
    )


def running_info(group: str, client_id: str) -> Question[dict[str, object]]:
    """Ask for RocketMQ's `ConsumerRunningInfo` of one member of a consumer group."""
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
    """Return the queues and offsets of a reset, in Java's form or C++'s; ValueError for an invalid body."""
    source = bodies.loads_object(body)
    table = source.get("offsetTable")
    if isinstance(table, list):
        rows = [documents.document(one, "a queue") for one in table]
        return {MessageQueue.from_json(row): documents.integer(row, "offset") for row in rows}
    found = documents.mapping(source, "offsetTable")
    return {MessageQueue.from_json(bodies.loads_object(key.encode())): documents.integer(found, key) for key in found}
