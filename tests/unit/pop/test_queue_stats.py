"""The numbers of HTTP queues, against what happens to their messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from gantry.model.population import Population
from gantry.model.topic import TopicConfig
from gantry.pop import population, stats_handlers
from gantry.pop.population import Cold, QueuePopulation
from gantry.pop.stats_handlers import QueueStatsHandlers
from testkit.patience import HANG_S
from testkit.queueplay import GROUP, QUEUE, QueuePlay


def test_the_numbers_follow_what_happens() -> None:
    play = QueuePlay(life_s=3_600)
    assert play.stats() == (0, 0, 0)
    for priority in (1, 5, 16, 16):
        play.put(b"m", priority)
    handles = [play.put(b"later", delay_ms=delay_ms).handle for delay_ms in (5_000, 50_000, 60_000)]
    assert play.stats() == (4, 0, 3)
    one, _ = play.take(2, visibility_ms=2_000)
    assert play.stats() == (2, 2, 3)
    play.done(one)
    assert play.stats() == (2, 1, 3)
    play.pass_durably(2_500)
    assert play.stats() == (3, 0, 3)
    assert play.cancel(handles[2])
    assert play.stats() == (3, 0, 2)
    newer = play.commit(handles[1], 100_000)
    assert newer and play.stats() == (3, 0, 2)
    play.pass_durably(3_000)
    assert play.stats() == (4, 0, 1)
    play.commit(newer, 100)
    play.pass_durably(500)
    assert play.stats() == (5, 0, 0)
    taken = play.take()
    again = play.change(taken[0], 1_000)
    assert again and play.stats() == (0, 5, 0)
    assert [play.done(one) for one in [again, *taken[1:]]] == ["open"] * 5
    assert play.stats() == (0, 0, 0)


@pytest.mark.parametrize("stop", ["crash", "kill", "reopen"])
def test_the_numbers_are_the_same_after_a_start(stop: str) -> None:
    play = QueuePlay(life_s=3_600)
    for number in range(9):
        play.put(b"m", number + 1)
    handles = [play.put(b"later", delay_ms=5_000 + number).handle for number in range(4)]
    play.cancel(handles[0])
    play.commit(handles[1], 9_000)
    taken = play.take(5, visibility_ms=20_000)
    play.done(taken[0])
    play.change(taken[1], 21_000)
    assert play.stats() == (4, 4, 3)
    getattr(play, stop)()
    assert play.stats() == (4, 4, 3)
    play.pass_durably(6_000)
    assert play.stats() == (6, 4, 1)
    play.pass_durably(20_000)
    assert play.stats() == (11, 0, 0)


def test_the_end_of_lives_counts_down() -> None:
    play = QueuePlay(life_s=10)
    for second in range(6):
        play.put(b"ready", 1)
        play.put(b"leased", 2)
        play.put(b"later", delay_ms=60_000)
        play.clock.advance(1_000)
        assert play.stats() == (2 * (second + 1), 0, second + 1)
    assert len([one for one in play.take(12, visibility_ms=60_000) if one.body == b"leased"]) == 6
    assert play.stats() == (0, 12, 6)
    for number in range(6):
        play.put(b"new", 3)
        play.clock.advance(1_000)
        left = min(6, max(0, 6 - (number - 3)))
        active, inactive, delayed = play.stats()
        assert abs(inactive - 2 * left) <= 2 and abs(delayed - left) <= 1 and active == number + 1
    play.clock.advance(20_000)
    assert play.stats() == (0, 0, 0)
    play.set_life(1_000)
    assert play.stats() == (6, 12, 6)


def test_a_group_that_was_set_back_or_forward_is_counted_from_there() -> None:
    play = QueuePlay(life_s=3_600)
    for number in range(10):
        play.send(b"%d" % number, QUEUE, 0)
    play.flush()
    taken = play.take(6)
    assert play.stats() == (4, 6, 0)
    for one in taken:
        play.done(one)
    play.offsets.reset(GROUP, QUEUE, 0, 2, marks=False)
    assert play.stats() == (8, 0, 0)
    play.offsets.reset(GROUP, QUEUE, 0, 9, marks=False)
    assert play.stats() == (1, 0, 0)


def test_a_count_goes_on_while_messages_come_and_go() -> None:
    play = QueuePlay(life_s=3_600)
    for _ in range(2_000):
        play.send(b"m", QUEUE, 3)
        play.send(b"later", QUEUE, 3, TIMER_DELAY_MS="500000")
    play.flush()
    known = play.pops.stats.populations.of(GROUP, QUEUE)
    steps, counting, waiting = 0, known.counting(), play.service.waiting.counting()
    for pieces in (counting, waiting):
        for _ in pieces:
            steps += 1
            for one in play.take(1):
                play.done(one)
            play.put(b"m", 4)
            play.put(b"later", 4, 400_000 if steps % 2 else 2_000)
            play.pass_durably(100)
    assert steps > 20
    play.pass_durably(3_000)
    ready = sum(1 for _ in play.records(QUEUE)) - steps
    assert play.stats() == (ready, 0, 2_000 + sum(1 for step in range(1, steps + 1) if step % 2))


def test_a_count_costs_only_what_came_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    play = QueuePlay(life_s=3_600)
    for number in range(1_000):
        play.send(b"m", QUEUE, number % 16)
    play.flush()
    assert play.stats() == (1_000, 0, 0)
    read: list[int] = []
    places = play.store.reader.places
    monkeypatch.setattr(
        play.store.reader, "places", lambda *at: [read.append(1) or one for one in places(*at)]  # type: ignore[func-returns-value]
    )
    play.put(b"m")
    assert play.stats() == (1_001, 0, 0)
    assert sum(read) == 1


def test_what_went_since_the_last_count_is_dropped_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "_DROPPED_AT_ONCE", 10)
    play = QueuePlay(life_s=3_600)
    for _ in range(100):
        play.send(b"m", QUEUE, 3)
    play.flush()
    assert play.stats() == (100, 0, 0)
    taken = [play.take(16) for _ in range(6)]
    dropped: list[int] = []
    add = Population.add
    monkeypatch.setattr(Population, "add", lambda self, *born: (dropped.append(1), add(self, *born))[1])
    most = 0
    for _ in QueuePopulation.counting(play.pops.stats.populations.of(GROUP, QUEUE)):
        most, dropped[:] = max(most, len(dropped)), []
    assert most <= 10, "a count after hours would stop the broker for seconds"
    assert play.stats() == (100 - sum(map(len, taken)), sum(map(len, taken)), 0)


async def test_a_disk_that_does_not_answer_stops_no_other_count(monkeypatch: pytest.MonkeyPatch) -> None:
    play = QueuePlay(life_s=3_600)
    play.put(b"m")
    monkeypatch.setattr(stats_handlers, "_DISK_S", 0.01)
    monkeypatch.setattr(type(play.store.reader), "is_cold", lambda *_: True)
    reads: list[Callable[[], None]] = []
    monkeypatch.setattr(play.store, "bring_in", lambda places, done: reads.append(done))

    async def code() -> int:
        command = play.command(24045, topic=QUEUE, consumerGroup=GROUP)
        async with asyncio.timeout(HANG_S):
            return (await play.pops.stats.stats(play.connection, command)).code  # type: ignore[arg-type]

    assert [await code(), await code()] == [2, 2]
    assert len(reads) == 1, "reads that hang do not gather"
    monkeypatch.setattr(play.store, "bring_in", lambda places, done: done())
    reads[0]()
    assert await code() == 0


async def test_a_message_that_is_delivered_while_it_is_counted_is_in_some_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = QueuePlay(life_s=3_600)
    play.put(b"later", delay_ms=1_000)
    counting = type(play.pops.stats)._count
    turns = iter([1, 2])

    async def slow(self: QueueStatsHandlers, pieces: Iterator[Cold]) -> None:
        await counting(self, pieces)
        if next(turns) == 1:
            play.pass_durably(2_000)

    monkeypatch.setattr(QueueStatsHandlers, "_count", slow)
    command = play.command(24045, topic=QUEUE, consumerGroup=GROUP)
    answer = await play.pops.stats.stats(play.connection, command)  # type: ignore[arg-type]
    assert sum(json.loads(answer.body).values()) >= 1


def test_only_a_queue_has_numbers() -> None:
    play = QueuePlay()
    play.topics.put(TopicConfig("plain", 4, 4))
    for topic in ("plain", "nobody"):
        command = play.command(24045, topic=topic, consumerGroup=GROUP)
        assert asyncio.run(play.pops.stats.stats(play.connection, command)).code == 17  # type: ignore[arg-type]
