"""What the driver asks the brokers: which queues there are, where they begin and end, and where a query does.

What a broker does not answer is asked again a few times; then it is the query's error.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingPuller, MessageQueue
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq.offsets import Queue
from pyspark_gantrymq.options import EARLIEST, Bound, Options

GROUP = "gantrymq-spark"  # pulls under a name of its own: a reset of the user's group must not move a query
_ATTEMPTS = 5
_PAUSE_S = 0.5
T = TypeVar("T")


class Ends(NamedTuple):
    """The oldest message of a queue, and where the next one will stand."""

    first: int
    last: int


def queue_of(one: Queue) -> MessageQueue:
    """The queue as the client speaks of it."""
    return MessageQueue(one.topic, one.broker, one.number)


def ends(options: Options) -> dict[Queue, Ends]:
    """Every queue of the query."""

    def question(puller: BlockingPuller) -> dict[Queue, Ends]:
        found = {Queue(one.topic, one.broker_name, one.queue_id): one for one in _queues(puller, options)}
        missing = options.assigned - found.keys()
        if missing:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"the assigned queue {min(missing)} is not there")
        wanted = {name: one for name, one in found.items() if not options.assigned or name in options.assigned}
        return {name: Ends(puller.min_offset(one), puller.max_offset(one)) for name, one in wanted.items()}

    return asked(options, GROUP, question)


def bound(options: Options, where: Bound, of: dict[Queue, Ends]) -> dict[Queue, int]:
    """The offset of each of these queues at which a query begins or ends; ValueError for one behind the queue's end."""

    def question(puller: BlockingPuller) -> dict[Queue, int]:
        found = {name: _at(puller, where, name, one) for name, one in of.items()}
        for name, at in found.items():
            if at > of[name].last:
                raise ValueError(f"{name} ends at {of[name].last}; the query was to begin or end at {at}")
        return found

    return asked(options, options.group or GROUP, question)


def asked(options: Options, group: str, question: Callable[[BlockingPuller], T]) -> T:
    """The answer to a question, asked again while brokers do not answer."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with BlockingPuller(group, nameserver=options.nameserver) as puller:
                return question(puller)
        except (UnreachableError, OutcomeUnknownError, RefusedError):
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_S * attempt)
    raise AssertionError("the last attempt returns or raises")


def _at(puller: BlockingPuller, where: Bound, name: Queue, ends: Ends) -> int:
    otherwise = ends.first if where.otherwise == EARLIEST else ends.last
    if where.at_ms is not None:
        return max(ends.first, min(ends.last, puller.offset_at(queue_of(name), where.at_ms)))
    if where.is_committed:
        committed = puller.committed(queue_of(name))
        return otherwise if committed is None else committed
    if where.exact is None or name not in where.exact:
        return otherwise
    at = where.exact[name]
    return at if at >= 0 else ends.first if at == EARLIEST else ends.last


def _queues(puller: BlockingPuller, options: Options) -> Iterable[MessageQueue]:
    topics = options.topics or {one.topic for one in options.assigned} or asyncio.run(_matching(options))
    return [queue for topic in sorted(topics) for queue in puller.queues(topic)]


async def _matching(options: Options) -> set[str]:
    pattern = re.compile(options.pattern)
    async with Admin(nameserver=options.nameserver) as admin:
        return {topic for topic in await admin.topics() if pattern.fullmatch(topic)}
