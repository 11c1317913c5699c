from __future__ import annotations

import json
from typing import Any

import pytest

from gantry.consume.filter import fault_of
from gantry.errors import Refusal
from gantry.leaves.frames import Command
from gantry.metadata.client_handlers import ClientHandlers
from gantry.metadata.clients import ClientLimits, Clients
from gantry.metadata.groups import Groups, GroupSettings
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from gantry.wire.bodies import MalformedBodyError
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.headers import HeaderError
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.requests import request
from testkit.simclock import SimClock


class Play:
    """Handlers over real tables."""

    def __init__(self, limits: ClientLimits | None = None, groups: GroupSettings | None = None) -> None:
        self.clock = SimClock()
        self.clients = Clients(limits or ClientLimits())
        self.topics = Topics(MemoryState(), self.clock, TopicSettings("b", "c"))
        self.groups = Groups(MemoryState(), self.clock, groups or GroupSettings())
        self.handlers = ClientHandlers(self.clients, self.topics, self.groups, self.clock, fault_of)
        self.connection: Any = FakeConnection()

    def beat(self, **parts: Any) -> Command:
        body = {"clientID": "10.0.0.5@1#2", "producerDataSet": [], "consumerDataSet": []} | parts
        return self.handlers.heartbeat(self.connection, request(RequestCode.HEART_BEAT, body))


def consumer(group: str = "g", topic: str = "T", **parts: Any) -> dict[str, Any]:
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
    return {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription]} | parts


def test_a_heartbeat_registers_the_client_in_all_its_groups() -> None:
    play = Play()
    answer = play.beat(producerDataSet=[{"groupName": "p"}], consumerDataSet=[consumer("g"), consumer("h")])
    assert answer.code == ResponseCode.SUCCESS
    assert answer.opaque == 4711
    assert "IS_SUPPORT_HEART_BEAT_V2" not in answer.ext
    assert play.clients.consumers("g") == play.clients.consumers("h") == ["10.0.0.5@1#2"]
    assert list(play.clients.producers("p")) == [play.connection]


def test_a_heartbeat_makes_the_group_and_its_retry_topic() -> None:
    play = Play()
    play.beat(consumerDataSet=[consumer("g")])
    assert play.groups.get("g") == GroupConfig("g")
    assert play.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", read_queues=1, write_queues=1, perm=6)


def test_the_retry_topic_follows_its_group_and_what_it_consumes() -> None:
    play = Play()
    play.topics.put(TopicConfig("T", order=True))
    play.groups.put(GroupConfig("g", retry_queues=3))
    play.beat(consumerDataSet=[consumer("g", "T", unitMode=True)])
    assert play.topics.get("%RETRY%g") == TopicConfig(
        "%RETRY%g", read_queues=3, write_queues=3, perm=6, sys_flag=2, order=True
    )


def test_a_group_without_retry_queues_gets_no_retry_topic() -> None:
    play = Play()
    play.groups.put(GroupConfig("g", retry_queues=0))
    play.beat(consumerDataSet=[consumer("g")])
    assert play.topics.get("%RETRY%g") is None
    assert play.clients.consumers("g") != []


def test_a_group_that_may_not_be_made_is_passed_over_in_silence() -> None:
    play = Play(groups=GroupSettings(auto_create=False))
    answer = play.beat(consumerDataSet=[consumer("g"), consumer("TOOLS_CONSUMER")])
    assert answer.code == ResponseCode.SUCCESS
    assert play.clients.consumers("g") == []
    assert play.clients.consumers("TOOLS_CONSUMER") != []


@pytest.mark.parametrize("name", ["", "a b", "x" * 200])
def test_names_that_are_not_allowed_leave_nothing_behind(name: str) -> None:
    play = Play()
    answer = play.beat(producerDataSet=[{"groupName": name}], consumerDataSet=[consumer(name), consumer("g", name)])
    assert answer.code == ResponseCode.SUCCESS
    assert play.clients.counts() == (0, 1)
    group = play.clients.consumer_group("g")
    assert group is not None
    assert group.subscriptions == {}


