"""Telling people about messages that the library cannot finish: each once, in digests, by every channel.

    exhausted    sent again as often as allowed, and no sign of it
    stuck        arrived long ago and not confirmed: a worker died in between, or its effect was refused
    overdue      due for long, and neither seen by its group nor sent again: does the group run, does a broker take
                 messages of this topic, do resends run?

A digest has what is not told yet, of all groups.  Its cases are claimed before they are told (`tell`): the process that
claimed them offers the digest to each channel until the channel took it, with growing pauses, and renews its claim
meanwhile.  Then the cases are told (`told`).  So of several processes one tells a case.  If it dies before the end,
another one tells its cases when the claim ran out; a receiver recognises the same digest by its key.

A case that was told and is sent again later is a new one.  After a digest that was full the next one waits, up to an
hour: a group that is down for a day must not write a mail for each of its messages.

A channel that takes nothing for long must not silence the others: when too many digests wait for it, the oldest one
that some channel took is told, and a log line says who did not take it.

Nothing here holds up a resend: `Teller.one_pass` is a task of its own, channels have threads of their own, and each
offer has a time-out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from gantry.clock import Clock
from gantry.guarantee.databases import Database
from gantry.guarantee.resending import ResendRules
from gantry.guarantee.statements import DELIVERY_COLUMNS, Statements
from gantry.guarantee.steps import Query, Steps

log = logging.getLogger(__name__)

_HELD_MAX = 16  # digests that wait for a channel
_LINES_MAX = 200  # of a text; a program gets all cases
_PAUSE_MAX_S = 3600.0
_SHOWN_MAX = 120  # characters of a text that comes from outside


@dataclass(frozen=True, slots=True)
class Case:
    """One message of one group that a person has to look at."""

    reason: str
    consumer_group: str
    message_id: str
    topic: str
    message_keys: str
    attempts: int
    created_at_ms: int

    def line(self, has_keys: bool = True) -> str:
        """Return the case as a line of text; logs have no keys."""
        keys = f" with keys {_shown(self.message_keys)}" if self.message_keys and has_keys else ""
        return (
            f"{self.reason}: message {_shown(self.message_id)}{keys} of topic {_shown(self.topic)} "
            f"for group {_shown(self.consumer_group)}, written {_time(self.created_at_ms)}, "
            f"sent again {self.attempts} times"
        )


@dataclass(frozen=True, slots=True)
class Digest:
    """Cases that are told together."""

    cases: tuple[Case, ...]

    @property
    def key(self) -> str:
        """The same for the same cases."""
        names = sorted(f"{case.reason} {case.consumer_group} {case.message_id}" for case in self.cases)
        return hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]

    @property
    def subject(self) -> str:
        """Return one line."""
        groups, count = sorted({case.consumer_group for case in self.cases}), len(self.cases)
        names = ", ".join(_shown(group) for group in groups[:3]) + (" ..." if len(groups) > 3 else "")
        return f"{count} message{'s' if count > 1 else ''} without effect in {names}"

    def text(self) -> str:
        """Return what a person reads."""
        more = len(self.cases) - _LINES_MAX
        lines = [case.line() for case in self.cases[:_LINES_MAX]]
        if more > 0:
            lines.append(f"and {more} more: gantry guarantee list exhausted | stuck | overdue")
        hint = "Look: gantry guarantee show ID. Then rearm (send again), confirm (it is done) or close (give up)."
        return "\n".join([*lines, "", hint, ""])

    def document(self) -> bytes:
        """Return what a program reads."""
        cases = [asdict(each) for each in self.cases]
        return json.dumps({"key": self.key, "subject": self.subject, "cases": cases}).encode()


class Channel(Protocol):
    """A way to a person."""

    name: str

    async def tell(self, digest: Digest) -> None:
        """Deliver a digest; an exception when it was not taken for certain."""
        ...


@dataclass(frozen=True, slots=True)
class TellingRules:
    """When a case is one, and how it is told."""

    stuck_after_s: float = 600.0
    overdue_after_s: float = 3600.0
    cases_max: int = 1000  # of one digest
    timeout_s: float = 60.0  # of one offer to one channel
    pause_s: float = 60.0  # before a channel that did not take a digest gets it again; doubles up to an hour
    claim_s: float = 900.0  # how long nobody else tells a case; renewed while a channel does not take it


@dataclass(slots=True)
class _Held:
    """A digest that some channel has not taken yet."""

    digest: Digest
    until_ms: int  # of the claim
    took: set[str] = field(default_factory=set)
    pause_s: float = 0.0
    offer_at_ms: int = 0


class Teller:
    """Tells people what the tables of one database list."""

    def __init__(
        self,
        database: Database,
        say: Statements,
        channels: Sequence[Channel],
        clock: Clock,
        limits: ResendRules,
        rules: TellingRules,
    ) -> None:
        self.told = 0
        self.failures = {channel.name: 0 for channel in channels}
        self._database = database
        self._say = say
        self._channels = channels
        self._clock = clock
        self._limits = limits
        self._rules = rules
        self._held: list[_Held] = []
        self._pause_s = 0.0  # after a full digest
        self._next_ms = 0

    @property
    def waiting(self) -> int:
        """How many cases wait for a channel that does not take them."""
        return sum(len(held.digest.cases) for held in self._held)

    async def one_pass(self, groups: Sequence[str]) -> int:
        """Tell what is not told of these groups; return how many cases were told.  The driver's errors."""
        await self._claim_next(groups)
        told = 0
        for held in list(self._held):
            now_ms = self._clock.now_ms()
            if now_ms < held.offer_at_ms <= now_ms + _PAUSE_MAX_S * 1000:  # not after a clock that was set back
                await self._renew(held)
                continue
            await asyncio.gather(*(self._offer(channel, held) for channel in self._channels))
            if len(held.took) < len(self._channels):
                held.pause_s = min(_PAUSE_MAX_S, held.pause_s * 2 or self._rules.pause_s)
                held.offer_at_ms = self._clock.now_ms() + int(held.pause_s * 1000)
                await self._renew(held)
                continue
            await self._database.run(_mark(self._say, held.digest.cases, self._clock.now_ms()))
            self._held.remove(held)
            told += len(held.digest.cases)
            self.told += len(held.digest.cases)
        return told

    async def _claim_next(self, groups: Sequence[str]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms < self._next_ms <= now_ms + _PAUSE_MAX_S * 1000 or not await self._has_room():
            return
        until_ms = now_ms + int(self._rules.claim_s * 1000)
        found: list[Case] = []
        for group in groups:
            if len(found) < self._rules.cases_max:
                room = self._rules.cases_max - len(found)
                found += await self._database.run(self._claim(group, room, now_ms, until_ms))
        is_full = len(found) >= self._rules.cases_max
        self._pause_s = min(_PAUSE_MAX_S, self._pause_s * 2 or self._rules.pause_s) if is_full else 0.0
        self._next_ms = now_ms + int(self._pause_s * 1000)
        if found:
            for case in found:
                log.warning("%s", case.line(has_keys=False))
            self._held.append(_Held(Digest(tuple(found)), until_ms))

    async def _has_room(self) -> bool:
        """Whether another digest may wait for channels; the oldest one that some channel took gives way."""
        if len(self._held) < _HELD_MAX:
            return True
        told = next((held for held in self._held if held.took), None)
        if told is None:
            return False
        names = ", ".join(sorted({channel.name for channel in self._channels} - told.took))
        log.warning("%s took no digest for long, and does not get that of %d cases", names, len(told.digest.cases))
        await self._database.run(_mark(self._say, told.digest.cases, self._clock.now_ms()))
        self._held.remove(told)
        return True

    def _claim(self, group: str, cases_max: int, now_ms: int, until_ms: int) -> Steps[list[Case]]:
        texts = {
            "exhausted": (self._say.exhausted_untold, 0.0),
            "stuck": (self._say.stuck_untold, self._rules.stuck_after_s),
            "overdue": (self._say.overdue_untold, self._rules.overdue_after_s),
        }
        found: list[Case] = []
        for reason, (text, after_s) in texts.items():
            values: dict[str, object] = {
                "consumer_group": group,
                "now_ms": now_ms,
                "rows_max": cases_max - len(found),
                "resends_max": self._limits.resends_max,
                "before_ms": now_ms - int(after_s * 1000),
            }
            if len(found) >= cases_max:
                break
            rows = (yield Query(text, values)).rows
            # In the order of ids, so that two processes never wait for each other in a ring.
            for row in sorted((dict(zip(DELIVERY_COLUMNS, each, strict=True)) for each in rows), key=_id_of):
                named = {"consumer_group": group, "message_id": row["message_id"]}
                claim = {**named, "now_ms": now_ms, "tell_after_ms": until_ms}
                if (yield Query(self._say.tell, claim)).changed == 1:
                    found.append(_case(reason, group, row))
        return found

    async def _offer(self, channel: Channel, held: _Held) -> None:
        if channel.name in held.took:
            return
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                await channel.tell(held.digest)
        except Exception as error:  # noqa: BLE001  of a mail server, a webhook, a name that is not found
            self.failures[channel.name] += 1
            said, count = f"{type(error).__name__}: {error}", len(held.digest.cases)
            log.warning("%s did not take a digest of %d cases, it gets it again: %s", channel.name, count, said)
        else:
            held.took.add(channel.name)

    async def _renew(self, held: _Held) -> None:
        """Claim the cases for longer, by the end of the present claim as the guard; give up a digest without any."""
        now_ms, claim_ms = self._clock.now_ms(), int(self._rules.claim_s * 1000)
        if held.until_ms - now_ms > claim_ms // 2:
            return
        until_ms = now_ms + claim_ms
        kept = await self._database.run(_renewed(self._say, held.digest.cases, held.until_ms, until_ms))
        held.until_ms = until_ms
        if not kept:
            self._held.remove(held)


def _renewed(say: Statements, cases: Sequence[Case], guard_ms: int, until_ms: int) -> Steps[int]:
    count = 0
    for case in sorted(cases, key=lambda case: case.message_id):
        named = {"consumer_group": case.consumer_group, "message_id": case.message_id}
        count += (yield Query(say.tell, {**named, "now_ms": guard_ms, "tell_after_ms": until_ms})).changed == 1
    return count


def _id_of(row: Mapping[str, object]) -> str:
    return str(row["message_id"])


def _case(reason: str, group: str, row: Mapping[str, object]) -> Case:
    message_id, topic, keys = (str(row[name]) for name in ("message_id", "topic", "message_keys"))
    attempts, created_ms = int(str(row["attempts"])), int(str(row["created_at_ms"]))
    return Case(reason, group, message_id, topic, keys[:_SHOWN_MAX], attempts, created_ms)


def _mark(say: Statements, cases: Sequence[Case], now_ms: int) -> Steps[None]:
    for case in sorted(cases, key=lambda case: case.message_id):
        named = {"consumer_group": case.consumer_group, "message_id": case.message_id}
        yield Query(say.told, {**named, "now_ms": now_ms})


def _shown(text: str) -> str:
    """Return the text in one line, cut."""
    line = "".join(each if each.isprintable() else "?" for each in text[:_SHOWN_MAX])
    return line + ("..." if len(text) > _SHOWN_MAX else "")


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # somebody else's clock
        return f"at {at_ms} ms"
