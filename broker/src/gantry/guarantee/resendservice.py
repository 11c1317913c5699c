"""`gantry guarantee resend`: passes of the resend process and of telling people, side by side, until it is stopped.

A database or a cluster that does not answer ends no process: the next pass tries again, and /readyz says so meanwhile.
Telling has a task of its own, because a mail server that hangs must not hold up a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gantry.client.admin import Admin
from gantry.client.producer import Producer
from gantry.clock import Clock, SystemClock
from gantry.guarantee.databases import Database
from gantry.guarantee.metrics import Backlog, GuaranteeMetrics
from gantry.guarantee.people import Channel, Teller, TellingRules
from gantry.guarantee.resending import ResendCounts, Resender, ResendRules
from gantry.guarantee.statements import Statements
from gantry.guarantee.steps import Query, Steps
from gantry.transport.http import HealthServer
from gantry.transport.tasks import cancelled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResendServiceSettings:
    """Where the brokers are, how often a pass begins, and the HTTP port (None: none)."""

    nameserver: str
    every_s: float = 10.0
    bind: str = "0.0.0.0"
    http_port: int | None = None
    resends: ResendRules = field(default_factory=ResendRules)
    telling: TellingRules = field(default_factory=TellingRules)


class ResendService:
    """A server for `serve`."""

    def __init__(
        self,
        database: Database,
        say: Statements,
        channels: Sequence[Channel],
        settings: ResendServiceSettings,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.http_port = settings.http_port
        self._settings = settings
        self._database = database
        self._say = say
        self._clock = clock
        self._producer = Producer("gantry-guarantee", nameserver=settings.nameserver)
        self._admin = Admin(nameserver=settings.nameserver)
        self._resender = Resender(database, say, self._producer, self._admin, clock, settings.resends)
        self._teller = Teller(database, say, channels, clock, settings.resends, settings.telling)
        self._metrics = GuaranteeMetrics(self._teller)
        self._troubles: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._http: HealthServer | None = None

    async def start(self) -> None:
        """Start the passes and the HTTP server."""
        await self._producer.start()
        await self._admin.start()
        if self._settings.http_port is not None:
            port, healthy = self._settings.http_port, lambda: (True, "ok")
            self._http = HealthServer(self._settings.bind, port, lambda: self._metrics.text, healthy, self._ready)
            self.http_port = await self._http.start()
        for name, one_pass in (("resend", self.resend), ("people", self._tell)):
            self._tasks.append(asyncio.create_task(self._for_ever(name, one_pass), name=f"gantry-guarantee-{name}"))

    async def stop(self) -> None:
        """Stop; a pass under way is broken off, and what it claimed is due again after its backoff."""
        await cancelled(self._tasks)
        if self._http is not None:
            await self._http.close()
        await self._admin.stop()
        await self._producer.stop()

    async def once(self) -> ResendCounts:
        """Run one pass of each, between start() of a service with `every_s` 0 and stop(); raises what went wrong."""
        counts = await self.resend()
        await self._tell()
        return counts

    async def resend(self) -> ResendCounts:
        """Run one pass of resends."""
        counts = await self._resender.one_pass()
        backlog = await self._database.run(_backlog(self._say, self._clock.now_ms()))
        self._metrics.passed(counts, backlog, self._clock.now_ms())
        return counts

    async def _tell(self) -> None:
        await self._teller.one_pass()

    async def _for_ever(self, name: str, one_pass: Callable[[], Awaitable[object]]) -> None:
        while self._settings.every_s > 0:
            try:
                await one_pass()
                self._troubles.pop(name, None)
            except Exception as error:  # noqa: BLE001  of any driver; a pass is repeated
                said = f"{type(error).__name__}: {error}"
                if self._troubles.get(name) != said:
                    log.warning("a pass of %s failed, the next one tries again: %s", name, said)
                self._troubles[name] = said
            await asyncio.sleep(self._settings.every_s)

    def _ready(self) -> tuple[bool, str]:
        return not self._troubles, "; ".join(f"{name}: {said}" for name, said in self._troubles.items()) or "ok"


def _backlog(say: Statements, now_ms: int) -> Steps[list[Backlog]]:
    rows = (yield Query(say.backlog, {"now_ms": now_ms})).rows
    return [Backlog(str(group), *(int(str(each or 0)) for each in numbers)) for group, *numbers in rows]
