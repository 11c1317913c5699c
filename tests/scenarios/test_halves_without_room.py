"""Halves whose properties leave no room for what a broker adds: an older version or another broker stored them.

None of them ends the process, is lost, or holds up the others.  Each is asked about and can be ended like any half; it
stays in its place until then, and that is said, counted and listed.
"""

from __future__ import annotations

from itertools import islice

import pytest

from gantry.leaves import frames, properties
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.transaction.checker import CheckPolicy
from gantry.wire.codes import RequestCode
from testkit.foreignrecords import append_foreign
from testkit.transactionplay import COMMIT, GROUP, HOST, ROLLBACK, TOPIC, Half, TransactionPlay

LONGEST = 32767


def stored(play: TransactionPlay, key: str, bytes_of_properties: int = LONGEST, **pairs: str) -> Half:
    """A half as a foreign folder has it."""
    said = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP, "REAL_TOPIC": TOPIC, "REAL_QID": "0"} | pairs
    text = properties.pack({name: value for name, value in said.items() if value})
    if len(text) < bytes_of_properties:
        text += b"p\x01" + b"x" * (bytes_of_properties - len(text) - 3) + b"\x02"
    one = frames.Send(topic=names.HALF_TOPIC, body=b"old", properties=text, born_ms=play.clock.now_ms(), born_host=HOST)
    append_foreign(play.store, [one], play.clock.now_ms())
    return Half(0, one.queue_offset, one.log_offset, key)


def opened(**rules: int) -> TransactionPlay:
    play = TransactionPlay(rules=CheckPolicy(**rules), segment_bytes=8 << 20)
    play.topics.put(TopicConfig(TOPIC, 4, 4))
    play.topics.file.save_now()
    return play


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_it_is_asked_about_and_ends_like_any_other(kind: int) -> None:
    play = opened()
    half = stored(play, "old")
    for _ in range(2):
        play.join()
        (question,) = play.run_pass(60_000)
        assert question.key == "old" and len(question.record.properties) == LONGEST
        play.reopen()
    assert play.end(half, kind) == 0
    assert play.visible() == [(b"old", "old")] * (kind == COMMIT) and not play.book.open
    play.kill()
    assert not play.book.open and play.run_pass(60_000) == []


def test_it_is_not_given_up_but_asked_on_and_named() -> None:
    play = opened(checks_max=1, age_max_ms=3_600_000)
    stored(play, "old")
    short = play.half(key="short")
    play.join()
    assert [one.key for one in play.run_pass(60_000)] == ["old", "short"]
    play.run_pass(60_000)
    assert list(play.book.open) == [0], "the other one is given up"
    assert play.service.moves.unmovable == {0} and any("32767 bytes of properties" in said for said in play.said)
    assert [one.key for one in play.run_pass(3_600_000)] == ["old"], "an hour later it is still asked about"
    listed = play.ask(RequestCode.SHOW_TRANSACTION, id="old")
    assert listed is not None and b'"movable":false' in listed.body.replace(b" ", b"")
    assert play.end(Half(0, 0, 0, "old"), ROLLBACK) == 0 and play.end(short, ROLLBACK) == 0
    play.tick()
    assert not play.service.moves.unmovable and not play.book.open


def test_those_behind_it_are_put_back() -> None:
    play = opened(settled_behind_max=2, settled_behind_factor=0)
    for number in range(70):
        stored(play, f"old{number}")
    kept = play.half(key="kept")
    for number in range(80):
        assert play.end(play.half(key=f"s{number}"), ROLLBACK) == 0
    for _ in range(3):
        play.tick()
    assert [half.root for half in islice(play.book.open.values(), 70)] == list(range(70))
    assert play.service.counts.put_back == 1 and play.book.find(kept.queue_offset).current > 70  # type: ignore[union-attr]
    assert len(play.service.moves.unmovable) == 70


def test_what_names_no_topic_or_no_queue_is_no_reason_to_end() -> None:
    play = opened(checks_max=1)
    stored(play, "nowhere", 200, REAL_TOPIC="")
    stored(play, "far", 200, REAL_QID=str(1 << 40))
    stored(play, "below", 200, REAL_QID="-7")
    play.join()
    assert [(one.key, one.record.queue_id) for one in play.run_pass(60_000)] == [("far", 0), ("below", 0)]
    for half in list(play.book.open.values()):
        code = play.end(Half(0, half.current, half.log_offset, ""), COMMIT)
        assert code == (0 if half.topic else 17)
    play.run_pass(73 * 3_600_000)
    assert not play.book.open, "what cannot be asked about is given up by its age"


def test_a_delay_that_no_longer_fits_keeps_it_open() -> None:
    play = opened()
    half = stored(play, "old", TIMER_DELIVER_MS=str(play.clock.now_ms() + 1_000_000))
    other = play.half(key="other")
    end, more = play.end_later(half, COMMIT), play.end_later(other, COMMIT)
    play.turn()
    assert play.answers() == {end: 13, more: 0}, "one that does not fit is not refused for all"
    assert list(play.book.open) == [half.queue_offset] and play.end(half, ROLLBACK) == 0


def test_one_that_was_given_up_by_another_broker_cannot_be_armed_again() -> None:
    play = opened()
    text = properties.pack({"UNIQ_KEY": "old", "PGROUP": GROUP, "REAL_TOPIC": TOPIC, "REAL_QID": "0"})
    text += b"p\x01" + b"x" * (LONGEST - len(text) - 3) + b"\x02"
    one = frames.Send(topic=names.CHECK_MAX_TIME_TOPIC, body=b"old", properties=text, born_host=HOST)
    append_foreign(play.store, [one], play.clock.now_ms())
    answer = play.ask(RequestCode.SETTLE_TRANSACTION, id="old", action="rearm", operator="me")
    assert answer is not None and answer.code != 0 and play.store.failed is None
