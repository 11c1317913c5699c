"""Many halves: passes stay in slices, memory stays bounded, nothing is appended for the sake of asking.

Times are taken as shares of a pass and not as milliseconds, because the machine that runs this has other things to do.
"""

from __future__ import annotations

import tracemalloc
from itertools import islice

import pytest

from gantry.model import names
from gantry.transaction.checker import Book, CheckPolicy, OpenHalf
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import Settled, TransactionState
from testkit.transactionplay import COMMIT, TransactionPlay

_LARGE = {"segment_bytes": 16 << 20, "queue_file_entries": 30_000, "index_slots": 50_000, "index_entries": 400_000}
_TEXT = b"PGROUP\x01payers\x02REAL_TOPIC\x01orders\x02UNIQ_KEY\x01%032d\x02"


def _enter(book: Book, offset: int) -> None:
    facts = HalfFacts(_TEXT % offset, offset)
    facts.group, facts.topic = "payers", "orders"
    book.add_half(OpenHalf(offset, (offset * 500, 500), facts, 10**12 + offset), False)


def test_an_open_half_takes_half_a_kilobyte() -> None:
    book = Book()
    tracemalloc.start()
    try:
        for offset in range(20_000):
            _enter(book, offset)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 20_000 < 512
    assert not list(book.must_move(CheckPolicy(), 0)), "open halves alone are no reason to move"


@pytest.mark.parametrize("count", [150_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_settled_halves_behind_an_open_one_cost_a_pass_nothing_and_no_memory(count: int) -> None:
    book = Book()
    _enter(book, 0)
    for offset in range(1, count + 1):
        _enter(book, offset)
        if offset % 50 == 0:
            settled = [Settled(root, TransactionState.COMMITTED) for root in range(offset - 49, offset + 1)]
            book.add_op(offset // 50 - 1, settled)
    assert list(book.open) == [0] and (book.half_offset, book.op_offset) == (0, 0)
    assert book.map.bytes <= count / 4 + 100 and not book._moved, "two bits a half"
    assert [half.root for half in islice(book.must_move(CheckPolicy(), 0), 64)] == [0]
    copy = HalfFacts(_TEXT % 0 + b"TRAN_PREPARED_QUEUE_OFFSET\x010\x02", count + 1)
    book.add_half(OpenHalf(count + 1, (1, 1), copy, 0), False)
    assert (book.half_offset, book.op_offset) == (count + 1, count // 50)


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_pass_gives_the_loop_back_after_every_half_and_appends_nothing(count: int) -> None:
    play = TransactionPlay(**_LARGE)
    for _ in range(count):
        play.half(b"x" * 20)
    producer = play.join()
    end = play.store.written.offset
    for after_ms, asked in ((0, 0), (30_000, count), (30_000, 2 * count)):
        play.clock.advance(after_ms)
        before = play.service.counts.asked
        steps = 0
        for _ in play.service.run_pass():
            steps += 1
            assert play.service.counts.asked - before <= steps, "one at a time"
        assert steps >= count // 512, "and after some hundred halves that nothing is to be done to"
        assert play.service.counts.asked == asked
        producer.output.clear()
        producer.chunks.clear()
        producer._read = 0
    play.save()
    assert play.store.written.offset == end and play.service.counts.put_back == 0


def test_what_moves_is_a_small_share_of_what_comes() -> None:
    """One old open half in front, and all others settled: it moves once per hundred settled ones, no more."""
    play = TransactionPlay(rules=CheckPolicy(settled_behind_max=100), **_LARGE)
    play.half(key="old")
    for number in range(1_000):
        play.end(play.half(), COMMIT)
        if number % 10 == 0:
            play.save()
    assert 5 <= play.service.counts.put_back <= 10
    halves = play.store.queue_range(names.HALF_TOPIC, 0)
    assert halves is not None and play.offsets.query(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) > 800
    play.reopen()
    assert [half.root for half in play.book.open.values()] == [0]
