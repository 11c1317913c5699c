"""What a name server's loop does with the topics that it may have, measured as `testkit.growing` says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gantry.errors import Refusal
from gantry.leaves import frames
from gantry.model.topic import DataVersion, TopicConfig
from gantry.nameserver.handlers import NameServerHandlers
from gantry.nameserver.keyvalues import KeyValues
from gantry.nameserver.settings import Switches
from gantry.nameserver.table import BrokerRegistration, RouteTable
from gantry.wire.codes import RequestCode
from testkit.fake_connection import FakeConnection
from testkit.growing import QUICK_PATIENCE, QUICK_SHARE, Grown, Steps, check
from testkit.simclock import SimClock

_ALL, _OF_CLUSTER = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER
_READ_ONLY = RequestCode.WIPE_WRITE_PERM_OF_BROKER


def registration_taken(size: int) -> Callable[[], Steps]:
    table = {
        f"T{number}": TopicConfig(f"T{number}", 4, 4, 6, attributes={"message.type": "FIFO"}).to_json()
        for number in range(size)
    }
    counters = iter(range(1 << 30))
    handlers = NameServerHandlers(RouteTable(), KeyValues(), SimClock(), Switches())
    ext = {"brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "C", "brokerId": "0", "haServerAddr": "h:1"}

    def register() -> Steps:
        version = {"counter": next(counters), "stateVersion": 0, "timestamp": 5}
        body = json.dumps({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}).encode()
        asked = frames.Command(RequestCode.REGISTER_BROKER, ext=ext, body=body, version=479)
        return handlers.in_slices(FakeConnection(), asked)  # type: ignore[arg-type]

    return register


def topics_at_a_name_server(size: int) -> RouteTable:
    """Return the table of ten brokers with these topics together."""
    table = RouteTable()
    for broker in range(10):
        topics = {f"T{n * 7919 % size}": TopicConfig(f"T{n * 7919 % size}", 4, 4) for n in range(broker, size, 10)}
        news = BrokerRegistration("C", f"b{broker}", 0, f"h{broker}:1", "h:2", topics, DataVersion(0, 5, 1))
        assert not isinstance(table.register(news, None, 0), Refusal)
    return table


def asked_of_name_server(code: RequestCode) -> Callable[[int], Callable[[], Steps]]:
    def made(size: int) -> Callable[[], Steps]:
        table = topics_at_a_name_server(size)
        handlers = NameServerHandlers(table, KeyValues(), SimClock(), Switches())
        asked = frames.Command(code, ext={"cluster": "C", "brokerName": "b3"})
        return lambda: handlers.in_slices(FakeConnection(), asked)  # type: ignore[arg-type]

    return made


GROWN = [
    # It takes effect in one piece: a route never shows a part of what a broker registered.
    Grown("a whole registration, at the name server", 10_000, registration_taken, is_flat=False, step_s=0.007),
    # A body of up to 15 MiB is joined in one piece.
    Grown("all topics of a name server (206)", 500_000, asked_of_name_server(_ALL), is_flat=False, step_s=0.015),
    Grown("topics of a cluster (224)", 500_000, asked_of_name_server(_OF_CLUSTER), is_flat=False, step_s=0.015),
    Grown("a broker becomes read-only (205)", 500_000, asked_of_name_server(_READ_ONLY), is_flat=False),
]


@pytest.mark.parametrize("grown", GROWN, ids=lambda grown: grown.name)
def test_no_step_is_long_with_many_topics(grown: Grown) -> None:
    check(grown, grown.size // QUICK_SHARE, patience=QUICK_PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("grown", GROWN, ids=lambda grown: grown.name)
def test_no_step_is_long_with_as_many_topics_as_there_may_be(grown: Grown) -> None:
    check(grown, grown.size)
