"""What brokers ask of a consumer, and tools through them:

    NOTIFY_CONSUMER_IDS_CHANGED (40)      share the queues anew
    RESET_CONSUMER_CLIENT_OFFSET (220)    drop what is held of some queues and go on elsewhere
    GET_CONSUMER_RUNNING_INFO (307)       say how it goes, as RocketMQ's `ConsumerRunningInfo`

A consumer gives what is done about each.  A request that is for another group, or cannot be read, is answered as not
served; whoever sent it learns that nothing happened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gantry.leaves.frames import VERSION, Command, encode
from gantry.model import documents
from gantry.model.route import MessageQueue
from gantry.model.subscription import CONSUME_PASSIVELY, Subscription
from gantry.transport.connection import Connection
from gantry.wire import bodies
from gantry.wire.codes import RequestCode
from gantry.wire.command import reply

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One of a consumer's queues."""

    queue: MessageQueue
    committed: int  # -1: not known yet
    first: int  # the smallest unfinished offset
    next: int  # where the next pull begins
    count: int  # unfinished messages
    bytes: int
    is_locked: bool = False
    is_dropped: bool = False

    def to_json(self) -> dict[str, object]:
        """RocketMQ's `ProcessQueueInfo`."""
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
    """How a consumer goes."""

    nameserver: str
    started_ms: int
    concurrency: int
    is_orderly: bool
    subscriptions: Iterable[Subscription]
    queues: Iterable[QueueInfo]


class Errands:
    """Serves the requests that come to one consumer."""

    def __init__(
        self,
        group: str,
        hurry: Callable[[], None],
        move: Callable[[Mapping[MessageQueue, int]], None],
        describe: Callable[[], Description],
    ) -> None:
        self._group = group
        self._hurry = hurry
        self._move = move
        self._describe = describe

    def serve(self, connection: Connection, command: Command) -> bool:
        """Whether it was understood, and so done."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._hurry()
            return True
        if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            return self._reset(connection, command)
        is_mine = command.ext.get("consumerGroup") == self._group
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO and is_mine:
            connection.write(encode(reply(command, body=running_info(self._describe()))))
            return True
        return False

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


def offsets_of(body: bytes) -> dict[MessageQueue, int]:
    """The queues of a reset and where to go on in them, in Java's form or C++'s; ValueError for anything else."""
    source = bodies.loads_object(body)
    table = source.get("offsetTable")
    if isinstance(table, list):
        rows = [documents.document(one, "a queue") for one in table]
        return {MessageQueue.from_json(row): documents.integer(row, "offset") for row in rows}
    found = documents.mapping(source, "offsetTable")
    return {MessageQueue.from_json(bodies.loads_object(key.encode())): documents.integer(found, key) for key in found}


def running_info(found: Description) -> bytes:
    """The answer to GET_CONSUMER_RUNNING_INFO."""
    about = {
        "properties": {
            "PROP_CLIENT_VERSION": str(VERSION),
            "PROP_CONSUMER_START_TIMESTAMP": str(found.started_ms),
            "PROP_CONSUME_ORDERLY": "true" if found.is_orderly else "false",
            "PROP_CONSUME_TYPE": CONSUME_PASSIVELY,
            "PROP_NAMESERVER_ADDR": found.nameserver,
            "PROP_THREADPOOL_CORE_SIZE": str(found.concurrency),
        },
        "statusTable": {},
        "subscriptionSet": [one.to_json() for one in found.subscriptions],
    }
    queues = bodies.object_keyed((one.queue.to_json(), one.to_json()) for one in found.queues)
    return b'{"mqTable":' + queues + b"," + bodies.dumps(about)[1:]
