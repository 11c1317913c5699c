"""Halves and ends in runs: none is looked at by itself, and one that is unusual changes nothing for the others."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from gantry.errors import Refusal
from gantry.leaves import frames, openhalves, properties, records
from gantry.model import names
from gantry.store.settings import Flush
from gantry.transaction.checker import OpenHalf
from gantry.transaction.endruns import EndRun, SettleRequest, first_requests, first_runs, pieces
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import TransactionState
from testkit.fake_connection import FakeConnection
from testkit.transactionplay import COMMIT, GROUP, ROLLBACK, TOPIC, Half, TransactionPlay

_MANY = 64


def run_of(play: TransactionPlay, kinds: list[tuple[Half, int]], group: str = GROUP, oneway: bool = False) -> list[int]:
    """Ends that come in one read of a connection; their opaque numbers."""
    ends = [
        frames.End(
            opaque=next(play._opaques),
            rpc_flag=2 if oneway else 0,
            group=group,
            queue_offset=half.queue_offset,
            log_offset=half.log_offset,
            kind=kind,
        )
        for half, kind in kinds
    ]
    play.ends.end_run(play.connection, ends)  # type: ignore[arg-type]
    return [end.opaque for end in ends]


def halves_of(play: TransactionPlay, count: int) -> list[frames.Send]:
    """Halves as they come out of `frames.decode` in one read."""
    sends = []
    for _ in range(count):
        opaque = next(play._opaques)
        text = properties.pack({"UNIQ_KEY": f"K{opaque}", "TRAN_MSG": "true", "PGROUP": GROUP})
        traits, unique_key, keys, tags_code = properties.scan(text)
        send = frames.Send(310, topic=TOPIC, opaque=opaque, rpc_flag=0, group=GROUP, properties=text, body=b"paid")
        send.default_topic, send.sys_flag = names.TEMPLATE_TOPIC, 4
        send.traits, send.unique_key, send.keys, send.tags_code = traits, unique_key, keys, tags_code
        sends.append(send)
    return sends


@pytest.mark.parametrize("flush", list(Flush))
def test_of_halves_and_their_ends_python_looks_at_none_by_itself(flush: Flush) -> None:
    play = TransactionPlay(flush)
    play.half()  # makes the topic
    play.flush()
    play.answers()
    calls, rooms = 0, ("gantry.append", "gantry.produce", "gantry.transaction")

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call" and str(frame.f_globals["__name__"]).startswith(rooms)

    sends = halves_of(play, _MANY)
    sys.setprofile(count)
    try:
        play.sending.send_run(play.connection, sends)  # type: ignore[arg-type]
        play.sending.append_gathered()
        play.flush()
    finally:
        sys.setprofile(None)
    assert len(play.book.open) == 1 + _MANY and set(play.answers().values()) == {0}
    assert 0 < calls < 48, f"{calls} calls for {_MANY} halves"
    calls = 0
    ended = [(Half(0, send.queue_offset, send.log_offset, ""), (COMMIT, ROLLBACK)[send.opaque % 2]) for send in sends]
    sys.setprofile(count)
    try:
        opaques = run_of(play, ended)
        play.flush()
    finally:
        sys.setprofile(None)
    assert list(play.answers().items()) == [(opaque, 0) for opaque in opaques]
    assert len(play.visible()) == _MANY // 2 and len(play.book.open) == 1
    assert 0 < calls < 48, f"{calls} calls for {_MANY} ends"
    assert play.settling.counts.committed == play.settling.counts.rolled_back == {TOPIC: _MANY // 2}


def test_each_message_of_a_run_leaves_right_before_its_op() -> None:
    play = TransactionPlay()
    halves = [play.half() for _ in range(4)]
    end = play.store.written.offset
    run_of(play, list(zip(halves, (COMMIT, ROLLBACK, COMMIT, COMMIT), strict=True)))
    play.turn()
    written = [entry.topic for entries in play.store.reader.entries(end) for entry in entries]
    assert written == [TOPIC, names.OP_HALF_TOPIC, names.OP_HALF_TOPIC, *[TOPIC, names.OP_HALF_TOPIC] * 2]


def test_of_two_ends_of_one_transaction_in_one_turn_the_first_counts() -> None:
    play = TransactionPlay()
    first, other = play.half(key="a"), play.half(key="b")
    opaques = run_of(play, [(first, COMMIT), (other, ROLLBACK), (first, COMMIT), (first, ROLLBACK)])
    play.turn()
    assert list(map(play.answers().get, opaques)) == [0, 0, 0, 200]
    assert play.visible() == [(b"paid", "a")] and play.book.open == {}
    assert play.settling.counts.repeated == 1 and play.settling.counts.conflicts == 1


def test_two_connections_that_end_one_transaction_in_one_turn_end_it_once() -> None:
    play = TransactionPlay()
    half = play.half(key="a")
    first, second = FakeConnection("10.0.0.2:1"), FakeConnection("10.0.0.3:1")
    for connection, kind in ((first, ROLLBACK), (second, COMMIT)):
        play.connection = connection
        run_of(play, [(half, kind)])
    play.turn()
    assert [reply.code for reply in first.take()] == [0] and [reply.code for reply in second.take()] == [201]
    assert play.visible() == []


def test_an_end_that_is_written_and_not_dispatched_is_not_settled_again() -> None:
    play = TransactionPlay(Flush.SYNC)
    half = play.half(key="a")
    play.flush()
    play.answers()
    (committed,) = run_of(play, [(half, COMMIT)])
    play.turn()
    (again,) = run_of(play, [(half, COMMIT)])
    play.turn()
    (contrary,) = run_of(play, [(half, ROLLBACK)])
    play.turn()
    assert play.answers() == {contrary: 200}, "the others wait for the disk"
    play.flush()
    assert play.answers() == {committed: 0, again: 0} and play.visible() == [(b"paid", "a")]
    assert len(list(play.records(names.OP_HALF_TOPIC))) == 1


def test_a_refused_end_does_not_affect_the_others_of_its_run() -> None:
    play = TransactionPlay()
    good, gone = play.half(key="a"), play.half(key="b", topic="gone")
    play.topics.delete("gone")
    opaques = run_of(play, [(gone, COMMIT), (good, COMMIT)])
    forged = run_of(play, [(good._replace(log_offset=good.log_offset + 1), COMMIT)])
    play.turn()
    codes = play.answers()
    assert [codes[opaque] for opaque in opaques + forged] == [17, 0, 1]
    assert play.visible() == [(b"paid", "a")] and list(play.book.open) == [gone.queue_offset]


def test_oneway_ends_are_settled_and_not_answered() -> None:
    play = TransactionPlay()
    run_of(play, [(play.half(key="a"), COMMIT), (play.half(key="b"), ROLLBACK)], oneway=True)
    play.answers()
    play.turn()
    assert play.answers() == {} and play.visible() == [(b"paid", "a")] and play.book.open == {}


def test_a_run_that_finds_no_room_is_refused_as_a_whole_and_nothing_has_ended() -> None:
    play = TransactionPlay()
    halves = [play.half(key=key) for key in "ab"]
    play.gate.shut("full", Refusal(14, "no room"))
    opaques = run_of(play, [(half, COMMIT) for half in halves])
    play.turn()
    assert play.answers() == dict.fromkeys(opaques, 14) and play.settling.counts.refused == {"not written": 1}
    assert play.visible() == [] and len(play.book.open) == 2
    play.gate.reopen("full")
    assert [play.end(half, COMMIT) for half in halves] == [0, 0] and len(play.visible()) == 2


def one(play: TransactionPlay, size: int) -> EndRun:
    half = OpenHalf(0, (0, size), HalfFacts(b"", 0), 0)
    return EndRun(play.connection, [frames.End()], [half], size)  # type: ignore[arg-type]


def test_a_run_is_cut_to_what_one_append_takes() -> None:
    play, segment_bytes = TransactionPlay(), 1 << 30
    run = one(play, 1000)
    long = EndRun(run.connection, list(run.ends) * 600, list(run.halves) * 600, 300_000)
    assert [len(piece.ends) for piece in pieces(long, segment_bytes) if isinstance(piece, EndRun)] == [256, 256, 88]
    heavy = pieces(one(play, 1 << 20), segment_bytes)
    assert [type(piece) for piece in heavy] == [SettleRequest] and heavy[0].outcome is TransactionState.ROLLED_BACK
    small = one(play, 200_000)
    assert len(first_runs([small] * 5, segment_bytes)) == 2 and first_runs([heavy[0], small], segment_bytes) == []
    assert len(first_runs([one(play, 1)] * 300, segment_bytes)) == 256
    assert first_requests([heavy[0], small, heavy[0]], segment_bytes) == [heavy[0]]
    light = heavy[0]._replace(half=run.halves[0])
    assert len(first_requests([heavy[0], heavy[0]], segment_bytes)) == 1
    assert len(first_requests([light] * 90, segment_bytes)) == 64


@pytest.mark.parametrize(("count", "body_bytes", "segment_bytes"), [(256, 200, 128 << 10), (64, 8000, 256 << 10)])
def test_ends_that_fit_no_segment_together_are_settled_in_parts(
    count: int, body_bytes: int, segment_bytes: int
) -> None:
    play = TransactionPlay(segment_bytes=segment_bytes)
    halves = [play.half(b"p" * body_bytes, key=f"k{number}") for number in range(count)]
    play.answers()
    opaques = run_of(play, [(half, COMMIT) for half in halves])
    play.turn()
    assert play.answers() == dict.fromkeys(opaques, 0) and len(play.visible()) == count


def test_ends_that_come_while_the_store_closes_are_refused() -> None:
    play = TransactionPlay()
    halves = [play.half(key=key) for key in "ab"]
    run_of(play, [(half, COMMIT) for half in halves])
    play.answers()
    play.store.close()
    play.turn()
    assert set(play.answers().values()) == {1} and play.settling.counts.refused == {"unreadable half": 2}


@pytest.mark.parametrize(("by", "longer", "laid"), [(0, 0, 2), (300, 0, 0), (0, 1, 0)])
def test_a_record_that_is_not_the_half_s_is_not_laid_out(by: int, longer: int, laid: int) -> None:
    text = properties.pack({"REAL_TOPIC": TOPIC, "REAL_QID": "0"})
    send = frames.Send(topic=names.HALF_TOPIC, properties=text, body=b"paid", born_host=bytes(8))
    send.queue_offset = 1
    log = bytearray(records.size_of(send) + 1)
    end = records.encode_run(log, 0, 4711 + by, [send], 9, bytes(8))
    half = openhalves.OpenHalf(1, (4711, end + longer), HalfFacts(text, 1), 0)
    stretch, stamp = (memoryview(log), 4711, 4711 + len(log)), ("OPS", 77, bytes(8))
    found = openhalves.lay_out([frames.End(kind=COMMIT)], [half], ({1: half}, {}), stretch, lambda _: 1, stamp)
    assert (0 if found is None else len(found[0])) == laid
