"""Who is connected, as tools ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from gantry.leaves.frames import Command
from gantry.metadata.clients import ClientLimits, Clients, Consumption, GroupClient
from gantry.metadata.connection_handlers import ConnectionHandlers
from gantry.model.subscription import Subscription
from gantry.wire import bodies
from gantry.wire.codes import Language, RequestCode, ResponseCode
from testkit.fake_connection import FakeConnection
from testkit.requests import answered, request
from testkit.simclock import SimClock

CONNECTION: Any = FakeConnection("10.0.0.1:99")


@pytest.fixture
def handlers() -> ConnectionHandlers:
    clients = Clients(ClientLimits())
    consumption = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    clients.register_consumer(
        CONNECTION, "g", GroupClient("c", Language.GO, 317, 0.0), consumption, [Subscription("T", "a || b", 7)]
    )
    clients.register_producer(CONNECTION, "p", GroupClient("c", 99, 1, 0.0))
    return ConnectionHandlers(clients, SimClock())


def body(answer: Command) -> dict[str, object]:
    assert answer.code == 0
    return bodies.loads_object(answer.body)


def test_a_consumer_group_is_listed_as_its_heartbeats_say(handlers: ConnectionHandlers) -> None:
    asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    found = body(answered(handlers.consumers(CONNECTION, asked)))
    assert found["connectionSet"] == [{"clientAddr": "10.0.0.1:99", "clientId": "c", "language": "GO", "version": 317}]
    assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert found["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    assert found["subscriptionTable"] == {"T": Subscription("T", "a || b", 7).to_json()}


def test_a_group_without_members_is_not_online(handlers: ConnectionHandlers) -> None:
    asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="other")
    assert answered(handlers.consumers(CONNECTION, asked)).code == ResponseCode.CONSUMER_NOT_ONLINE


def test_producers_are_listed_and_an_unknown_language_is_other(handlers: ConnectionHandlers) -> None:
    asked = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="p")
    assert body(answered(handlers.producers(CONNECTION, asked)))["connectionSet"] == [
        {"clientAddr": "10.0.0.1:99", "clientId": "c", "language": "OTHER", "version": 1}
    ]
    missing = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="other")
    assert answered(handlers.producers(CONNECTION, missing)).code == ResponseCode.SYSTEM_ERROR


def test_all_producers_are_listed_by_group(handlers: ConnectionHandlers) -> None:
    found = body(answered(handlers.all_producers(CONNECTION, request(RequestCode.GET_ALL_PRODUCER_INFO))))["data"]
    assert isinstance(found, dict) and list(found) == ["p"]
    (one,) = found["p"]
    assert (one["clientId"], one["language"], one["remoteIP"], one["version"]) == ("c", "OTHER", "10.0.0.1:99", 1)
    assert isinstance(one["lastUpdateTimestamp"], int)


def test_what_a_group_wants_of_a_topic(handlers: ConnectionHandlers) -> None:
    def asked(topic: str) -> dict[str, object]:
        return body(
            handlers.subscription(
                CONNECTION, request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic=topic)
            )
        )

    assert asked("T")["subscriptionData"] == Subscription("T", "a || b", 7).to_json()
    assert asked("U") == {"group": "g", "subscriptionData": None, "topic": "U"}
