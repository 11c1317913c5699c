"""Routes and assignments as gRPC clients see them (facts: protocol, 10.5)."""

from __future__ import annotations

import pytest

from gantry.model.route import BrokerData, QueueData, TopicRoute
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import routes
from gantry.proxy.faults import FaultError
from testkit.grpcclient import resource

HERE = routes.endpoints_of([("127.0.0.1", 8081)])


def route(*queues: QueueData, masters: tuple[str, ...] = ("a", "b")) -> TopicRoute:
    brokers = tuple(BrokerData("cluster", name, {0 if name in masters else 1: "h:1"}) for name in ("a", "b"))
    return TopicRoute(queues, brokers)


def numbered(found: list[pb.MessageQueue]) -> list[tuple[str, int, int]]:
    return [(queue.broker.name, queue.id, queue.permission) for queue in found]


def test_the_numbers_count_over_read_only_then_write_only_then_both() -> None:
    found = routes.queues(resource("Tea"), route(QueueData("a", 3, 1, 6), QueueData("b", 1, 2, 6)), HERE, [pb.NORMAL])
    assert numbered(found) == [
        ("a", 0, pb.READ), ("a", 1, pb.READ), ("a", 2, pb.READ_WRITE), ("b", 0, pb.WRITE), ("b", 1, pb.READ_WRITE),
    ]  # fmt: skip
    assert found[0].broker.endpoints == HERE
    assert list(found[0].accept_message_types) == [pb.NORMAL]


def test_a_broker_without_a_master_has_no_queues_and_one_without_permission_has_one() -> None:
    known = route(QueueData("a", 2, 2, 6), QueueData("b", 0, 0, 0), masters=("b",))
    found = routes.queues(resource("Tea"), known, HERE, [])
    assert numbered(found) == [("b", 0, pb.NONE)]


def test_an_assignment_is_any_queue_of_a_broker_or_each_of_an_orderly_group() -> None:
    known = route(QueueData("a", 2, 2, 6), QueueData("b", 2, 2, 2))
    shared = routes.assignments(resource("Tea"), known, HERE, False)
    assert numbered([one.message_queue for one in shared]) == [("a", -1, pb.READ_WRITE)]
    orderly = routes.assignments(resource("Tea"), known, HERE, True)
    assert numbered([one.message_queue for one in orderly]) == [("a", 0, pb.READ_WRITE), ("a", 1, pb.READ_WRITE)]
    with pytest.raises(FaultError) as caught:
        routes.assignments(resource("Tea"), route(QueueData("a", 2, 2, 2)), HERE, False)
    assert caught.value.code == pb.FORBIDDEN


def test_a_client_gets_its_own_endpoints_back_unless_others_are_advertised() -> None:
    asked = routes.endpoints_of([("proxy.example", 80)])
    assert asked.scheme == pb.DOMAIN_NAME
    assert routes.endpoints(asked, None) == asked
    assert routes.endpoints(asked, HERE) == HERE
    assert routes.endpoints_of([("::1", 1)]).scheme == pb.IPv6
    with pytest.raises(FaultError) as caught:
        routes.endpoints(pb.Endpoints(), None)
    assert caught.value.code == pb.ILLEGAL_ACCESS_POINT


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
def test_names_that_clients_may_not_use(name: str) -> None:
    with pytest.raises(FaultError) as caught:
        routes.topic_name(resource(name))
    assert caught.value.code == pb.ILLEGAL_TOPIC
    if name not in ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
        with pytest.raises(FaultError):
            routes.group_name(resource(name))


@pytest.mark.parametrize(
    ("attribute", "types"),
    [
        (None, [pb.NORMAL]),
        ("FIFO", [pb.FIFO]),
        ("mixed", [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]),
        ("UNSPECIFIED", [pb.MESSAGE_TYPE_UNSPECIFIED]),
    ],
)
def test_a_topic_without_the_attribute_takes_normal_messages(attribute: str | None, types: list[int]) -> None:
    attributes = {} if attribute is None else {"message.type": attribute}
    assert list(routes.accepted(attributes)) == types
