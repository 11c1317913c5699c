from __future__ import annotations

import re
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.consume import hold
from gantry.consume.filter import Wanted
from gantry.consume.hold import HeldPull, HeldPulls
from gantry.consume.sql92.program import compile_sql
from gantry.leaves import frames
from testkit.counting import instructions
from testkit.fake_connection import FakeConnection


class Waiting:
    """Held pulls whose wake-ups are written down."""

    def __init__(self, held_max: int = 10) -> None:
        self.woken: list[int] = []
        self.passed: list[int] = []
        self.held = HeldPulls(held_max, self._wake)

    def _wake(self, held: HeldPull) -> None:
        self.woken.append(held.pull.opaque)
        self.passed.append(held.alike.passed)

    def hold(
        self,
        opaque: int,
        *,
        topic: str = "T",
        queue_id: int = 0,
        offset: int = 0,
        codes: Wanted = None,
        until: float = 10.0,
        connection: Any = None,
    ) -> Any:
        connection = connection or FakeConnection()
        pull = frames.Pull(opaque=opaque, topic=topic, queue_id=queue_id, queue_offset=offset)
        assert self.held.hold(connection, pull, codes, until) is None
        return connection

    def sweep(self, now: float) -> int:
        """All slices of a sweep; how many there were."""
        return sum(1 for _ in self.held.sweep(now))

    def arrive(self, topic: str = "T", queue_id: int = 0, max_offset: int = 1, codes: tuple[int, ...] = (0,)) -> None:
        first = max_offset - len(codes)
        entries: list[Any] = [
            SimpleNamespace(tags_code=code, queue_offset=first + number, properties=b"a\x01%d" % code)
            for number, code in enumerate(codes)
        ]
        self.held.on_dispatched(topic, queue_id, max_offset, entries)


def test_news_wakes_everybody_at_that_queue_and_nobody_else() -> None:
    waiting = Waiting()
    waiting.hold(1)
    waiting.hold(2)
    waiting.hold(3, queue_id=1)
    waiting.hold(4, topic="U")
    waiting.arrive()
    assert waiting.woken == [1, 2]
    assert len(waiting.held) == 2


def test_a_pull_is_woken_once() -> None:
    waiting = Waiting()
    waiting.hold(1)
    waiting.arrive()
    waiting.arrive(max_offset=2)
    waiting.sweep(100.0)
    assert waiting.woken == [1]
    assert len(waiting.held) == 0


def test_a_pull_ahead_of_the_queue_sleeps_on() -> None:
    waiting = Waiting()
    waiting.hold(1, offset=5)
    waiting.arrive(max_offset=5)
    assert waiting.woken == []
    waiting.arrive(max_offset=6)
    assert waiting.woken == [1]


def test_only_a_message_that_is_wanted_wakes() -> None:
    waiting = Waiting()
    waiting.hold(1, codes=frozenset({65}))
    waiting.arrive(codes=(66, 0))
    assert waiting.woken == []
    waiting.arrive(max_offset=4, codes=(66, 65))
    assert waiting.woken == [1]


def test_properties_decide_who_waits_with_sql() -> None:
    waiting = Waiting()
    waiting.hold(1, codes=compile_sql("a > 5"))
    waiting.hold(2, codes=compile_sql("a > 3"))
    waiting.arrive(max_offset=2, codes=(1, 4))
    assert waiting.woken == [2]
    waiting.arrive(max_offset=3, codes=(6,))
    assert waiting.woken == [2, 1]


def test_what_was_not_wanted_is_not_looked_at_again() -> None:
    waiting = Waiting()
    waiting.hold(1, codes=frozenset({65}))
    waiting.hold(2, codes=compile_sql("a = 65"))
    waiting.arrive(max_offset=1000, codes=(66,) * 1000)
    waiting.arrive(max_offset=1002, codes=(65, 66))
    assert waiting.woken == [1, 2]
    assert waiting.passed == [1000, 1000]


def test_news_with_a_gap_before_it_moves_nobody() -> None:
    waiting = Waiting()
    waiting.hold(1, codes=frozenset({65}))
    waiting.arrive(max_offset=10, codes=(66, 66))
    waiting.arrive(max_offset=11, codes=(65,))
    assert waiting.passed == [0]


def test_news_that_would_take_long_to_look_at_wakes() -> None:
    waiting = Waiting()
    waiting.hold(1, codes=compile_sql(" OR ".join(["a = 1"] * 100)))
    waiting.arrive(max_offset=1000, codes=(66,) * 1000)
    assert waiting.woken == [1]


def test_nobody_is_woken_early_and_nobody_waits_much_longer_than_asked() -> None:
    waiting = Waiting()
    waiting.hold(1, until=10.1)
    waiting.sweep(10.09)
    assert waiting.woken == []
    waiting.sweep(10.36)
    assert waiting.woken == [1]


