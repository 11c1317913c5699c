from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gantry.consume.filter import Wanted
from gantry.consume.sql92.program import Program, compile_sql
from gantry.pop.held import ANY_QUEUE, NOTIFICATION, POP, HeldLimits, HeldRequests, PollKey, waiting_s
from testkit.fake_connection import FakeConnection


class Waiting:
    """Held requests over queues of which only the numbers of visible messages are known."""

    def __init__(self, **limits: int) -> None:
        self.visible = 0  # messages that the next tries get, one each
        self.may_serve = True
        self.tried: list[str] = []
        self.answered: list[str] = []
        self.given_up: list[str] = []
        self._calls: list[Callable[[], None]] = []
        self.held = HeldRequests(HeldLimits(**limits), self._calls.append, lambda: self.may_serve)

    def hold(
        self,
        name: str,
        *,
        kind: str = POP,
        topic: str = "T",
        group: str = "g",
        queue_id: int = ANY_QUEUE,
        wanted: Wanted = None,
        until: float = 10.0,
        connection: Any = None,
    ) -> bool:
        place = PollKey(kind, topic, group, queue_id)
        connection = connection or FakeConnection()
        return self.held.hold(
            connection, place, wanted, until, lambda: self._retry(name), lambda: self.given_up.append(name)
        )

    def _retry(self, name: str) -> bool:
        self.tried.append(name)
        if not self.visible:
            return False
        self.visible -= 1
        self.answered.append(name)
        return True

    def arrive(self, topic: str = "T", queue_id: int = 0, first: int = 1, codes: tuple[int, ...] = (0,)) -> None:
        """Messages with these tag codes come into a queue."""
        entries: list[Any] = [
            SimpleNamespace(tags_code=code, queue_offset=first + number, properties=b"a\x01%d" % code)
            for number, code in enumerate(codes)
        ]
        self.visible += len(codes)
        self.held.on_dispatched(topic, queue_id, first + len(codes), entries)

    def turn(self) -> int:
        """Let the loop turn until nothing is left to call; return how many turns that took."""
        turns = 0
        while self._calls:
            calls, self._calls[:] = list(self._calls), []
            turns += 1
            for call in calls:
                call()
        return turns

    def sweep(self, now: float) -> None:
        for _ in self.held.sweep(now):
            pass


def test_a_message_is_given_to_the_request_of_each_group_whose_time_ends_first() -> None:
    waiting = Waiting()
    waiting.hold("late", until=20.0)
    waiting.hold("first", until=10.0)
    waiting.hold("of another group", group="h")
    waiting.hold("of another topic", topic="U")
    waiting.arrive()
    waiting.visible = 2
    waiting.turn()
    assert waiting.answered == ["first", "late"]
    waiting.arrive()
    waiting.turn()
    assert waiting.answered == ["first", "late", "of another group"]
    assert len(waiting.held) == 1


def test_the_first_that_finds_nothing_ends_the_tries_of_its_line_and_goes_on_waiting() -> None:
    waiting = Waiting()
    for name in "abc":
        waiting.hold(name)
    waiting.arrive()
    waiting.turn()
    assert (waiting.answered, waiting.tried) == (["a"], ["a", "b"])
    assert len(waiting.held) == 2
    waiting.arrive()
    waiting.turn()
    assert waiting.answered == ["a", "b"]


def test_messages_of_one_turn_are_looked_for_once() -> None:
    waiting = Waiting()
    waiting.hold("a")
    for first in range(1, 6):
        waiting.arrive(first=first)
    waiting.turn()
    assert waiting.tried == ["a"]


def test_nothing_is_tried_while_records_are_dispatched() -> None:
    waiting = Waiting()
    waiting.hold("a")
    waiting.arrive()
    assert waiting.tried == []


@pytest.mark.parametrize("queue_id, is_tried", [(ANY_QUEUE, True), (3, True), (2, False)])
def test_a_request_waits_for_its_queue_or_for_any(queue_id: int, is_tried: bool) -> None:
    waiting = Waiting()
    waiting.hold("a", queue_id=queue_id)
    waiting.arrive(queue_id=3)
    waiting.turn()
    assert bool(waiting.tried) == is_tried


