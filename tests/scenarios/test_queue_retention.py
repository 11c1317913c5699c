"""Messages of HTTP queues that live longer than the log is kept."""

from __future__ import annotations

import random

import pytest

from gantry.leaves import properties
from testkit.queueplay import RETRY, QueuePlay

HOUR_MS = 3_600_000
LIFE_S = 15 * 86_400
SEGMENT = 1 << 16


def long_ago(**bodies: int) -> QueuePlay:
    """A queue whose messages are in segments that are about to go; bodies and their priorities."""
    play = QueuePlay(LIFE_S, segment_bytes=SEGMENT)
    for body, priority in bodies.items():
        play.put(body.encode(), priority)
    fill(play)
    play.clock.advance(73 * HOUR_MS)
    return play


def fill(play: QueuePlay, segments: int = 3) -> None:
    for _ in range(4 * segments):
        play.send(b"y" * 16_000, topic="filling")
    play.flush()


def clean(play: QueuePlay, seconds: int = 30) -> None:
    """Delete what is old enough, by hand."""
    play.store.retention.drop_expired()
    play.pass_durably(1_000 * seconds, 1_000)


def test_messages_that_live_are_moved_and_their_segments_go() -> None:
    play = long_ago(a1=1, b16=16, c1=1)
    clean(play)
    assert play.store.reader.log_start >= 2 * SEGMENT
    assert play.visible(RETRY) == [b"a1", b"c1", b"b16"] and play.pops.service.counts.moved == 3
    assert play.stats() == (3, 0, 0)
    play.put(b"new", 1)
    taken = play.take()
    assert [(one.body, one.queue_id, one.times) for one in taken] == [
        (b"a1", 0, 0),
        (b"c1", 0, 0),
        (b"new", 0, 0),
        (b"b16", 15, 0),
    ]
    assert not any("1ST_POP_TIME" in one.properties for one in taken)
    assert [play.done(one) for one in taken] == ["open"] * 4
    assert play.stats() == (0, 0, 0)


def test_a_redelivered_message_is_moved_with_its_counts() -> None:
    play = QueuePlay(LIFE_S, segment_bytes=SEGMENT)
    play.put(b"m", 3)
    born_ms = play.clock.now_ms()
    play.take(visibility_ms=1_000)
    play.pass_durably(2_000)
    (record,) = play.records(RETRY)
    first_pop = properties.get(record.properties, b"1ST_POP_TIME")
    for _ in range(2):
        fill(play)
        play.clock.advance(73 * HOUR_MS)
        clean(play)
    (record,) = play.records(RETRY)
    assert (record.queue_id, record.reconsume_times, record.born_ms) == (2, 1, born_ms)
    assert properties.get(record.properties, b"1ST_POP_TIME") == first_pop
    assert play.pops.service.counts.moved == 2
    (one,) = play.take()
    assert (one.body, one.times) == (b"m", 1) and play.done(one) == "open"


@pytest.mark.parametrize("end", ["acknowledged", "expired"])
def test_what_is_acknowledged_or_over_keeps_nothing(end: str) -> None:
    play = long_ago(**{f"m{number}": number % 16 + 1 for number in range(40)})
    if end == "acknowledged":
        while taken := play.take():
            for one in taken:
                play.done(one)
    else:
        play.set_life(3_600)
    clean(play)
    assert play.store.reader.log_start >= 2 * SEGMENT
    assert play.pops.service.counts.moved == 0 and play.visible(RETRY) == []


def test_an_open_lease_keeps_its_segment_until_it_ends() -> None:
    play = long_ago(m=4)
    (one,) = play.take(visibility_ms=40_000)
    clean(play, 20)
    assert play.store.reader.log_start == 0
    assert play.done(one) == "open"
    clean(play)
    assert play.store.reader.log_start >= 2 * SEGMENT


def test_a_queue_that_nobody_ever_received_from_is_kept_too_and_a_start_owes_it_all() -> None:
    play = long_ago(m=4)
    play.kill()
    play.store.retention.drop_expired()
    play.store.tick(play.clock.now_ms())
    play.flush()
    clean(play)
    assert [one.body for one in play.take()] == [b"m"]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_while_messages_are_moved_loses_none_and_repeats_none(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"m{number}" for number in range(50)]
    play = long_ago(**{name: rng.choice((1, 2, 16)) for name in names})
    acknowledged: list[bytes] = []
    for _ in range(3):
        play.store.retention.drop_expired()
        for _ in range(rng.randint(1, 40)):
            play.pass_ms(100)
            play.tick()
            for _ in range(rng.randint(0, 3)):
                play.background.step()
        if rng.random() < 0.5:
            for one in play.take(rng.randint(1, 8)):
                assert play.done(one) == "open"
                acknowledged.append(one.body)
        play.crash(rng)
    clean(play)
    play.pass_durably(60_000, 1_000)
    while taken := play.take():
        for one in taken:
            assert play.done(one) == "open"
            acknowledged.append(one.body)
    assert sorted(acknowledged) == sorted(name.encode() for name in names)

