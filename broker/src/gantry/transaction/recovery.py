"""Recovery at a start: the book is filled from half and op queue, and ops that a crash removed are found.

Positions are the consumer offsets of CID_RMQ_SYS_TRANS, where RocketMQ keeps them.  The records behind them are read in
the order of the log and entered into the same `Book` as at run time.  Their number is bounded by
`CheckPolicy.settled_behind_max`; each takes about 15 us.

The two positions are two offsets, which files and slaves get one after the other: an old half offset may come with a
new op offset, which has passed ops of halves that are read again.  Such a half would be checked and delivered once
more.  An op is in the log behind every half that it names, so ops are read at least from the first half's place on.

An op of RocketMQ's names halves and not their outcome.  A committed half has a real message: it is in its topic under
the half's unique key and names the half's log offset.  A half that was given up has a copy among those given up.

A crash may cut a run between a message and its ops.  No other run is appended before that is repaired, so only messages
behind the last op can lack one.  `unlogged` reads that part of the log and finds messages that name an open half in
their field for the prepared message, and copies of given-up halves.  The last op itself says whether others of its
transaction are missing: we do not need them, but RocketMQ's broker does, if it gets the folder.  Marks bound how much
log is behind the last op (`CheckPolicy.unmarked_bytes_max`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from gantry.leaves.records import SYS_TRANSACTION_BITS, Record
from gantry.model import names
from gantry.store.keysearch import FOREVER_MS, STEPS_MAX
from gantry.transaction.checker import Book, OpenHalf
from gantry.transaction.half import SYS_COMMIT, HalfFacts
from gantry.transaction.oplog import Settled, TransactionState, cut_short, offsets_in, settled_in

if TYPE_CHECKING:
    from gantry.metadata.offsets import Offsets
    from gantry.store.reading import Reader

_HITS_MAX = 32


def read_back(reader: Reader, offsets: Offsets, book: Book) -> Iterator[None]:
    """Fill the book from the half and op queues, in small slices."""
    half_at, half_end = _range(reader, offsets, names.HALF_TOPIC)
    op_at, op_end = _range(reader, offsets, names.OP_HALF_TOPIC)
    op_at = min(op_at, _first_op(reader, range(half_at, half_end), op_at))
    book.begin(half_at, op_at)
    op_log = _log_offset(reader, names.OP_HALF_TOPIC, op_at, op_end)
    for offset in range(half_at, half_end):
        entry = reader.entry(names.HALF_TOPIC, 0, offset)
        while entry is not None and op_at < op_end and op_log < entry[0]:
            yield from _read_op(reader, book, op_at)
            op_at += 1
            op_log = _log_offset(reader, names.OP_HALF_TOPIC, op_at, op_end)
            yield
        _read_half(reader, book, offset, entry)
        yield
    for offset in range(op_at, op_end):
        yield from _read_op(reader, book, offset)
        yield


def add_half(book: Book, record: Record) -> HalfFacts:
    """Enter a record of the half queue into the book."""
    facts = HalfFacts(record.properties, record.queue_offset)
    place = record.log_offset, record.size
    enter(book, facts, record.queue_offset, place, record.store_ms)
    return facts


def enter(
    book: Book, facts: HalfFacts, queue_offset: int, place: tuple[int, int], store_ms: int
) -> None:
    """Enter a half into the book."""
    book.add_half(OpenHalf(queue_offset, place, facts, store_ms), facts.is_rearmed)


def ops_end(reader: Reader) -> int:
    """Return the log offset at which the last op message ends; 0 when there is none."""
    last = _last_op(reader)
    return 0 if last is None else last[0] + last[1]


def unlogged(reader: Reader, book: Book) -> Iterator[list[Settled]]:
    """Yield transactions that ended without all of their ops, for one part of the log after the other."""
    last = _last_op(reader)
    if last is not None:
        op = reader.record_at(last[0])
        one = None if op is None else cut_short(op.properties, op.body)
        if one is not None:
            yield [one]
    oldest = book.oldest()
    if oldest is None:
        return
    start = oldest.log_offset if last is None else max(oldest.log_offset, last[0] + last[1])
    for entries in reader.entries(start):
        found = []
        for entry in entries:
            is_commit = entry.sys_flag & SYS_TRANSACTION_BITS == SYS_COMMIT
            if not is_commit and entry.topic != names.CHECK_MAX_TIME_TOPIC:
                continue
            half = _half_at(reader, book, entry.prepared_offset)
            if half is not None:
                outcome = TransactionState.COMMITTED if is_commit else TransactionState.GIVEN_UP
                found.append(Settled(half.root, outcome, () if half.current == half.root else (half.current,)))
        yield found


def _last_op(reader: Reader) -> tuple[int, int, int] | None:
    low, high = reader.queue_range(names.OP_HALF_TOPIC, 0) or (0, 0)
    return reader.entry(names.OP_HALF_TOPIC, 0, high - 1) if high > low else None


def _half_at(reader: Reader, book: Book, log_offset: int) -> OpenHalf | None:
    """The open transaction one of whose copies stands at this log offset."""
    record = reader.record_at(log_offset)
    if record is None or record.topic != names.HALF_TOPIC:
        return None
    return book.find(HalfFacts(record.properties, record.queue_offset).root)


def _range(reader: Reader, offsets: Offsets, topic: str) -> tuple[int, int]:
    """Return the offsets from the saved position to the queue's end; a position outside the queue is clipped."""
    low, high = reader.queue_range(topic, 0) or (0, 0)
    return min(max(offsets.query(names.TRANSACTION_GROUP, topic, 0), low), high), high


