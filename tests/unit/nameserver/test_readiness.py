"""When a name server that was told to expect brokers is ready."""

from __future__ import annotations

import pytest

from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.readiness import SETTLE_MS, Readiness
from gantry.nameserver.table import EXPIRY_MS, BrokerRegistration, RouteTable

FIRST, SECOND = object(), object()


def registration(broker_name: str = "b-a", broker_id: int = 0, address: str = "10.0.0.1:10911") -> BrokerRegistration:
    topics = {name: TopicConfig(name) for name in ("T", "TBW102")}
    return BrokerRegistration("C", broker_name, broker_id, address, "", topics, DataVersion(1))


def slave() -> BrokerRegistration:
    return registration(broker_id=1, address="10.0.0.2:10911")


def ready(table: RouteTable, now_ms: int, awaits_brokers: bool = True) -> bool:
    return Readiness(table, awaits_brokers).verdict(now_ms)[0]


def test_it_is_ready_when_it_knows_a_master_and_the_others_had_time_to_come() -> None:
    table = RouteTable()
    assert not ready(table, 10**9) and ready(table, 0, awaits_brokers=False)
    table.register(slave(), FIRST, 1000)
    assert not ready(table, 10**9), "a slave alone tells no queues"
    table.register(registration(), SECOND, 1500)
    assert not ready(table, 1000 + SETTLE_MS - 1) and ready(table, 1000 + SETTLE_MS)


def test_a_broker_that_restarts_takes_nothing_from_it() -> None:
    table = RouteTable()
    table.register(registration(), FIRST, 0)
    table.register(registration(broker_name="b-b", address="10.0.0.3:10911"), SECOND, 0)
    table.connection_closed(SECOND)
    table.register(registration(broker_name="b-b", address="10.0.0.3:10911"), SECOND, SETTLE_MS)
    assert ready(table, SETTLE_MS)


@pytest.mark.parametrize("how", ["connection", "silence"])
def test_one_that_lost_its_brokers_is_not_ready_until_they_are_back(how: str) -> None:
    table = RouteTable()
    table.register(registration(), FIRST, 0)
    assert ready(table, SETTLE_MS)
    if how == "connection":
        table.connection_closed(FIRST)
    else:
        table.expire(EXPIRY_MS + 1)
    assert not ready(table, 10**9)
    table.register(registration(), SECOND, 10**9)
    assert ready(table, 10**9 + SETTLE_MS)


def test_one_whose_last_broker_said_goodbye_was_told_that_there_are_none() -> None:
    table = RouteTable()
    table.register(registration(), FIRST, 0)
    table.unregister("C", "b-x", "10.0.0.9:10911", FIRST)
    assert not ready(table, 1)
    table.unregister("C", "b-a", "10.0.0.1:10911", FIRST)
    assert ready(table, 2)
    table.register(slave(), FIRST, 3)
    assert not ready(table, 10**9)
