"""What is copied when a segment is about to go, what cannot be, and what is said then."""

from __future__ import annotations

import pytest

from gantry.append.writing import GATE_DISK_FULL
from gantry.errors import Refusal
from gantry.leaves import frames, properties
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.model import names
from gantry.wire.codes import ResponseCode
from testkit.delayplay import HOST, TOPIC, DelayPlay
from testkit.foreignrecords import append_foreign

HOUR_MS = 3_600_000


def fill(text: bytes) -> bytes:
    return text + b"p\x01" + b"x" * (PROPERTIES_BYTES_MAX - len(text) - 3) + b"\x02"


def stored(play: DelayPlay, key: str, level: int = 0, **pairs: str) -> None:
    """A delayed message whose properties RocketMQ has filled to the last byte."""
    said = {"UNIQ_KEY": key, "REAL_TOPIC": TOPIC, "REAL_QID": "0"} | pairs
    said |= {"DELAY": str(level)} if level else {"TIMER_OUT_MS": str(play.clock.now_ms() + HOUR_MS)}
    one = frames.Send(topic=names.TIMER_TOPIC, body=key.encode(), born_ms=play.clock.now_ms(), born_host=HOST)
    if level:
        one.topic, one.queue_id = names.SCHEDULE_TOPIC, level - 1
    one.properties = fill(properties.pack(said))
    append_foreign(play.store, [one], play.clock.now_ms())


def after_an_hour(play: DelayPlay) -> list[bytes]:
    play.clock.advance(2 * HOUR_MS)
    play.pass_ms(3000)
    return sorted(play.visible())


@pytest.mark.parametrize("level", [0, 18])
def test_a_copy_leaves_out_what_brokers_say_of_themselves_where_there_is_no_room(level: int) -> None:
    play = DelayPlay()
    stored(play, "full", level, MSG_REGION="DefaultRegion" * 3, TRACE_ON="true", CLUSTER="DefaultCluster" * 3)
    play.carry_on()
    assert (play.service.counts.carried, play.service.counts.stuck) == (1, 0)
    assert after_an_hour(play) == [b"full"]


def test_one_without_room_is_named_with_the_reason_and_keeps_no_other_from_moving() -> None:
    play = DelayPlay()
    for number in range(100):
        play.send(b"a%d" % number, TIMER_DELAY_MS=str(HOUR_MS))
        if number in (3, 40, 99):
            stored(play, f"full{number}")
    play.carry_on()
    assert (play.service.counts.carried, play.service.counts.stuck) == (100, 3)
    assert all("properties leave no room" in text for text in play.said) and play.said
    play.carry_on()
    assert play.service.counts.stuck == 3 and play.service.pending == 103
    play.kill()
    assert play.service.pending == 103
    assert len(after_an_hour(play)) == 103


def test_what_cannot_be_carried_on_is_named_with_the_reason() -> None:
    play = DelayPlay()
    play.send(b"a", TIMER_DELAY_MS=str(HOUR_MS))
    play.gate.shut("closing", Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "closing"))
    play.carry_on()
    assert (play.service.counts.carried, play.service.counts.stuck) == (0, 1)
    assert "end: closing, and their segment stays" in play.said[0]
    play.gate.shut(GATE_DISK_FULL, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "full"))
    play.carry_on()
    assert play.service.counts.stuck == 1 and "end: closing, and" in play.said[-1], "a full disk takes what is owed"
    play.gate.reopen("closing")
    play.carry_on()
    assert (play.service.counts.carried, play.service.counts.stuck) == (1, 0)


def _cold(play: DelayPlay) -> list[tuple[int, int]]:
    """From now on all records are cold; what the cold reader is asked for is noted."""
    asked: list[tuple[int, int]] = []
    bring_in = play.store.bring_in

    def note(places: list[tuple[int, int]], done: object, ahead_bytes: int = 0) -> None:
        asked.extend(places)
        bring_in(places, done, ahead_bytes)  # type: ignore[arg-type]

    play.store.bring_in = note  # type: ignore[assignment, method-assign]
    play.store.reader.is_cold = lambda places, end=0: True  # type: ignore[method-assign]
    return asked


def test_cold_records_are_read_by_the_cold_reader_and_the_job_goes_on_by_itself() -> None:
    play = DelayPlay()
    for number in range(300):
        play.send(b"%d" % number, TIMER_DELAY_MS=str(HOUR_MS))
        play.send(b"l%d" % number, DELAY="18")
    play.background._cold_reader._at_once = False
    asked = _cold(play)
    play.carry_on()
    assert play.service.counts.carried == 0 and len(asked) == 64, "it waits for the cold reader"
    play.store.retention._wanted = play.store.written.offset
    play.flush()
    assert play.service.counts.carried == 600 and len(asked) == 600
    assert len(after_an_hour(play)) == 600


@pytest.mark.parametrize("pairs", [{"TIMER_DELAY_MS": str(2 * HOUR_MS)}, {"DELAY": "18"}])
@pytest.mark.parametrize("leap_h", [1, 3])
@pytest.mark.parametrize("copies", [1, 2])
def test_a_copy_of_a_delay_lasts_its_time_also_where_the_clock_was_set_forwards(
    pairs: dict[str, str], leap_h: int, copies: int
) -> None:
    play = DelayPlay()
    play.send(b"in two hours", **pairs)
    play.pass_ms(1000)
    play.clock.jump(leap_h * HOUR_MS)
    play.pass_ms(1000)
    for _ in range(copies):
        play.carry_on()
        play.pass_ms(1000)
    for _ in range(115):
        play.clock.advance(60_000)
        play.pass_ms(1000)
    assert play.visible() == []
    play.clock.advance(200_000)
    play.pass_ms(1000)
    assert play.visible() == [b"in two hours"]


def test_when_an_original_was_stored_is_forgotten_with_its_copy() -> None:
    play = DelayPlay()
    play.send(b"in two hours", TIMER_DELAY_MS=str(2 * HOUR_MS))
    play.pass_ms(1000)
    play.clock.jump(HOUR_MS)
    play.pass_ms(1000)
    play.carry_on()
    book = play.service.book
    assert len(book.stored_ms) == 1
    book.progress(play.clock.now_ms(), 0, log_start=play.store.written.offset)
    assert book.stored_ms == {}
