"""Leases of popped messages: their owner, and the way by which they get into the log.

A pop, an acknowledgement or a change of time appends records (`records`) and changes the book in the same turn.  What
is answered waits until the records are confirmed; what may be forgotten waits too (`positions`).  Nothing here looks at
a clock to end a lease: the delivery of its record does that (`revive`).

Retention keeps the messages of open leases, and records of the revive queues that were not handled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.append.writing import append_copies
from gantry.clock import SteadyClock
from gantry.errors import Refusal
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import Offsets
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.starts import GroupStarts
from gantry.metadata.topics import Topics
from gantry.pop import records
from gantry.pop.book import LeaseBook, OpenLease
from gantry.pop.counts import ACK, LEASE, PopCounts
from gantry.pop.lives import Lives
from gantry.pop.positions import Positions
from gantry.pop.records import AckRecord, LeaseKey, LeaseRecord, Place
from gantry.store.coldplaces import begins_at
from gantry.store.store import Store

if TYPE_CHECKING:
    from gantry.append.acks import Acks
    from gantry.append.admit import WriteGate
    from gantry.leaves.frames import Send

_OWED_AT_ONCE = 256
_ACKS_AT_ONCE = 64
_NOTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class PopRules:
    """Names and limits of pops; `from_retry_share`: how often, from 0 to 1, the retry topic is read first."""

    broker: str
    cluster: str
    has_times: bool = True
    invisible_ms_max: int = 3 * 86_400_000
    leases_max: int = 10_000
    leases_total_max: int = 1_000_000
    from_retry_share: float = 0.2
    bytes_max: int = 256 << 10

    @property
    def revive_topic(self) -> str:
        """Return the topic to which leases are delivered when they end."""
        return records.revive_topic(self.cluster)


@dataclass(frozen=True, slots=True)
class PopContext:
    """The parts of a broker that pops work with."""

    store: Store
    topics: Topics
    groups: Groups
    offsets: Offsets
    acks: Acks
    gate: WriteGate
    clock: SteadyClock
    rules: PopRules
    say: Callable[[str, str], object]
    starts: GroupStarts
    firsts: SavedTogether  # the saves of groups' first offsets in queues
    may_serve: Callable[[], bool] = lambda: True


class PopService:
    """Owner of the book and the positions.  Loop thread only."""

    def __init__(self, context: PopContext) -> None:
        rules = context.rules
        self.context = context
        self.rules = rules
        self.revive_topic = rules.revive_topic
        self.book = LeaseBook(rules.leases_max, rules.leases_total_max)
        self.lives = Lives(context.store, context.topics, context.clock)
        self.positions = Positions(context.store, context.offsets)
        self.counts = PopCounts(self._exist)
        self.unhandled: Callable[[], int | None] = lambda: None  # log offset of the first record that `revive` needs
        self.on_first: Callable[[], object] | None = None  # called with the first lease
        # Appends the acknowledgements that were gathered in this turn, and these records behind them.
        self.append_with_acks: Callable[[Sequence[Send]], int | Refusal] = self.append
        self.reads_births = False  # leases that a start reads back may have messages far from memory
        # So many messages of a lease of an HTTP queue, those of these bits, are open (1) or not any more (-1).
        self.on_leased: Callable[[OpenLease, int, int], object] = lambda lease, bits, sign: None
        self.book.on_change = self._changed
        self.owed: list[Send] = []  # acknowledgements that a crash cut off; appended before anything else
        self._turn = 0
        self._owed_from = _NOTHING  # no message of an open lease is below
        self._owed_next: int | None = None  # the same, while it is computed again

    def begin(self) -> None:
        """Keep what retention may not remove; the book was read back, and knows from where on."""
        self.reads_births = True
        self.context.store.retention.owe(self._owed)

    def next_queue(self) -> int:
        """Return the revive queue of the next pop, in turn."""
        self._turn = (self._turn + 1) % records.REVIVE_QUEUES
        return self._turn

    def place(self, revive_queue: int) -> Place:
        """Return where the records of a lease go now."""
        context = self.context
        now_ms = context.clock.now_ms()
        return Place(self.revive_topic, revive_queue, self.rules.broker, context.store.store_host, now_ms)

    def settle(self) -> None:
        """Append the acknowledgements that were gathered in this turn."""
        self.append_with_acks(())

    def append(self, sends: Sequence[Send], is_owed: bool = False, is_scanned: bool = False) -> int | Refusal:
        """Append a run; return the log's end behind it, or why nothing was written.

        is_owed: also on a full disk.  is_scanned: only leases and acknowledgements are in it, whose fields are scanned.
        """
        owed = self.owed[:_ACKS_AT_ONCE]
        end = append_copies(
            self.context.store, self.context.gate, [*owed, *sends] if owed else sends, is_scanned, is_owed
        )
        if owed and not isinstance(end, Refusal):
            del self.owed[: len(owed)]
        return end

    def lease(self, found: Sequence[tuple[LeaseRecord, int]], revive_queue: int) -> Refusal | None:
        """Make leases, each with the log offset of its first message; return why that is not possible, else None.

        Messages that are open in older leases (their group was set back) are closed there, also after a crash.
        """
        older = self._overlapped(found)
        if older:
            self.settle()  # what was acknowledged in this turn is not acknowledged again
            older = self._overlapped(found)
        place = self.place(revive_queue)
        sends = [records.lease_message(record, place) for record, _ in found]
        sends += [self.moved(lease, offsets) for lease, offsets in older]
        end = self.append_with_acks(sends)
        if isinstance(end, Refusal):
            return end
        for lease, offsets in older:
            self.counts.store(lease.key, ACK)
            self.book.moved(lease.key, offsets, lease.end_ms, place.now_ms)
        for record, log_offset in found:
            self.counts.store(record.key, LEASE)
            self.enter(record, revive_queue, log_offset)
        return None

    def _overlapped(self, found: Sequence[tuple[LeaseRecord, int]]) -> list[tuple[OpenLease, list[int]]]:
        """Return the open leases that have messages of these records, with the offsets of those messages."""
        return [one for record, _ in found for one in self.book.overlaps(record.key[:3], record.offsets)]

    def enter(self, record: LeaseRecord, revive_queue: int, log_offset: int) -> None:
        """Enter a lease whose record was appended; log_offset: of its first message."""
        self.expect_leases()
        self.book.add(record, revive_queue)
        self._owed_from = min(self._owed_from, log_offset)
        if self._owed_next is not None:
            self._owed_next = min(self._owed_next, log_offset)

    def expect_leases(self) -> None:
        """Call `on_first` if there was no lease yet; before a lease is appended that its revive queue gets at once."""
        if self.on_first is not None:
            first, self.on_first = self.on_first, None
            first()

    def _changed(self, lease: OpenLease, bits: int, sign: int) -> None:
        if sign > 0 and self.reads_births:
            self.lives.opened(lease)
        if lease.births_ms:
            self.on_leased(lease, bits, sign)

    def ack(self, lease: OpenLease, offsets: Sequence[int]) -> Send:
        """Return the record that acknowledges messages of an open lease."""
        record = AckRecord(lease.key, tuple(offsets))
        return records.ack_message(record, lease.end_ms, self.place(lease.revive_queue))

    def moved(self, lease: OpenLease, offsets: Sequence[int]) -> Send:
        """Return the record that takes messages out of an open lease because a newer one has them."""
        record = AckRecord(lease.key, tuple(offsets), is_moved=True)
        return records.ack_message(record, lease.end_ms, self.place(lease.revive_queue))

    def generation(self, topic: str) -> int:
        """Return the generation of a topic; leases of an earlier one are about other messages."""
        return self.context.store.generations.of(topic)

    def record_of(
        self, key: LeaseKey, offsets: tuple[int, ...], end_ms: int, owner: str = "", pop_name: str = ""
    ) -> LeaseRecord:
        """Return the record of a lease of the topic's present generation."""
        return LeaseRecord(key, end_ms, offsets, owner, self.generation(key.topic), pop_name=pop_name)

    def topic_deleted(self, topic: str) -> None:
        """Forget leases and positions of a deleted topic."""
        self._forget(lambda group, name, queue_id: name == topic)

    def group_changed(self, group: str) -> None:
        """Forget leases and positions of a group that was deleted."""
        if self.context.groups.get(group) is None:
            self.context.offsets.place_reset(f"@{group}")
            self._forget(lambda name, topic, queue_id: name == group)

    def _forget(self, is_gone: Callable[[str, str, int], bool]) -> None:
        self.counts.discarded += self.book.forget(is_gone)
        self.positions.forget(is_gone)
        self.counts.forget_gone()

    def _exist(self, group: str, topic: str) -> bool:
        return self.context.topics.get(topic) is not None and self.context.groups.get(group) is not None

    def tick(self) -> Iterator[None]:
        """Compute, in slices, up to where retention may remove messages."""
        self._owed_next = _NOTHING
        for number, (queue, _) in enumerate(list(self.book.queues()), 1):
            if self.book.open_in(queue):
                _, topic, queue_id = queue
                log_offset = begins_at(self.context.store, topic, queue_id, self.book.lowest(queue))
                if log_offset is not None:
                    self._owed_next = min(self._owed_next, log_offset)
            if number % _OWED_AT_ONCE == 0:
                yield
        self._owed_from, self._owed_next = self._owed_next, None
        offsets = self.context.offsets
        for is_changed in offsets.places.forget_below(self.context.store.reader.log_start):
            offsets.file.is_changed |= is_changed
            yield

    def _owed(self) -> int | None:
        unhandled = self.unhandled()
        owed = self._owed_from if unhandled is None else min(self._owed_from, unhandled)
        return None if owed == _NOTHING else owed
