"""The table does what RocketMQ's RouteInfoManager does, rule by rule."""

from __future__ import annotations

import pytest

from gantry.errors import Refusal
from gantry.model.route import QueueData
from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.mappings import BYTES_MAX
from gantry.nameserver.table import EXPIRY_MS, BrokerRegistration, Registered, RouteTable
from gantry.wire.codes import ResponseCode
from testkit.counting import instructions
from testkit.routetables import outcome_of, topics_of

LINK = object()


def topics(*names: str, perm: int = 6) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 4, perm) for name in names}


def registration(**changes: object) -> BrokerRegistration:
    fields: dict[str, object] = {
        "cluster": "C",
        "broker_name": "b-a",
        "broker_id": 0,
        "address": "10.0.0.1:10911",
        "ha_address": "10.0.0.1:10912",
        "topics": topics("T", "TBW102"),
        "version": DataVersion(1, 0, 1000),
    }
    return BrokerRegistration(**{**fields, **changes})  # type: ignore[arg-type]


def slave(**changes: object) -> BrokerRegistration:
    return registration(**{"broker_id": 1, "address": "10.0.0.2:10911", "ha_address": "10.0.0.2:10912", **changes})


def perms(table: RouteTable, topic: str = "T") -> dict[str, int]:
    route = table.route(topic)
    return {} if route is None else {data.broker_name: data.perm for data in route.queues}


def test_a_registered_master_is_where_its_topics_are() -> None:
    table = RouteTable()
    assert table.register(registration(), LINK, 0) == Registered()
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: "10.0.0.1:10911"}
    assert [(data.broker_name, data.read_queues, data.write_queues, data.perm) for data in route.queues] == [
        ("b-a", 4, 4, 6)
    ]
    assert table.route("U") is None
    assert topics_of(table) == ["T", "TBW102"]
    assert table.clusters() == {"C": ["b-a"]}


def test_a_slave_learns_its_master_and_writes_no_queues() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    answer = table.register(slave(topics=topics("T", "U")), LINK, 0)
    assert answer == Registered("10.0.0.1:10912", "10.0.0.1:10911")
    assert table.route("U") is None


def test_a_slave_that_became_master_leaves_its_old_id() -> None:
    table = RouteTable()
    table.register(slave(), LINK, 0)
    table.register(registration(address="10.0.0.2:10911"), LINK, 0)
    assert table.brokers()["b-a"].addresses == {0: "10.0.0.2:10911"}


def test_a_late_registration_of_a_former_master_changes_nothing() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 7, 0)), LINK, 0)
    late = registration(address="10.0.0.9:10911", version=DataVersion(99, 6, 0), topics=topics("X", "Y"))
    assert table.register(late, LINK, 0) == Registered()
    assert table.brokers()["b-a"].addresses == {0: "10.0.0.1:10911"}
    assert table.route("X") is None
    assert table.live_count == 1


def test_an_address_with_an_equal_or_greater_state_version_takes_the_id_over() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 7, 0)), LINK, 0)
    table.register(registration(address="10.0.0.9:10911", version=DataVersion(1, 7, 0)), LINK, 0)
    assert table.brokers()["b-a"].addresses == {0: "10.0.0.9:10911"}


def test_one_topic_of_an_unknown_id_is_refused_and_leaves_no_trace() -> None:
    table = RouteTable()
    answer = table.register(registration(topics=topics("T")), LINK, 0)
    assert isinstance(answer, Refusal)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (table.clusters(), table.brokers(), topics_of(table), table.live_count) == ({}, {}, [], 0)


def test_one_topic_of_a_known_id_is_added() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.register(registration(topics=topics("New"), version=DataVersion(2, 0, 1000)), LINK, 0)
    assert topics_of(table) == ["New", "T", "TBW102"]


def test_the_same_version_does_not_rewrite_queues_but_adds_missing_ones() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    outcome_of(table.wiping_write_perm("b-a"))
    table.register(registration(topics=topics("T", "TBW102", "U")), LINK, 1)
    assert (perms(table), perms(table, "U")) == ({"b-a": 4}, {"b-a": 6})
    table.register(registration(version=DataVersion(2, 0, 1000)), LINK, 2)
    assert perms(table) == {"b-a": 6}


