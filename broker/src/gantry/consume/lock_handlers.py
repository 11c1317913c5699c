"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): an orderly consumer takes and gives back queues.  RocketMQ:
`AdminBrokerProcessor`.

The body names group, client and queues; the answer to 41 is the queues that are the client's now, whatever it had
before.  What cannot be pulled here is not locked here: unknown topics, queues beyond the topic's, other brokers' queues
and groups that may not be.  So a lock means that the queue exists, and made-up names cost nothing.

`onlyThisBroker` is always so: RocketMQ's strict mode also asks the slaves, which have no say here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.consume.locks import QueueLocks
from gantry.leaves.frames import Command
from gantry.metadata.groups import Groups
from gantry.metadata.topics import Topics
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

QUEUES_MAX = 10_000  # of one request; a consumer with more asks several times


class LockHandlers:
    """Requests about queue locks."""

    def __init__(self, locks: QueueLocks, topics: Topics, groups: Groups, broker_name: str, clock: Clock) -> None:
        self._locks = locks
        self._topics = topics
        self._groups = groups
        self._broker_name = broker_name
        self._clock = clock

    def lock(self, connection: Connection, command: Command) -> Command:
        """LOCK_BATCH_MQ: which of the queues are this client's from now on."""
        group, client_id, queues = _read(command)
        if len(queues) > QUEUES_MAX:
            return _too_many(command, len(queues))
        granted: list[dict[str, object]] = []
        if self._groups.ensure(group) is not None:
            now = self._clock.monotonic()
            granted = [
                queue.to_json()
                for queue in self._ours(queues)
                if self._locks.lock(group, client_id, (queue.topic, queue.queue_id), now)
            ]
        return reply(command, body=bodies.dumps({"lockOKMQSet": granted}))

    def unlock(self, connection: Connection, command: Command) -> Command:
        """UNLOCK_BATCH_MQ: the client has stopped working on these; others' locks are left alone."""
        group, client_id, queues = _read(command)
        if len(queues) > QUEUES_MAX:
            return _too_many(command, len(queues))
        for queue in queues:
            self._locks.unlock(group, client_id, (queue.topic, queue.queue_id))
        return reply(command)

    def _ours(self, queues: list[MessageQueue]) -> Iterator[MessageQueue]:
        for queue in queues:
            topic = self._topics.get(queue.topic)
            is_here = topic is not None and 0 <= queue.queue_id < topic.read_queues
            if is_here and queue.broker_name in ("", self._broker_name):
                yield queue


def _read(command: Command) -> tuple[str, str, list[MessageQueue]]:
    try:
        source = documents.document(bodies.loads(command.body), "the body")
        queues = [MessageQueue.from_json(item) for item in documents.array(source, "mqSet")]
        group, client_id = documents.text(source, "consumerGroup"), documents.text(source, "clientId")
    except MalformedBodyError:
        raise
    except ValueError as error:
        raise MalformedBodyError(f"queue locks: {error}") from error
    if not group or not client_id:
        raise MalformedBodyError("queue locks: consumerGroup and clientId must not be empty")
    return group, client_id, queues


def _too_many(command: Command, count: int) -> Command:
    remark = f"{count} queues in one request, {QUEUES_MAX} are allowed; ask in several"
    return reply(command, ResponseCode.INVALID_PARAMETER, remark)
