"""QUEUE_STATS (24045, ours): how many messages of an HTTP queue are active, inactive and delayed on this broker.

    {"active": n, "inactive": n, "delayed": n}

Messages whose life is over are not counted.  The first answer after a start reads the births of all that waits, in
pieces between which other requests are served; the next ones read only what came since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gantry.leaves.frames import Command
from gantry.model import httpqueue
from gantry.pop.population import QueuePopulations
from gantry.pop.service import PopService
from gantry.schedule.waiting import WaitingCounts
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

_SLICE_S = 0.001
_ASKED_MAX = 256


class QueueStatsHandlers:
    """Answers how many messages a queue has."""

    def __init__(self, service: PopService, waiting: WaitingCounts) -> None:
        self.populations = QueuePopulations(service)
        self._context = service.context
        self._waiting = waiting
        self._asked = 0  # requests that are being answered
        # One count at a time: of the same records the second one reads nothing.
        self._is_counting: asyncio.Lock | None = None

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
            if self._is_counting is None:
                self._is_counting = asyncio.Lock()
            async with self._is_counting:
                known = self.populations.of(group, topic)
                await self._count(known.counting())
                await self._count(self._waiting.counting())
        finally:
            self._asked -= 1
        if not known.is_current:
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:255]}] was deleted meanwhile")
        active, inactive = known.counts()
        body = {"active": active, "inactive": inactive, "delayed": self._waiting.living(topic)}
        return reply(command, body=bodies.dumps(body))

    async def _count(self, pieces: Iterator[Sequence[tuple[int, int]]]) -> None:
        """Run a count in slices of a millisecond; what is on the disk is read by the cold reader."""
        clock = self._context.clock
        until_s = clock.monotonic() + _SLICE_S
        for cold in pieces:
            if cold:
                came = asyncio.Event()
                self._context.store.bring_in(cold, came.set)
                await came.wait()
            elif clock.monotonic() >= until_s:
                await asyncio.sleep(0)
            else:
                continue
            until_s = clock.monotonic() + _SLICE_S

    def topic_deleted(self, name: str) -> None:
        """Forget the numbers of a deleted topic."""
        self.populations.forget(lambda group, topic: topic == name)
        self._waiting.forget(name)

    def group_changed(self, name: str) -> None:
        """Forget the numbers of a group that was deleted."""
        if self._context.groups.get(name) is None:
            self.populations.forget(lambda group, topic: group == name)
