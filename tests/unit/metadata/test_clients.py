from __future__ import annotations

from typing import Any

import pytest

from gantry.errors import Refusal
from gantry.metadata.clients import ClientLimits, Clients, ConsumerGroup, Consumption, GroupClient
from gantry.model.subscription import Subscription
from gantry.wire.codes import ResponseCode
from testkit.fake_connection import FakeConnection

CLUSTERING = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


class Registry:
    """Clients, with short words for a heartbeat and a list of the changes that were told."""

    def __init__(self, limits: ClientLimits | None = None) -> None:
        self.clients = Clients(limits or ClientLimits())
        self.told: list[tuple[str, int]] = []
        self.clients.on_change(self._note)

    def _note(self, group: ConsumerGroup) -> None:
        self.told.append((group.name, len(group.members)))

    def beat(
        self,
        connection: Any,
        group: str = "g",
        client_id: str = "",
        topics: dict[str, int] | None = None,
        at: float = 0.0,
    ) -> Refusal | None:
        member = GroupClient(client_id or connection.peer, 0, 479, at)
        subscriptions = [Subscription(topic, "*", version) for topic, version in (topics or {"T": 1}).items()]
        return self.clients.register_consumer(connection, group, member, CLUSTERING, subscriptions)

    def produce(self, connection: Any, group: str = "p", at: float = 0.0, client_id: str = "") -> Refusal | None:
        return self.clients.register_producer(connection, group, GroupClient(client_id or connection.peer, 0, 479, at))


def connection(name: str = "a") -> Any:
    return FakeConnection(name)


def test_a_first_heartbeat_is_a_change_and_a_second_is_none() -> None:
    registry, one = Registry(), connection()
    registry.beat(one)
    registry.beat(one, at=30.0)
    assert registry.told == [("g", 1)]
    assert registry.clients.consumers("g") == ["a"]


def test_every_arrival_and_departure_is_told() -> None:
    registry, one, two = Registry(), connection("a"), connection("b")
    registry.beat(one)
    registry.beat(two)
    registry.clients.unregister_consumer(one, "g")
    registry.clients.connection_closed(two)
    assert registry.told == [("g", 1), ("g", 2), ("g", 1), ("g", 0)]
    assert registry.clients.consumer_group("g") is None
    assert registry.clients.consumers("g") == []


def test_another_client_id_on_the_same_connection_is_a_change() -> None:
    registry, one = Registry(), connection()
    registry.beat(one, client_id="x")
    registry.beat(one, client_id="y")
    assert registry.clients.consumers("g") == ["y"]
    assert len(registry.told) == 2


def test_a_client_that_came_back_before_its_old_connection_was_noticed_dead_counts_once() -> None:
    registry, old, new = Registry(), connection("old"), connection("new")
    registry.beat(old, client_id="same")
    registry.beat(new, client_id="same")
    assert registry.clients.consumers("g") == ["same"]
    registry.clients.connection_closed(old)
    assert registry.clients.consumers("g") == ["same"]


def test_a_topic_that_comes_or_goes_is_a_change_and_a_newer_version_is_none() -> None:
    registry, one = Registry(), connection()
    registry.beat(one, topics={"T": 1})
    registry.beat(one, topics={"T": 2})
    assert len(registry.told) == 1
    subscription = registry.clients.subscription("g", "T")
    assert subscription is not None
    assert subscription.version == 2
    registry.beat(one, topics={"T": 2, "U": 2})
    assert len(registry.told) == 2
    registry.beat(one, topics={"U": 2})
    assert len(registry.told) == 3
    assert registry.clients.subscription("g", "T") is None


def test_an_older_subscription_does_not_replace_a_newer_one() -> None:
    registry, one, two = Registry(), connection("a"), connection("b")
    registry.beat(one, topics={"T": 5})
    registry.beat(two, topics={"T": 4})
    subscription = registry.clients.subscription("g", "T")
    assert subscription is not None
    assert subscription.version == 5


def test_a_group_nobody_is_in_has_no_subscription_left() -> None:
    registry, one = Registry(), connection()
    registry.beat(one)
    registry.clients.connection_closed(one)
    assert registry.clients.subscription("g", "T") is None


def test_a_closed_connection_leaves_every_group_at_once() -> None:
    registry, one = Registry(), connection()
    registry.beat(one, "g")
    registry.beat(one, "h")
    registry.produce(one)
    registry.clients.connection_closed(one)
    assert registry.clients.counts() == (0, 0)
    assert registry.clients.producers("p") == {}
    registry.clients.connection_closed(one)
    assert registry.told == [("g", 1), ("h", 1), ("g", 0), ("h", 0)]


def test_a_goodbye_over_another_connection_changes_nothing() -> None:
    registry, one, two = Registry(), connection("a"), connection("b")
    registry.beat(one)
    registry.produce(one)
    registry.clients.unregister_consumer(two, "g")
    registry.clients.unregister_producer(two, "p")
    registry.clients.unregister_consumer(one, "unknown")
    assert registry.clients.counts() == (1, 1)


def test_who_is_silent_for_two_minutes_is_dropped_and_cut_off() -> None:
    registry, silent, alive = Registry(), connection("a"), connection("b")
    registry.beat(silent, at=0.0)
    registry.beat(alive, at=60.0)
    registry.produce(silent, at=0.0)
    list(registry.clients.expire(120.0))
    assert not silent.closed
    list(registry.clients.expire(120.1))
    assert silent.closed
    assert not alive.closed
    assert registry.clients.consumers("g") == ["b"]
    assert registry.clients.producers("p") == {}


