"""The resend process: messages that a group should have had by now and has not are sent to it again.

One pass, for each group that is declared or has open deliveries: how far the group consumed the queues of what is due
is asked of the brokers and stored; then, a portion at a time, deliveries for which all five conditions hold
(`statements`) are claimed, each by a guard on its count, sent under the id of the message, and their new place is
stored.  Any number of processes share the work: of two that saw the same delivery, one claims it.

What can go wrong in between, and what it costs:

    the process dies after a claim         an attempt; due again after its backoff
    no broker takes the message now        nothing: the attempt is not counted, and its topic waits for the next pass,
                                           behind all that is due; after long a person is told
    a broker refuses the message           an attempt; after the last one a person is told (`people`)
    the answer does not come               an attempt; perhaps a copy more, which has no second effect
    the new place cannot be stored         it is kept and stored by the next pass; a copy more if the process dies
    one group's tables or brokers fail     the pass goes on with the other groups, and says so

While no master is known nothing is claimed, nor while brokers do not say how a group consumes.  A group that no broker
knows is created, because brokers refuse messages for the retry topic of an unknown group.  An orderly group gets a
message again by the topic: what comes to its retry topic has been given up by its consumer, and brokers make a dead
letter of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from gantry.client.admin import Admin
from gantry.client.outgoing import Copy
from gantry.client.producer import Producer
from gantry.client.results import QueueProgress, SendResult
from gantry.clock import Clock
from gantry.errors import GantryError, NotMasterError, OutcomeUnknownError, RefusedError, UnreachableError
from gantry.guarantee import byhand, rules
from gantry.guarantee.databases import Database
from gantry.guarantee.producing import message_of
from gantry.guarantee.statements import MISSING_COLUMNS, Statements
from gantry.guarantee.steps import Query, Steps
from gantry.model import names
from gantry.wire.codes import ResponseCode

T = TypeVar("T")
log = logging.getLogger(__name__)

_PORTION_MIN, _PORTION_MAX = 16, 200  # deliveries that are claimed in one transaction and sent together
_PORTION_BYTES = 8 << 20  # of bodies; above it the next portion is smaller
_GROUPS_AT_ONCE = 4
_PLACES_MAX = 10_000  # that wait for the database
_BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
_TOPICS_AWAY_MAX = 16  # after so many that no broker takes the group's pass ends
_TOPICS_MAX = 1000  # of what is due to one group, whose progress is asked
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ResendRules:
    """How often, and after which time; `backlog_s` is what a group is expected to be behind."""

    resends_max: int = 5
    backoff_s: float = 60.0
    backlog_s: float = 0.0
    rows_max: int = 10_000  # sent to one group in one pass
    measure_s: float = 60.0  # how old figures of the backlog may be
    service: str = "resend"  # stands in `changed_by`
    groups: tuple[str, ...] = ()  # empty: all


class Backlog(NamedTuple):
    """Open deliveries of one group."""

    consumer_group: str
    deliveries: int
    oldest_ms: int
    due: int


@dataclass(slots=True)
class ResendCounts:
    """What a pass did."""

    sent: int = 0
    refused: int = 0
    unknown: int = 0  # the broker's answer did not come: perhaps sent
    postponed: int = 0  # no broker took it now; does not count as an attempt
    groups: int = 0  # in which something was due
    failed: list[str] = field(default_factory=list)  # groups whose progress was not asked, or whose pass broke off


class Resender:
    """Passes over the tables of one database."""

    def __init__(
        self, database: Database, say: Statements, producer: Producer, admin: Admin, clock: Clock, limits: ResendRules
    ) -> None:
        self.backlog: Sequence[Backlog] = ()
        self.measured_ms = 0
        self._logged: Sequence[str] = ()
        self._database = database
        self._say = say
        self._producer = producer
        self._admin = admin
        self._clock = clock
        self._limits = limits
        self._is_ending = False
        self._places: list[dict[str, object]] = []  # stored by no database yet

    async def together(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Return what the coroutines returned or raised, run side by side."""
        return await asyncio.gather(*work, return_exceptions=True)

    def end_soon(self) -> None:
        """Let the pass under way end after its present portion."""
        self._is_ending = True

    async def one_pass(self) -> ResendCounts:
        """Run one pass over all groups; UnreachableError while no master is known, the driver's errors."""
        counts = ResendCounts()
        if not (await self._admin.cluster()).masters():
            raise UnreachableError("no group of brokers has a master; nothing is sent again until one has")
        await self._store_places([])
        free = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def of(group: str) -> None:
            async with free:
                await self._of_group(group, counts)

        groups = await self.groups()
        ended = await self.together([of(group) for group in groups])
        for group, error in zip(groups, ended, strict=True):
            if error is None:
                continue
            if not isinstance(error, Exception):
                raise error
            counts.failed.append(group)
            log.warning("the pass of group %s broke off: %s: %s", group, type(error).__name__, error)
        if self._places or (groups and all(isinstance(error, Exception) for error in ended)):
            raise next((each for each in ended if isinstance(each, Exception)), RuntimeError("places are not stored"))
        return counts

    async def groups(self) -> list[str]:
        """Return the groups that are declared, those of stubs that named them, and those that logged anything."""
        now_ms = self._clock.now_ms()
        if not self.measured_ms or not 0 <= now_ms - self.measured_ms < self._limits.measure_s * 1000:
            self.backlog = await self._database.run(_backlog(self._say, now_ms))
            self._logged = await self._database.run(byhand.logged_groups(self._say))
            self.measured_ms = now_ms
        declared = await self._database.run(_rows(self._say.declared, {}))
        found = {str(group) for _, group, _ in declared} | {each.consumer_group for each in self.backlog}
        found |= set(self._logged)
        return sorted(found & set(self._limits.groups) if self._limits.groups else found)

    async def _of_group(self, group: str, counts: ResendCounts) -> None:
        values = {"consumer_group": group, "now_ms": self._clock.now_ms(), "rows_max": _TOPICS_MAX}
        topics = [topic for (topic,) in await self._database.run(_rows(self._say.copies, values))]
        if not topics:
            return
        counts.groups += 1
        is_orderly = await self._is_orderly(group, counts)
        if is_orderly is None:
            return
        await self._note_progress(group, sorted(str(topic) for topic in topics if topic is not None), counts)
        left, portion = self._limits.rows_max, _PORTION_MIN
        without: set[str] = set()  # topics that no broker takes in this pass
        while left > 0 and len(without) < _TOPICS_AWAY_MAX and not self._is_ending:
            claimed = await self._database.run(self._claim(group, min(left, portion), sorted(without)))
            if not claimed:
                return
            left -= len(claimed)
            without |= await self._send_all(claimed, is_orderly, counts)
            size = sum(_size(row) for row in claimed)
            portion = max(_PORTION_MIN // 4, portion // 4) if size > _PORTION_BYTES else min(_PORTION_MAX, portion * 2)

    async def _is_orderly(self, group: str, counts: ResendCounts) -> bool | None:
        """Return whether brokers take the group for an orderly one; a group that none knows is created.

        None when they do not say. Then nothing is sent: by the wrong way an orderly group's copy becomes a dead letter,
        or every group has a copy of what one lacks.
        """
        try:
            known = (await self._admin.groups()).get(group)
            if known is not None:
                return known.consume_orderly
            await self._admin.create_group(group)
            log.warning("no broker knew the group %s, it was created; is it the right name?", group)
        except GantryError as error:
            counts.failed.append(group)
            log.warning("group %s waits for the next pass: brokers do not say if it is orderly: %s", group, error)
            return None
        return False

    async def _note_progress(self, group: str, topics: Sequence[str], counts: ResendCounts) -> None:
        """Store how far the group consumed; without it the log rows alone say so, which is less but never wrong."""
        for topic in topics:
            try:
                found = await self._admin.progress(group, topic)
            except GantryError as error:
                counts.failed.append(group)
                log.info("progress of group %s in %s is not known: %s", group, topic, error)
                continue
            rows = [
                {"consumer_group": group, "topic": topic, "consumed_to": each.committed, **_queue(each)}
                for each in found
                if each.committed >= 0
            ]
            if rows:
                await self._database.run(_each(self._say.progress, sorted(rows, key=_place_of)))

    def _claim(self, group: str, rows_max: int, without: Sequence[str] = ()) -> Steps[list[Row]]:
        now_ms, resends_max = self._clock.now_ms(), self._limits.resends_max
        values = {"consumer_group": group, "now_ms": now_ms, "rows_max": rows_max, "resends_max": resends_max}
        but = Query(self._say.free_but, {**values, "topics": json.dumps(without)})
        answer = yield but if without else Query(self._say.free, values)
        found = [dict(zip(MISSING_COLUMNS, row, strict=True)) for row in answer.rows]
        found.sort(key=lambda row: str(row["message_id"]))  # so that two processes never wait for each other in a ring
        ours: list[Row] = []
        for row in found:
            due_ms = self._due_ms(now_ms, int(str(row["attempts"])) + 1)
            named = {"message_id": row["message_id"], "consumer_group": group, "resends": row["resends"]}
            by = {"now_ms": now_ms, "changed_by": self._limits.service, "next_resend_at_ms": due_ms}
            if (yield Query(self._say.claim, {**named, **by})).changed == 1:
                ours.append(row)
        return ours

    def _due_ms(self, now_ms: int, attempts: int) -> int:
        backoff_ms, backlog_ms = int(self._limits.backoff_s * 1000), int(self._limits.backlog_s * 1000)
        return rules.next_resend_ms(now_ms, attempts, backoff_ms, backlog_ms)

    async def _send_all(self, claimed: Sequence[Row], is_orderly: bool, counts: ResendCounts) -> set[str]:
        """Send what was claimed, together; return the topics of which brokers take nothing at the moment."""
        results = await self.together([self._send(row, is_orderly, counts) for row in claimed])
        put_off = [row for row, result in zip(claimed, results, strict=True) if result is False]
        await self._store_places([result for result in results if isinstance(result, dict)])
        if put_off:
            await self._database.run(self._postpone(put_off))
        for result in results:  # behind the places of the others
            if isinstance(result, BaseException):
                raise result
        taken = {str(row["topic"]) for row, result in zip(claimed, results, strict=True) if result is not False}
        return {str(row["topic"]) for row in put_off} - taken

    def _postpone(self, rows: Sequence[Row]) -> Steps[None]:
        """Put rows behind all that is due, due as before; since when they are due is kept for people."""
        now_ms = self._clock.now_ms()
        by = {"now_ms": now_ms, "changed_by": self._limits.service, "next_resend_at_ms": now_ms}
        for row in rows:
            kept = {name: row[name] for name in ("message_id", "consumer_group", "is_rearmed", "told_at_ms")}
            since_ms = row["tell_after_ms"] or row["next_resend_at_ms"] or 1
            yield Query(self._say.postpone, {**kept, **by, "resends": _claimed(row), "tell_after_ms": since_ms})

    async def _store_places(self, places: Sequence[dict[str, object]]) -> None:
        """Store places, with those that could not be stored before; a later resend's place is never overwritten."""
        self._places += places
        if not self._places:
            return
        stored = self._places
        self._places = []
        try:
            await self._database.run(_each(self._say.moved, sorted(stored, key=lambda row: str(row["message_id"]))))
        except BaseException:
            self._places = [*stored, *self._places][:_PLACES_MAX]
            raise

    async def _send(self, row: Row, is_orderly: bool, counts: ResendCounts) -> dict[str, object] | bool | None:
        """Send one: its new place; None: none is known; False: no broker takes it at the moment."""
        message_id, group, way = (str(row[name]) for name in ("message_id", "consumer_group", "resend_by"))
        try:
            message, key = message_of(row)
            copy = Copy(message_id, "" if is_orderly else retry_topic(group, message.topic, way))
            result = await self._producer.send(message, key=key, copy=copy)
        except OutcomeUnknownError as error:
            counts.unknown += 1
            log.warning("whether message %s was sent to group %s again is not known: %s", message_id, group, error)
            return None
        except (GantryError, ValueError, RecursionError) as error:
            if _may_pass(error):
                counts.postponed += 1
                log.warning("message %s for group %s is sent later: %s", message_id, group, error)
                return False
            counts.refused += 1
            log.warning("message %s was not sent to group %s again: %s", message_id, group, error)
            return None
        counts.sent += 1
        log.info("message %s was sent to group %s again, resend %d", message_id, group, _claimed(row))
        return {"consumer_group": group, "resends": _claimed(row), **_moved(result)}


def _may_pass(error: Exception) -> bool:
    """Whether it is the brokers' state, not the message, that keeps it from being sent."""
    return isinstance(error, UnreachableError | NotMasterError) or (
        isinstance(error, RefusedError) and error.code in _BUSY
    )


def _size(row: Row) -> int:
    body = row["body"]
    return len(body) if isinstance(body, bytes | bytearray | memoryview) else 0


def _claimed(row: Row) -> int:
    return int(str(row["resends"])) + 1


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


def _place_of(row: Mapping[str, object]) -> tuple[str, str]:
    return str(row["broker"]), str(row["queue_id"])


def _backlog(say: Statements, now_ms: int) -> Steps[list[Backlog]]:
    rows = (yield Query(say.backlog, {"now_ms": now_ms})).rows
    return [Backlog(str(group), *(int(str(each or 0)) for each in numbers)) for group, *numbers in rows]


def _rows(text: str, values: Mapping[str, object]) -> Steps[Sequence[Sequence[object]]]:
    return (yield Query(text, values)).rows


def _each(text: str, rows: Sequence[Mapping[str, object]]) -> Steps[None]:
    for row in rows:
        yield Query(text, row)
