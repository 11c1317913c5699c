"""Effects outside of the database: a payment, a mail, a file.  They happen once, or a person knows.

    guard = OutsideEffects("payments", "postgresql", AsyncDatabase(connect), asked=happened)

    async def handle(message: ReceivedMessage) -> None:
        async with guard.effect(message) as effect:
            if effect:
                await pay(idempotency_key=message.message_id)

Before the effect the log row says `processing` with an owner and a time; afterwards it says `done`.  When a process
dies in between, its row is `unknown` after that time, and the hook is asked whether the effect happened:

    True     it did: the row is done, the message is acknowledged
    False    it did not: this process carries it out
    None     nobody can tell now: the message comes again; `unsettled` lists the row for a person

An exception of the block means that the effect did not happen; raise `OutcomeUnknownError` when that is not certain.
A block that takes longer than `hold_s` is cancelled.  Its row stays for `skew_s` longer, so that a process whose clock
is ahead does not ask about an effect that is still under way.

`BlockingOutsideEffects` is the same for programs without a loop; nothing cancels its block, so it must end in time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from gantry.clock import Clock, SystemClock
from gantry.errors import OutcomeUnknownError
from gantry.guarantee import consuming
from gantry.guarantee.consuming import Arrival, Decision
from gantry.guarantee.databases import BlockingDatabase, Database
from gantry.guarantee.dialects import dialect_of
from gantry.guarantee.idempotent import Effect, HeldElsewhereError, arrival_of
from gantry.guarantee.statements import statements
from gantry.guarantee.steps import Steps

log = logging.getLogger(__name__)

Asked = Callable[[Any], Awaitable[bool | None]]
BlockingAsked = Callable[[Any], bool | None]
SKEW_S = 10.0  # between the clocks of the processes of a group
# The row stays as it is after these: the hook is asked when its time is over.
_UNCERTAIN = (OutcomeUnknownError, TimeoutError, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


class _Attempt(NamedTuple):
    arrival: Arrival
    owner: str
    until_ms: int


class _Outside:
    """The steps of both kinds, with the group's names and its clock."""

    def __init__(self, group: str, dialect: str, hold_s: float, skew_s: float, clock: Clock | None) -> None:
        if hold_s <= 0 or skew_s < 0:
            raise ValueError(f"hold_s {hold_s:g} has to be above 0, and skew_s {skew_s:g} not below")
        self.group = group
        self.hold_s = hold_s
        self._skew_s = skew_s
        self._say = statements(dialect_of(dialect), "named")
        self._clock = clock or SystemClock()

    def attempt(self, message: Any) -> _Attempt:
        until_ms = self._clock.now_ms() + int((self.hold_s + self._skew_s) * 1000)
        return _Attempt(arrival_of(self.group, message), secrets.token_hex(16), until_ms)

    def begin(self, this: _Attempt) -> Steps[tuple[Decision, str]]:
        now_ms = self._clock.now_ms()
        return consuming.begin_outside(self._say, this.arrival, this.owner, now_ms, this.until_ms, self.group)

    def settle(self, this: _Attempt, former: str, happened: bool) -> Steps[Decision]:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + int((self.hold_s + self._skew_s) * 1000)
        say, arrival = self._say, this.arrival
        return consuming.settle_outside(say, arrival, former, happened, this.owner, now_ms, until_ms, self.group)

    def finish(self, this: _Attempt) -> Steps[bool]:
        return consuming.finish_outside(self._say, this.arrival, this.owner, self._clock.now_ms(), self.group)

    def fail(self, this: _Attempt) -> Steps[None]:
        return consuming.fail_outside(self._say, this.arrival, this.owner)

    def check(self, this: _Attempt, decision: Decision) -> Effect:
        if decision is Decision.LATER:
            raise HeldElsewhereError(
                f"another process of group {self.group} works on message {this.arrival.message_id}, or nobody can tell "
                "whether its effect happened; it has to be delivered again"
            )
        return Effect(decision)

    def report(self, this: _Attempt, is_ours: bool) -> None:
        if not is_ours:
            log.error(
                "message %s of group %s: its effect took longer than %g s and another process took it over; check "
                "whether it happened twice", this.arrival.message_id, self.group, self.hold_s,
            )  # fmt: skip


class OutsideEffects(_Outside):
    """Guards the effects of one consumer group."""

    def __init__(
        self,
        group: str,
        dialect: str,
        database: Database,
        *,
        asked: Asked,
        hold_s: float = 60.0,
        skew_s: float = SKEW_S,
        clock: Clock | None = None,
    ) -> None:
        """hold_s: how long an effect may take, seconds."""
        super().__init__(group, dialect, hold_s, skew_s, clock)
        self._database = database
        self._asked = asked

    @asynccontextmanager
    async def effect(self, message: Any) -> AsyncIterator[Effect]:
        """Begin, or find that there is nothing to do; HeldElsewhereError while another process works on it."""
        this = self.attempt(message)
        ends_at = asyncio.get_running_loop().time() + self.hold_s
        decision, former = await self._database.run(self.begin(this))
        if decision is Decision.ASK:
            happened = await self._asked(message)
            ends_at = asyncio.get_running_loop().time() + self.hold_s
            steps = None if happened is None else self.settle(this, former, happened)
            decision = Decision.LATER if steps is None else await self._database.run(steps)
        effect = self.check(this, decision)
        if not effect:
            yield effect
            return
        try:
            async with asyncio.timeout_at(ends_at):
                yield effect
        except _UNCERTAIN:
            raise
        except BaseException:
            await self._database.run(self.fail(this))
            raise
        self.report(this, await self._database.run(self.finish(this)))


class BlockingOutsideEffects(_Outside):
    """The same for programs without a loop."""

    def __init__(
        self,
        group: str,
        dialect: str,
        database: BlockingDatabase,
        *,
        asked: BlockingAsked,
        hold_s: float = 60.0,
        skew_s: float = SKEW_S,
        clock: Clock | None = None,
    ) -> None:
        """hold_s: how long an effect takes at most, seconds."""
        super().__init__(group, dialect, hold_s, skew_s, clock)
        self._database = database
        self._asked = asked

    @contextmanager
    def effect(self, message: Any) -> Iterator[Effect]:
        """Begin, or find that there is nothing to do; HeldElsewhereError while another process works on it."""
        this = self.attempt(message)
        decision, former = self._database.run_now(self.begin(this))
        if decision is Decision.ASK:
            happened = self._asked(message)
            steps = None if happened is None else self.settle(this, former, happened)
            decision = Decision.LATER if steps is None else self._database.run_now(steps)
        effect = self.check(this, decision)
        if not effect:
            yield effect
            return
        try:
            yield effect
        except _UNCERTAIN:
            raise
        except BaseException:
            self._database.run_now(self.fail(this))
            raise
        self.report(this, self._database.run_now(self.finish(this)))
