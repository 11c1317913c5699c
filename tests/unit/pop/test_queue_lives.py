"""Messages of HTTP queues whose life ends while they wait, are leased, or are redelivered."""

from __future__ import annotations

import pytest

from gantry.pop.taking import Catch, Wish
from gantry.wire.bodies import loads
from testkit.popplay import batch_ack_request
from testkit.queueplay import GROUP, QUEUE, RETRY, QueuePlay

DAY_MS = 86_400_000


def test_a_pop_and_a_peek_pass_over_messages_whose_life_is_over() -> None:
    play = QueuePlay(life_s=10)
    for number in range(3):
        play.put(b"old%d" % number)
    play.clock.advance(9_000)
    play.put(b"young")
    play.clock.advance(999)
    assert len(play.peek()) == 4
    play.clock.advance(1)
    assert play.peek() == [b"young"]
    assert [one.body for one in play.take()] == [b"young"]
    assert play.take() == []


def test_a_message_between_ended_ones_is_taken_alone() -> None:
    play = QueuePlay(life_s=100)
    play.put(b"a0")
    play.clock.advance(50_000)
    play.put(b"b1")
    play.clock.jump(-50_000)
    play.put(b"a2")
    play.clock.jump(50_000)
    play.put(b"b3")
    play.clock.advance(60_000)
    taken = play.take(visibility_ms=500)
    assert [(one.body, one.offset) for one in taken] == [(b"b1", 1), (b"b3", 3)]
    assert [play.done(one) for one in taken] == ["open", "open"]


def test_the_life_is_that_of_the_attribute_as_it_is_now() -> None:
    play = QueuePlay(life_s=10)
    play.put(b"m")
    play.clock.advance(20_000)
    assert play.peek() == []
    play.set_life(30)
    assert play.peek() == [b"m"]
    play.set_life(15)
    assert play.take() == []


def test_the_handle_of_a_message_whose_life_is_over_is_void_and_it_does_not_come_again() -> None:
    play = QueuePlay(life_s=10)
    play.put(b"m0")
    play.put(b"m1")
    one, two = play.take(visibility_ms=12_000)
    play.clock.advance(9_999)
    assert play.done(one) == "open"
    play.clock.advance(1)
    assert play.done(two) == "208"
    assert play.change(two, 1_000) is None
    body = play.ask_now(batch_ack_request([two], GROUP, QUEUE)).body
    assert loads(body) == {"stale": [[0, two.offset]]}
    play.pass_durably(5_000)
    assert play.pops.service.book.open == 0
    assert play.visible(RETRY) == []
    assert play.take() == []


@pytest.mark.parametrize("stop", ["", "crash"])
def test_a_clock_that_was_ahead_for_a_moment_ends_the_life_of_no_message_that_comes_later(stop: str) -> None:
    play = QueuePlay(life_s=10)
    play.clock.jump(DAY_MS)
    play.put(b"then")
    play.clock.jump(-DAY_MS)
    if stop:
        play.pass_durably(1_000)
        play.crash()
    play.put(b"m")
    assert play.put(b"later", delay_ms=2_000).handle
    assert play.steady.now_ms() - play.clock.now_ms() > DAY_MS // 2, "it goes slower, for ten days"
    assert [one.body for one in play.take(visibility_ms=1_000)] == [b"then", b"m"]
    play.pass_durably(4_000)
    assert sorted(one.body for one in play.take()) == [b"later", b"m", b"then"]
    play.clock.advance(10_000)
    play.put(b"last")
    assert play.peek() == [b"last"]


def test_a_redelivered_message_lives_from_its_birth() -> None:
    play = QueuePlay(life_s=10)
    play.put(b"m")
    assert len(play.take(visibility_ms=5_000)) == 1
    play.pass_durably(6_000)
    (again,) = play.take(visibility_ms=60_000)
    assert again.topic == RETRY
    play.clock.advance(5_000)
    assert play.done(again) == "208"
    assert play.peek() == []


def test_thousands_of_ended_messages_are_passed_over_in_bounded_pieces() -> None:
    play = QueuePlay(life_s=10)
    for number in range(3_000):
        play.send(b"%d" % number, QUEUE, 0)
    play.flush()
    play.clock.advance(10_000)
    play.put(b"young", 1)
    reads: list[int] = []
    reader = play.store.reader
    places = reader.places

    def counted(topic: str, queue_id: int, offset: int, count_max: int) -> list[tuple[int, int, int]]:
        reads.append(count_max)
        return places(topic, queue_id, offset, count_max)

    reader.places = counted  # type: ignore[method-assign]
    assert [one.body for one in play.take()] == [b"young"]
    assert reads and max(reads) <= 256


def test_a_pop_yields_after_a_millisecond_among_ended_messages_and_goes_on() -> None:
    play = QueuePlay(life_s=10)
    for number in range(2_000):
        play.send(b"%d" % number, QUEUE, 0)
    play.flush()
    play.clock.advance(10_000)
    play.put(b"young", 1)
    clock, taker = play.clock, play.pops.pops.taker

    def later() -> float:
        clock.advance(1)
        return clock.monotonic()

    play.steady.monotonic = later
    wish = Wish(GROUP, QUEUE, -1, 16, 30_000, 0, None, is_by_priority=True)
    catch = taker.take(wish)
    assert isinstance(catch, Catch) and catch.is_unread and not catch.taken
    attempts = 1
    while not catch.taken:
        catch = taker.take(wish)
        assert isinstance(catch, Catch)
        attempts += 1
    assert 4 <= attempts <= 20


def test_a_crash_among_copies_of_which_some_ended_repeats_none() -> None:
    play = QueuePlay(life_s=10)
    play.put(b"old")
    play.clock.advance(5_000)
    play.put(b"m1")
    play.put(b"m2")
    assert len(play.take(visibility_ms=6_000)) == 3
    play.offsets.saving = lambda: iter(())  # type: ignore[method-assign]
    play.pass_durably(6_500)
    assert play.visible(RETRY) == [b"m1", b"m2"]
    again = play.take(visibility_ms=3_000)
    assert [play.done(one) for one in again] == ["open", "open"]
    play.crash()
    play.pass_durably(4_000)
    assert play.take() == []
    assert play.visible(RETRY) == [b"m1", b"m2"]


def test_a_topic_without_an_id_knows_no_life() -> None:
    play = QueuePlay()
    config = play.topics.get(QUEUE)
    assert config is not None
    play.put(b"m")
    play.clock.advance(86_400_000)
    assert play.peek() == [b"m"]
    assert play.done(play.take()[0]) == "open"