def test_one_stale_group_is_enough_to_be_cut_off() -> None:
    registry, one = Registry(), connection()
    registry.beat(one, "g", at=0.0)
    registry.beat(one, "h", at=100.0)
    list(registry.clients.expire(121.0))
    assert one.closed
    assert registry.clients.consumers("h") == []


def test_producers_are_found_by_group() -> None:
    registry, one, two = Registry(), connection("a"), connection("b")
    registry.produce(one)
    registry.produce(two)
    registry.produce(two)
    assert [member.client_id for member in registry.clients.producers("p").values()] == ["a", "b"]
    registry.clients.unregister_producer(one, "p")
    assert list(registry.clients.producers("p")) == [two]
    assert registry.clients.counts() == (1, 0)


@pytest.mark.parametrize(
    "limits",
    [ClientLimits(registrations_max=2), ClientLimits(groups_per_connection_max=2)],
)
def test_what_does_not_fit_is_refused_and_what_is_there_stays(limits: ClientLimits) -> None:
    registry, one = Registry(limits), connection()
    assert registry.beat(one, "g") is None
    assert registry.produce(one) is None
    refusal = registry.beat(one, "h")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SYSTEM_BUSY
    assert isinstance(registry.produce(one, "q"), Refusal)
    assert registry.beat(one, "g") is None
    assert registry.produce(one) is None
    assert registry.clients.consumer_group("h") is None


def test_a_subscription_to_too_many_topics_is_refused_whole() -> None:
    registry, one = Registry(ClientLimits(topics_per_group_max=2)), connection()
    assert isinstance(registry.beat(one, topics={"T": 1, "U": 1, "V": 1}), Refusal)
    assert registry.clients.consumer_group("g") is None


def test_of_a_producer_that_changes_its_client_id_only_the_last_one_is_kept() -> None:
    registry, one, two = Registry(), connection("a"), connection("b")
    for number in range(9):
        registry.produce(one, "pq"[number % 2], client_id=f"id{number}")
    registry.produce(two, client_id="other")
    assert registry.clients.producer("id8") is one and registry.clients.producer("other") is two
    assert [registry.clients.producer(f"id{number}") for number in range(8)] == [None] * 8
    registry.clients.connection_closed(one)
    assert registry.clients.producer("id8") is None
    registry.clients.connection_closed(two)
    assert not registry.clients._producer_ids and not registry.clients._produces_as


def test_nothing_is_left_behind_in_the_tables() -> None:
    registry = Registry()
    for name in ("a", "b", "c"):
        one = connection(name)
        registry.beat(one)
        registry.produce(one)
        registry.clients.connection_closed(one)
    clients = registry.clients
    assert (clients._consumers, clients._producers, clients._consuming, clients._producing) == ({}, {}, {}, {})
    assert clients._registrations == 0


def test_many_clients_are_looked_at_in_steps_between_which_they_may_come_and_go() -> None:
    registry = Registry()
    many = [connection(f"c{number}") for number in range(100)]
    for one in many:
        registry.beat(one, at=0.0)
        registry.produce(one, at=0.0)
    looking = registry.clients.expire(121.0)
    next(looking)
    registry.clients.connection_closed(many[50])
    registry.beat(many[60], at=121.0)
    registry.produce(many[60], at=121.0)
    assert len(list(looking)) >= 97
    assert registry.clients.counts() == (1, 1)
    assert [one for one in many if not one.closed] == [many[50], many[60]]


def test_what_a_connection_says_is_bounded_in_bytes() -> None:
    registry, one = Registry(ClientLimits(bytes_per_connection_max=20_000)), connection("a")
    long = Subscription("T", "x" * 8_000)
    member = GroupClient("a", 0, 479, 0.0)
    assert registry.clients.register_consumer(one, "g", member, CLUSTERING, [long]) is None
    assert registry.clients.register_consumer(one, "g", member, CLUSTERING, [long]) is None
    refusal = registry.clients.register_consumer(one, "h", member, CLUSTERING, [long])
    assert refusal is not None and refusal.code == ResponseCode.SYSTEM_BUSY
    assert refusal.remark.startswith("this connection's groups and subscriptions take 34")
    assert refusal.remark.endswith("with h, the limit is 20000")
    assert registry.beat(one, "h") is None
    assert registry.clients.register_consumer(connection("b"), "h", member, CLUSTERING, [long]) is None


def test_all_that_is_kept_is_bounded_in_bytes_and_forgotten_with_its_members() -> None:
    registry = Registry(ClientLimits(bytes_max=30_000))
    one, two, three = connection("a"), connection("b"), connection("c")
    long = Subscription("T", "x" * 8_000, 5)
    assert registry.clients.register_consumer(one, "g", GroupClient("a", 0, 479, 0.0), CLUSTERING, [long]) is None
    held = registry.clients.bytes
    # The group keeps the newer version of somebody who has gone, and it counts as long as it is kept.
    assert registry.beat(two, "g") is None
    registry.clients.connection_closed(one)
    assert registry.clients.bytes > 16_000
    refusal = registry.clients.register_consumer(three, "h", GroupClient("c", 0, 479, 0.0), CLUSTERING, [long])
    assert refusal is not None and refusal.remark.startswith("all clients and subscriptions take ")
    assert registry.produce(three) is None and registry.produce(three) is None
    for gone in (two, three):
        registry.clients.connection_closed(gone)
    assert (registry.clients.bytes, registry.clients.counts()) == (0, (0, 0))
    assert registry.clients.register_consumer(one, "g", GroupClient("a", 0, 479, 0.0), CLUSTERING, [long]) is None
    assert registry.clients.bytes == held
