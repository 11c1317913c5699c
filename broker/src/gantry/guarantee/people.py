"""Telling people about messages that the library cannot finish: each once, in digests, by every channel.

    exhausted    sent again as often as allowed, and no sign of it
    stuck        arrived long ago and not confirmed: a worker died in between, or its effect was refused

A digest has what is not told yet of all groups, up to `cases_max`.  A case is claimed before it is told (`tell`), so
that of several processes one tells it; it counts as told when every channel took the digest.  Until then it is offered
again after a growing pause, under the same key, by which a receiver recognises what it has; a channel that took it in
this process does not get it again.

Pure but for `Teller`, which asks the database and the channels.  Nothing here holds up a resend: `Teller.one_pass` is a
task of its own, and each channel has a time-out.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Protocol

from gantry.clock import Clock
from gantry.guarantee.databases import Database
from gantry.guarantee.resending import ResendRules
from gantry.guarantee.statements import DELIVERY_COLUMNS, Statements
from gantry.guarantee.steps import Query, Steps

log = logging.getLogger(__name__)

_KEPT_MAX = 10_000
_PAUSE_MAX_S = 3600.0


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

    def line(self) -> str:
        """Return the case as a line of text."""
        since = datetime.fromtimestamp(self.created_at_ms / 1000, UTC).isoformat(timespec="seconds")
        keys = f" keys {self.message_keys!r}" if self.message_keys else ""
        return (
            f"{self.reason}: message {self.message_id} of topic {self.topic} for group {self.consumer_group},{keys} "
            f"written {since}, sent again {self.attempts} times"
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
        names = ", ".join(groups[:3]) + (" ..." if len(groups) > 3 else "")
        line = f"{count} message{'s' if count > 1 else ''} without effect in {names}"
        return "".join(each if each.isprintable() else "?" for each in line)

    def text(self) -> str:
        """Return what a person reads."""
        hint = "Look: gantry guarantee show ID. Then rearm (send again), confirm (it is done) or close (give up)."
        return "\n".join([*(case.line() for case in self.cases), "", hint, ""])

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
    cases_max: int = 200
    timeout_s: float = 30.0  # of one channel
    pause_s: float = 60.0  # before a digest that a channel did not take is offered again; doubles up to an hour


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
        self.failures = 0
        self.told = 0
        self._database = database
        self._say = say
        self._channels = channels
        self._clock = clock
        self._limits = limits
        self._rules = rules
        self._took: dict[Case, set[str]] = {}  # the channels that took a case, while another one did not
        self._pause_s = rules.pause_s

    async def one_pass(self) -> int:
        """Tell what is not told; return how many cases were told.  The driver's errors."""
        groups = await self._database.run(_groups(self._say))
        found: list[Case] = []
        for group in groups:
            if not self._limits.groups or group in self._limits.groups:
                found += await self._database.run(self._claim(group, self._rules.cases_max - len(found)))
        if not found:
            return 0
        for case in found:
            log.warning("%s", case.line())
        told = await self._offer(found)
        self._pause_s = self._rules.pause_s if len(told) == len(found) else min(_PAUSE_MAX_S, self._pause_s * 2)
        if told:
            await self._database.run(_mark(self._say, told, self._clock.now_ms()))
        self.told += len(told)
        return len(told)

    def _claim(self, group: str, cases_max: int) -> Steps[list[Case]]:
        now_ms = self._clock.now_ms()
        values: dict[str, object] = {
            "consumer_group": group,
            "now_ms": now_ms,
            "rows_max": cases_max,
            "resends_max": self._limits.resends_max,
            "before_ms": now_ms - int(self._rules.stuck_after_s * 1000),
        }
        lease_ms = int((self._pause_s + self._rules.timeout_s * max(1, len(self._channels))) * 1000)
        found: list[Case] = []
        for reason, text in (("exhausted", self._say.exhausted_untold), ("stuck", self._say.stuck_untold)):
            if len(found) >= cases_max:
                break
            rows = (yield Query(text, values)).rows
            for row in sorted((dict(zip(DELIVERY_COLUMNS, each, strict=True)) for each in rows), key=_id_of):
                named = {"consumer_group": group, "message_id": row["message_id"]}
                claim = {**named, "now_ms": now_ms, "tell_after_ms": now_ms + lease_ms}
                if len(found) < cases_max and (yield Query(self._say.tell, claim)).changed == 1:
                    found.append(_case(reason, group, row))
        return found

    async def _offer(self, cases: Sequence[Case]) -> list[Case]:
        """Offer the cases to each channel that did not take them yet; return those that all channels took."""
        for channel in self._channels:
            new = tuple(case for case in cases if channel.name not in self._took.get(case, ()))
            if not new:
                continue
            try:
                async with asyncio.timeout(self._rules.timeout_s):
                    await channel.tell(Digest(new))
            except Exception as error:  # noqa: BLE001  of a mail server, a webhook, a name that is not found
                self.failures += 1
                said = f"{type(error).__name__}: {error}"
                log.warning("%s did not take a digest of %d, it gets it again: %s", channel.name, len(new), said)
            else:
                for case in new:
                    self._took.setdefault(case, set()).add(channel.name)
        told = [case for case in cases if len(self._took.get(case, ())) == len(self._channels)]
        for case in told:
            self._took.pop(case, None)
        while len(self._took) > _KEPT_MAX:
            self._took.pop(next(iter(self._took)))
        return told


def _id_of(row: dict[str, object]) -> str:
    return str(row["message_id"])


def _case(reason: str, group: str, row: dict[str, object]) -> Case:
    message_id, topic, keys = (str(row[name]) for name in ("message_id", "topic", "message_keys"))
    attempts, created_ms = int(str(row["attempts"])), int(str(row["created_at_ms"]))
    return Case(reason, group, message_id, topic, keys, attempts, created_ms)


def _groups(say: Statements) -> Steps[list[str]]:
    rows = (yield Query(say.declared, {})).rows
    return sorted({str(group) for _, group, _ in rows})


def _mark(say: Statements, cases: Sequence[Case], now_ms: int) -> Steps[None]:
    for case in sorted(cases, key=lambda case: case.message_id):
        named = {"consumer_group": case.consumer_group, "message_id": case.message_id}
        yield Query(say.told, {**named, "now_ms": now_ms})