def test_topics_a_registration_no_longer_names_stay_unless_configured_otherwise() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    fewer = registration(topics={}, version=DataVersion(2, 0, 0))
    table.register(fewer, LINK, 0)
    assert topics_of(table) == ["T", "TBW102"]
    table.register(registration(topics={}, version=DataVersion(3, 0, 0)), LINK, 0, forget_missing=True)
    assert topics_of(table) == []


def test_an_incremental_registration_forgets_nothing_even_if_configured_to() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.register(registration(topics=topics("U"), version=DataVersion(2, 0, 0)), LINK, 0, forget_missing=True)
    assert topics_of(table) == ["T", "TBW102", "U"]


def test_the_smallest_slave_that_asks_for_an_acting_master_writes_queues_that_are_read_only() -> None:
    table = RouteTable()
    table.register(slave(acting_master=True), LINK, 0)
    assert perms(table) == {"b-a": 4}
    table.register(slave(acting_master=True, broker_id=2, address="10.0.0.3:10911", topics=topics("X", "Y")), LINK, 0)
    assert perms(table, "X") == {}


def test_a_group_with_acting_master_becomes_read_only_when_its_master_leaves() -> None:
    table = RouteTable()
    table.register(registration(acting_master=True), LINK, 0)
    table.register(slave(acting_master=True), LINK, 0)
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    assert perms(table) == {"b-a": 4}


def test_the_last_member_takes_its_group_and_its_queues_along() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.register(slave(), LINK, 0)
    table.register(registration(broker_name="b-b", address="10.0.1.1:10911"), LINK, 0)
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    route = table.route("T")
    assert route is not None
    assert [broker.addresses for broker in route.brokers] == [{1: "10.0.0.2:10911"}, {0: "10.0.1.1:10911"}]
    table.unregister("C", "b-a", "10.0.0.2:10911", LINK)
    assert perms(table) == {"b-b": 6}
    table.unregister("C", "b-b", "10.0.1.1:10911", LINK)
    assert (topics_of(table), table.clusters(), table.live_count) == ([], {}, 0)


def test_silence_ends_a_registration_after_its_own_time_out() -> None:
    table = RouteTable()
    impatient = object()
    table.register(registration(), LINK, 0)
    table.register(registration(broker_name="b-b", address="10.0.1.1:10911", timeout_ms=1000), impatient, 0)
    assert table.expire(1000) == []
    assert table.expire(1001) == [impatient]
    assert perms(table) == {"b-a": 6}
    assert table.expire(EXPIRY_MS) == []
    assert table.expire(EXPIRY_MS + 1) == [LINK]
    assert topics_of(table) == []


def test_a_sign_of_life_keeps_a_registration_and_may_change_its_time_out() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.refresh("C", "10.0.0.1:10911", 100_000, 5000)
    table.refresh("C", "10.9.9.9:10911", 100_000)
    assert table.expire(105_000) == []
    assert table.expire(105_001) == [LINK]


def test_a_closed_connection_ends_what_registered_on_it_last_and_nothing_else() -> None:
    table = RouteTable()
    old, new = object(), object()
    table.register(registration(), old, 0)
    table.register(registration(broker_name="b-b", address="10.0.1.1:10911"), old, 0)
    table.register(registration(), new, 1)
    assert table.connection_closed(old) == ["10.0.1.1:10911"]
    assert perms(table) == {"b-a": 6}
    assert table.connection_closed(new) == ["10.0.0.1:10911"]
    assert topics_of(table) == []


def test_a_goodbye_that_is_late_does_not_end_the_next_life() -> None:
    table = RouteTable()
    old, new = object(), object()
    table.register(registration(), old, 0)
    table.register(registration(), new, 1)
    table.unregister("C", "b-a", "10.0.0.1:10911", old)
    assert perms(table) == {"b-a": 6}
    table.unregister("C", "b-a", "10.0.0.1:10911", new)
    assert perms(table) == {}


