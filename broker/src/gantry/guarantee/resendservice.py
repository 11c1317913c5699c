"""`gantry guarantee resend`: passes of the resend process and of telling people, side by side, until it is stopped.

A database or a cluster that does not answer ends no process: the next pass tries again, and /readyz says so meanwhile,
also when a pass hangs.  Telling has a task of its own, because a mail server that hangs must not hold up a message.
Each pass looks at the version of the tables first: a process that was left running by an upgrade touches nothing.  Nor
does one whose clock is far from that of the database: it would take everything for due, or nothing.

A process that stands still within a transaction (a machine that is suspended) would hold up all others by its locks:
the database ends such a transaction after a minute (`IdleLimited`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gantry.client.admin import Admin
from gantry.client.producer import Producer
from gantry.clock import Clock, SystemClock
from gantry.errors import GantryError
from gantry.guarantee import migration
from gantry.guarantee.databases import Database
from gantry.guarantee.idle import IdleLimited
from gantry.guarantee.metrics import CASES_MAX, GuaranteeMetrics
from gantry.guarantee.people import Channel, Teller, TellingRules
from gantry.guarantee.resending import ResendCounts, Resender, ResendRules
from gantry.guarantee.statements import Statements
from gantry.guarantee.steps import Query, Steps
from gantry.transport.http import HealthServer
from gantry.transport.tasks import cancelled

log = logging.getLogger(__name__)

_LEAVE_S = 10.0  # for the portion under way when the process is stopped
_SKEW_MAX_S = 600  # between the clock of this process and that of the database
_QUIET_MIN_S = 120.0  # without a good pass: not ready


class ClockError(GantryError):
    """The clock of this process and that of the database differ."""


@dataclass(frozen=True, slots=True)
class ResendServiceSettings:
    """Where the brokers are, how often passes begin (0: only by `once`), and the HTTP port (None: none)."""

    nameserver: str
    every_s: float = 10.0
    people_every_s: float = 60.0
    timeout_s: float = 5.0
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
        self._database = database = IdleLimited(database, say.idle_limit)
        self._say = say
        self._clock = clock
        self._producer = Producer("gantry-guarantee", nameserver=settings.nameserver)
        self._admin = Admin(nameserver=settings.nameserver, timeout_s=settings.timeout_s)
        self._resender = Resender(database, say, self._producer, self._admin, clock, settings.resends)
        self.teller = Teller(database, say, channels, clock, settings.resends, settings.telling)
        self._metrics = GuaranteeMetrics(self.teller, clock)
        self._troubles: dict[str, str] = {}
        self._good_at: dict[str, tuple[float, float]] = {}  # by pass: when the last good one ended, its period
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._http: HealthServer | None = None

    async def start(self) -> None:
        """Start the passes and the HTTP server."""
        await self._producer.start()
        await self._admin.start()
        settings = self._settings
        if settings.http_port is not None:
            port, healthy = settings.http_port, lambda: (True, "ok")
            self._http = HealthServer(settings.bind, port, lambda: self._metrics.text, healthy, self._ready)
            self.http_port = await self._http.start()
        if settings.every_s <= 0:
            return
        passes = (("resend", self.resend, settings.every_s), ("people", self.tell, settings.people_every_s))
        for name, one_pass, every_s in passes:
            self._good_at[name] = (self._clock.monotonic(), every_s)
            task = asyncio.create_task(self._for_ever(name, one_pass, every_s), name=f"gantry-guarantee-{name}")
            self._tasks.append(task)

    async def stop(self) -> None:
        """Stop after the portion under way; what is not sent after ten seconds is due again after its backoff."""
        self._ending.set()
        self._resender.end_soon()
        if self._tasks:
            await asyncio.wait(self._tasks[:1], timeout=_LEAVE_S)
        await cancelled(self._tasks)
        if self._http is not None:
            await self._http.close()
        await self._admin.stop()
        await self._producer.stop()

    async def resend(self) -> ResendCounts:
        """Run one pass of resends; raises what went wrong."""
        await self._check()
        counts = await self._resender.one_pass()
        self._metrics.passed(counts, self._resender.backlog)
        return counts

    async def tell(self) -> int:
        """Run one pass of telling people, and count what they could look at; return how many cases were told."""
        await self._check()
        groups = await self._resender.groups()
        told = await self.teller.one_pass(groups)
        settings, now_ms = self._settings, self._clock.now_ms()
        values: dict[str, object] = {"now_ms": now_ms, "resends_max": settings.resends.resends_max}
        before_s = {"stuck": settings.telling.stuck_after_s, "overdue": settings.telling.overdue_after_s}
        for group in groups:
            for reason in ("exhausted", "stuck", "overdue", "unsettled"):
                before_ms = now_ms - int(before_s.get(reason, 0.0) * 1000)
                named = {**values, "consumer_group": group, "before_ms": before_ms}
                self._metrics.counted(group, reason, await self._database.run(_count(self._say, reason, named)))
        return told

    async def _check(self) -> None:
        """Raise when this process must not work on these tables, or not with this clock."""
        database_ms = await self._database.run(_checked(self._say))
        ahead_s = (self._clock.now_ms() - database_ms) // 1000
        if abs(ahead_s) > _SKEW_MAX_S:
            how = f"{abs(ahead_s)} s {'ahead of' if ahead_s > 0 else 'behind'}"
            raise ClockError(f"the clock of this process is {how} that of the database; correct the one that is wrong")

    async def _for_ever(self, name: str, one_pass: Callable[[], Awaitable[object]], every_s: float) -> None:
        while not self._ending.is_set():
            try:
                await one_pass()
                self._troubles.pop(name, None)
                self._good_at[name] = (self._clock.monotonic(), every_s)
            except Exception as error:  # noqa: BLE001  of any driver; a pass is repeated
                self._metrics.failed(name)
                said = f"{type(error).__name__}: {' '.join(str(error).split())}"
                if self._troubles.get(name) != said:
                    log.warning("a pass of %s failed, the next one tries again: %s", name, said)
                self._troubles[name] = said
            try:
                await asyncio.wait_for(self._ending.wait(), every_s)
            except TimeoutError:
                continue

    def _ready(self) -> tuple[bool, str]:
        found = [f"{name}: {said}" for name, said in self._troubles.items()]
        for name, (at, every_s) in self._good_at.items():
            quiet_s = self._clock.monotonic() - at
            if quiet_s > max(_QUIET_MIN_S, 5 * every_s) and name not in self._troubles:
                found.append(f"{name}: no pass has ended for {quiet_s:.0f} s")
        return not found, "; ".join(found) or "ok"


def _checked(say: Statements) -> Steps[int]:
    """Check the version; return the database's time, epoch ms."""
    rows = (yield Query(say.version, {})).rows
    migration.check_version(int(str(rows[0][0])) if rows else 0)
    ((now_ms,),) = (yield Query(say.clock, {})).rows
    return int(str(now_ms))


def _count(say: Statements, reason: str, values: dict[str, object]) -> Steps[int]:
    text = f"SELECT COUNT(*) FROM (\n{getattr(say, reason)}) listed"
    ((count,),) = (yield Query(text, {**values, "rows_max": CASES_MAX})).rows
    return int(str(count))