def test_a_client_too_many_is_refused() -> None:
    play = Play(ClientLimits(registrations_max=1))
    answer = play.beat(consumerDataSet=[consumer("g"), consumer("h")])
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark
    assert play.beat(producerDataSet=[{"groupName": "p"}]).code == ResponseCode.SYSTEM_BUSY


def test_a_body_that_is_no_heartbeat_is_malformed() -> None:
    play = Play()
    for body in (b"", b"[]", b"{}", b"\xff", b'{"clientID":"x","consumerDataSet":5}'):
        with pytest.raises(MalformedBodyError):
            play.handlers.heartbeat(play.connection, request(RequestCode.HEART_BEAT, body))
    assert play.clients.counts() == (0, 0)


def test_a_goodbye_ends_the_registrations_that_it_names() -> None:
    play = Play()
    play.beat(producerDataSet=[{"groupName": "p"}], consumerDataSet=[consumer("g")])
    leave = play.handlers.unregister
    code = RequestCode.UNREGISTER_CLIENT
    assert leave(play.connection, request(code, clientID="x", consumerGroup="g")).code == ResponseCode.SUCCESS
    assert play.clients.counts() == (1, 0)
    assert leave(play.connection, request(code, clientID="x", producerGroup="p")).code == ResponseCode.SUCCESS
    assert leave(play.connection, request(code, clientID="x", producerGroup="p", consumerGroup="g")).code == 0
    assert play.clients.counts() == (0, 0)
    with pytest.raises(HeaderError, match="clientID"):
        leave(play.connection, request(code))


def test_the_list_of_consumers_has_every_client_id() -> None:
    play = Play()
    play.beat(consumerDataSet=[consumer("g")])
    play.connection = FakeConnection()
    play.beat(clientID="other", consumerDataSet=[consumer("g")])
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    answer = play.handlers.consumer_list(play.connection, request(code, consumerGroup="g"))
    assert json.loads(answer.body) == {"consumerIdList": ["10.0.0.5@1#2", "other"]}


def test_a_group_with_nobody_online_is_an_error_as_in_rocketmq() -> None:
    play = Play()
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    answer = play.handlers.consumer_list(play.connection, request(code, consumerGroup="g"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "no consumer for this group, g"


@pytest.mark.parametrize(
    ("expression_type", "expression", "code"),
    [
        ("TAG", "a >", 0),
        (None, "a >", 0),
        ("", "a >", 0),
        ("SQL92", "a > 1", 0),
        ("SQL92", "a >", 23),
        ("SQL92", "", 23),
        ("JAVASCRIPT", "a > 1", 23),
    ],
)
def test_a_consumer_is_told_at_its_start_that_its_filter_will_not_work(
    expression_type: str | None, expression: str, code: int
) -> None:
    play = Play()
    subscription = {"topic": "T", "subString": expression, "expressionType": expression_type}
    body: dict[str, object] = {"clientId": "x", "group": "g", "subscriptionData": subscription}
    answer = play.handlers.check_config(play.connection, request(RequestCode.CHECK_CLIENT_CONFIG, body))
    assert answer.code == code
    assert (answer.remark or "").startswith("Invalid MessageSelector. ") is bool(code)
    with pytest.raises(MalformedBodyError):
        play.handlers.check_config(play.connection, request(RequestCode.CHECK_CLIENT_CONFIG, {"subscriptionData": 5}))


def test_a_refused_topic_table_does_not_stop_a_heartbeat() -> None:
    play = Play()
    play.topics = Topics(MemoryState(), play.clock, TopicSettings("b", "c", topics_max=13))
    assert isinstance(play.topics.put(TopicConfig("one")), Refusal)
    assert play.beat(consumerDataSet=[consumer("g")]).code == ResponseCode.SUCCESS
