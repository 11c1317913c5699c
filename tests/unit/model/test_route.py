"""Routes: RocketMQ's shape, and the queues that follow from it."""

from __future__ import annotations

import pytest

from gantry.model.route import BrokerData, MessageQueue, QueueData, TopicRoute

ROUTE = TopicRoute(
    (QueueData("b", 2, 1, 6), QueueData("a", 1, 2, 6), QueueData("c", 1, 1, 4), QueueData("d", 1, 1, 2)),
    (
        BrokerData("C", "a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),
        BrokerData("C", "b", {1: "10.0.0.3:10911"}),
        BrokerData("C", "c", {0: "10.0.0.4:10911"}),
        BrokerData("C", "d", {0: "10.0.0.5:10911"}),
    ),
)


def test_producers_write_where_a_master_is_and_writing_is_allowed() -> None:
    assert ROUTE.queues_to_write("t") == [
        MessageQueue("t", "a", 0),
        MessageQueue("t", "a", 1),
        MessageQueue("t", "d", 0),
    ]


def test_consumers_share_every_readable_queue() -> None:
    assert [(queue.broker_name, queue.queue_id) for queue in ROUTE.queues_to_read("t")] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("c", 0),
    ]


def test_queues_are_ordered_by_topic_group_and_number() -> None:
    queues = [
        MessageQueue("t", "b", 2),
        MessageQueue("t", "b", 10),
        MessageQueue("t", "a", 11),
        MessageQueue("s", "z", 0),
    ]
    assert [queue.queue_id for queue in sorted(queues)] == [0, 11, 2, 10]


def test_a_group_is_found_by_name() -> None:
    assert ROUTE.broker("a") is ROUTE.brokers[0]
    assert ROUTE.broker("a") is not None
    assert ROUTE.brokers[0].master == "10.0.0.1:10911"
    assert ROUTE.brokers[1].master is None
    assert ROUTE.broker("x") is None


def test_a_route_has_rocketmqs_shape() -> None:
    route = TopicRoute((QueueData("a", 1, 2, 6, 1),), (BrokerData("C", "a", {1: "y:1", 0: "x:1"}),), "a:4")
    assert route.to_json() == {
        "brokerDatas": [
            {"brokerAddrs": {"0": "x:1", "1": "y:1"}, "brokerName": "a", "cluster": "C", "enableActingMaster": False}
        ],
        "filterServerTable": {},
        "orderTopicConf": "a:4",
        "queueDatas": [{"brokerName": "a", "perm": 6, "readQueueNums": 1, "topicSysFlag": 1, "writeQueueNums": 2}],
    }
    assert TopicRoute.from_json(route.to_json()) == route
    assert "orderTopicConf" not in TopicRoute().to_json()


def test_a_broker_id_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="broker id 'x'"):
        BrokerData.from_json({"brokerAddrs": {"x": "y"}})


def test_a_queue_has_rocketmqs_shape() -> None:
    queue = MessageQueue("t", "a", 3)
    assert MessageQueue.from_json(queue.to_json()) == queue
