"""QUEUE_STATS (24045, ours): how many messages of an HTTP queue are active, inactive and delayed on this broker.

    {"active": n, "inactive": n, "delayed": n}

Messages whose life is over are not counted.  The first answer after a start reads the births of all that waits, in
pieces between which other requests are served; the next ones read only what came since.  A disk that does not answer
makes the answer SYSTEM_BUSY, and so does a count of somebody else that takes long.

Delayed messages are counted first, so one that is delivered meanwhile is in two numbers rather than in none.  In none
is, until it is dispatched, one that was just delivered, got another time, or whose lease has just ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gantry.leaves.frames import Command
from gantry.model import httpqueue
from gantry.pop.population import Cold, QueuePopulation, QueuePopulations
from gantry.pop.service import PopService
from gantry.schedule.waiting import WaitingCounts
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_SLICE_S = 0.001
_ASKED_MAX = 256
# Together shorter than servers of HTTP queues wait.
_TURN_S = 1.0  # of waiting for the count of somebody else
_DISK_S = 1.5  # of one read


class QueueStatsHandlers:
    """Answers how many messages a queue has."""

    def __init__(self, service: PopService, waiting: WaitingCounts) -> None:
        self.populations = QueuePopulations(service)
        self._context = service.context
        self._waiting = waiting
        self._asked = 0  # requests that are being answered
        # One count at a time: of the same records the second one reads nothing.
        self._is_counting: asyncio.Lock | None = None
        self._reading: asyncio.Event | None = None  # one read at a time, also when nobody waits for it any more

    async def stats(self, connection: Connection, command: Command) -> Command:
        """QUEUE_STATS: the numbers of one queue and group."""
        header = headers.parse(command.code, command.ext)
        topic, group = header.text("topic"), header.text("consumerGroup")
        config = self._context.topics.get(topic)
        if config is None or not httpqueue.is_queue(config.attributes):
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] is no HTTP queue of this broker")
        if self._asked >= _ASKED_MAX:
            return reply(command, ResponseCode.SYSTEM_BUSY, f"{self._asked} counts wait for each other; ask again")
        self._asked += 1
        try:
            known = self.populations.of(group, topic)
            delayed = await self._counted(known, topic)
        except TimeoutError:
            text = "the disk or another count takes long; ask again"
            return reply(command, ResponseCode.SYSTEM_BUSY, text)
        finally:
            self._asked -= 1
        if not known.is_current:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] was deleted meanwhile")
        active, inactive = known.counts()
        return reply(command, body=bodies.dumps({"active": active, "inactive": inactive, "delayed": delayed}))

    async def _counted(self, known: QueuePopulation, topic: str) -> int:
        """Have a queue counted; return how many of its messages are delayed.  TimeoutError."""
        if self._is_counting is None:
            self._is_counting = asyncio.Lock()
        async with asyncio.timeout(_TURN_S):
            await self._is_counting.acquire()
        try:
            await self._count(self._waiting.counting())
            delayed = self._waiting.living(topic)
            await self._count(known.counting())
        finally:
            self._is_counting.release()
        return delayed

    async def _count(self, pieces: Iterator[Cold]) -> None:
        """Run a count in slices of a millisecond; what is on the disk is read by the cold reader."""
        clock = self._context.clock
        until_s = clock.monotonic() + _SLICE_S
        for cold in pieces:
            if cold:
                await self._bring_in(cold)
            elif clock.monotonic() >= until_s:
                await asyncio.sleep(0)
            else:
                continue
            until_s = clock.monotonic() + _SLICE_S

    async def _bring_in(self, cold: Cold) -> None:
        async with asyncio.timeout(_DISK_S):
            if self._reading is not None:
                await self._reading.wait()
            self._reading = asyncio.Event()
            self._context.store.bring_in(cold, self._reading.set)
            await self._reading.wait()

    def topic_deleted(self, name: str) -> None:
        """Forget the numbers of a deleted topic."""
        self.populations.forget(lambda group, topic: topic == name)
        self._waiting.forget(name)

    def group_changed(self, name: str) -> None:
        """Forget the numbers of a group that was deleted."""
        if self._context.groups.get(name) is None:
            self.populations.forget(lambda group, topic: group == name)
