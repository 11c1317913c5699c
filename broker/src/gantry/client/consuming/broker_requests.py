"""Requests that brokers send to a consumer, for themselves or for tools:

    NOTIFY_CONSUMER_IDS_CHANGED (40)      assign the queues again
    RESET_CONSUMER_CLIENT_OFFSET (220)    drop the messages of some queues and continue at other offsets
    GET_CONSUMER_STATUS_FROM_CLIENT (221) return its offsets in a topic
    GET_CONSUMER_RUNNING_INFO (307)       return RocketMQ's `ConsumerRunningInfo`
    CONSUME_MESSAGE_DIRECTLY (309)        call the listener for one message (`direct`)

A consumer passes a function for each.  A request for another group, or an invalid one, is answered as not supported, so
that the sender learns that nothing was done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gantry.client.consuming.direct import DirectConsumption
from gantry.client.requests.lag_requests import offsets_of
from gantry.errors import GantryError
from gantry.leaves.frames import VERSION, Command, encode
from gantry.model.route import MessageQueue
from gantry.model.subscription import CONSUME_PASSIVELY, Subscription
from gantry.transport.connection import Connection
from gantry.transport.tasks import Tasks
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply

log = logging.getLogger(__name__)

_DIRECT_MAX = 8  # messages that are consumed for tools at the same time


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The state of one of a consumer's queues."""

    queue: MessageQueue
    committed: int  # -1: not known yet
    first: int  # the smallest unfinished offset
    next: int  # where the next pull begins
    count: int  # unfinished messages
    bytes: int
    is_locked: bool = False
    is_dropped: bool = False

    def to_json(self) -> dict[str, object]:
        """Return RocketMQ's `ProcessQueueInfo` as a JSON object."""
        return {
            "cachedMsgCount": self.count,
            "cachedMsgMaxOffset": max(self.next - 1, 0) if self.count else 0,
            "cachedMsgMinOffset": self.first if self.count else 0,
            "cachedMsgSizeInMiB": self.bytes >> 20,
            "commitOffset": self.committed,
            "droped": self.is_dropped,
            "locked": self.is_locked,
        }


@dataclass(frozen=True, slots=True)
class Description:
    """The state of a consumer, for GET_CONSUMER_RUNNING_INFO."""

    nameserver: str
    started_ms: int
    concurrency: int
    is_orderly: bool
    subscriptions: Iterable[Subscription]
    queues: Iterable[QueueInfo]
    statuses: Mapping[str, object] = field(default_factory=dict)  # by topic


class BrokerRequests:
    """Serves the requests to one consumer."""

    def __init__(
        self,
        group: str,
        hurry: Callable[[], None],
        move: Callable[[Mapping[MessageQueue, int]], None],
        describe: Callable[[], Description],
        direct: DirectConsumption | None,  # None: there is no listener
        tasks: Tasks,
    ) -> None:
        self._group = group
        self._hurry = hurry
        self._move = move
        self._describe = describe
        self._direct = direct
        self._tasks = tasks  # of the consumer
        self._consuming: set[asyncio.Task[None]] = set()

    def serve(self, connection: Connection, command: Command) -> bool:
        """Handle a request. Return False when it is not supported."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._hurry()
            return True
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return self._reset(connection, command)
        is_mine = command.ext.get("consumerGroup") == self._group
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO and is_mine:
            connection.write(encode(reply(command, body=running_info(self._describe()))))
            return True
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT and command.ext.get("group") == self._group:
            connection.write(encode(reply(command, body=positions(self._describe(), command.ext.get("topic", "")))))
            return True
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and is_mine:
            self._consume(connection, command)
            return True
        return False

    def _consume(self, connection: Connection, command: Command) -> None:
        if self._direct is None or len(self._consuming) >= _DIRECT_MAX:
            remark = "no listener: messages are taken by iterating" if self._direct is None else "too many at once"
            connection.write(encode(reply(command, ResponseCode.SYSTEM_ERROR, remark)))
            return
        task = self._tasks.own(asyncio.create_task(self._consume_and_answer(self._direct, connection, command)))
        self._consuming.add(task)
        task.add_done_callback(self._consuming.discard)

    async def _consume_and_answer(self, direct: DirectConsumption, connection: Connection, command: Command) -> None:
        try:
            found = await direct.consume(command.body, command.ext.get("brokerName", ""))
        except (ValueError, GantryError) as error:
            answer = reply(command, ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}")
        else:
            answer = reply(command, body=bodies.dumps(found))
        connection.write(encode(answer))

    def _reset(self, connection: Connection, command: Command) -> bool:
        if command.ext.get("group") != self._group:
            return False
        try:
            targets = offsets_of(command.body)
        except ValueError as error:
            log.warning("%s: %s asks for a reset that cannot be read: %s", self._group, connection.peer, error)
            return False
        log.info("%s: %d queues of %s are reset", self._group, len(targets), command.ext.get("topic"))
        self._move(targets)
        if not command.is_oneway:
            connection.write(encode(reply(command)))
        return True


def positions(found: Description, topic: str) -> bytes:
    """Return the answer to GET_CONSUMER_STATUS_FROM_CLIENT: the group's next offset in each queue of the topic."""
    queues = [one for one in found.queues if one.queue.topic == topic]
    table = bodies.object_keyed((one.queue.to_json(), max(one.first, one.committed, 0)) for one in queues)
    return b'{"messageQueueTable":' + table + b"}"


def running_info(found: Description) -> bytes:
    """Return the answer to GET_CONSUMER_RUNNING_INFO."""
    about = {
        "properties": {
            "PROP_CLIENT_VERSION": str(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(found.started_ms),
            "PROP_CONSUME_ORDERLY": "true" if found.is_orderly else "false",
            "PROP_CONSUME_TYPE": CONSUME_PASSIVELY,
            "PROP_NAMESERVER_ADDR": found.nameserver,
            "PROP_THREADPOOL_CORE_SIZE": str(found.concurrency),
        },
        "statusTable": found.statuses,
        "subscriptionSet": [one.to_json() for one in found.subscriptions],
    }
    queues = bodies.object_keyed((one.queue.to_json(), one.to_json()) for one in found.queues)
    return b'{"mqTable":' + queues + b"," + bodies.dumps(about)[1:]
