"""Ended leases: what is still open is delivered again, or becomes a dead letter.

The timer of delayed messages delivers each lease to a revive queue when it ends, once.  `run` handles these records in
the order of their queue: the open messages of the lease are copied to the group's retry topic of their topic (V1), or
to its dead-letter topic when the attempts are used up.  All copies of a lease are in one append, in the order of their
offsets, and each names the lease's record in the field for a prepared message.  So after a crash between the append and
the saved offset of the revive queue a start knows which copies were made (`recovery`).

A lease that came early (RocketMQ delivers them a second before their end) waits, and what is behind it in its queue.
One that a client keeps alive is stored again with a later end (`renews`), and its handles stay valid.  While the gate
is shut (a full disk) nothing is handled but leases by which the broker moves messages of HTTP queues (`keeping`);
the others stay open and may be acknowledged.

Copies of messages of an HTTP queue keep their queue number, which is their priority.  A message whose life is over is
dropped.

Messages far behind the end of the log are read by the cold reader first, so that the loop never waits for a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gantry.append.redelivery import MoveToDeadLetters, Retry, again_of, fate_of, moved_of, popped_from
from gantry.errors import Refusal
from gantry.leaves.leases import Key
from gantry.metadata.offsets import NOT_COMMITTED
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.pop import handle, records
from gantry.pop.book import OpenLease
from gantry.pop.counts import LEASE
from gantry.pop.delivered import leases_of
from gantry.pop.records import LeaseRecord
from gantry.pop.service import PopService
from gantry.store.coldplaces import cold_at

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Entry, Record

_BATCH = 64
_BYTES_MAX = 1 << 20
_READS_MAX = 2  # their queue entries, and the records; where memory is so short that they are gone, they are read here
_RETRY_S = 0.5  # after a refused append
_REST_S = 5.0
_EARLY_S = 0.01

Renews = Callable[[OpenLease, int], int | None]
_Passed = list[tuple[Key, bool] | None]


class _Ended(NamedTuple):
    """A lease that has ended, the log offset of its record, and the places of its open messages."""

    lease: OpenLease
    log_offset: int
    places: list[tuple[int, int, int]]  # log offset, size, queue offset


class _Reads(NamedTuple):
    """Of the records from a queue offset on: how often the cold reader was asked for them, and whether it is now."""

    offset: int
    times: int
    is_reading: bool


class Reviver:
    """Handles the records of the revive queues.  Loop thread only."""

    def __init__(self, service: PopService) -> None:
        self.renews: Renews = lambda lease, now_ms: None  # when a lease ends instead, in ms; None: it ends now
        self.on_work: Callable[[], object] = lambda: None  # called when a rest ends early
        self.on_copies: Callable[[str, str], object] = lambda group, topic: None  # the normal topic of new retries
        self._service = service
        self._context = service.context
        self._next: dict[int, int] = {}  # by revive queue: the next record
        self._handled: dict[int, int] = {}  # what was saved last
        self._quiet_until_s = 0.0
        self._coming: dict[int, int] = {}  # by revive queue: the record whose messages are being read
        self._came: dict[int, int] = {}  # those that were read
        self._reads: dict[int, _Reads] = {}  # by revive queue: of its own records
        self._first: dict[int, tuple[int, int]] = {}  # by revive queue: offset and store time of a record that waits

    def begin(self, following: dict[int, int]) -> None:
        """Go on at these records of the revive queues; the book is read back."""
        self._next = dict(following)
        self._handled = dict(following)
        self._service.unhandled = self._first_unhandled
        if following or self._service.book.leases:
            self._listen()
        else:
            self._service.on_first = self._listen  # a broker without pops does without a call for every turn

    def _listen(self) -> None:
        self._context.store.on_dispatched(self._on_dispatched)

    def idle_queue(self) -> int | None:
        """Return a revive queue in which everything is handled; None when there is none."""
        store, topic = self._context.store, self._service.revive_topic
        for queue_id in range(records.REVIVE_QUEUES):
            low, high = store.queue_range(topic, queue_id) or (0, 0)
            if self._next.get(queue_id, low) >= high:
                return queue_id
        return None

    @property
    def following(self) -> dict[int, int]:
        """The next record of each revive queue."""
        return self._next

    def rest_s(self) -> float:
        """Return for how many seconds nothing will have to be done."""
        return max(0.0, self._quiet_until_s - self._context.clock.monotonic())

    def _on_dispatched(self, topic: str, queue_id: int, end: int, entries: list[Entry]) -> None:
        if topic == self._service.revive_topic:
            self._next.setdefault(queue_id, end - len(entries))
            self._wake()

    def _wake(self) -> None:
        self._quiet_until_s = 0.0
        self.on_work()

    def run(self) -> Iterator[None]:
        """Handle what has ended by now, in slices."""
        now_s = self._context.clock.monotonic()
        if self._quiet_until_s > now_s + _EARLY_S:
            return
        wait_s = _REST_S
        self._quiet_until_s = now_s + wait_s  # what comes meanwhile sets it back
        for queue_id in list(self._next):
            while (again_s := self._handle(queue_id)) == 0:
                yield
            wait_s = min(wait_s, again_s)
            self._save(queue_id)
            yield
        self._quiet_until_s = min(self._quiet_until_s, now_s + wait_s)

    def _handle(self, queue_id: int) -> float:
        """Handle some records of a queue; return 0 when there may be more, else for how many seconds to wait."""
        self._service.settle()
        store, topic = self._context.store, self._service.revive_topic
        start = self._next[queue_id]
        found = self._look(queue_id, start)
        if found is None:
            return _REST_S
        if not found:
            low = (store.queue_range(topic, queue_id) or (0, 0))[0]
            self._next[queue_id] = max(start, low)
            return 0 if low > start else _REST_S
        ended, passed, wait_s = self._gather(queue_id, start, found)
        if ended and not self._end(ended):
            return _RETRY_S
        self._next[queue_id] = start + len(passed)
        self._service.counts.handle_all(passed, queue_id)
        return wait_s

    def _look(self, queue_id: int, start: int) -> list[tuple[int, int, int]] | None:
        """Return the places of records from this one on; None when these are being read from the disk."""
        store, at = self._context.store, (self._service.revive_topic, queue_id, start, _BATCH)
        if store.reader.cold_entries(*at) is None:
            found = store.reader.places(*at)
            if not found or store.dispatched.offset - found[0][0] <= store.settings.warm_bytes:
                return found
        return store.reader.places(*at) if self._is_in(queue_id, start) else None

    def _is_in(self, queue_id: int, start: int) -> bool:
        """Return whether the records from this one on are in memory; otherwise they are being read."""
        reads = self._reads.get(queue_id)
        if reads is None or reads.offset != start:
            reads = _Reads(start, 0, False)
        if reads.times == _READS_MAX and not reads.is_reading:
            return True
        store = self._context.store
        cold = None if reads.is_reading else cold_at(store, self._service.revive_topic, queue_id, start, _BATCH)
        if cold is None:
            return not reads.is_reading
        self._reads[queue_id] = _Reads(start, reads.times + 1, True)

        def came() -> None:
            self._reads[queue_id] = _Reads(start, reads.times + 1, False)
            self._wake()

        store.bring_in(cold, came)
        return False

    def waiting_since(self, queue_id: int) -> int | None:
        """Return the store time in ms of a queue's first record that is not handled; None when there is none, or it is
        on the disk and not looked at yet.
        """
        following = self._next[queue_id]
        offset, stored_ms = self._first.get(queue_id, (-1, 0))
        if offset == following:
            return stored_ms
        store, topic = self._context.store, self._service.revive_topic
        if cold_at(store, topic, queue_id, following, 1) is not None:
            return None
        return store.reader.store_time(topic, queue_id, following)

    def _gather(
        self, queue_id: int, start: int, found: list[tuple[int, int, int]]
    ) -> tuple[list[_Ended], _Passed, float]:
        """Return leases that end, the records up to there, and for how many seconds the next one has to wait."""
        ended: list[_Ended] = []
        ending: set[Key] = set()  # a lease may have been delivered twice
        passed: _Passed = []
        total = 0
        known = leases_of(self._context.store.reader, found)
        for offset, (place, named) in enumerate(zip(found, known, strict=True), start):
            if named is not None and (not named[1] or self._service.book.find(named[0]) is None):
                passed.append(named)  # nothing is open: most leases were acknowledged
                continue
            record = self._context.store.reader.record(place)
            named = None if record is None else records.named(record.properties, record.body)
            lease, wait_s = self._ends(record, named)
            if wait_s:
                self._first[queue_id] = offset, 0 if record is None else record.store_ms
                return ended, passed, wait_s
            if lease is not None and lease.key not in ending:
                if ended and ended[0].lease.is_move is not lease.is_move:
                    return ended, passed, 0.0  # moves are stored on a full disk too, other leases wait for room
                log_offset = place[0]
                one = _Ended(lease, log_offset, self._places(lease))
                if self._is_cold(one, queue_id, offset):
                    return ended, passed, _REST_S
                ending.add(lease.key)
                ended.append(one)
                total += sum([size for _, size, _ in one.places])
            passed.append(named)
            if total > _BYTES_MAX:
                break
        return ended, passed, 0.0

    def _ends(self, record: Record | None, named: records.Named | None) -> tuple[OpenLease | None, float]:
        """Return the open lease that ends with this record, and for how many seconds it has to wait."""
        if record is None or named is None or not named[1]:
            return None, 0.0
        lease = self._service.book.find(named[0])
        if lease is None:
            return None, 0.0
        read = records.read(record.properties, record.body)
        if not isinstance(read, LeaseRecord) or read.end_ms < lease.end_ms:
            return None, 0.0  # damaged, or it was renewed
        # Cut off: a clock that was set back by hours must not stop a queue.
        early_ms = lease.end_ms - self._context.clock.now_ms()
        return (lease, 0.0) if not 0 < early_ms <= records.EARLY_MS else (None, early_ms / 1000)

    def _places(self, lease: OpenLease) -> list[tuple[int, int, int]]:
        reader, key = self._context.store.reader, lease.key
        if self._is_gone(lease):
            return []
        found = [(offset, reader.entry(key.topic, key.queue_id, offset)) for offset in lease.open_offsets()]
        return [(entry[0], entry[1], offset) for offset, entry in found if entry is not None]

    def _is_gone(self, lease: OpenLease) -> bool:
        context, key = self._context, lease.key
        if context.topics.get(key.topic) is None or context.groups.get(key.group) is None:
            return True
        return self._service.generation(key.topic) > lease.generation

    def _is_cold(self, ended: _Ended, queue_id: int, offset: int) -> bool:
        """Return whether messages have to be read from the disk first; then that has begun."""
        store = self._context.store
        if self._came.get(queue_id) == offset:
            return False
        warm_from = store.dispatched.offset - store.settings.warm_bytes
        cold = [place[:2] for place in ended.places if place[0] < warm_from]
        if cold and self._coming.get(queue_id) != offset:
            self._coming[queue_id] = offset

            def came() -> None:
                self._came[queue_id] = offset
                self._wake()

            store.bring_in(cold, came)
        return bool(cold)

    def _end(self, ended: list[_Ended]) -> bool:
        """Copy what is open and end the leases; False when that is not possible now."""
        sends: list[Send] = []
        retried: dict[tuple[str, str], int] = {}
        revived = dead = lost = 0
        counts = self._service.counts
        now_ms = self._context.clock.now_ms()
        renewed = []
        for one in ended:
            until_ms = self.renews(one.lease, now_ms) if one.places else None
            if until_ms is not None:
                renewed.append((one.lease, until_ms))
                sends.append(self._renewal(one.lease, until_ms))
                continue
            copies, expired = self._copies(one)
            counts.expired += expired
            lost += len(one.lease.open_offsets()) - len(copies) - expired
            for copy, fate in copies:
                is_dead = isinstance(fate, MoveToDeadLetters)
                dead, revived = dead + is_dead, revived + (not is_dead)
                at = one.lease.key.group, one.lease.key.topic
                retried[at] = retried.get(at, 0) + (not is_dead)
                sends.append(copy)
        if sends:
            end = self._service.append(sends, is_owed=all(one.lease.is_move for one in ended))
            if isinstance(end, Refusal):
                self._context.say("revive", f"ended leases wait, and are tried again: {end.remark}")
                return False
        for lease, until_ms in renewed:
            self._service.book.renew(lease, until_ms)
            counts.store(lease.key, LEASE)
        for one in ended:
            if not any(one.lease is lease for lease, _ in renewed):
                self._service.book.end(one.lease)
        counts.revived, counts.dead, counts.lost = counts.revived + revived, counts.dead + dead, counts.lost + lost
        for (group, topic), count in retried.items():
            if count:
                counts.retry(group, topic, count)
            self.on_copies(group, handle.normal_topic(topic, group)[0])
        return True

    def _renewal(self, lease: OpenLease, end_ms: int) -> Send:
        offsets = tuple(lease.open_offsets())
        record = LeaseRecord(lease.key, end_ms, offsets, lease.owner, lease.generation, True, pop_name=lease.pop_name)
        return records.lease_message(record, self._service.place(lease.revive_queue))

    def _copies(self, ended: _Ended) -> tuple[list[tuple[Send, Retry | MoveToDeadLetters]], int]:
        """Return the copies of what is open, and how many messages have none because their life is over."""
        context, key = self._context, ended.lease.key
        times_max = context.groups.retry_times_max(key.group)
        topic, flag = handle.normal_topic(key.topic, key.group)
        born_from_ms = self._service.lives.from_ms(topic)
        made: list[tuple[Send, Retry | MoveToDeadLetters]] = []
        expired = 0
        for log_offset, size, _ in ended.places:
            record = context.store.reader.record((log_offset, size, 0))
            if record is None or times_max is None:
                continue
            if born_from_ms is not None and record.born_ms < born_from_ms:
                expired += 1
                continue
            fate = Retry(0) if ended.lease.is_move else fate_of(record.reconsume_times, times_max, 0)
            target = self.target(key.group, key.topic if flag else handle.retry_topic(topic, key.group), fate)
            if ended.lease.is_move:
                copy = moved_of(record, popped_from(record, topic), target)
            else:
                copy = again_of(record, popped_from(record, topic), fate, target, key.pop_ms)
            if isinstance(fate, Retry) and context.topics.is_http_queue(topic):
                copy.queue_id = self._with_queue(target, key.queue_id, topic)
            copy.prepared_offset = ended.log_offset
            made.append((copy, fate))
        return made, expired

    def target(self, group: str, retry_topic: str, fate: Retry | MoveToDeadLetters) -> str:
        """Return the topic of a copy, which is made when it is missing."""
        topics, offsets = self._context.topics, self._context.offsets
        name = names.dlq_topic(group) if isinstance(fate, MoveToDeadLetters) else retry_topic
        if topics.get(name) is None:
            topics.ensure(TopicConfig(name, read_queues=1, write_queues=1))
            if isinstance(fate, Retry) and offsets.query(group, name, 0) == NOT_COMMITTED:
                offsets.commit(group, name, 0, 0)  # RocketMQ
        return name

    def _with_queue(self, retry_topic: str, queue_id: int, topic: str) -> int:
        """Return the queue, and let the retry topic of an HTTP queue have it, and as many queues as its topic."""
        topics = self._context.topics
        known, queues = topics.get(retry_topic), max(topics.queues_of(topic), queue_id + 1)
        if known is not None and min(known.read_queues, known.write_queues) < queues:
            topics.put(replace(known, read_queues=queues, write_queues=queues))
        return queue_id

    def _save(self, queue_id: int) -> None:
        following = self._next[queue_id]
        if following > self._handled.get(queue_id, 0):
            self._handled[queue_id] = following
            queue = (names.REVIVE_GROUP, self._service.revive_topic, queue_id)
            self._service.positions.save_later(queue, following - 1)

    def _first_unhandled(self) -> int | None:
        reader, topic = self._context.store.reader, self._service.revive_topic
        found = [reader.entry(topic, queue_id, offset) for queue_id, offset in self._next.items()]
        return min([entry[0] for entry in found if entry is not None], default=None)