def _first_op(reader: Reader, read_again: range, otherwise: int) -> int:
    """Return an op-queue offset before which no op names any of these halves; `otherwise` without halves."""
    for offset in read_again:
        entry = reader.entry(names.HALF_TOPIC, 0, offset)
        if entry is not None:
            return reader.first_behind(names.OP_HALF_TOPIC, 0, entry[0])
    return otherwise


def _log_offset(reader: Reader, topic: str, offset: int, end: int) -> int:
    entry = reader.entry(topic, 0, offset) if offset < end else None
    return -1 if entry is None else entry[0]


def _read_half(reader: Reader, book: Book, offset: int, entry: tuple[int, int, int] | None) -> None:
    record = reader.record_at(entry[0]) if entry is not None else None
    if record is None:
        book.skip_half(offset)
    else:
        add_half(book, record)


def _read_op(reader: Reader, book: Book, offset: int) -> Iterator[None]:
    entry = reader.entry(names.OP_HALF_TOPIC, 0, offset)
    record = reader.record_at(entry[0]) if entry is not None else None
    if record is None:
        book.add_op(offset, ())
        return
    settled = settled_in(record.properties)
    if settled is None:
        settled = yield from foreign(reader, book, record)
    book.add_op(offset, settled)


def foreign(reader: Reader, book: Book, record: Record) -> Generator[None, None, list[Settled]]:
    """Find the ends in an op of RocketMQ's, in small slices."""
    found: list[Settled] = []
    for offset in offsets_in(record.body):
        if offset >= book.half_offset:
            one = yield from _foreign(reader, book, offset)
            found.append(one)
    return found


def _foreign(reader: Reader, book: Book, offset: int) -> Generator[None, None, Settled]:
    """Find out how a half ended that RocketMQ's broker settled."""
    half = book.open.get(offset)
    if half is None:
        return Settled(book.root_at(offset), book.map.get(offset) or TransactionState.ROLLED_BACK)
    copies = () if half.root == offset else (offset,)
    record = reader.record_at(half.log_offset)
    outcome = TransactionState.ROLLED_BACK
    if record is not None:
        unique_key = HalfFacts(record.properties, offset).unique_key
        real = yield from _with_key(reader, half.topic, unique_key)
        if any(one.prepared_offset == half.log_offset for one in real):
            outcome = TransactionState.COMMITTED
        elif (yield from _with_key(reader, names.CHECK_MAX_TIME_TOPIC, unique_key)):
            outcome = TransactionState.GIVEN_UP
    return Settled(half.root, outcome, copies)


def _with_key(reader: Reader, topic: str, key: str) -> Generator[None, None, list[Record]]:
    """Find the newest records of a topic under this key, as far as a search goes."""
    found: list[Record] = []
    steps = 0
    for hit in reader.walk(topic, key, 0, FOREVER_MS) if key else ():
        if isinstance(hit, int):
            record = reader.with_key(hit, topic, key.encode())
            found += [] if record is None else [record]
        else:
            steps += 1
            yield
        if len(found) >= _HITS_MAX or steps >= STEPS_MAX:
            break
    return found
