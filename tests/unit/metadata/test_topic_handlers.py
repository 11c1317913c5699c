from __future__ import annotations

import json
from typing import Any

import pytest

from gantry.metadata.offsets import Offsets
from gantry.metadata.topic_handlers import TopicHandlers
from gantry.metadata.topics import Topics, TopicSettings
from gantry.model.topic import TopicConfig
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.headers import HeaderError
from testkit.fake_connection import FakeConnection
from testkit.memory_state import MemoryState
from testkit.requests import answered, request
from testkit.simclock import SimClock

CODE = RequestCode.UPDATE_AND_CREATE_TOPIC
FIELDS: dict[str, Any] = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": 8,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


class Play:
    """Handlers over real tables."""

    def __init__(self, topics_max: int = 1000) -> None:
        self.state = MemoryState()
        self.topics = Topics(self.state, SimClock(), TopicSettings("b", "c", topics_max=topics_max))
        self.offsets = Offsets(MemoryState(), SimClock())
        self.handlers = TopicHandlers(self.topics, self.offsets)
        self.connection: Any = FakeConnection()

    def update(self, **changes: Any) -> tuple[int, str | None]:
        answer = self.handlers.update(self.connection, request(CODE, **(FIELDS | changes)))
        return answer.code, answer.remark

    def delete(self, topic: str) -> int:
        asked = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        return answered(self.handlers.delete(self.connection, asked)).code


def test_a_topic_is_made_as_asked_and_already_on_its_way_to_the_disk() -> None:
    play = Play()
    assert play.update(attributes="+message.type=FIFO", order="true") == (0, None)
    made = play.topics.get("orders")
    assert made == TopicConfig(
        "orders", read_queues=8, write_queues=4, perm=6, order=True, attributes={"message.type": "FIFO"}
    )
    document = play.state.load()
    assert document is not None
    assert "orders" in str(document["topicConfigTable"])


def test_a_topic_is_altered_and_keeps_the_attributes_that_are_not_named() -> None:
    play = Play()
    play.update(attributes="+queue.type=SimpleCQ,+message.type=FIFO")
    assert play.update(attributes="+message.type=NORMAL", writeQueueNums=16) == (0, None)
    altered = play.topics.get("orders")
    assert altered is not None
    assert altered.write_queues == 16
    assert altered.attributes == {"queue.type": "SimpleCQ", "message.type": "NORMAL"}
    assert play.update(attributes="+queue.type=BatchCQ")[0] == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "no/slash"},
        {"topic": ""},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "rmq_sys_anything"},
        {"topic": "c"},
        {"readQueueNums": -1},
        {"writeQueueNums": 65_537},
        {"perm": 16},
        {"perm": -1},
        {"topicFilterType": "NO_TAG"},
        {"attributes": "+color=red"},
    ],
)
def test_what_cannot_be_a_topic_is_refused_with_a_reason(changes: dict[str, Any]) -> None:
    play = Play()
    before = play.topics.data_version
    code, remark = play.update(**changes)
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark
    assert len(remark) < 250
    assert play.topics.data_version == before


def test_a_full_table_refuses() -> None:
    assert Play(topics_max=5).update()[0] == ResponseCode.SYSTEM_ERROR


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderError, match="perm"):
        Play().handlers.update(Play().connection, request(CODE, **{k: v for k, v in FIELDS.items() if k != "perm"}))


def test_one_topic_can_be_asked_for() -> None:
    play = Play()
    play.update()
    answer = play.handlers.get(play.connection, request(RequestCode.GET_TOPIC_CONFIG, topic="orders"))
    assert json.loads(answer.body)["readQueueNums"] == 8
    answer = play.handlers.get(play.connection, request(RequestCode.GET_TOPIC_CONFIG, topic="others"))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_all_topics_come_in_one_piece() -> None:
    play = Play()
    play.update()
    answer = answered(play.handlers.all(play.connection, request(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=0)))
    body = json.loads(answer.body)
    assert set(body["topicConfigTable"]) == set(play.topics.names())
    assert body["dataVersion"] == play.topics.data_version.to_json()
    assert answer.ext["totalTopicNum"] == str(len(body["topicConfigTable"])), "so a client asks for no further piece"


def test_a_deleted_topic_is_gone_and_no_matter_who_keeps_something_for_it_is_told() -> None:
    play = Play()
    play.update()
    told: list[str] = []
    play.topics.on_delete(lambda topic: told.append(topic.name))
    assert play.delete("orders") == ResponseCode.SUCCESS
    assert told == ["orders"]
    assert play.topics.get("orders") is None


def test_deleting_what_is_gone_is_no_error_and_no_news() -> None:
    play = Play()
    told: list[str] = []
    play.topics.on_delete(lambda topic: told.append(topic.name))
    assert play.delete("orders") == ResponseCode.SUCCESS
    assert told == []


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "b", "a b"])
def test_a_system_topic_cannot_be_deleted(topic: str) -> None:
    assert Play().delete(topic) == ResponseCode.INVALID_PARAMETER