def test_an_address_belongs_to_the_group_that_it_registered_for_last() -> None:
    """A machine is gone without a word, and a broker of another group gets its address."""
    table = RouteTable()
    old, other, next_master = object(), object(), object()
    table.register(registration(version=DataVersion(1, 3, 1)), old, 0)
    stock = registration(broker_name="stock", version=DataVersion(1, 9, 1), topics=topics("S", "TBW102"))
    table.register(stock, other, 1)
    assert perms(table) == {} and perms(table, "S") == {"stock": 6}
    # The epoch of the other group says nothing about who leads this one.
    promoted = registration(address="10.0.0.2:10911", version=DataVersion(1, 4, 1))
    table.register(promoted, next_master, 2)
    assert members(table) == {0: "10.0.0.2:10911"}
    table.connection_closed(old)
    table.unregister("C", "b-a", "10.0.0.1:10911", other)
    assert members(table) == {0: "10.0.0.2:10911"} and perms(table, "S") == {"stock": 6}
    table.connection_closed(other)
    assert perms(table, "S") == {} and perms(table) == {"b-a": 6}


def test_write_permission_is_taken_and_given_by_group() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.register(registration(broker_name="b-b", address="10.0.1.1:10911"), LINK, 0)
    assert outcome_of(table.wiping_write_perm("b-a")) == 2
    assert perms(table) == {"b-a": 4, "b-b": 6}
    assert outcome_of(table.adding_write_perm("b-a")) == 2
    assert perms(table) == {"b-a": 6, "b-b": 6}
    assert outcome_of(table.wiping_write_perm("nobody")) == 0


def test_a_topic_is_forgotten_everywhere_or_in_one_cluster() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    table.register(registration(cluster="D", broker_name="b-b", address="10.0.1.1:10911"), LINK, 0)
    table.delete_topic("T", "D")
    assert perms(table) == {"b-a": 6}
    assert topics_of(table, "D") == ["TBW102"]
    table.delete_topic("T")
    assert table.route("T") is None
    table.delete_topic("T")


def test_system_topics_are_rocketmqs_and_those_named_after_clusters_and_groups() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    assert {"TBW102", "C", "b-a"} <= set(table.system_topics())
    assert "T" not in table.system_topics()


def test_mappings_of_topics_that_the_broker_has_not_are_not_kept() -> None:
    table = RouteTable()
    table.register(registration(mappings={"T": b'{"topic":"T"}', "elsewhere": b'{"topic":"elsewhere"}'}), LINK, 0)
    table.register(registration(broker_name="b-b", address="10.0.0.3:10911"), LINK, 0)
    assert (table.mappings("T"), table.mappings("elsewhere")) == (b'{"b-a":{"topic":"T"}}', b"")
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    assert table.mappings("T") == b""


def test_mappings_have_a_common_limit_in_bytes_and_give_it_back() -> None:
    table = RouteTable()
    long = {"T": b'{"topic":"T","x":"' + b"x" * (BYTES_MAX // 2) + b'"}'}
    other = {"broker_name": "b-b", "address": "10.0.1.1:10911"}
    table.register(registration(mappings=long), LINK, 0)
    refused = table.register(registration(**other, mappings=long), LINK, 0)
    assert isinstance(refused, Refusal) and "static mappings" in refused.remark
    assert table.register(registration(mappings=long, version=DataVersion(2, 0, 1)), LINK, 1) == Registered()
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    assert table.register(registration(**other, mappings=long), LINK, 0) == Registered()


@pytest.mark.parametrize(
    "long",
    [
        {"cluster": "C" * 513},
        {"broker_name": "b" * 513},
        {"address": "a" * 513},
        {"ha_address": "h" * 513},
        {"zone": "z" * 513},
        {"topics": topics("T", "t" * 513)},
        {"filter_servers": ("f" * 513,)},
        {"filter_servers": ("f",) * 65},
    ],
    ids=lambda long: next(iter(long)),
)
def test_names_and_addresses_that_nobody_has_are_not_kept(long: dict[str, object]) -> None:
    table = RouteTable()
    answer = table.register(registration(**long), LINK, 0)
    assert isinstance(answer, Refusal) and "are allowed" in answer.remark
    assert table.live_count == 0 and not topics_of(table)


def test_zone_mappings_and_filter_servers_are_passed_on() -> None:
    table = RouteTable()
    news = registration(zone="z1", mappings={"T": b'{"topic":"T"}'}, filter_servers=("10.0.0.1:5555",))
    table.register(news, LINK, 0)
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].zone == "z1"
    assert table.mappings("T") == b'{"b-a":{"topic":"T"}}'
    assert route.filter_servers == {"10.0.0.1:10911": ["10.0.0.1:5555"]}
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    assert table.mappings("T") == b""


def test_the_version_of_a_registration_is_kept_for_those_who_ask() -> None:
    table = RouteTable()
    table.register(registration(), LINK, 0)
    assert table.version_of("C", "10.0.0.1:10911") == DataVersion(1, 0, 1000)
    assert table.version_of("C", "10.0.0.2:10911") is None


def members(table: RouteTable) -> dict[int, str]:
    return table.brokers()["b-a"].addresses


def test_a_higher_epoch_of_any_member_takes_the_id_of_the_master_from_a_lower_one() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 4, 0)), LINK, 0)
    table.register(slave(version=DataVersion(1, 4, 0)), LINK, 0)
    table.register(slave(version=DataVersion(1, 5, 0)), LINK, 0)
    assert members(table) == {1: "10.0.0.2:10911"}
    table.register(registration(version=DataVersion(9, 4, 9)), LINK, 0)
    assert members(table) == {1: "10.0.0.2:10911"}, "a late registration of the old master"