@pytest.mark.parametrize("topic", ["%RETRY%g_T", "%RETRY%g+T"])
def test_both_retry_topics_of_the_group_wake_whatever_the_filter_and_the_queue(topic: str) -> None:
    waiting = Waiting()
    waiting.hold("a", queue_id=3, wanted=frozenset({7}))
    waiting.hold("of another group", group="h")
    waiting.arrive(topic=topic, codes=(8,))
    waiting.turn()
    assert waiting.answered == ["a"]


@pytest.mark.parametrize("wanted", [frozenset({7}), compile_sql("a = '7'")])
def test_what_the_filter_does_not_take_wakes_only_at_every_800th_offset(wanted: Wanted) -> None:
    waiting = Waiting()
    waiting.hold("a", wanted=wanted)
    waiting.arrive(codes=(8, 9))
    waiting.turn()
    assert waiting.tried == []
    waiting.visible = 0
    waiting.held.on_dispatched("T", 0, 1601, [SimpleNamespace(tags_code=8, queue_offset=1600, properties=b"")])  # type: ignore[list-item]
    waiting.turn()
    assert waiting.tried == ["a"]
    waiting.arrive(first=1601, codes=(8, 7))
    waiting.turn()
    assert waiting.answered == ["a"]


def test_lines_with_other_filters_are_tried_for_themselves() -> None:
    waiting = Waiting()
    waiting.hold("seven", wanted=frozenset({7}))
    waiting.hold("all")
    waiting.arrive(codes=(8,))
    waiting.turn()
    assert waiting.answered == ["all"]


def test_what_becomes_visible_without_a_message_wakes_the_queues_of_the_group() -> None:
    waiting = Waiting()
    waiting.hold("any")
    waiting.hold("two", queue_id=2)
    waiting.hold("three", queue_id=3)
    waiting.hold("of another group", group="h")
    waiting.visible = 4
    waiting.held.wake("T", "g", 2)
    waiting.turn()
    assert sorted(waiting.answered) == ["any", "two"]
    waiting.held.wake("T", "g")
    waiting.turn()
    assert sorted(waiting.answered) == ["any", "three", "two"]


def test_full_is_full_for_a_place_and_for_all_and_an_answer_makes_room() -> None:
    waiting = Waiting(per_place_max=2, held_max=3)
    assert waiting.hold("a")
    assert waiting.hold("b", wanted=frozenset({7}))
    assert not waiting.hold("c")
    assert waiting.hold("d", kind=NOTIFICATION)
    assert not waiting.hold("e", topic="U")
    assert waiting.held.counts.full == 2
    waiting.arrive()
    waiting.turn()
    assert waiting.hold("e")
    assert waiting.held.at(PollKey(POP, "T", "g", ANY_QUEUE)) == 2
    assert waiting.held.by_kind() == {POP: 2, NOTIFICATION: 1}


def test_a_connection_waits_for_no_more_than_is_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, greedy = Waiting(held_max=10), FakeConnection()
    waits = [waiting.hold(str(number), topic=f"T{number}", connection=greedy) for number in range(10)]
    assert waits == [True] * 5 + [False] * 5
    assert waiting.hold("other", topic="T9")
    monkeypatch.setattr("gantry.pop.held._LINES_PER_TOPIC_MAX", 1)
    assert not waiting.hold("new", topic="T1", wanted=frozenset({1})), "another filter is looked at by itself"
    assert waiting.hold("same", topic="T1")


def test_a_client_that_goes_away_frees_its_places() -> None:
    waiting = Waiting(per_place_max=2)
    connection = FakeConnection()
    waiting.hold("a", connection=connection)
    waiting.hold("b", connection=connection)
    waiting.held.connection_closed(connection)  # type: ignore[arg-type]
    assert len(waiting.held) == 0
    assert waiting.hold("c")
    assert waiting.hold("d")
    waiting.arrive()
    waiting.turn()
    assert waiting.answered == ["c"]


def test_who_does_not_read_gets_no_messages() -> None:
    waiting = Waiting()
    clogged = FakeConnection()
    clogged.is_writable = False
    waiting.hold("clogged", connection=clogged)
    waiting.hold("b")
    waiting.arrive()
    waiting.turn()
    assert (waiting.given_up, waiting.answered) == (["clogged"], ["b"])


