"""Halves of a segment that goes, which is always far behind the log's end: they move fast, and stuck ones are named."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.errors import Refusal
from gantry.leaves import halves, openhalves
from gantry.transaction.checker import Book, CheckPolicy
from gantry.transaction.counts import TransactionCounts
from gantry.transaction.moving import HalfMoves
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.simclock import SimClock
from testkit.transactionplay import COMMIT, TransactionPlay

SEGMENT = 1 << 30
TEXT = b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02PGROUP\x01g\x02UNIQ_KEY\x01k\x02"


class Moving:
    """A book with open halves in the first segment; a settling, and a cold reader that answers when it is told to."""

    def __init__(self, count: int, is_cold: bool = True, refusal: Refusal | None = None) -> None:
        self.book, self.said, self.refusal = Book(), list[str](), refusal
        self.book.begin(0, 0)
        for number in range(count):
            facts = halves.HalfFacts(TEXT, number)
            self.book.add_half(openhalves.OpenHalf(number, (number * 200, 200), facts, 1), False)
        self.later: list[Callable[[], None]] = []
        self.written: list[int] = []
        self.unreadable: set[int] = set()
        self.undispatched = 0  # so many of the last copies are not dispatched yet
        settling = SimpleNamespace(
            book=self.book, counts=TransactionCounts(), put_back=self.put_back, is_moving=self.is_moving
        )
        reader = SimpleNamespace(record=lambda place: self.record_at(place[0]), is_cold=lambda places: is_cold)
        store: Any = SimpleNamespace(
            is_closed=False,
            reader=reader,
            retention=SimpleNamespace(carry_below=lambda: SEGMENT),
            bring_in=lambda places, done: self.later.append(done),
        )
        self.counts = settling.counts
        made: Any = settling
        self.moves = HalfMoves(store, made, CheckPolicy(), SimClock(), lambda cause, text: self.said.append(text))

    def record_at(self, log_offset: int) -> object:
        if log_offset // 200 in self.unreadable:
            return None
        return SimpleNamespace(properties=b"UNIQ_KEY\x01k\x02", queue_offset=0)

    def is_moving(self, root: int) -> bool:
        return root in self.written[max(0, len(self.written) - self.undispatched) :]

    def put_back(self, root: int, record: object, checks: int, since_ms: int) -> Refusal | None:
        if self.refusal is None:
            self.written.append(root)
            if not self.undispatched:
                facts = halves.HalfFacts(TEXT + b"TRAN_PREPARED_QUEUE_OFFSET\x01%d\x02" % root, self.book.half_end)
                copy = openhalves.OpenHalf(self.book.half_end, (2 * SEGMENT, 200), facts, 1)
                self.book.add_half(copy, False)
        return self.refusal

    def tick(self) -> int:
        """A second: the cold reader answers as often as it is asked; how many slices that were."""
        slices = len(list(self.moves.go_on()))
        while self.later:
            self.later.pop(0)()
            slices += 1
        return slices


@pytest.mark.parametrize("is_cold", [False, True])
def test_cold_halves_move_as_fast_as_the_cold_reader_reads(is_cold: bool) -> None:
    play = Moving(5000, is_cold)
    assert play.tick() == 80 and sorted(play.written) == list(range(5000)), "64 in each slice"
    assert play.book.oldest().log_offset >= SEGMENT  # type: ignore[union-attr]
    assert play.counts.stuck == 0 and play.counts.put_back == 5000


@pytest.mark.slow
def test_a_hundred_thousand_cold_halves_leave_their_segment_in_a_minute() -> None:
    play, begun = Moving(100_000), time.process_time()
    slices, ticks = 0, 0
    while len(play.written) < 100_000:
        slices += play.tick()
        ticks += 1
    took = time.process_time() - begun
    assert ticks == 1 and took < 60 and took / slices < 0.05, f"{took:.1f} s in {slices} slices"


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("reason", ["the disk is full", "too few members are in sync"])
def test_what_cannot_be_copied_is_counted_and_named_with_the_reason(is_cold: bool, reason: str) -> None:
    play = Moving(130, is_cold, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, reason))
    for _ in range(3):
        play.tick()
        assert play.counts.stuck == 130 and play.written == []
    named = ", ".join(text.rsplit(": ", 1)[1] for text in play.said[:3])
    assert named == ", ".join(map(str, range(130)))
    assert all(f"their segment stays: {reason}; " in text for text in play.said)
    play.refusal = None
    play.tick()
    assert play.counts.stuck == 0 and len(play.written) == 130


def test_copies_that_are_not_confirmed_yet_keep_no_others_from_moving() -> None:
    play = Moving(1000)
    play.undispatched = 1000
    play.tick()
    assert sorted(play.written) == list(range(1000))


def test_halves_that_cannot_be_read_are_passed_over() -> None:
    play = Moving(300)
    play.unreadable = set(range(100))
    play.tick()
    assert sorted(play.written) == list(range(100, 300)) and play.moves.unmovable == play.unreadable
    assert "roll it back by `gantry tx`" in play.said[0] and play.counts.stuck == 0
    play.tick()
    assert play.counts.unreadable == 100, "they are not looked at every second"


def test_one_that_cannot_be_read_is_rolled_back_by_hand() -> None:
    play = TransactionPlay()
    lost, other = play.half(key="lost"), play.half(key="other")
    real = play.store.reader.record_at
    unread: Any = lambda at: None if at == lost.log_offset else real(at)  # noqa: E731
    play.store.reader.record_at = unread  # type: ignore[method-assign]
    ask = {"id": str(lost.queue_offset), "operator": "me"}
    answer = play.ask(RequestCode.SETTLE_TRANSACTION, action="commit", **ask)
    assert answer is not None and answer.code != 0
    answer = play.ask(RequestCode.SETTLE_TRANSACTION, action="rollback", **ask)
    assert answer is None or answer.code == 0
    play.flush()
    assert [half.root for half in play.book.open.values()] == [other.queue_offset]
    assert play.end(other, COMMIT) == 0


def test_cold_halves_are_asked_about_a_batch_at_a_time() -> None:
    play = TransactionPlay()
    for number in range(100):
        play.half(key=f"k{number}")
    asked: list[int] = []
    bring_in = play.store.bring_in

    def note(places: list[tuple[int, int]], done: Callable[[], None], ahead_bytes: int = 0) -> None:
        asked.append(len(places))
        bring_in(places, done, ahead_bytes)

    play.store.bring_in = note  # type: ignore[assignment, method-assign]
    play.store.reader.is_cold = lambda places, end=0: True  # type: ignore[method-assign]
    play.join()
    assert len(play.run_pass(60_000)) == 100
    assert sum(asked) == 100 and max(asked) == 16


