"""Where a new group begins is stored before a consumer's start returns: "from now on" counts from there.

For consumers that have no offset of their own to commit at their start: a member in order has none before it has the
lock of a queue, and one that pops has none at all.  A group that begins at the first message needs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from gantry.client.connections.routes import Routes
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.settings import ConsumerSettings, StartFrom
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue
from gantry.model.subscription import Subscription

log = logging.getLogger(__name__)

START_S = 5.0  # a start does not wait longer for where its group begins
_AT_ONCE = 32
_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)


async def store_begins(
    routes: Routes,
    offsets: RemoteOffsets,
    subscriptions: Iterable[Subscription],
    settings: ConsumerSettings,
    now_ms: int,
    within_s: float = START_S,
) -> None:
    """Store where the group begins in all queues of its topics in which it has no offset, within `within_s`.

    What cannot be stored is logged: the group begins there when it reads first.  A topic that does not exist is not
    waited for: nothing of it can be skipped.
    """
    if settings.start_from is StartFrom.FIRST:
        return
    places = asyncio.Semaphore(_AT_ONCE)

    async def store(queue: MessageQueue) -> None:
        async with places:
            await offsets.commit_start(queue, settings, now_ms)

    topics = [one.topic for one in subscriptions if not is_retry_topic(one.topic)]
    try:
        async with asyncio.timeout(within_s):
            queues = [queue for topic in topics for queue in await _queues_of(routes, topic)]
            outcomes = await asyncio.gather(*map(store, queues), return_exceptions=True)
    except TimeoutError:
        log.warning("%s: where the group begins is not stored within %g s", ", ".join(topics), within_s)
        return
    for queue, outcome in zip(queues, outcomes, strict=True):
        if isinstance(outcome, _FAULTS):
            log.warning("%s: where the group begins is not stored yet: %s", queue, outcome)
        elif isinstance(outcome, BaseException):
            raise outcome


async def _queues_of(routes: Routes, topic: str) -> Sequence[MessageQueue]:
    try:
        return await routes.to_read(topic)
    except _FAULTS:
        return ()
