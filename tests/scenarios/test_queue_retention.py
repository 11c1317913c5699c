"""Messages of HTTP queues that live longer than the log is kept."""

from __future__ import annotations

import random

import pytest

from gantry.append.writing import GATE_DISK_FULL
from gantry.errors import DiskFullError, Refusal
from gantry.leaves import properties
from gantry.wire.codes import ResponseCode
from testkit.delayplay import DelayPlay
from testkit.queueplay import GROUP, QUEUE, RETRY, QueuePlay

HOUR_MS = 3_600_000
LIFE_S = 15 * 86_400
SEGMENT = 1 << 16


def long_ago(is_again: bool = False, /, **bodies: int) -> QueuePlay:
    """A queue, made again or not, whose messages are in segments that are about to go; bodies and their priorities."""
    play = QueuePlay(LIFE_S, segment_bytes=SEGMENT)
    if is_again:
        play.put(b"former")
        play.delete()
        play.make(LIFE_S)
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
    play = long_ago(seed % 2 == 1, **{name: rng.choice((1, 2, 16)) for name in names})
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
            assert play.done(one) == "open" and one.times == 0
            acknowledged.append(one.body)
    assert sorted(acknowledged) == sorted(name.encode() for name in names)



def full(play: QueuePlay) -> None:
    """The disk is too full for anything but what is owed."""
    play.gate.shut(GATE_DISK_FULL, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"))
    play.gate.reopen = lambda reason: None  # type: ignore[method-assign]


def test_messages_are_moved_on_a_disk_that_is_too_full_for_others_and_ended_leases_wait() -> None:
    play = long_ago(a=1, b=2, c=3)
    play.take(1, visibility_ms=500)
    play.pass_ms(500)
    play.flush()
    while not [name for name, _ in play.store.queues() if name.startswith("rmq_sys_REVIVE")]:
        DelayPlay.deliver(play)
        play.flush()
    full(play)
    clean(play)
    assert play.pops.service.counts.moved == 2 and play.visible(RETRY) == [b"b", b"c"]
    assert play.pops.service.book.open == 1
    del play.gate.reopen
    play.pass_durably(2_000)
    assert [one.body for one in play.take()] == [b"a", b"b", b"c"]


def test_messages_that_find_no_room_stay_where_they_are() -> None:
    play = long_ago(a=1, b=2)
    append = play.store.append

    def no_room(*_: object, **__: object) -> int:
        raise DiskFullError("no room")

    play.store.append = no_room  # type: ignore[method-assign]
    clean(play)
    assert play.store.reader.log_start == 0 and play.pops.service.counts.moved == 0
    play.store.append = append  # type: ignore[method-assign]
    clean(play)
    assert play.store.reader.log_start >= 2 * SEGMENT
    assert [one.body for one in play.take()] == [b"a", b"b"]


@pytest.mark.parametrize("is_again", [True, False])
@pytest.mark.parametrize("steps", range(6))
def test_a_move_that_was_begun_is_completed_by_the_next_start(steps: int, is_again: bool) -> None:
    for seed in range(8):
        play = long_ago(is_again, a=1, b=1, c=1)
        assert play.pops.keeper.move(QUEUE, (QUEUE, 0), SEGMENT) == 3
        if steps:
            play.flush()
        for _ in range(steps // 2):
            play.deliver()
            play.background.step()
        if steps % 2:
            play.flush()
        play.crash(random.Random(seed))
        play.pass_durably(3_000, 500)
        taken = play.take()
        assert [(one.body, one.times) for one in taken] == [(b"a", 0), (b"b", 0), (b"c", 0)], f"seed {seed}"
        assert [play.done(one) for one in taken] == ["open"] * 3
        play.crash(random.Random(seed))
        play.pass_durably(3_000, 500)
        assert play.take() == []


def test_the_offset_of_a_move_is_not_saved_before_its_lease_is_kept() -> None:
    play = long_ago(a=1, b=1)
    assert play.pops.keeper.move(QUEUE, (QUEUE, 0), SEGMENT) == 2
    assert play.offsets.query(GROUP, QUEUE, 0) == 0
    for _ in play.offsets.saving():
        pass
    play.crash()  # the offsets were saved, the lease was not
    play.pass_durably(2_000, 500)
    assert [one.body for one in play.take()] == [b"a", b"b"]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_message_that_is_moved_while_an_older_lease_has_it_has_one_handle_also_after_a_crash(
    is_deleted: bool,
) -> None:
    play = long_ago(a=1, b=2)
    former, other = play.take(visibility_ms=2 * HOUR_MS)  # the other one keeps the segment
    play.offsets.reset(GROUP, QUEUE, 0, 0, marks=False)
    clean(play)
    assert play.pops.service.counts.moved == 1
    assert play.done(former) == "stale"
    (one,) = play.take(visibility_ms=4 * HOUR_MS)
    assert not is_deleted or play.done(one) == "open"
    play.offsets.file.save_now()
    play.crash(random.Random(1))
    assert play.done(former) == "stale"
    play.pass_durably(3 * HOUR_MS, 60_000)
    assert [found.body for found in play.take()] == [other.body]
    assert is_deleted or play.done(one) == "open"


def test_messages_come_without_an_end_when_nobody_has_set_up_the_group() -> None:
    play = QueuePlay(LIFE_S)
    play.groups.delete(GROUP)
    play.put(b"m")
    for number in range(20):
        (one,) = play.take(visibility_ms=1_000)
        assert (one.body, one.times) == (b"m", number)
        play.pass_durably(2_000)
    assert [name for name, _ in play.store.queues() if name.startswith("%DLQ%")] == []
