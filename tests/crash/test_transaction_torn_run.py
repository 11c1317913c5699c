"""The last run is torn: whatever prefix of messages and op survives, each transaction ends as it was told to, once.

This is the one place where a message can stand in the log without the op that says so.
"""

from __future__ import annotations

from itertools import count

import pytest

from gantry.errors import Refusal
from gantry.model import names
from gantry.store import filenames
from gantry.store.settings import Flush
from gantry.transaction.checker import CheckPolicy
from gantry.transaction.oplog import Settled, TransactionState
from testkit.transactionplay import COMMIT, ROLLBACK, TransactionPlay

_SECTOR_BYTES = 512
_SEGMENT_BYTES = 1 << 16


# A mark whenever something stands behind the last op.
_MARKING = CheckPolicy(unmarked_bytes_max=0)


def _play(rules: CheckPolicy | None = None) -> TransactionPlay:
    return TransactionPlay(Flush.SYNC, rules, segment_bytes=_SEGMENT_BYTES)


def _tears(play: TransactionPlay, start: int, number: int) -> int | None:
    """Where the log breaks off in the numbered try: at sectors, and between the records of the run."""
    end = play.store.written.offset
    sectors = range(start - start % _SECTOR_BYTES + _SECTOR_BYTES, end, _SECTOR_BYTES)
    bounds = [entry.log_offset for entries in play.store.reader.entries(start) for entry in entries]
    places = sorted({*sectors, *bounds, end})
    return places[number] if number < len(places) else None


def _tear(play: TransactionPlay, at: int, end: int) -> None:
    """The power is gone, and of the log nothing survived from `at` on."""
    play.background.flusher.drain()
    disk = play.disk.crash()
    disk.damage(filenames.by_offset(filenames.commit_log("/store"), 0), at, bytes(end - at))
    play.disk = disk
    play.producers = []


@pytest.mark.parametrize("is_lost_again", [False, True], ids=["once", "and the repair is lost too"])
def test_messages_without_their_op_are_found_and_never_delivered_again(is_lost_again: bool) -> None:
    repaired = set()
    for number in count():
        play = _play(_MARKING)
        halves = [play.half(b"x" * 900, key=f"k{index}") for index in range(4)]
        play.flush()
        start = play.store.written.offset
        rows = dict(zip(("k0", "k1", "k2"), (COMMIT, ROLLBACK, COMMIT), strict=True))
        for half in halves[:3]:
            play.end_later(half, rows[half.key])
        play.flush()
        end = play.store.written.offset
        at = _tears(play, start, number)
        if at is None:
            break
        _tear(play, at, end)
        play.open()
        if is_lost_again:
            play.half(b"x", key="late")
            play.tick()
            play.crash()
        repaired.add(play.service.counts.repaired)
        play.flush()
        play.join()
        for question in play.run_pass(30_000):
            assert question.key not in [key for _, key in play.visible()], f"asked after its message, at {at}"
            play.end_later(question.half, rows.get(question.key, ROLLBACK), is_check=True)
        play.flush()
        assert sorted(key for _, key in play.visible()) == ["k0", "k2"], at
        assert not play.book.open
        for half in halves:
            play.end_later(half, rows.get(half.key, ROLLBACK))
        play.flush()
        assert set(play.answers().values()) == {0} and len(play.visible()) == 2
        ops = list(play.records(names.OP_HALF_TOPIC))
        assert ops
    assert repaired == {0, 1}, "each message stands right before its op"


def test_every_place_of_a_transaction_gets_its_op_whatever_a_crash_took() -> None:
    """RocketMQ's broker asks about a half that no op names, if the folder goes there."""
    repaired = set()
    for number in count():
        play = _play()
        first = play.half(b"x" * 900, key="k")
        play.flush()
        record = play.half_record(first.queue_offset)
        assert record is not None
        for _ in range(2):
            assert play.settling.put_back(0, record, 1, play.clock.now_ms()) is None
            play.flush()
        start = play.store.written.offset
        copies = {half.current for half in play.book.open.values()}
        play.end_later(first, COMMIT)
        play.flush()
        end = play.store.written.offset
        at = _tears(play, start, number)
        if at is None:
            break
        _tear(play, at, end)
        play.open()
        play.flush()
        repaired.add(play.service.counts.repaired)
        named = {int(op.body) for op in play.records(names.OP_HALF_TOPIC)}
        assert named == ({0} | copies if play.visible() else set()), at
        play.reopen()
        assert play.service.counts.repaired == 0 and not (play.visible() and play.book.open)
    assert repaired == {0, 1}


def test_a_torn_giving_up_gives_up_once() -> None:
    repaired = set()
    for number in count():
        play = _play(CheckPolicy(checks_max=1))
        play.half(b"x" * 900, key="k")
        play.flush()
        play.join()
        play.run_pass(30_000)
        start = play.store.written.offset
        play.run_pass(30_000)
        play.flush()
        end = play.store.written.offset
        at = _tears(play, start, number)
        if at is None:
            break
        _tear(play, at, end)
        play.open()
        repaired.add(play.service.counts.repaired)
        play.flush()
        play.join()
        for _ in range(3):
            play.run_pass(30_000)
            play.flush()
        assert not play.book.open and play.settling.outcome(0) is TransactionState.GIVEN_UP
        assert len(list(play.records(names.CHECK_MAX_TIME_TOPIC))) == 1, at
    assert repaired == {0, 1}


def test_what_cannot_be_repaired_yet_has_ended_all_the_same() -> None:
    play = _play()
    half = play.half(key="k")
    play.flush()
    play.gate.shut("full", Refusal(14, "no room"))
    assert play.settling.repair([Settled(half.queue_offset, TransactionState.COMMITTED)]) is not None
    play.join()
    assert play.run_pass(30_000) == []
    assert play.end(half, COMMIT) == 0 and play.end(half, ROLLBACK) == 200
    play.gate.reopen("full")
    assert not play.settling.mark(0), "a mark would say that it has its op"
    assert play.settling.repair() is None
    play.flush()
    assert not play.book.open
