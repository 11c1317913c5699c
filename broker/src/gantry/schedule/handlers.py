"""Requests about delayed messages: RECALL_MESSAGE (370), RETIME_DELAYED (24044, ours), GET_ALL_DELAY_OFFSET (45), and
administration.

A recall names a message by topic, due time and unique key (`handles`); one that is not pending is refused, so that
success means: it will not be delivered.  RocketMQ's broker answers success for any key.

An ASYNC_MASTER answers a send before its slaves have the message, and finds it only when they do.  Until then nothing
can be said of a message that is not found: the answer waits, at most SEEN_S, and is SYSTEM_BUSY then.

Administration is ours (LIST_DELAYED, CANCEL_DELAYED): `broker/docs/delay.md`.  Each cancel by hand is logged in
`gantry.audit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gantry.append.acks import Acks
from gantry.clock import SteadyClock
from gantry.errors import Refusal
from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.leaves.records import Record
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.schedule import disguise, handles, retimes
from gantry.schedule.intake import longest_ms
from gantry.schedule.lines import Line
from gantry.schedule.places import DelayedEntry
from gantry.schedule.service import DelayService
from gantry.store.keysearch import (
    TOO_LONG,
    KeyQuestion,
    Steps,
    looked_up,
    record_at,
    records_with,
    resolved,
    searched,
    warm,
)
from gantry.wire import bodies, headers
from gantry.wire.codes import ResponseCode
from gantry.wire.command import refusal, reply

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.transport.connection import Connection

_LIST_MAX = 500
_EXAMINED_MAX = 20_000
_EXAMINED_AT_ONCE = 200
_HITS_MAX = 32
SEEN_S = 2.0  # shorter than clients wait for an answer
_UNSEEN_MAX = 1_000  # requests that wait so
# RocketMQ: no handle is for a later time than a send may ask for now.  But our clock may be behind the one by which the
# message was sent, that of a former master; it waits even so, and a commit must not be told that it does not.
_BEHIND_MS = 86_400_000
# A list's cursor: a queue offset, and above it the level; the timer comes behind all levels.
_OFFSETS = 1 << 48
_BEHIND_LEVELS = 1000

audit = logging.getLogger("gantry.audit")


_Answer = Command | None | Awaitable[Command | None]
_Look = Callable[[], DelayedEntry | None]
_NOT_PENDING = Refusal(
    ResponseCode.ILLEGAL_OPERATION, "recall failed, no such message waits for its delivery"
)


class _Pending(NamedTuple):
    """A message that is not delivered yet."""

    record: Record
    address: disguise.Address
    place: DelayedEntry
    level: int  # 0: a time of its own


class DelayHandlers:
    """Handlers of requests about delayed messages, of producers and administrators."""

    def __init__(
        self, service: DelayService, store: Store, acks: Acks, topics: Topics, clock: SteadyClock, broker_name: str
    ) -> None:
        self._service = service
        self._store = store
        self._acks = acks
        self._topics = topics
        self._clock = clock
        self._broker_name = broker_name
        self._unseen: dict[asyncio.Event, int] = {}  # which log offset each waits for

    def offsets(self, connection: Connection, command: Command) -> Command:
        """GET_ALL_DELAY_OFFSET: the document, as it would be saved now."""
        return reply(command, body=bodies.dumps(self._service.current()))

    def recall(self, connection: Connection, command: Command) -> _Answer:
        """RECALL_MESSAGE: cancel a producer's pending message; refused when no such message is pending."""
        return self._named_in(command, lambda one: self._take_back(connection, command, one))

    def retime(self, connection: Connection, command: Command) -> _Answer:
        """RETIME_DELAYED: give a producer's pending message another time, and a new handle; refused like a recall.

        The answer has `recallHandle`, which is empty for a delay of 0: that message is delivered at once.
        """
        delay_ms = headers.parse(command.code, command.ext).integer("delayMs")
        return self._named_in(command, lambda one: self._retimed(connection, command, one, delay_ms))

    def _retimed(self, connection: Connection, command: Command, one: _Pending, delay_ms: int) -> Command | None:
        longest_ms = self._longest_ms(one.address.topic)
        if not 0 <= delay_ms <= longest_ms:
            remark = f"delayMs[{delay_ms}] is illegal, it has to be from 0 to {longest_ms} ms"
            return reply(command, ResponseCode.INVALID_PARAMETER, remark)
        due_ms = self._clock.now_ms() + delay_ms
        send = self._service.changes.retime(one.record, one.place, due_ms)
        if isinstance(send, Refusal):
            return refusal(command, send)
        if command.is_oneway:
            return None
        unique_key = one.address.unique_key.decode("utf-8", "replace")
        times = retimes.times_of(send.properties)
        handle = handles.Handle(one.address.topic, self._broker_name, due_ms, unique_key, times)
        answer = reply(command, ext={"recallHandle": handles.encode(handle) if delay_ms else ""})
        self._acks.park(self._store.written.offset, connection, frames.encode(answer), 1)
        return None

    def _named_in(self, command: Command, act: Callable[[_Pending], Command | None]) -> _Answer:
        """Act on the pending message that a request names, now or when it can be found."""
        return resolved(self._named(headers.parse(command.code, command.ext)), partial(self._act_on, command, act))

    def _act_on(
        self, command: Command, act: Callable[[_Pending], Command | None], one: _Pending | Refusal
    ) -> _Answer:
        if one is _NOT_PENDING and self._store.dispatched.offset < self._acks.mark.offset:
            return self._when_seen(command, act)
        return refusal(command, one) if isinstance(one, Refusal) else act(one)

    async def _when_seen(self, command: Command, act: Callable[[_Pending], Command | None]) -> Command | None:
        wanted = self._acks.mark.offset
        if len(self._unseen) >= _UNSEEN_MAX:
            return _busy(command)
        seen = asyncio.Event()
        if not self._unseen:
            self._store.dispatched.listen(self._dispatched)
        self._unseen[seen] = wanted
        try:
            async with asyncio.timeout(SEEN_S):
                await seen.wait()
        except TimeoutError:
            return _busy(command)
        finally:
            del self._unseen[seen]
            if not self._unseen:
                self._store.dispatched.ignore(self._dispatched)
        one = await searched(self._named(headers.parse(command.code, command.ext)))
        return refusal(command, one) if isinstance(one, Refusal) else act(one)

    def _dispatched(self, offset: int) -> None:
        for seen, wanted in self._unseen.items():
            if wanted <= offset:
                seen.set()

    def _named(self, header: headers.Header) -> Steps[_Pending | Refusal]:
        """Return the pending message that a handle names, or RocketMQ's refusal."""
        if not self._service.rules.is_recall_allowed:
            return Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        topic, handle = header.text("topic"), handles.decode(header.text("recallHandle"))
        if self._topics.get(topic) is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if handle is None:
            return _illegal("recall failed, the handle cannot be read")
        if handle.topic != topic or handle.broker != self._broker_name:
            return _illegal(f"recall failed, the handle is for {handle.topic} on {handle.broker}")
        ahead_ms = handle.due_ms - self._clock.wall_ms()  # of a moment or a duration: `_pending` knows which
        latest_ms = self._clock.now_ms() + self._longest_ms(topic) + _BEHIND_MS
        if ahead_ms <= 0 or handle.due_ms > latest_ms:
            return _illegal("recall failed, timestamp invalid")
        named, is_cut = yield from self._find(handle.unique_key, names.TIMER_TOPIC)
        for one in self._pending_of(named):
            is_same = one.address.topic == topic and one.place.due_ms == handle.due_ms
            if is_same and retimes.times_of(one.record.properties) == handle.times:
                return one
        return TOO_LONG if is_cut else _NOT_PENDING

    def _longest_ms(self, topic: str) -> int:
        return longest_ms(self._service.rules, self._topics.is_http_queue(topic))

    async def page(self, connection: Connection, command: Command) -> Command:
        """LIST_DELAYED: what is pending, lines first, each in the order in which it was stored, page by page."""
        header = headers.parse(command.code, command.ext)
        limit, topic = max(1, min(header.integer("limit", 100), _LIST_MAX)), header.text("topic")
        found: list[dict[str, object]] = []
        following = -1
        for examined, (cursor, level, look) in enumerate(self._places_from(header.integer("begin"))):
            if len(found) >= limit or examined >= _EXAMINED_MAX:
                following = cursor
                break
            if examined % _EXAMINED_AT_ONCE == _EXAMINED_AT_ONCE - 1:
                await asyncio.sleep(0)
            place = await searched(self._looked_up(look))
            one = self._pending_at(place, level)
            if one is not None and topic in ("", one.address.topic):
                found.append(self._shown(one))
        return reply(command, body=bodies.dumps({"delayed": found, "next": following}))

    def cancel(self, connection: Connection, command: Command) -> _Answer:
        """CANCEL_DELAYED: cancel a pending message for an administrator, by its unique key or offset id."""
        wanted = headers.parse(command.code, command.ext).text("id")
        return resolved(self._found_for(wanted), lambda found: self._cancel(connection, command, found))

    def _found_for(self, wanted: str) -> Steps[tuple[list[Record], bool]]:
        """Find the records that may be pending under this id, in the timer's topic and that of the levels."""
        timed, is_cut = yield from self._find(wanted, names.TIMER_TOPIC)
        levelled, is_cut_too = yield from self._find(wanted, names.SCHEDULE_TOPIC)
        return [*timed, *levelled], is_cut or is_cut_too

    def _cancel(self, connection: Connection, command: Command, named: tuple[list[Record], bool]) -> Command | None:
        header = headers.parse(command.code, command.ext)
        wanted = header.text("id")
        found = self._pending_of(named[0])
        if not found and named[1]:
            return refusal(command, TOO_LONG)
        if not found:
            return reply(command, ResponseCode.QUERY_NOT_FOUND, f"no message {wanted[:80]!r} waits for its delivery")
        audit.warning(
            "cancel of delayed message %s for %s, asked by %r from %s",
            found[0].address.unique_key.decode("utf-8", "replace"),
            found[0].address.topic,
            header.text("operator")[:80],
            connection.peer,
        )
        return self._take_back(connection, command, found[0])

    def _take_back(self, connection: Connection, command: Command, one: _Pending) -> Command | None:
        address = one.address
        refused = self._service.changes.cancel(one.record, address, one.place.due_ms, connection.born_host)
        if refused is not None:
            return refusal(command, refused)
        if not command.is_oneway:
            answer = reply(command, ext={"msgId": address.unique_key.decode("utf-8", "replace")})
            self._acks.park(self._store.written.offset, connection, frames.encode(answer), 1)
        return None

    def _find(self, wanted: str, topic: str) -> Steps[tuple[list[Record], bool]]:
        """Find the records of this id in one of the two topics; whether there may be more."""
        found: list[Record] = []
        is_cut = False
        if wanted:
            found, is_cut = yield from records_with(self._store, KeyQuestion(topic, wanted), _HITS_MAX)
        at = _log_offset(wanted)
        record = None if at is None else (yield from record_at(self._store, at))
        if record is not None and record.topic == topic:
            found.append(record)
        return found, is_cut

    def _pending_of(self, found: list[Record]) -> list[_Pending]:
        """Return what of these records is pending now; act on it before anything is awaited."""
        pending = [self._pending(record) for record in found]
        return [one for one in pending if one is not None]

    def _pending(self, record: Record) -> _Pending | None:
        entry = self._store.reader.entry(record.topic, record.queue_id, record.queue_offset)
        if entry is None:
            return None
        if record.topic == names.SCHEDULE_TOPIC:
            line = self._service.book.lines.get(record.queue_id + 1)
            place: DelayedEntry | None = DelayedEntry(entry[0], entry[1], record.queue_offset, entry[2])
            if line is None or record.queue_offset < line.next:
                return None
            return self._pending_at(place, line.level)
        place = self._service.places.of_timer(record.queue_offset)
        return self._pending_at(place, 0)

    def _pending_at(self, place: DelayedEntry | None, level: int) -> _Pending | None:
        """Return the pending message at this place; None for cancels, leases, and what will not be delivered."""
        if place is None or not place.size or place.is_cancel or place.is_lease:
            return None
        if not level and not self._service.is_pending(place):
            return None
        record = self._store.reader.record((place.log_offset, place.size, 0))
        address = None if record is None else disguise.address(record.properties)
        if record is None or address is None or self._service.book.cancels.has(place.due_ms, address):
            return None
        is_buried = self._store.reader.is_buried(address.topic, place.log_offset)
        if is_buried or self._service.is_over(address.topic, record.born_ms):
            return None
        return _Pending(record, address, place, level)

    def _looked_up(self, look: _Look) -> Steps[DelayedEntry | None]:
        """Return the place that `look` finds; its record is in memory then."""
        place = yield from looked_up(self._store, look)
        if place is not None and place.size:
            yield from warm(self._store, [place.log_offset])
        return place

    def _places_from(self, cursor: int) -> Iterator[tuple[int, int, _Look]]:
        """(cursor, level, what finds the place) of everything that may be pending, from a cursor on."""
        lines: list[Line] = sorted(self._service.book.lines.values(), key=lambda line: line.level)
        begin_level, begin = cursor // _OFFSETS, cursor % _OFFSETS
        for line in lines:
            if line.level >= begin_level:
                start = max(line.next, begin if line.level == begin_level else 0)
                for offset in range(start, line.end):
                    look = partial(self._place_in_line, line.queue_id, offset)
                    yield line.level * _OFFSETS + offset, line.level, look
        start = max(self._service.book.first_offset, begin if begin_level == _BEHIND_LEVELS else 0)
        for offset in range(start, self._service.book.timer_end):
            yield _BEHIND_LEVELS * _OFFSETS + offset, 0, partial(self._service.places.of_timer, offset)

    def _place_in_line(self, queue_id: int, offset: int) -> DelayedEntry | None:
        entry = self._store.reader.entry(names.SCHEDULE_TOPIC, queue_id, offset)
        return None if entry is None else DelayedEntry(entry[0], entry[1], offset, entry[2])

    def _shown(self, one: _Pending) -> dict[str, object]:
        pairs = properties.parse(one.record.properties)
        return {
            "id": one.address.unique_key.decode("utf-8", "replace"),
            "topic": one.address.topic,
            "queueId": one.address.queue_id,
            "level": one.level,
            "dueMs": one.place.due_ms,
            "storedMs": one.record.store_ms,
            "keys": pairs.get("KEYS", ""),
            "tags": pairs.get("TAGS", ""),
            "messageId": records.offset_message_id(self._store.store_host, one.record.log_offset),
        }


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def _busy(command: Command) -> Command:
    remark = "slaves lack messages that were answered, so it is not known whether this one waits; ask again"
    return reply(command, ResponseCode.SYSTEM_BUSY, remark)


def _log_offset(text: str) -> int | None:
    try:
        return records.parse_offset_message_id(text)[2]
    except ValueError:
        return None