def test_a_new_master_moves_and_the_old_one_comes_back_as_a_slave() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 4, 0)), LINK, 0)
    table.register(slave(version=DataVersion(1, 4, 0)), LINK, 0)
    table.register(slave(broker_id=0, version=DataVersion(1, 5, 0)), LINK, 0)
    assert members(table) == {0: "10.0.0.2:10911"}
    answer = table.register(registration(broker_id=3, version=DataVersion(1, 5, 0)), LINK, 0)
    assert members(table) == {0: "10.0.0.2:10911", 3: "10.0.0.1:10911"}
    assert answer == Registered("10.0.0.2:10912", "10.0.0.2:10911")


def test_a_sealed_master_gives_its_id_back_and_its_queues_stay_for_readers() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 4, 0)), LINK, 0)
    table.register(registration(broker_id=1, version=DataVersion(1, 4, 0)), LINK, 0)
    assert members(table) == {1: "10.0.0.1:10911"}
    assert table.route("T") is not None


def test_epochs_are_forgotten_with_the_last_member() -> None:
    table = RouteTable()
    table.register(registration(version=DataVersion(1, 5, 0)), LINK, 0)
    table.unregister("C", "b-a", "10.0.0.1:10911", LINK)
    table.register(registration(version=DataVersion(1, 0, 0)), LINK, 0)
    assert members(table) == {0: "10.0.0.1:10911"}


def test_a_single_topic_is_taken_from_a_master_that_is_known() -> None:
    table = RouteTable()
    queues = [QueueData("b-a", 2, 3, 6)]
    assert isinstance(table.register_topic("U", queues), Refusal) and topics_of(table) == []
    table.register(registration(), LINK, 0)
    table.register(slave(), LINK, 0)
    assert isinstance(table.register_topic("U", queues, "10.0.0.2:10911"), Refusal), "a slave, or a former master"
    assert table.register_topic("U", queues, "10.0.0.1:10911") is None
    assert table.register_topic("V", queues) is None, "RocketMQ's broker does not tell its address"
    route = table.route("U")
    assert route is not None and route.queues == (QueueData("b-a", 2, 3, 6),)
    assert topics_of(table) == ["T", "TBW102", "U", "V"]
    assert table.version_of("C", "10.0.0.1:10911") == DataVersion(1, 0, 1000), "the next whole registration is applied"
    assert isinstance(table.register_topic("x" * 513, queues), Refusal)


def test_a_single_topic_costs_the_same_however_many_there_are() -> None:
    costs = []
    for size in (300, 3000):
        table = RouteTable()
        table.register(registration(topics=topics(*[f"T{number}" for number in range(size)])), LINK, 0)
        with instructions() as ran:
            table.register_topic("new", [QueueData("b-a", 2, 3, 6)], "10.0.0.1:10911")
        costs.append(ran.calls)
    assert costs[0] == costs[1]
