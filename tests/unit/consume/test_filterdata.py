from __future__ import annotations

from typing import Any

import pytest

from gantry.consume.filterdata import DEAD_MS_MAX, ConsumerFilters, FilterData
from gantry.errors import StoreError
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.model.subscription import Subscription
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.simclock import SimClock

CLUSTERING = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


class Play:
    """Heartbeats, and what the table makes of them."""

    def __init__(self, state: MemoryState | None = None, clock: SimClock | None = None) -> None:
        self.clock = clock or SimClock()
        self.state = state or MemoryState()
        self.said: list[str] = []
        self.filters = ConsumerFilters(self.state, self.clock, lambda _, text: self.said.append(text))
        self.clients = Clients(ClientLimits())
        self.clients.on_beat(self.filters.heard)
        self.clients.on_change(self.filters.group_changed)
        self.connection: Any = FakeConnection("a")

    def beat(self, *wanted: tuple[str, str, int]) -> None:
        subscriptions = [Subscription(topic, text, version, "SQL92") for topic, text, version in wanted]
        self.clients.register_consumer(self.connection, "g", GroupClient("a", 0, 479, 0.0), CLUSTERING, subscriptions)

    def data(self, topic: str = "T") -> FilterData:
        found = self.filters.get(topic, "g")
        assert found is not None
        return found


def test_an_expression_is_compiled_when_it_comes_and_not_again() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1))
    program = play.data().program
    play.beat(("T", "a > 5", 2))
    assert play.data().program is program
    assert play.data().version == 2


def test_an_older_version_is_ignored_and_a_newer_one_replaces() -> None:
    play = Play()
    play.beat(("T", "a > 5", 2))
    play.beat(("T", "a > 6", 2))
    play.beat(("T", "a > 7", 1))
    assert play.data().expression == "a > 5"
    play.beat(("T", "a > 8", 3))
    assert play.data().expression == "a > 8"


def test_a_fault_removes_what_was_there_and_is_told_with_its_place() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1))
    play.beat(("T", "a > > 5", 2))
    assert play.filters.get("T", "g") is None
    assert play.filters.faults == 1
    assert "group g" in play.said[0] and "topic T" in play.said[0] and "position 4" in play.said[0]


def test_a_topic_that_is_no_longer_wanted_is_dead_and_lives_again_with_the_same_version() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1), ("U", "b", 1))
    play.clock.advance(1)
    play.beat(("U", "b", 1))
    assert play.data("T").is_dead and not play.data("U").is_dead
    play.beat(("T", "a > 5", 1), ("U", "b", 1))
    assert not play.data("T").is_dead


def test_when_the_last_member_leaves_all_is_dead() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1))
    play.clients.connection_closed(play.connection)
    assert play.data().is_dead


def test_what_is_dead_for_a_day_goes() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1))
    play.clients.connection_closed(play.connection)
    play.clock.advance(DEAD_MS_MAX)
    list(play.filters.saving())
    assert len(play.filters) == 1
    play.clock.advance(120_000)
    list(play.filters.saving())
    assert len(play.filters) == 0
    assert play.state.load() == {"filterDataByTopic": {}}


def test_a_restart_keeps_filters_as_dead_until_a_heartbeat_comes() -> None:
    before = Play()
    before.beat(("T", "a > 5", 7))
    list(before.filters.saving())
    after = Play(before.state, before.clock)
    assert after.data().is_dead and after.data().version == 7
    assert after.data().program.accepts(b"a\x016")
    after.beat(("T", "a > 5", 7))
    assert not after.data().is_dead


def test_what_does_not_fit_is_told_and_what_is_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gantry.consume.filterdata._CHARS_MAX", 10)
    play = Play()
    play.beat(("T", "a > 5", 1), ("U", "b > 5", 1), ("V", "c", 1))
    assert play.data("T") and play.data("U") and play.filters.get("V", "g") is None
    assert "filters of 10 characters" in play.said[0]


def test_nothing_changed_is_nothing_saved() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1))
    for _ in range(3):
        list(play.filters.saving())
        play.beat(("T", "a > 5", 1))
    assert play.state.saves == 1


def test_the_document_has_rocketmq_s_shape() -> None:
    play = Play()
    play.beat(("T", "a > 5", 1700000000000))
    document = play.filters.to_document()
    assert document == {
        "filterDataByTopic": {
            "T": {
                "groupFilterData": {
                    "g": {
                        "bloomFilterData": {"bitNum": 112, "bitPos": [90, 68, 28]},
                        "bornTime": play.clock.now_ms(),
                        "clientVersion": 1700000000000,
                        "consumerGroup": "g",
                        "deadTime": 0,
                        "expression": "a > 5",
                        "expressionType": "SQL92",
                        "topic": "T",
                    }
                },
                "topic": "T",
            }
        }
    }


def test_an_expression_in_the_file_that_does_not_compile_is_left_out_and_told() -> None:
    data = {"expression": "a >", "expressionType": "SQL92", "bornTime": 1, "clientVersion": 1, "deadTime": 0}
    play = Play(MemoryState({"filterDataByTopic": {"T": {"groupFilterData": {"g": data}}}}))
    assert len(play.filters) == 0
    assert "left out" in play.said[0]


def test_a_file_of_another_shape_is_an_error_that_names_it() -> None:
    with pytest.raises(StoreError, match=r"consumerFilter\.json"):
        Play(MemoryState({"filterDataByTopic": {"T": 5}}))


def test_tags_have_no_place_here() -> None:
    play = Play()
    play.clients.register_consumer(
        play.connection, "g", GroupClient("a", 0, 479, 0.0), CLUSTERING, [Subscription("T", "A || B", 1)]
    )
    assert len(play.filters) == 0


@pytest.mark.parametrize("leave", ["another expression", "a fault", "a day later", "a slave follows"])
def test_what_goes_makes_room(leave: str) -> None:
    play = Play()
    play.beat(("T", "a > 1", 1))
    assert (play.filters._count, play.filters._chars) == (1, 5)
    if leave == "another expression":
        play.beat(("T", "a > 10", 2))
        assert (play.filters._count, play.filters._chars) == (1, 6)
        return
    if leave == "a fault":
        play.beat(("T", "a >", 2))
    elif leave == "a slave follows":
        play.filters.follow("T@g", None)
    else:
        play.clients.connection_closed(play.connection)
        play.clock.advance(DEAD_MS_MAX + 1)
        list(play.filters.saving())
    assert (play.filters._count, play.filters._chars) == (0, 0)
