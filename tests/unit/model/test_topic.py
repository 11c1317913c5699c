"""Topics and versions in RocketMQ's shapes."""

from __future__ import annotations

import pytest

from gantry.model.topic import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion, TopicConfig


def test_a_topic_has_rocketmqs_shape() -> None:
    topic = TopicConfig("orders", 8, 4, attributes={"message.type": "NORMAL"})
    assert topic.to_json() == {
        "attributes": {"message.type": "NORMAL"},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert TopicConfig.from_json(topic.to_json()) == topic


def test_a_topic_of_an_old_broker_has_defaults_for_what_it_lacks() -> None:
    assert TopicConfig.from_json({"topicName": "t"}) == TopicConfig("t", 16, 16, 6)


def test_an_ill_typed_topic_names_its_field() -> None:
    with pytest.raises(ValueError, match="perm"):
        TopicConfig.from_json({"topicName": "t", "perm": "rw"})


def test_permissions_are_bits() -> None:
    topic = TopicConfig("t", perm=PERM_READ)
    assert (topic.is_readable, topic.is_writable, topic.is_inherited) == (True, False, False)
    topic = TopicConfig("t", perm=PERM_WRITE | PERM_INHERIT)
    assert (topic.is_readable, topic.is_writable, topic.is_inherited) == (False, True, True)


def test_a_version_goes_up_by_one_and_tells_when() -> None:
    version = DataVersion(7, 2, 100)
    assert version.next(200) == DataVersion(8, 2, 200)
    assert version == DataVersion(7, 2, 100)


def test_a_version_has_rocketmqs_shape() -> None:
    assert DataVersion(7, 2, 100).to_json() == {"counter": 7, "stateVersion": 2, "timestamp": 100}
    assert DataVersion.from_json({"counter": "7", "stateVersion": 2, "timestamp": 100}) == DataVersion(7, 2, 100)
    assert DataVersion.from_json(None) == DataVersion()
    with pytest.raises(ValueError, match="counter"):
        DataVersion.from_json({"counter": {"value": 1}})
