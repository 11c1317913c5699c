"""Settles popped messages in the background until their broker has answered.

A broker renews the leases of a consumer that lives.  So a message whose acknowledgement was lost would stay invisible
for hours: each one is repeated until the broker accepts or finally refuses it.  Acknowledgements of one turn of the
loop go together, one request at a time for each broker.

Everything here is counted by the caller's window until it is settled, so it is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from gantry.client.popped import PoppedMessage, receipt_of
from gantry.client.popping import TIMEOUT_S, Popping
from gantry.errors import ClosedError, GantryError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.transport.tasks import Tasks
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_BATCH_MAX = 512
_PAUSE_S = 1.0
_WITHIN_S = TIMEOUT_S  # of one round of attempts; then it is logged, and another round begins


class PopSettling:
    """The settling of one consumer; `tasks` ends it."""

    def __init__(self, popping: Popping, group: str, tasks: Tasks) -> None:
        self._popping = popping
        self._group = group
        self._tasks = tasks
        self._acks: dict[str, list[tuple[PoppedMessage, Callable[[], None]]]] = {}  # by broker
        self._flushing: dict[str, asyncio.Task[None]] = {}
        self._open = 0  # messages that are not settled
        self._drained = asyncio.Event()

    async def drained(self) -> None:
        """Return when everything is settled."""
        while self._open:
            self._drained.clear()
            await self._drained.wait()

    def ack(self, message: PoppedMessage, settled: Callable[[], None]) -> None:
        """Acknowledge a message; `settled` is called when that is certain, or refused for good."""
        broker = receipt_of(message).broker
        self._open += 1
        self._acks.setdefault(broker, []).append((message, settled))
        task = self._flushing.get(broker)
        if task is None or task.done():
            work = self._flush(broker)
            self._flushing[broker] = self._tasks.own(asyncio.create_task(work, name=f"gantry-acks-{broker}"))

    async def change(self, message: PoppedMessage, delay_s: float) -> None:
        """Have a message delivered again after `delay_s`; returns when its broker has accepted or refused that.

        A repetition after a lost answer may be stale; the broker ignores it, or the message comes at the later time.
        """
        await self._repeated(message, lambda: self._change(message, delay_s))

    async def give_up(self, message: PoppedMessage) -> None:
        """Make a message a dead letter; returns when its broker has accepted or refused that."""
        await self._repeated(message, lambda: self._popping.give_up(self._group, message, _WITHIN_S))

    async def _change(self, message: PoppedMessage, delay_s: float) -> None:
        receipt, topic = receipt_of(message), message.source
        message.receipt = await self._popping.change(self._group, topic, receipt, delay_s, _WITHIN_S)

    async def _repeated(self, message: PoppedMessage, work: Callable[[], Awaitable[None]]) -> None:
        """Do it in a task, so that a cancelled caller leaves it going on."""

        async def repeat() -> None:
            try:
                while True:
                    if await self._is_settled(message, work):
                        return
                    await asyncio.sleep(_PAUSE_S)
            finally:
                self._count_down(1)

        self._open += 1
        await asyncio.shield(self._tasks.own(asyncio.create_task(repeat())))

    async def _is_settled(self, message: PoppedMessage, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except GantryError as error:
            if _may_be_repeated(error):
                log.warning("%r: not settled, it is tried again: %s", message, error)
                return False
            if isinstance(error, RefusedError) and error.code == ResponseCode.NO_MESSAGE:
                log.warning("%r: too late, its receipt is not valid any more; %s", message, error.remark)
            else:
                log.error("%r: its broker refuses what was to be done with it: %s", message, error)
        return True

    async def _flush(self, broker: str) -> None:
        while self._acks.get(broker):
            await asyncio.sleep(0)  # what is acknowledged in this turn goes together
            waiting = self._acks.pop(broker)
            some, rest = waiting[:_BATCH_MAX], waiting[_BATCH_MAX:]
            by_topic: dict[str, list[tuple[PoppedMessage, Callable[[], None]]]] = defaultdict(list)
            for message, settled in some:
                by_topic[message.source].append((message, settled))
            for topic, entries in by_topic.items():
                receipts = [receipt_of(message) for message, _ in entries]
                errors = await self._popping.ack(self._group, topic, receipts, _WITHIN_S)
                for entry, error in zip(entries, errors, strict=True):
                    if _may_be_repeated(error):
                        rest.append(entry)
                        continue
                    if error is not None:
                        log.error("%r: its broker refuses the acknowledgement: %s", entry[0], error)
                    entry[1]()
                    self._count_down(1)
            if rest:
                self._acks.setdefault(broker, [])[:0] = rest
            if len(rest) > len(waiting) - len(some):
                log.warning("%s: %d messages not acknowledged, they are tried again", broker, len(rest))
                await asyncio.sleep(_PAUSE_S)

    def _count_down(self, count: int) -> None:
        self._open -= count
        self._drained.set()


def _may_be_repeated(error: GantryError | None) -> bool:
    return isinstance(error, (UnreachableError, OutcomeUnknownError)) and not isinstance(error, ClosedError)