def test_a_sweep_after_a_long_pause_finds_everybody_who_is_due() -> None:
    waiting = Waiting()
    waiting.sweep(0.0)
    for opaque, until in ((1, 5.0), (2, 3.0), (3, 1e6)):
        waiting.hold(opaque, until=until)
    waiting.sweep(100_000.0)
    assert waiting.woken == [2, 1]
    assert len(waiting.held) == 1


def test_a_time_that_is_already_over_is_due_at_the_next_sweep() -> None:
    waiting = Waiting()
    waiting.sweep(50.0)
    waiting.hold(1, until=20.0)
    waiting.sweep(50.3)
    assert waiting.woken == [1]


def test_a_sweep_does_not_visit_those_who_are_not_due() -> None:
    waiting = Waiting(held_max=2000)
    waiting.sweep(0.0)
    for opaque in range(1000):
        waiting.hold(opaque, until=1000.0 + opaque)
    for quarter in range(100):
        waiting.sweep(quarter / 4)
    assert waiting.woken == []


def test_a_sweep_of_many_gives_the_loop_back_and_skips_who_went_meanwhile() -> None:
    waiting = Waiting(held_max=1000)
    connections = [waiting.hold(opaque, until=5.0) for opaque in range(100)]
    sweep = waiting.held.sweep(6.0)
    next(sweep)
    first = len(waiting.woken)
    assert 0 < first < 100
    waiting.held.connection_closed(connections[99])
    waiting.hold(100, until=5.0)
    for _ in sweep:
        pass
    assert waiting.woken == list(range(99)), "who came meanwhile is for the next sweep"
    waiting.sweep(6.3)
    assert waiting.woken[-1] == 100


def test_answers_to_one_connection_leave_together() -> None:
    waiting = Waiting()
    connection = waiting.hold(1)
    for opaque in (2, 3, 4):
        waiting.hold(opaque, queue_id=opaque, connection=connection)
    waiting.sweep(100.0)
    assert waiting.woken == [1, 2, 3, 4]
    assert (connection.corks, connection.is_corked) == (1, False)


def test_a_connection_that_gathers_already_is_left_to_who_gathers() -> None:
    waiting = Waiting()
    connection = waiting.hold(1)
    assert connection.cork()
    waiting.arrive()
    assert waiting.woken == [1] and connection.is_corked


def test_a_closed_connection_takes_its_pulls_with_it_unanswered() -> None:
    waiting = Waiting()
    gone = waiting.hold(1)
    waiting.hold(2, connection=gone, queue_id=1)
    waiting.hold(3)
    waiting.held.connection_closed(gone)
    assert len(waiting.held) == 1
    waiting.arrive()
    waiting.held.release_all()
    assert waiting.woken == [3]


def test_a_deleted_topic_wakes_its_own_waiters() -> None:
    waiting = Waiting()
    waiting.hold(1, queue_id=0)
    waiting.hold(2, topic="U")
    waiting.hold(3, queue_id=1)
    waiting.held.release_topic("T")
    assert waiting.woken == [1, 3]


def test_stopping_wakes_everybody() -> None:
    waiting = Waiting()
    for opaque in range(5):
        waiting.hold(opaque, queue_id=opaque % 2)
    waiting.held.release_all()
    assert sorted(waiting.woken) == list(range(5))
    assert len(waiting.held) == 0


def why_full(waiting: Waiting, connection: Any, queue_id: int = 0, subscription: str | None = None) -> str:
    pull = frames.Pull(topic="T", queue_id=queue_id, subscription=subscription)
    return waiting.held.why_full(connection, pull) or ""


def test_the_table_says_when_it_is_full() -> None:
    waiting = Waiting(held_max=2)
    seen = [why_full(waiting, FakeConnection(), 9)]
    for opaque in (1, 2):
        waiting.hold(opaque, queue_id=opaque)
        seen.append(why_full(waiting, FakeConnection(), 9))
    waiting.arrive(queue_id=2)
    seen.append(why_full(waiting, FakeConnection(), 9))
    assert seen == ["", "", "2 pulls are held, the limit is 2", ""]


def test_a_connection_or_a_queue_holds_no_more_than_is_left_for_others() -> None:
    waiting = Waiting(held_max=100)
    greedy = FakeConnection()
    for opaque in range(100):
        if not why_full(waiting, greedy, opaque):
            waiting.hold(opaque, queue_id=opaque, connection=greedy)
    assert len(waiting.held) == 50 and "this connection holds 50 pulls" in why_full(waiting, greedy, 50)
    assert not why_full(waiting, FakeConnection(), 50)
    for opaque in range(100):
        if not why_full(waiting, FakeConnection(), 50):
            waiting.hold(opaque, queue_id=50)
    assert len(waiting.held) == 75 and "queue 50 of T" in why_full(waiting, FakeConnection(), 50)
    assert not why_full(waiting, FakeConnection(), 51)


