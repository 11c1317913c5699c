"""What settling appends beside ends: repairs come first, and marks bound what a start looks through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gantry.errors import Refusal
from gantry.leaves import frames, records
from gantry.model import names
from gantry.store.reading import Reader
from gantry.store.settings import Flush
from gantry.transaction.checker import CheckPolicy
from gantry.transaction.oplog import Settled, TransactionState, settled_in
from gantry.transaction.recovery import unlogged
from gantry.wire.codes import RequestCode
from testkit.transactionplay import COMMIT, HOST, ROLLBACK, TransactionPlay

_FAR = 20_000


def plain(play: TransactionPlay, count: int) -> None:
    """Other people's messages."""
    for _ in range(count):
        play.store.append([frames.Send(topic="bulk", body=bytes(1000), born_host=HOST)])


def marks(play: TransactionPlay) -> int:
    """How many ops settle nothing."""
    return sum(settled_in(op.properties) == [] for op in play.records(names.OP_HALF_TOPIC))


class Walk:
    """A reader that counts what it was walked over."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.bytes = 0
        self.queue_range, self.entry, self.record_at = reader.queue_range, reader.entry, reader.record_at

    def entries(self, log_offset: int) -> Iterator[list[records.Entry]]:
        for entries in self.reader.entries(log_offset):
            self.bytes += sum(entry.size for entry in entries)
            yield entries


def walked(play: TransactionPlay) -> int:
    """How many bytes of the log a start looks through for messages without their op."""
    walk = Walk(play.store.reader)
    assert list(filter(None, unlogged(walk, play.book))) == []  # type: ignore[arg-type]
    return walk.bytes


def test_a_start_does_not_walk_far_while_an_old_half_stands_open() -> None:
    play = TransactionPlay(rules=CheckPolicy(unmarked_bytes_max=_FAR))
    old = play.half(key="old")
    for number in range(40):
        plain(play, 5)
        if number == 15:
            play.end(play.half(key="other"), ROLLBACK)
        play.tick()
    assert play.store.written.offset > 10 * _FAR
    assert walked(play) <= _FAR + 5 * 1200
    assert 8 <= marks(play) <= 11, "one each time that much has come"
    play.reopen()
    (open_one,) = play.book.open.values()
    assert open_one.root == 0
    assert play.service.counts.repaired == 0
    plain(play, 5)
    play.tick()
    assert walked(play) <= _FAR + 10 * 1200, "where the last op ends is known after a start"
    assert play.end(old, COMMIT) == 0
    assert play.book.op_offset == play.book.op_end, "marks hold nothing"


def test_there_is_no_mark_without_an_open_half_and_none_beside_ends() -> None:
    play = TransactionPlay(rules=CheckPolicy(unmarked_bytes_max=_FAR))
    play.end(play.half(), COMMIT)
    plain(play, 50)
    play.tick()
    play.half()
    play.tick()
    for _ in range(20):
        plain(play, 10)
        play.end(play.half(), COMMIT)
        play.tick()
    assert marks(play) == 0


def test_a_mark_that_is_not_confirmed_yet_is_not_written_again() -> None:
    play = TransactionPlay(Flush.SYNC, CheckPolicy(unmarked_bytes_max=_FAR))
    play.half()
    play.flush()
    plain(play, 50)
    for _ in range(3):
        play.tick()
    play.flush()
    assert marks(play) == 1


def test_nothing_ends_before_what_a_crash_took_is_repaired() -> None:
    play = TransactionPlay()
    torn, other = play.half(key="torn"), play.half(key="other")
    play.gate.shut("full", Refusal(14, "no room"))
    assert play.settling.repair([Settled(torn.queue_offset, TransactionState.COMMITTED)]) is not None
    assert play.end(other, COMMIT) == 14
    assert not list(play.records(names.OP_HALF_TOPIC))
    play.gate.reopen("full")
    assert play.end(other, COMMIT) == 0
    assert [op.body for op in play.records(names.OP_HALF_TOPIC)] == [b"0", b"1"], "first what a start would look for"
    assert play.service.counts.repaired == 1


def test_an_end_is_answered_when_its_op_is_confirmed_and_not_before() -> None:
    play = TransactionPlay(Flush.SYNC)
    half = play.half(key="k")
    play.flush()
    opaque = play.end_later(half, COMMIT)
    play.turn()
    assert opaque not in play.answers() and play.visible() == [], "written, and a power cut could take it"
    play.flush()
    assert play.answers() == {opaque: 0} and play.visible() == [(b"paid", "k")]


def test_when_settling_raises_everybody_hears_of_it_and_the_next_end_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = TransactionPlay()
    first, second = play.half(key="a"), play.half(key="b")
    wanted = [play.end_later(half, COMMIT) for half in (first, second)]
    with monkeypatch.context() as broken:
        broken.setattr(play.topics, "get", lambda name: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            play.turn()
    assert play.answers() == dict.fromkeys(wanted, 1) and play.settling.counts.refused == {"failed": 2}
    assert play.end(first, COMMIT) == 0 and play.visible() == [(b"paid", "a")]


def test_ends_of_one_connection_in_one_turn_are_answered_by_one_piece_in_their_order() -> None:
    play = TransactionPlay()
    halves = [play.half() for _ in range(3)]
    play.connection.chunks.clear()
    wanted = [play.end_later(half, kind) for half, kind in zip(halves, (COMMIT, ROLLBACK, COMMIT), strict=True)]
    play.turn()
    assert len(play.connection.chunks) == 1
    assert list(play.answers().items()) == [(opaque, 0) for opaque in wanted]


def test_an_end_under_a_place_that_is_not_the_newest_ends_the_same_transaction() -> None:
    play = TransactionPlay(rules=CheckPolicy(settled_behind_max=0, settled_behind_factor=0))
    half = play.half(key="k")
    play.end(play.half(), ROLLBACK)
    play.tick()
    (moved,) = play.book.open.values()
    assert (moved.root, moved.current) == (half.queue_offset, 2)
    assert play.end(half, COMMIT) == 0 and play.visible() == [(b"paid", "k")] and not play.book.open


def test_a_commit_by_hand_of_a_given_up_copy_names_no_other_half() -> None:
    """By its own place among those given up, RocketMQ's broker would take another half for done."""
    play = TransactionPlay(rules=CheckPolicy(checks_max=1))
    play.join()
    other = play.half(key="other", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    play.half(key="lost")
    for _ in range(2):
        play.run_pass(60_000)
    (copy,) = play.records(names.CHECK_MAX_TIME_TOPIC)
    assert (other.queue_offset, copy.queue_offset) == (0, 0)
    message_id = records.offset_message_id(HOST, copy.log_offset)
    answer = play.ask(RequestCode.SETTLE_TRANSACTION, id=message_id, action="commit")
    assert answer is not None and answer.code == 0 and play.visible() == [(b"paid", "lost")]
    assert [op.body for op in play.records(names.OP_HALF_TOPIC)] == [b"1", b"1"]
    assert [half.root for half in play.book.open.values()] == [0]
