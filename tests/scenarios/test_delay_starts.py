"""What a start owes of delayed messages when some were passed over: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import random

import pytest

from gantry.schedule import recovery
from testkit.delayplay import DelayPlay

CANCEL = 24012


def _with_document() -> DelayPlay:
    """One message is delivered, and the document says so."""
    play = DelayPlay()
    play.send(b"first", DELAY="1")
    play.pass_ms(4000)
    assert play.visible() == [b"first"]
    return play


def _pass_second(play: DelayPlay) -> None:
    """What is due in a second is delivered; no document is saved meanwhile."""
    play.clock.advance(1000)
    play.deliver()


def test_what_stands_behind_a_message_that_was_taken_back_is_delivered_once_over_a_kill() -> None:
    play = _with_document()
    sent = [play.send(body, DELAY="1") for body in (b"A", b"B", b"C")]
    assert play.ask(CANCEL, id=sent[0].key).code == 0
    _pass_second(play)
    assert play.visible() == [b"first", b"B", b"C"]
    play.kill()
    play.pass_ms(3000)
    assert play.visible() == [b"first", b"B", b"C"]


def test_what_stands_behind_a_message_of_a_deleted_topic_is_delivered_once_over_a_kill() -> None:
    play = _with_document()
    play.send(b"x", topic="gone", DELAY="2")
    for number in range(3):
        play.send(b"gone %d" % number, topic="gone", DELAY="1")
        play.send(b"%d" % number, DELAY="1")
    play.topics.delete("gone")
    _pass_second(play)
    play.kill()
    play.pass_ms(6000)
    assert play.visible() == [b"first", b"0", b"1", b"2"] and play.visible("gone") == []


def test_what_was_carried_on_from_behind_a_message_that_was_taken_back_is_delivered_once_over_a_kill() -> None:
    play = _with_document()
    sent = [play.send(b"%d" % number, DELAY="18") for number in range(4)]
    play.pass_ms(4000)
    assert play.ask(CANCEL, id=sent[0].key).code == 0
    play.carry_on()
    play.kill()
    assert play.service.book.lines[18].next == 4
    play.clock.advance(7_300_000)
    play.pass_ms(3000)
    assert play.visible() == [b"first", b"1", b"2", b"3"]


def test_what_stands_behind_the_last_delivery_of_a_line_is_owed_whatever_others_delivered() -> None:
    play = _with_document()
    play.send(b"waits", DELAY="3")
    sent = [play.send(body, DELAY="2") for body in (b"A", b"B")]
    assert play.ask(CANCEL, id=sent[1].key).code == 0
    play.send(b"C", DELAY="1")
    _pass_second(play)
    play.kill()
    assert [play.service.book.lines[level].next for level in (1, 2, 3)] == [2, 0, 0]
    play.pass_ms(12_000)
    assert play.visible() == [b"first", b"C", b"A", b"waits"]


@pytest.mark.parametrize("wish", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}])
def test_the_first_record_of_a_log_is_delivered_once_over_a_kill(wish: dict[str, str]) -> None:
    play = DelayPlay()
    play.send(b"zero", **wish)
    _pass_second(play)
    assert play.visible() == [b"zero"]
    play.kill()
    play.pass_ms(3000)
    assert play.visible() == [b"zero"]


@pytest.mark.parametrize("wish", [{"DELAY": "5"}, {"TIMER_DELAY_SEC": "60"}])
def test_a_message_sent_on_with_the_properties_of_a_delayed_one_delivers_nothing(wish: dict[str, str]) -> None:
    play = DelayPlay()
    play.send(b"in a minute", **wish)
    play.pass_ms(3000)
    # As an application sends it that received another broker's, or this one under its key.
    play.send(b"sent on", REAL_TOPIC="orders", REAL_QID="0")
    play.send(b"sent on", REAL_TOPIC="orders", REAL_QID="0", UNIQ_KEY="K1")
    play.kill()
    play.pass_ms(61_000)
    assert play.visible() == [b"sent on", b"sent on", b"in a minute"]


@pytest.mark.parametrize("piece", [1, 3, 1024])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_passed_over_each_comes_once_over_kills(
    monkeypatch: pytest.MonkeyPatch, seed: int, piece: int
) -> None:
    monkeypatch.setattr(recovery, "_PIECE", piece)
    rng = random.Random(seed)
    play = DelayPlay()
    wanted: set[bytes] = set()
    gone = 0
    for number in range(120):
        body = b"%d" % number
        level = rng.choice("12")
        if rng.random() < 0.2:
            gone += 1
            play.send(body, topic=f"gone{gone}", DELAY=level)
            play.topics.delete(f"gone{gone}")
        else:
            sent = play.send(body, DELAY=level)
            if rng.random() < 0.3:
                assert play.ask(CANCEL, id=sent.key).code == 0
            else:
                wanted.add(body)
        if rng.random() < 0.3:
            play.clock.advance(rng.randrange(1500))
            play.deliver()
        if rng.random() < 0.05:
            play.tick()
        if rng.random() < 0.1:
            play.kill()
    play.pass_ms(8000)
    assert len(play.visible()) == len(wanted) and set(play.visible()) == wanted
