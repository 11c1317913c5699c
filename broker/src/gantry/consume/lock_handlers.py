"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): an orderly consumer locks and unlocks queues.  RocketMQ:
`AdminBrokerProcessor`.

The body names group, client and queues; the answer to 41 is those of the queues that the client has locked now.  What
cannot be pulled here is not locked here: unknown topics, queues beyond the topic's, other brokers' queues
and groups that may not be made.  So a lock means that the queue exists, and invented names use no memory.

A grant is answered when it is durable, and those that come together share one save.  Otherwise a crash would forget
the owner, and the restarted broker would give its queue to another client while the owner goes on.  A renewal does not
wait: a disk that hangs takes no queue away from its owner.

`onlyThisBroker` is always in effect: RocketMQ's strict mode also asks the slaves, which give no locks here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from gantry.clock import Clock
from gantry.consume.locks import QueueLocks
from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.metadata.groups import Groups
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.topics import Topics
from gantry.model import documents, names
from gantry.model.route import MessageQueue
from gantry.transport.fairness import FairTurns
from gantry.wire import bodies
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

QUEUES_MAX = 5_000  # of one request; a consumer with more asks several times
_QUEUES_AT_ONCE = 50  # ten microseconds each

_NOT_SAVED = "the locks are not on the disk yet, so a crash might give them to others; look at the disk and ask again"

_Item = TypeVar("_Item")


class LockHandlers:
    """Handlers of requests for queue locks."""

    def __init__(
        self,
        locks: QueueLocks,
        topics: Topics,
        groups: Groups,
        broker_name: str,
        clock: Clock,
        grants: SavedTogether,
    ) -> None:
        """grants: the saves of grants, by their number."""
        self._locks = locks
        self._grants = grants
        self._topics = topics
        self._groups = groups
        self._broker_name = broker_name
        self._clock = clock
        # Requests are carried out one after the other, each in slices: what a client asks for later comes later, and
        # no client waits behind all that another one asked for.
        self._turns = FairTurns(1)

    async def lock(self, connection: Connection, command: Command) -> Command:
        """LOCK_BATCH_MQ: lock queues for a client, and answer with those that it has now."""
        group, client_id, named = _read(command)
        granted: list[bytes] = []
        newest = 0  # grant
        async with self._turns.of(connection):
            queues = await _queues(named)
            if self._groups.ensure(group) is None:
                queues = []
            for part in _parts(queues):
                now = self._clock.monotonic()
                for queue in part:
                    key = queue.topic, queue.queue_id
                    if self._is_ours(queue) and self._locks.lock(group, client_id, key, now):
                        granted.append(bodies.dumps(queue.to_json()))
                        newest = max(newest, self._locks.grant(group, key))
                await asyncio.sleep(0)
        if not await self._grants.saved(newest):
            return reply(command, ResponseCode.SYSTEM_ERROR, _NOT_SAVED)
        return reply(command, body=b'{"lockOKMQSet":[' + b",".join(granted) + b"]}")

    async def unlock(self, connection: Connection, command: Command) -> Command:
        """UNLOCK_BATCH_MQ: release the client's locks of these queues; other clients' locks are not changed."""
        group, client_id, named = _read(command)
        async with self._turns.of(connection):
            for part in _parts(await _queues(named)):
                for queue in part:
                    self._locks.unlock(group, client_id, (queue.topic, queue.queue_id))
                await asyncio.sleep(0)
        return reply(command)

    def _is_ours(self, queue: MessageQueue) -> bool:
        topic = self._topics.get(queue.topic)
        is_here = topic is not None and 0 <= queue.queue_id < topic.read_queues
        return is_here and queue.broker_name in ("", self._broker_name)


def _read(command: Command) -> tuple[str, str, list[object]]:
    try:
        source = bodies.asked(command.body)
        named = documents.array(source, "mqSet")
        group, client_id = documents.text(source, "consumerGroup"), documents.text(source, "clientId")
    except MalformedBodyError:
        raise
    except ValueError as error:
        raise MalformedBodyError(f"queue locks: {error}") from error
    fault = names.group_fault(group) or names.client_fault(client_id)
    if fault is not None:
        raise MalformedBodyError(f"queue locks: {fault}")
    if len(named) > QUEUES_MAX:
        remark = f"{len(named)} queues in one request, {QUEUES_MAX} are allowed; ask in several"
        raise RefusedError(ResponseCode.INVALID_PARAMETER, remark)
    return group, client_id, named


async def _queues(named: list[object]) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for part in _parts(named):
        try:
            queues += [MessageQueue.from_json(item) for item in part]
        except ValueError as error:
            raise MalformedBodyError(f"queue locks: {error}") from error
        await asyncio.sleep(0)
    return queues


def _parts(items: list[_Item]) -> Iterator[list[_Item]]:
    return (items[first : first + _QUEUES_AT_ONCE] for first in range(0, len(items), _QUEUES_AT_ONCE))
