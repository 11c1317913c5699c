"""Keeping messages of HTTP queues that live from retention, which knows only the age of segments.

A message of such a queue may live longer than the log is kept.  So what the queues' group (`httpqueue.GROUP`) can still
get is owed: its segment stays until the message was moved to the log's end.  Messages that are acknowledged, or whose
life is over, keep nothing.

    look    every ten seconds, each second while segments are about to go: the group's position in each queue goes on
            behind messages whose life is over, and the first message behind it says what is owed
    move    messages in a segment that is about to go: a lease of theirs that has ended (`LeaseRecord.is_move`) is
            stored in a revive queue, and `revive` copies them into the retry topic of the queue

A move is a lease, so whatever crashes, each message is delivered again and none after its acknowledgement.  Its copy
keeps queue number, birth and counts; it comes before newer messages of its priority.  Messages in open leases keep
their segment until the lease ends, and are copied then anyway.

Bounds: a message is moved once for each time that its segment goes, at most _MOVED_AT_ONCE messages or some 8 MiB of a
queue at a time.  Moves pass a gate that a full disk has shut, as carried delayed messages do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate

from gantry.errors import Refusal
from gantry.model import httpqueue
from gantry.model.topic import TopicConfig
from gantry.pop import handle, records
from gantry.pop.records import LeaseKey, LeaseRecord
from gantry.pop.revive import Reviver
from gantry.pop.service import PopService
from gantry.store import births

_PERIOD_S = 10.0
_QUEUES_AT_ONCE = 16
_EXPIRED_AT_ONCE = 256
_MOVED_AT_ONCE = 256
_READ_BYTES_MAX = 8 << 20  # of one piece, but for its first message
_READS_MAX = 64  # pieces that the cold reader is asked for at a time
_NOTHING = 1 << 62
_NEVER_MS = -_NOTHING  # no message was born before

_Queue = tuple[str, int]


class QueueKeeper:
    """Looks after the queues of an active master.  Loop thread only."""

    def __init__(self, service: PopService, reviver: Reviver) -> None:
        self._service = service
        self._context = service.context
        self._reviver = reviver
        self._topics: dict[str, None] = {}
        self._owed_from = 0
        self._look_at_s = 0.0
        self._reading: set[_Queue] = set()

    def begin(self) -> None:
        """Keep everything until the first look."""
        context = self._context
        for config in context.topics.all():
            self._topic_changed(config.name)
        context.topics.on_change(self._topic_changed)
        context.store.retention.owe(lambda: self._owed_from if self._topics else None)

    def _topic_changed(self, name: str) -> None:
        if not self._context.topics.is_http_queue(name):
            self._topics.pop(name, None)
        elif name not in self._topics:
            self._topics[name] = None
            self._owed_from = 0  # it may have messages from before it was a queue
            self._look_at_s = 0.0

    def tick(self) -> Iterator[None]:
        """Look, in slices, when it is time."""
        now_s, limit = self._context.clock.monotonic(), self._context.store.retention.carry_below()
        if not self._topics or (now_s < self._look_at_s and not limit):
            return
        self._look_at_s = now_s + _PERIOD_S
        owed_from, topics = self._context.store.dispatched.offset, list(self._topics)  # what comes meanwhile is behind
        for number, (topic, queue) in enumerate(self._queues(topics), 1):
            owed_from = min(owed_from, self._look(topic, queue, limit))
            if number % _QUEUES_AT_ONCE == 0:
                yield
        if all(topic in topics for topic in self._topics):
            self._owed_from = owed_from

    def _queues(self, topics: list[str]) -> Iterator[tuple[str, _Queue]]:
        """Yield each queue with messages behind the group's position, with the topic that it belongs to."""
        for topic in topics:
            for flag in (handle.NORMAL, handle.RETRY_V1, handle.RETRY_V2):
                config = self._context.topics.get(handle.real_topic(topic, httpqueue.GROUP, flag))
                for queue_id in range(config.read_queues if isinstance(config, TopicConfig) else 0):
                    if config is not None:
                        yield topic, (config.name, queue_id)

    def _look(self, topic: str, queue: _Queue, limit: int) -> int:
        """Return the log offset of the first message that can be popped and lives; begin to move it when its segment is
        about to go.
        """
        positions, reader, group = self._service.positions, self._context.store.reader, httpqueue.GROUP
        low, high = self._context.store.queue_range(*queue) or (0, 0)
        known = positions.of((group, *queue))
        at = low if known is None else max(known, low)
        if at >= high:
            return _NOTHING
        from_ms = self._service.lives.from_ms(topic)
        oldest_ms = _NEVER_MS if from_ms is None else from_ms
        behind = births.behind_older(reader, *queue, at, oldest_ms, 1)  # nearly always the first message lives
        if behind > at:
            behind = births.behind_older(reader, *queue, behind, oldest_ms, _EXPIRED_AT_ONCE)
            self._pass(queue, behind, low if known is None else None)
            self._look_at_s = 0.0
        first = reader.entry(*queue, behind)
        if first is None or not reader.is_place(*first[:2]):
            return _NOTHING if behind >= high else 0
        if limit > first[0] or (from_ms is not None and reader.is_cold([first[:2]])):
            places = reader.places(*queue, behind, _MOVED_AT_ONCE)
            self._read(topic, queue, [place[:2] for place in places if reader.is_place(*place[:2])])
        return first[0]

    def _pass(self, queue: _Queue, offset: int, begin: int | None) -> None:
        """Let the group go on at this offset; begin: where it begins if it never read the queue."""
        positions, name = self._service.positions, (httpqueue.GROUP, *queue)
        if begin is not None:
            positions.begin(name, begin)
        # Saved when the log is kept: an offset never gets ahead of the leases of a move.
        positions.move(name, offset)

    def _read(self, topic: str, queue: _Queue, places: list[tuple[int, int]]) -> None:
        """Have messages read from the disk, then move those whose segment is about to go."""
        if queue in self._reading or len(self._reading) >= _READS_MAX:
            return
        self._reading.add(queue)
        sizes = accumulate(size for _, size in places)
        places = places[: max(1, sum(total <= _READ_BYTES_MAX for total in sizes))]
        self._context.store.bring_in(places, partial(self._came, topic, queue, places))

    def _came(self, topic: str, queue: _Queue, places: Sequence[tuple[int, int]]) -> None:
        self._reading.discard(queue)
        limit = self._context.store.retention.carry_below()
        if limit or not self._context.store.reader.is_cold(places[:1]):
            self._look_at_s = 0.0  # else memory is so short that the next look would only read the same again
        if limit and self._context.may_serve() and self._context.topics.is_http_queue(topic):
            self.move(topic, queue, min(limit, places[-1][0] + 1))

    def move(self, topic: str, queue: _Queue, limit: int) -> int:
        """Move messages from the group's position on whose records are below this log offset and live; return how many.

        Their records are in memory.
        """
        context, reader = self._context, self._context.store.reader
        name, (low, _) = (httpqueue.GROUP, *queue), context.store.queue_range(*queue) or (0, 0)
        known = self._service.positions.of(name)
        at = low if known is None else max(known, low)
        from_ms, found, first = self._service.lives.from_ms(topic), list[int](), 0
        for offset, (log_offset, size, _) in enumerate(reader.places(*queue, at, _MOVED_AT_ONCE), at):
            if reader.is_place(log_offset, size):
                if log_offset >= limit:
                    break
                if from_ms is None or births.born_ms(reader, log_offset, size) >= from_ms:
                    first = first if found else log_offset
                    found.append(offset)
            at = offset + 1
        room = self._service.book.room(name)
        if len(found) > room:
            found, at = found[:room], found[room]
        if found and not self._lease(queue, found, first):
            return 0
        if at > (low if known is None else known):
            self._pass(queue, at, low if known is None else None)
        self._service.counts.moved += len(found)
        return len(found)

    def _lease(self, queue: _Queue, offsets: list[int], log_offset: int) -> bool:
        """Store leases of these messages that have ended, which `revive` handles at once."""
        service, context = self._service, self._context
        revive_queue = self._reviver.idle_queue()
        if revive_queue is None or context.groups.ensure(httpqueue.GROUP) is None:
            return False
        service.settle()  # what was acknowledged in this turn is not acknowledged again
        service.expect_leases()
        now_ms = context.clock.now_ms()
        made = []
        for number in range(0, len(offsets), records.COUNT_MAX):
            piece = tuple(offsets[number : number + records.COUNT_MAX])
            name = (httpqueue.GROUP, *queue)
            key = LeaseKey(*name, piece[0], service.book.pop_ms(name, piece[0], now_ms))
            made.append(LeaseRecord(key, now_ms, piece, "", service.generation(queue[0]), is_move=True))
        place, at = service.place(revive_queue), context.store.written.offset
        sends = [records.ended_message(lease, place, at) for lease in made]
        # Open in other leases when the group was set back; they must not deliver them again, also after a crash.
        older = service.book.overlaps((httpqueue.GROUP, *queue), offsets)
        sends += [service.moved(former, common) for former, common in older]
        if isinstance(service.append(sends, is_owed=True), Refusal):
            return False
        for former, common in older:
            service.book.moved(former.key, common, former.end_ms, now_ms)
        for lease in made:
            service.enter(lease, revive_queue, log_offset)
        return True
