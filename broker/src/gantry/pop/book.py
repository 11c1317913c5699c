"""The book of open leases: which messages are popped and not acknowledged, and which handle of each is valid.

A lease is some messages of one queue that were popped together for one group.  Each of them is open until one of these
happens, and from then on its handle is not valid any more:

    it is acknowledged        `close`
    a newer lease has it      `add` closes it in the older one (its time was changed, or the group's offset set back)
    the lease ends            `end`: the caller put what is open into the retry topic

A lease ends when its record was delivered to the revive topic, not when a clock says so.  Of two leases with the same
message the one with the later pop time counts, in whichever order they are added; a lease that is added again with a
later end is renewed and keeps its handles.

A lease is forgotten when none of its messages is open: what a handle means then is read from the handle itself, see
`Verdict`.  So memory is bounded by the number of open messages: some 0.4 KB a lease and 40 bytes a message, and 100
more where handles were used that were not valid, or messages were leased again.  Of each
queue that was ever leased the newest pop time is kept, so that pop times grow also when the clock was set back: a start
may find leases that have ended, and they must not count more than newer ones.

This module uses no clock, no disk and no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from gantry.leaves.leases import Key
from gantry.pop.records import LeaseKey, LeaseRecord

MOVED_MAX = 100_000  # some 30 MB
Queue = tuple[str, str, int]
"""Group, topic, queue id."""


class Verdict(Enum):
    """What a handle means.

    OPEN    the message can be acknowledged
    DONE    it was acknowledged with this handle before, as far as is known
    STALE   it was put into the retry topic, or a newer handle has it or had it
    """

    OPEN = "open"
    DONE = "done"
    STALE = "stale"


class OpenLease:
    """One open lease; `open` has a bit for each of its offsets, set while that message is open."""

    __slots__ = (
        "all",
        "births_ms",
        "end_ms",
        "generation",
        "is_move",
        "key",
        "offsets",
        "open",
        "owner",
        "pop_name",
        "revive_queue",
    )

    def __init__(self, record: LeaseRecord, revive_queue: int) -> None:
        self.key = record.key
        self.offsets = record.offsets
        self.all = self.open = (1 << len(record.offsets)) - 1
        self.end_ms = record.end_ms
        self.owner = record.owner
        self.pop_name = record.pop_name
        self.generation = record.generation
        self.is_move = record.is_move
        self.revive_queue = revive_queue
        self.births_ms: tuple[int, ...] = ()  # of an HTTP queue: when each message was born, where that was read

    @property
    def is_without_gaps(self) -> bool:
        """Return whether its offsets follow each other from `start` on: bit i is that of start + i."""
        own, start = self.offsets, self.key.start
        return own[0] == start and own[-1] - start == len(own) - 1

    def open_offsets(self) -> list[int]:
        """Return the offsets of its open messages, ascending."""
        return self.offsets_of(self.open)

    def offsets_of(self, bits: int) -> list[int]:
        """Return the offsets of these bits, ascending."""
        if bits == self.all:
            return list(self.offsets)
        return [offset for number, offset in enumerate(self.offsets) if bits >> number & 1]

    def mask(self, offsets: Sequence[int]) -> int:
        """Return the bits of those of these offsets that it has."""
        own = self.offsets
        if len(offsets) == len(own) and tuple(offsets) == own:
            return self.all
        first, count, bits = own[0], len(own), 0
        if own[-1] - first == count - 1:  # nothing lies between them
            for offset in offsets:
                if 0 <= offset - first < count:
                    bits |= 1 << (offset - first)
            return bits
        places = {offset: number for number, offset in enumerate(own)}
        for offset in offsets:
            if offset in places:
                bits |= 1 << places[offset]
        return bits


class _Queue:
    """The open leases of one queue, by (start, pop time)."""

    __slots__ = ("_holders", "leases", "open")

    def __init__(self) -> None:
        self.leases: dict[tuple[int, int], OpenLease] = {}
        self.open = 0  # messages
        # The lease of each open message.  Most queues never need it, so it is made when it is asked for first.
        self._holders: dict[int, OpenLease] | None = None

    def holding(self, offsets: Sequence[int]) -> dict[OpenLease, list[int]]:
        """Return the leases that have any of these offsets open, with those offsets."""
        holders = self._holders
        if holders is None:
            holders = self._holders = {at: one for one in self.leases.values() for at in one.open_offsets()}
        found: dict[OpenLease, list[int]] = {}
        for offset in offsets:
            one = holders.get(offset)
            if one is not None:
                found.setdefault(one, []).append(offset)
        return found

    def opened(self, lease: OpenLease) -> None:
        """Note that all open messages of a lease are open from now on."""
        if self._holders is not None:
            self._holders.update(dict.fromkeys(lease.open_offsets(), lease))

    def closed(self, lease: OpenLease, bits: int) -> None:
        """Note that these messages of a lease are not open any more."""
        if self._holders is not None:
            for offset in lease.offsets_of(bits):
                self._holders.pop(offset, None)


class LeaseBook:
    """All open leases.  Loop thread only."""

    def __init__(self, queue_max: int, total_max: int) -> None:
        """queue_max: open messages of one group in one queue; total_max: of all."""
        self.open = 0  # messages
        self.leases = 0
        # A queue was full and is not any more: group, topic, queue id.
        self.on_room: Callable[[str, str, int], object] = lambda group, topic, queue_id: None
        # So many messages of a lease, those of these bits, are open from now on (1) or not any more (-1).
        self.on_change: Callable[[OpenLease, int, int], object] = lambda lease, bits, sign: None
        self._queue_max = queue_max
        self._total_max = total_max
        self._queues: dict[Queue, _Queue] = {}
        # Of every queue that was leased: no offset from the first number on ever was, and the newest pop time.
        self._leased: dict[Queue, tuple[int, int]] = {}
        # Messages that left a lease for a newer one, with the end of the former: their older handles are never DONE.
        self._moved: dict[tuple[LeaseKey, int], int] = {}

    def room(self, queue: Queue) -> int:
        """Return how many more messages of this queue may be leased."""
        known = self._queues.get(queue)
        return max(0, min(self._total_max - self.open, self._queue_max - (0 if known is None else known.open)))

    def open_in(self, queue: Queue) -> int:
        """Return how many messages of this queue are open."""
        known = self._queues.get(queue)
        return 0 if known is None else known.open

    def pop_ms(self, queue: Queue, start: int, now_ms: int) -> int:
        """Return the pop time of a new lease that begins at this offset: later than that of any lease that it may share
        messages with, also when the clock was set back.
        """
        behind, newest_ms = self._leased.get(queue, (0, 0))
        return now_ms if start >= behind else max(now_ms, newest_ms + 1)

    def leased(self, record: LeaseRecord) -> None:
        """Note that a lease was made, whether it is open or not: later ones of its messages have later pop times."""
        queue = record.key[:3]
        behind, newest_ms = self._leased.get(queue, (0, 0))
        self._leased[queue] = max(behind, record.offsets[-1] + 1), max(newest_ms, record.key.pop_ms)

    def overlaps(self, queue: Queue, offsets: Sequence[int]) -> list[tuple[OpenLease, list[int]]]:
        """Return the open leases that have any of these ascending offsets open, with those offsets."""
        known = self._queues.get(queue)
        if known is None or offsets[0] >= self._leased[queue][0]:
            return []
        return list(known.holding(offsets).items())

    def add(self, record: LeaseRecord, revive_queue: int) -> OpenLease | None:
        """Enter a lease, and close its messages in older ones; None when newer ones have all its messages."""
        key = record.key
        queue = self._queues.setdefault(key[:3], _Queue())
        known = queue.leases.get(key[3:])
        if known is not None:
            known.end_ms = max(known.end_ms, record.end_ms)
            return known
        lease = OpenLease(record, revive_queue)
        if record.offsets[0] < self._leased.get(key[:3], (0, 0))[0]:
            self._supersede(queue, lease)
            self._queues[key[:3]] = queue  # forgotten when that closed its last lease
        self.leased(record)
        if not lease.open:
            self._tidy(key[:3], queue)
            return None
        queue.leases[key[3:]] = lease
        queue.opened(lease)
        self.leases += 1
        self._count(queue, lease.open.bit_count())
        self.on_change(lease, lease.open, 1)
        return lease

    def _supersede(self, queue: _Queue, lease: OpenLease) -> None:
        for other, common in queue.holding(lease.offsets).items():
            if other.key.pop_ms <= lease.key.pop_ms:
                self._close(queue, other, other.mask(common))
            else:
                lease.open &= ~lease.mask(common)

    def find(self, key: Key) -> OpenLease | None:
        """Return an open lease; None when none of its messages is open."""
        queue = self._queues.get(key[:3])
        return None if queue is None else queue.leases.get(key[3:])

    def verdict(self, key: LeaseKey, offset: int, end_ms: int, now_ms: int) -> Verdict:
        """Return what a handle means; end_ms: when its lease would end by its own words."""
        lease = self.find(key)
        if lease is not None and lease.open & lease.mask((offset,)):
            return Verdict.OPEN
        if (key, offset) in self._moved or self.overlaps(key[:3], (offset,)):
            return Verdict.STALE
        return Verdict.DONE if now_ms < (end_ms if lease is None else lease.end_ms) else Verdict.STALE

    def moved(self, key: LeaseKey, offsets: Sequence[int], end_ms: int, now_ms: int) -> None:
        """Note that a newer lease has messages of a lease that would end at this time.

        Beyond `MOVED_MAX` the oldest are forgotten: their handles are taken for DONE until that time.
        """
        while self._moved:
            oldest = next(iter(self._moved))
            if self._moved[oldest] > now_ms and len(self._moved) < MOVED_MAX:
                break
            del self._moved[oldest]
        self._moved.update(dict.fromkeys([(key, offset) for offset in offsets], end_ms))

    def close(self, lease: OpenLease, offsets: Sequence[int]) -> list[int]:
        """Close messages of an open lease; return the offsets of those that were open, ascending."""
        queue = self._queues[lease.key[:3]]
        bits = lease.mask(offsets) & lease.open
        closed = lease.offsets_of(bits)
        self._close(queue, lease, bits)
        return closed

    def _close(self, queue: _Queue, lease: OpenLease, bits: int) -> None:
        bits &= lease.open
        lease.open &= ~bits
        queue.closed(lease, bits)
        is_room = queue.open >= self._queue_max > queue.open - bits.bit_count()
        self._count(queue, -bits.bit_count())
        self.on_change(lease, bits, -1)
        if not lease.open:
            del queue.leases[lease.key[3:]]
            self.leases -= 1
            self._tidy(lease.key[:3], queue)
        if is_room:
            self.on_room(*lease.key[:3])

    def renew(self, lease: OpenLease, end_ms: int) -> None:
        """Let an open lease end later; its handles stay valid."""
        lease.end_ms = max(lease.end_ms, end_ms)

    def end(self, lease: OpenLease) -> None:
        """Forget a lease: its open messages are in the retry topic, or gone."""
        queue = self._queues.get(lease.key[:3])
        if queue is not None and queue.leases.get(lease.key[3:]) is lease:
            self._close(queue, lease, lease.open)

    def forget(self, is_gone: Callable[[str, str, int], bool]) -> int:
        """Forget all leases of queues (group, topic, queue id) that are gone; return how many messages were open."""
        self._leased = {queue: one for queue, one in self._leased.items() if not is_gone(*queue)}
        gone = [queue for queue in self._queues if is_gone(*queue)]
        count = 0
        for queue in gone:
            known = self._queues.pop(queue)
            count += known.open
            self.leases -= len(known.leases)
            for lease in known.leases.values():
                self.on_change(lease, lease.open, -1)
        self.open -= count
        return count

    def queues(self) -> Iterator[tuple[Queue, int]]:
        """Yield each queue with open leases and how many messages are open there."""
        for queue, known in self._queues.items():
            yield queue, known.open

    def of(self, queue: Queue) -> list[OpenLease]:
        """Return the open leases of a queue."""
        known = self._queues.get(queue)
        return [] if known is None else list(known.leases.values())

    def lowest(self, queue: Queue) -> int:
        """Return the lowest offset of a lease of this queue, which has open leases."""
        return min(lease.offsets[0] for lease in self._queues[queue].leases.values())

    def all(self) -> Iterator[OpenLease]:
        """Yield every open lease."""
        for queue in self._queues.values():
            yield from queue.leases.values()

    def _count(self, queue: _Queue, messages: int) -> None:
        queue.open += messages
        self.open += messages

    def _tidy(self, name: Queue, queue: _Queue) -> None:
        if not queue.leases:
            self._queues.pop(name, None)
