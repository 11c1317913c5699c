from __future__ import annotations

from typing import Any

from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.disagreements import Disagreements
from gantry.model.subscription import Subscription
from testkit.fake_connection import FakeConnection

CLUSTERING = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


class Play:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.clients = Clients(ClientLimits())
        self.disagreements = Disagreements(self.clients, lambda cause, text: self.said.append((cause, text)))
        self.members: dict[str, Any] = {}

    def beat(self, name: str, group: str = "g", kind: str = "TAG", **topics: str) -> None:
        connection = self.members.setdefault(name, FakeConnection(name))
        wanted = [Subscription(topic, text, 1, kind) for topic, text in topics.items()]
        self.clients.register_consumer(connection, group, GroupClient(name, 0, 479, 0.0), CLUSTERING, wanted)

    @property
    def found(self) -> dict[tuple[str, str], int]:
        return self.disagreements.found


def test_members_that_want_the_same_are_at_peace() -> None:
    play = Play()
    play.beat("a", T="A || B", U="*")
    play.beat("b", T="B||A", U="*")
    assert play.found == {}
    assert play.said == []


def test_different_expressions_are_found_and_told_as_long_as_they_last() -> None:
    play = Play()
    play.beat("a", T="A")
    play.beat("b", T="B")
    play.beat("a", T="A")
    assert play.found == {("g", "T"): 2}
    assert len(play.said) == 2
    cause, text = play.said[0]
    assert "g" in cause and "'A'" in text and "'B'" in text and "topic T" in text
    play.beat("a", T="B")
    assert play.found == {}
    assert len(play.said) == 2


def test_a_topic_that_only_one_wants_counts() -> None:
    play = Play()
    play.beat("a", T="*")
    play.beat("b", T="*", U="*")
    assert play.found == {("g", "U"): 2}
    assert "nothing" in play.said[0][1]


def test_the_same_words_in_another_language_are_another_wish() -> None:
    play = Play()
    play.beat("a", T="a")
    play.beat("b", kind="SQL92", T="a")
    assert play.found == {("g", "T"): 2}


def test_peace_returns_when_the_other_leaves() -> None:
    play = Play()
    play.beat("a", T="A")
    play.beat("b", T="B")
    play.beat("c", T="A")
    play.clients.connection_closed(play.members["b"])
    assert play.found == {}
    play.beat("d", T="C")
    play.clients.unregister_consumer(play.members["d"], "g")
    assert play.found == {}


def test_groups_do_not_concern_each_other_and_nothing_is_left_behind() -> None:
    play = Play()
    play.beat("a", "g", T="A")
    play.beat("b", "h", T="B")
    assert play.found == {}
    for connection in play.members.values():
        play.clients.connection_closed(connection)
    assert play.disagreements._members == play.disagreements._versions == play.disagreements._texts == {}
    assert play.disagreements._topics == 0


def test_of_many_wishes_a_few_are_kept_and_room_is_made_by_members_that_leave() -> None:
    play = Play()
    for number in range(50):
        play.beat(f"m{number}", T=f"tag{number}", **{f"T{number}": "*"})
    assert play.found["g", "T"] == 8 and play.disagreements._topics == 16
    compared: list[str] = []
    play.disagreements._compare = compared.append  # type: ignore[method-assign]
    play.beat("m40", T="tag40", T40="*")
    assert compared == [], "who repeats what is not kept is not compared each time"
    del play.disagreements._compare  # type: ignore[method-assign]
    for number in range(49):
        play.clients.connection_closed(play.members[f"m{number}"])
    assert play.found == {}
    play.beat("m49", T="tag49", T49="*")
    play.beat("new", T="tag49")
    assert play.found == {("g", "T49"): 2} and play.disagreements._topics == 3
