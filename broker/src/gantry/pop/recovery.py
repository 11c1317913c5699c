"""Reading the book back at a start, from delayed messages that are pending and from the revive queues.

    pending in the timer           leases that have not ended, and acknowledgements; `DelayBook.leases` names them
    a revive queue, not handled    leases that have ended behind the saved offset, and acknowledgements
    the log behind those           copies of their messages name the record of their lease: so many of its open
                                   messages, from the first on, are in a retry or dead-letter topic already; of an HTTP
                                   queue those of the same unique key, as some may have been dropped between them

All leases are entered, by their pop times, with what is neither acknowledged nor copied of them.  What is open
afterwards is the same as before the crash, because every change of the book is a record in the log before it is
answered.  A crash may keep a lease and cut off the acknowledgement, in the same append, that closes its messages in an
older one: it is appended again before anything else.  Otherwise a later start, for which the newer lease is handled and
the older one is not, would find these messages open again.

A group's offset in a queue is at least behind the newest lease there: offsets are saved later than leases.  A reset by
an administrator counts from its place in the log on (`metadata.resetplaces`): neither older leases undo it, nor those
that go on with messages popped before.  A place behind a log that a crash made shorter is set back first.  Leases of
deleted topics and groups are left out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import delays, fields, properties
from gantry.model import names
from gantry.pop import handle, records
from gantry.pop.records import AckRecord, LeaseKey, LeaseRecord
from gantry.pop.service import PopService
from gantry.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gantry.leaves.records import Record
    from gantry.schedule.places import DelayedEntry

_PIECE = 256


class _Found(NamedTuple):
    """A lease that was found: where it was stored first, where it was delivered to, -1: it was not."""

    record: LeaseRecord
    revive_queue: int
    stored_at: int
    delivered_at: int
    is_copy: bool  # delayed messages are copied when their segment has to go


class _Findings:
    def __init__(self) -> None:
        self.leases: list[_Found] = []
        self.done: dict[LeaseKey, set[int]] = {}  # what was acknowledged, or copied, of each lease
        self.moved: dict[LeaseKey, set[int]] = {}  # of that, what a newer lease has or had

    def take(self, record: Record, is_delivered: bool) -> None:
        read = records.read(record.properties, record.body)
        if isinstance(read, AckRecord):
            self.done.setdefault(read.key, set()).update(read.offsets)
            if read.is_moved:
                self.moved.setdefault(read.key, set()).update(read.offsets)
        if not isinstance(read, LeaseRecord) or not read.offsets:
            return
        address = delays.address(record.properties)
        carried = fields.integer(delays.last(record.properties, delays.CARRIED).decode("ascii", "replace"))
        stored_at = record.prepared_offset if is_delivered else record.log_offset
        queue_id = record.queue_id if is_delivered or address is None else address[1]
        delivered_at = record.log_offset if is_delivered else -1
        self.leases.append(_Found(read, queue_id, carried or stored_at, delivered_at, carried is not None))

    def open_of(self, record: LeaseRecord) -> tuple[int, ...]:
        """Return the offsets of a lease that are not done."""
        done = self.done.get(record.key, ())
        return tuple(offset for offset in record.offsets if offset not in done)


def read_back(service: PopService, pending: Iterable[DelayedEntry]) -> Generator[None, None, dict[int, int]]:
    """Fill the book in small slices; return the next record of each revive queue.

    pending: the places of leases and acknowledgements that are not delivered yet.
    """
    store, offsets = service.context.store, service.context.offsets
    if offsets.places.bound(store.written.offset):
        offsets.file.is_changed = True
        store.save_corrected(offsets.file.save_now)  # before anything is stored that they would hide
    found = _Findings()
    for number, place in enumerate(pending, 1):
        record = store.reader.record((place.log_offset, place.size, 0))
        if record is not None:
            found.take(record, is_delivered=False)
        if number % _PIECE == 0:
            yield
    following: dict[int, int] = {}
    for queue_id, offset in _unhandled(service).items():
        following[queue_id] = offset
        yield from _read_queue(service, queue_id, offset, found)
    found.leases = [one for one in found.leases if not _is_gone(service, one)]
    yield from _count_copies(service, found)
    yield from _enter(service, found)
    _move(service, found)
    return following


def _unhandled(service: PopService) -> dict[int, int]:
    """Return by revive queue the first record that was not handled."""
    context, topic = service.context, service.rules.revive_topic
    first: dict[int, int] = {}
    for name, queue_id in context.store.queues():
        if name == topic:
            low, high = context.store.queue_range(topic, queue_id) or (0, 0)
            handled = context.offsets.query(names.REVIVE_GROUP, topic, queue_id)
            first[queue_id] = min(max(handled + 1, low), high)
    return first


def _read_queue(service: PopService, queue_id: int, at: int, found: _Findings) -> Iterator[None]:
    store: Store = service.context.store
    while piece := store.reader.places(service.rules.revive_topic, queue_id, at, _PIECE):
        for log_offset, size, _ in piece:
            record = store.reader.record((log_offset, size, 0))
            if record is not None:
                found.take(record, is_delivered=True)
        at += len(piece)
        yield


def _is_gone(service: PopService, found: _Found) -> bool:
    """Return whether the topic or the group was deleted since."""
    context, key = service.context, found.record.key
    is_deleted = context.offsets.places.of(key.group, "", 0) > found.stored_at
    # A group that a pop made just before a crash was perhaps not saved; it is made again.
    if is_deleted or context.topics.get(key.topic) is None or context.groups.ensure(key.group) is None:
        return True
    is_buried = context.store.reader.is_buried(key.topic, found.stored_at)
    return is_buried or service.generation(key.topic) > found.record.generation


def _count_copies(service: PopService, found: _Findings) -> Iterator[None]:
    """Take the messages of ended leases that were copied before the crash for done."""
    delivered = [one for one in found.leases if one.delivered_at >= 0]
    ended = {one.delivered_at: one.record for one in delivered if found.open_of(one.record)}
    if not ended:
        return
    copies: dict[int, list[bytes]] = {at: [] for at in ended}
    for entries in service.context.store.reader.entries(min(ended)):
        for entry in entries:
            at = entry.prepared_offset
            if at in copies and (names.is_retry_topic(entry.topic) or names.is_dlq_topic(entry.topic)):
                copies[at].append(entry.unique_key)
        yield
    for at, unique_keys in copies.items():
        record = ended[at]
        if unique_keys:
            copied = _copied(service, record.key, found.open_of(record), unique_keys)
            found.done.setdefault(record.key, set()).update(copied)


def _copied(service: PopService, key: LeaseKey, offsets: Sequence[int], unique_keys: list[bytes]) -> Sequence[int]:
    """Return which of these offsets of a lease have the messages that copies with these keys were made of; all stand
    in one order.
    """
    topic, _ = handle.normal_topic(key.topic, key.group)
    if len(unique_keys) >= len(offsets) or not service.context.topics.is_http_queue(topic):
        return offsets[: len(unique_keys)]
    reader, found, wanted = service.context.store.reader, list[int](), iter(unique_keys)
    unique_key = next(wanted, None)
    for offset in offsets:
        entry = reader.entry(key.topic, key.queue_id, offset)
        record = None if entry is None else reader.record(entry)
        if record is not None and unique_key == (properties.get(record.properties, b"UNIQ_KEY") or b""):
            found.append(offset)
            unique_key = next(wanted, None)
    return found


def _enter(service: PopService, found: _Findings) -> Iterator[None]:
    """Enter what was found, in the order in which it was leased."""
    reader, book, now_ms = service.context.store.reader, service.book, service.context.clock.now_ms()
    in_order = sorted(found.leases, key=lambda one: (one.record.key.pop_ms, one.record.end_ms, one.stored_at))
    for number, one in enumerate(in_order, 1):
        key, offsets = one.record.key, found.open_of(one.record)
        book.moved(key, sorted(found.moved.get(key, ())), one.record.end_ms, now_ms)
        if offsets:
            older = [(lease, common) for lease, common in book.overlaps(key[:3], offsets) if lease.key != key]
            service.owed += [service.moved(lease, common) for lease, common in older]
            for lease, common in older:
                book.moved(lease.key, common, lease.end_ms, now_ms)
            entry = reader.entry(key.topic, key.queue_id, offsets[0])
            service.enter(one.record._replace(offsets=offsets), one.revive_queue, 0 if entry is None else entry[0])
        book.leased(one.record)
        if number % _PIECE == 0:
            yield


def _move(service: PopService, found: _Findings) -> None:
    """Move groups behind their newest lease, unless they were reset since."""
    offsets = service.context.offsets
    for one in found.leases:
        group, topic, queue_id = one.record.key[:3]
        reset_at = offsets.places.of(group, topic, queue_id)
        if one.is_copy or one.stored_at < reset_at or (one.record.is_again and reset_at >= 0):
            continue
        behind = one.record.offsets[-1] + 1
        if offsets.query(group, topic, queue_id) < behind:
            offsets.commit(group, topic, queue_id, behind)