def test_a_request_whose_time_is_over_is_answered_with_nothing_and_only_once() -> None:
    waiting = Waiting()
    waiting.hold("a", until=10.0)
    waiting.hold("b", until=30.0)
    waiting.sweep(9.9)
    assert waiting.given_up == []
    waiting.sweep(10.5)
    waiting.sweep(11.0)
    assert waiting.given_up == ["a"]
    waiting.arrive()
    waiting.turn()
    assert waiting.answered == ["b"] and len(waiting.held) == 0


def test_a_stop_answers_all() -> None:
    waiting = Waiting()
    for name in "abc":
        waiting.hold(name, queue_id=ord(name))
    waiting.held.release_all()
    assert sorted(waiting.given_up) == ["a", "b", "c"]
    assert len(waiting.held) == 0


def test_who_must_not_serve_any_more_pops_nothing_and_answers_all() -> None:
    waiting = Waiting()
    waiting.hold("a")
    waiting.hold("b", topic="U")
    waiting.may_serve = False
    waiting.arrive()
    waiting.turn()
    assert waiting.tried == []
    assert sorted(waiting.given_up) == ["a", "b"]


def test_many_are_answered_in_slices_and_none_is_forgotten() -> None:
    waiting = Waiting()
    for number in range(100):
        waiting.hold(str(number), until=10.0 + number)
    waiting.arrive(codes=(0,) * 100)
    assert waiting.turn() > 5
    assert waiting.answered == [str(number) for number in range(100)]


def test_a_try_that_fails_does_not_block_those_behind_it() -> None:
    waiting = Waiting()

    def fail() -> bool:
        raise RuntimeError("a bug")

    waiting.held.hold(FakeConnection(), PollKey(POP, "T", "g", 0), None, 1.0, fail, lambda: None)  # type: ignore[arg-type]
    waiting.hold("b", queue_id=0)
    waiting.hold("of another place")
    waiting.arrive(codes=(0, 0))
    with pytest.raises(RuntimeError):
        waiting.turn()
    waiting.arrive()
    waiting.turn()
    assert sorted(waiting.answered) == ["b", "of another place"]


def test_a_request_waits_a_little_shorter_than_its_client_and_never_long() -> None:
    assert waiting_s(until_ms=16_000, now_ms=1000) == 14.95
    assert waiting_s(until_ms=10_000_000, now_ms=1000) == 59.95
    assert waiting_s(until_ms=0, now_ms=1000) == 0
    assert waiting_s(until_ms=1040, now_ms=1000) == 0


def test_the_work_of_all_filters_in_one_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, evaluated = Waiting(), [0]
    accepts = Program.accepts

    def counted(program: Program, packed: bytes) -> bool:
        evaluated[0] += program.cost
        return accepts(program, packed)

    monkeypatch.setattr(Program, "accepts", counted)
    for number in range(300):
        waiting.hold(f"w{number}", wanted=compile_sql(f"a = {number + 10}"))
    for first in (1, 201):
        waiting.arrive(first=first, codes=(0,) * 200)
    assert 40_000 < evaluated[0] <= 50_000
    waiting.visible = 0
    waiting.turn()
    assert 0 < len(waiting.tried) <= 300 and not waiting.answered
    waiting.arrive(first=401, codes=(17,))
    waiting.turn()
    assert waiting.tried[-1] == "w7" and waiting.answered == ["w7"]  # the next turn has its own work


def test_a_request_whose_time_is_over_makes_room() -> None:
    waiting = Waiting()
    waiting.hold("a", until=10.0)
    waiting.hold("b", until=30.0)
    waiting.sweep(11.0)
    assert len(waiting.held) == 1


@pytest.mark.parametrize("leave", ["answered", "closed", "given up", "swept"])
def test_a_request_that_went_in_any_way_goes_only_once(leave: str) -> None:
    play, connection = Waiting(), FakeConnection()
    play.hold("a", connection=connection)
    (request,) = play.held._by_connection[connection]  # type: ignore[index]
    ways: dict[str, Callable[[], object]] = {
        "answered": play.arrive,
        "closed": lambda: play.held.connection_closed(connection),  # type: ignore[arg-type]
        "given up": play.held.release_all,
        "swept": lambda: play.sweep(11.0),
    }
    ways[leave]()
    play.turn()
    assert len(play.held) == 0 and not request.is_held
    play.held._give_up(request)
    assert len(play.held) == 0 and len(play.answered + play.given_up) == (leave != "closed")
