"""CONSUME_MESSAGE_DIRECTLY (309): a tool asks, through a broker, that a consumer processes one message now.

The listener is called as for any other message, with its hooks, and the answer contains the result.  No offset moves,
nothing is sent back, and the message may be in work elsewhere at the same time.  As in RocketMQ, an orderly listener
may run beside the one of its queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from gantry.client.hooks import ConsumeHook, called
from gantry.client.received import Again, ReceivedMessage
from gantry.model.message import RETRY_TOPIC
from gantry.model.route import MessageQueue
from gantry.wire import record

log = logging.getLogger(__name__)

WITHIN_S = 9.0  # brokers wait for ten


class DirectConsumption:
    """Calls the listener of one consumer for single messages, on a tool's request."""

    def __init__(
        self,
        group: str,
        listener: Callable[[ReceivedMessage], Awaitable[None]],
        hooks: Collection[ConsumeHook],
        is_orderly: bool,
    ) -> None:
        self._group = group
        self._listener = listener
        self._hooks = hooks
        self._is_orderly = is_orderly

    async def consume(self, body: bytes, broker_name: str) -> dict[str, object]:
        """Call the listener. Return RocketMQ's `ConsumeMessageDirectlyResult`; ValueError unless the body is one stored
        message.
        """
        found = record.messages(body, broker_name)
        if len(found) != 1:
            raise ValueError(f"{len(found)} messages, expected one")
        (stored,) = found
        stored = replace(stored, topic=stored.properties.get(RETRY_TOPIC, stored.topic))
        wishes: list[Again] = []

        async def again(_: ReceivedMessage, wish: Again) -> None:
            wishes.append(wish)

        message = ReceivedMessage(stored, MessageQueue(stored.topic, broker_name, stored.queue_id), _finished, again)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        task = asyncio.create_task(called(self._listener, message, self._group, self._hooks))
        try:
            await asyncio.wait([task], timeout=WITHIN_S)
        finally:
            was_done = task.done()
            if not was_done:
                task.cancel()
                await asyncio.wait([task])
        result, remark = _outcome(task, was_done, bool(wishes))
        log.info("%r: consumed for a tool: %s", message, result)
        return {
            "autoCommit": True,
            "consumeResult": result,
            "order": self._is_orderly,
            "remark": remark,
            "spentTimeMills": int((loop.time() - begun_s) * 1000),
        }


def _finished(_: ReceivedMessage) -> bool:
    """Accept the acknowledgement without effect."""
    return True


def _outcome(task: asyncio.Task[None], was_done: bool, wants_again: bool) -> tuple[str, str | None]:
    if not was_done:
        return "CR_THROW_EXCEPTION", f"the listener took longer than {WITHIN_S:g} s and was cancelled"
    if task.cancelled():
        return "CR_THROW_EXCEPTION", "the listener was cancelled"
    error = task.exception()
    if error is not None:
        return "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
    return ("CR_LATER" if wants_again else "CR_SUCCESS"), None
