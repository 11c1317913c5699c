"""The resend process: messages that a group should have had by now and has not are sent to it again.

One pass, for each group that is declared: how far the group consumed its queues is asked of the brokers and stored;
then, a portion at a time, deliveries for which all five conditions hold (`statements`) are claimed, each by a guard on
its count, sent under the id of the message, and their new place is stored.  Any number of processes share the work: of
two that saw the same delivery, one claims it.  A process that dies in between has used up an attempt of what it did not
send, or did not note the place: it is due again after its backoff.

While no master is known nothing is claimed: an outage must not use up attempts.  What a broker refuses is logged, and
tried until it is exhausted; then a person is told (`people`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gantry.client.admin import Admin
from gantry.client.outgoing import Copy
from gantry.client.producer import Producer
from gantry.client.results import QueueProgress, SendResult
from gantry.clock import Clock
from gantry.errors import GantryError, OutcomeUnknownError, UnreachableError
from gantry.guarantee import rules
from gantry.guarantee.databases import Database
from gantry.guarantee.producing import message_of
from gantry.guarantee.statements import MISSING_COLUMNS, Statements
from gantry.guarantee.steps import Query, Steps
from gantry.model import names

log = logging.getLogger(__name__)

_PORTION = 200
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ResendRules:
    """How often, and after which time; `backlog_s` is what a group is expected to be behind."""

    resends_max: int = 5
    backoff_s: float = 60.0
    backlog_s: float = 0.0
    rows_max: int = 10_000  # sent to one group in one pass
    service: str = "resend"  # stands in `changed_by`
    groups: tuple[str, ...] = ()  # empty: all that are declared


@dataclass(slots=True)
class ResendCounts:
    """What a pass did."""

    sent: int = 0
    refused: int = 0
    unknown: int = 0  # the broker's answer did not come: perhaps sent
    groups: int = 0
    unreachable: list[str] = field(default_factory=list)  # groups whose progress could not be asked


class Resender:
    """Passes over the tables of one database."""

    def __init__(
        self, database: Database, say: Statements, producer: Producer, admin: Admin, clock: Clock, limits: ResendRules
    ) -> None:
        self._database = database
        self._say = say
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._limits = limits

    async def one_pass(self) -> ResendCounts:
        """Run one pass over all groups; UnreachableError while no master is known, the driver's errors."""
        counts = ResendCounts()
        if not (await self._admin.cluster()).masters():
            raise UnreachableError("no group of brokers has a master; nothing is sent again until one has")
        declared = await self._database.run(_rows(self._say.declared, {}))
        ways: dict[str, set[str]] = {}
        for topic, group, way in declared:
            topics = ways.setdefault(str(group), set())
            topics |= {str(topic), retry_topic(str(group), str(topic), str(way)) or str(topic)}
        known = await self._admin.groups()
        for group, topics in sorted(ways.items()):
            if self._limits.groups and group not in self._limits.groups:
                continue
            counts.groups += 1
            if group not in known:
                await self._admin.create_group(group)  # brokers refuse messages for the retry topic of an unknown group
            await self._note_progress(group, sorted(topics), counts)
            await self._resend(group, counts)
        return counts

    async def _note_progress(self, group: str, topics: Sequence[str], counts: ResendCounts) -> None:
        """Store how far the group consumed; without it the log rows alone say so, which is less but never wrong."""
        for topic in topics:
            try:
                found = await self._admin.progress(group, topic)
            except GantryError as error:
                counts.unreachable.append(group)
                log.info("progress of group %s in %s is not known: %s", group, topic, error)
                continue
            rows = [
                {"consumer_group": group, "topic": topic, "consumed_to": each.committed, **_queue(each)}
                for each in found
                if each.committed >= 0
            ]
            if rows:
                await self._database.run(_each(self._say.progress, rows))

    async def _resend(self, group: str, counts: ResendCounts) -> None:
        left = self._limits.rows_max
        while left > 0:
            claimed = await self._database.run(self._claim(group, min(left, _PORTION)))
            if not claimed:
                return
            left -= len(claimed)
            moved = [place for row in claimed if (place := await self._send(row, counts)) is not None]
            if moved:
                await self._database.run(_each(self._say.moved, moved))

    def _claim(self, group: str, rows_max: int) -> Steps[list[Row]]:
        now_ms = self._clock.now_ms()
        values = {"consumer_group": group, "now_ms": now_ms, "rows_max": rows_max}
        answer = yield Query(self._say.missing, {**values, "resends_max": self._limits.resends_max})
        found = [dict(zip(MISSING_COLUMNS, row, strict=True)) for row in answer.rows]
        found.sort(key=lambda row: str(row["message_id"]))  # so that two processes never wait for each other in a ring
        ours: list[Row] = []
        for row in found:
            attempts = int(row["attempts"]) + 1  # type: ignore[call-overload]
            backoff_ms, backlog_ms = int(self._limits.backoff_s * 1000), int(self._limits.backlog_s * 1000)
            due_ms = rules.next_resend_ms(now_ms, attempts, backoff_ms, backlog_ms)
            named = {"message_id": row["message_id"], "consumer_group": group, "resends": row["resends"]}
            by = {"now_ms": now_ms, "changed_by": self._limits.service, "next_resend_at_ms": due_ms}
            if (yield Query(self._say.claim, {**named, **by})).changed == 1:
                ours.append(row)
        return ours

    async def _send(self, row: Row, counts: ResendCounts) -> dict[str, object] | None:
        message_id, group, way = (str(row[name]) for name in ("message_id", "consumer_group", "resend_by"))
        try:
            message, key = message_of(row)
            copy = Copy(message_id, retry_topic(group, message.topic, way))
            result = await self._producer.send(message, key=key, copy=copy)
        except OutcomeUnknownError as error:
            counts.unknown += 1
            log.warning("whether message %s was sent to group %s again is not known: %s", message_id, group, error)
            return None
        except (GantryError, ValueError) as error:
            counts.refused += 1
            log.warning("message %s was not sent to group %s again: %s", message_id, group, error)
            return None
        counts.sent += 1
        log.info("message %s was sent to group %s again, for the %s. time", message_id, group, row["resends"])
        return {"consumer_group": group, "resends": int(row["resends"]) + 1, **_moved(result)}  # type: ignore[call-overload]


def retry_topic(group: str, topic: str, way: str) -> str:
    """Return the retry topic by which a group gets a copy of its own; '' for groups that read only the topic."""
    if way == "retry":
        return names.retry_topic(group)
    return f"{names.RETRY_PREFIX}{group}_{topic}" if way == "pop" else ""


def _moved(result: SendResult) -> dict[str, object]:
    queue = result.queue
    place = {"copy_topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
    return {"message_id": result.message_id, "queue_offset": result.queue_offset, **place}


def _queue(progress: QueueProgress) -> dict[str, object]:
    return {"broker": progress.queue.broker_name, "queue_id": progress.queue.queue_id}


def _rows(text: str, values: Mapping[str, object]) -> Steps[Sequence[Sequence[object]]]:
    return (yield Query(text, values)).rows


def _each(text: str, rows: Sequence[Mapping[str, object]]) -> Steps[None]:
    for row in rows:
        yield Query(text, row)