def test_a_long_expression_counts_like_the_pulls_that_it_takes_the_memory_of() -> None:
    waiting = Waiting(held_max=100)
    long = "a||" * 1000
    assert not why_full(waiting, FakeConnection(), 0, long)
    pull = frames.Pull(topic="T", queue_id=0, subscription=long)
    waiting.held.hold(FakeConnection(), pull, frozenset({1}), 10.0)  # type: ignore[arg-type]
    assert len(waiting.held) == 1
    assert "queue 0" in why_full(waiting, FakeConnection(), 0, long)
    assert "limit is 100" in why_full(waiting, FakeConnection(), 1, "a" * 64 * 60)
    waiting.arrive(codes=(1,))
    assert not why_full(waiting, FakeConnection(), 0, long)


def test_what_is_said_to_be_full_is_what_is_refused() -> None:
    waiting, random = Waiting(held_max=60), Random(7)
    seen: set[str] = set()
    connections = [FakeConnection() for _ in range(4)]
    for number in range(2000):
        connection, text = random.choice(connections), "a" * random.choice((0, 3, 63, 64, 700))
        pull = frames.Pull(topic="T", queue_id=random.choice((0, 0, 0, 1, 2)), subscription=text)
        before = waiting.held.why_full(connection, pull)  # type: ignore[arg-type]
        assert waiting.held.hold(connection, pull, None, 10.0) == before  # type: ignore[arg-type]
        seen.add(re.sub(r"\d+", "0", before or ""))
        if number % 50 == 49:
            waiting.arrive(queue_id=random.randrange(3))
    assert len(seen) == 4, "held, and refused for each of the three reasons"


def test_pulls_that_wait_for_the_same_are_looked_at_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Wanted] = []
    is_wanted = hold._is_wanted
    monkeypatch.setattr(hold, "_is_wanted", lambda wanted, new: asked.append(wanted) or is_wanted(wanted, new))
    steps = []
    for count in (10, 1000):
        waiting = Waiting(held_max=10_000)
        for opaque in range(count):
            waiting.hold(opaque, codes=frozenset({65}))
        waiting.hold(count, codes=frozenset({66}))
        with instructions() as ran:
            for offset in range(1, 20):
                waiting.arrive(max_offset=offset, codes=(67,))
        steps.append(ran.calls)
        assert len(asked) == 2 * 19
        waiting.arrive(max_offset=20, codes=(66,))
        assert (waiting.woken, waiting.passed) == ([count], [19])
        asked.clear()
    assert steps[1] <= steps[0] * 1.1


def test_a_queue_has_pulls_of_so_many_kinds_and_no_more() -> None:
    waiting = Waiting(held_max=100_000)
    for opaque in range(1024):
        waiting.hold(opaque, codes=frozenset({opaque}))
    assert "1024 filters" in why_full(waiting, FakeConnection())
    assert not why_full(waiting, FakeConnection(), 1)
    waiting.hold(2000, queue_id=1, codes=frozenset({1}))
    waiting.arrive(max_offset=100, codes=(5000,) * 100)
    assert len(waiting.woken) == 1024 - 500, "50 000 steps: the others examine the messages themselves, in slices"


def test_an_answer_that_closes_a_connection_does_not_disturb_the_waking() -> None:
    shared = FakeConnection()
    woken: list[int] = []

    def wake(one: HeldPull) -> None:
        woken.append(one.pull.opaque)
        held.connection_closed(one.connection)

    held = HeldPulls(10, wake)
    for opaque in range(3):
        pull = frames.Pull(opaque=opaque, topic="T", queue_id=0)
        held.hold(shared, pull, None, 10.0)  # type: ignore[arg-type]
    held.on_dispatched("T", 0, 1, [SimpleNamespace(tags_code=0)])  # type: ignore[list-item]
    assert woken == [0]
    assert len(held) == 0


def test_nothing_is_left_behind_in_the_tables() -> None:
    waiting = Waiting(held_max=1000)
    connections = [waiting.hold(opaque, queue_id=opaque % 7, until=float(opaque)) for opaque in range(300)]
    waiting.arrive(queue_id=3, max_offset=1)
    waiting.sweep(150.0)
    late = waiting.hold(300)
    late.closed = True
    waiting.held.release_all()
    for connection in connections:
        waiting.held.connection_closed(connection)
    waiting.sweep(400.0)
    held = waiting.held
    assert (held._by_queue, held._by_connection, held._by_slot) == ({}, {}, {})
