"""Modes of groups, and assignments over real tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.route import QueueData, TopicRoute
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.pop.assignment import POP, Mode
from gantry.pop.assignment_handlers import AssignmentHandlers, AssignmentRules
from gantry.pop.modes import Modes
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.requests import answered, request
from testkit.simclock import SimClock


class Play:
    """Handlers over real tables; the route of T has two queues on each of two brokers; a and b are members of g."""

    def __init__(self, group_settings: GroupSettings | None = None) -> None:
        clock = SimClock()
        topics = Topics(MemoryState(), clock, TopicSettings("b1", "c"))
        topics.ensure(TopicConfig("T", read_queues=2, write_queues=2, perm=6))
        groups = self.groups = Groups(MemoryState(), clock, group_settings or GroupSettings())
        groups.put(GroupConfig("g"))
        clients = Clients(ClientLimits())
        for client_id in ("a", "b"):
            member = GroupClient(client_id, 0, 0, 0.0)
            connection: Any = FakeConnection()
            clients.register_consumer(connection, "g", member, Consumption("", "CLUSTERING", ""), [])
        self.state = MemoryState()
        self.modes = Modes(self.state, entries_max=2)
        self.rules = AssignmentRules()
        self.known: TopicRoute | None = TopicRoute((QueueData("b1", 2, 2, 6), QueueData("b2", 2, 2, 6)))
        self.handlers = AssignmentHandlers(self.modes, self, topics, groups, clients, lambda: self.rules)
        self.connection: Any = FakeConnection()

    async def route(self, topic: str) -> TopicRoute | None:
        return self.known

    def ask(self, **changes: object) -> list[tuple[str, int, str]] | None:
        """The assigned queues and their modes; None for an answer without a list."""
        body = {
            "topic": "T", "consumerGroup": "g", "clientId": "a", "strategyName": "AVG", "messageModel": "CLUSTERING",
        }  # fmt: skip
        answer = answered(self.handlers.query(self.connection, request(RequestCode.QUERY_ASSIGNMENT, body | changes)))
        assert answer.code == ResponseCode.SUCCESS
        rows = json.loads(answer.body).get("messageQueueAssignments")
        if rows is None:
            return None
        return [(row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"], row["mode"]) for row in rows]

    def set(self, **changes: object) -> Command:
        body = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0}
        asked = request(RequestCode.SET_MESSAGE_REQUEST_MODE, body | changes)
        return answered(self.handlers.set_mode(self.connection, asked))


def test_a_member_gets_its_queues_on_all_brokers() -> None:
    play = Play()
    assert play.ask() == [("b1", 0, "PULL"), ("b1", 1, "PULL")]
    assert play.ask(clientId="b", strategyName="AVG_BY_CIRCLE") == [("b1", 1, "PULL"), ("b2", 1, "PULL")]
    assert play.ask(messageModel="BROADCASTING") == [(b, q, "PULL") for b in ("b1", "b2") for q in (0, 1)]
    play.rules = AssignmentRules(is_balancing=False)
    assert play.ask(clientId="b") == [(b, q, "PULL") for b in ("b1", "b2") for q in (0, 1)]


def test_without_a_route_or_members_there_is_no_list_instead_of_an_empty_one() -> None:
    play = Play()
    assert play.ask(consumerGroup="nobody") is None and play.ask(strategyName="MACHINE_ROOM") is None
    play.known = None
    assert play.ask() is None and play.ask(messageModel="BROADCASTING") is None
    play.known = TopicRoute()
    assert play.ask() is None and play.ask(messageModel="BROADCASTING") is None


def test_a_mode_counts_from_the_next_answer_and_only_for_its_topic_and_group() -> None:
    play = Play()
    assert play.set().code == ResponseCode.SUCCESS
    assert play.ask() == [("b1", -1, "POP"), ("b2", -1, "POP")]
    assert play.ask(topic="%RETRY%g") == [("b1", 0, "PULL"), ("b1", 1, "PULL")]
    play.rules = AssignmentRules(Mode(POP, -1))
    assert play.ask(topic="%RETRY%g") == [("b1", 0, "PULL"), ("b1", 1, "PULL")]
    assert play.set(mode="PULL").code == ResponseCode.SUCCESS
    assert play.ask() == [("b1", 0, "PULL"), ("b1", 1, "PULL")]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "no group"}, ResponseCode.INVALID_PARAMETER),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ({"popShareQueueNum": 1 << 40}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_mode_that_cannot_be_is_refused_and_changes_nothing(changes: dict[str, object], code: int) -> None:
    play = Play()
    assert play.set(**changes).code == code
    assert len(play.modes) == 0


def test_a_mode_may_be_set_before_the_first_heartbeat_of_a_group_where_that_would_make_it() -> None:
    play = Play()
    assert play.set(consumerGroup="soon").code == ResponseCode.SUCCESS
    assert play.modes.get("T", "soon") == Mode(POP) and play.groups.get("soon") is not None


@pytest.mark.parametrize("settings", [GroupSettings(auto_create=False), GroupSettings(groups_max=1)])
def test_a_group_that_no_heartbeat_would_make_gets_no_mode(settings: GroupSettings) -> None:
    play = Play(settings)
    assert play.set(consumerGroup="soon").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert len(play.modes) == 0 and play.groups.get("soon") is None


def test_a_body_that_is_none_is_refused() -> None:
    play = Play()
    with pytest.raises(MalformedBodyError):
        play.ask(topic=[])


def test_the_document_is_rocketmqs_and_slaves_get_the_same_entries() -> None:
    play = Play()
    play.modes.touched = set()
    play.set(popShareQueueNum=3)
    entry = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "T"}
    answer = answered(play.handlers.all_modes(play.connection, request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)))
    assert json.loads(answer.body) == play.state.load() == {"messageRequestModeMap": {"T": {"g": entry}}}
    assert Modes(play.state).get("T", "g") == Mode(POP, 3)
    slave = Modes(MemoryState())
    for key in play.modes.touched:
        slave.follow(key, play.modes.value(key))
    assert slave.keys() == play.modes.keys() == ["T@g"] and slave.file.is_changed
    assert slave.value("T@g") == play.modes.value("T@g") == entry
    slave.follow("T@g", None)
    assert slave.keys() == [] and slave.value("T@g") is None


def test_the_table_is_bounded_and_forgets_what_was_deleted() -> None:
    modes = Modes(MemoryState(), entries_max=2)
    assert modes.put("T", "g", Mode(POP)) is None and modes.put("T", "h", Mode(POP)) is None
    assert modes.put("U", "g", Mode(POP)) is not None
    assert modes.put("T", "g", Mode(POP, 5)) is None
    modes.forget_group("h")
    assert modes.keys() == ["T@g"] and len(modes) == 1
    modes.forget_topic("T")
    assert modes.keys() == [] and len(modes) == 0
