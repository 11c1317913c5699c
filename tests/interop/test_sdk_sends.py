"""Messages of every type from RocketMQ 5's own clients, through the proxy, judged by what the broker stored."""

import time

import pytest

from interop import grpcclients, proxies, servers
from interop.clients import Client, Running
from interop.conftest import require
from interop.grpcclients import bodies, create_topic, rows, stored
from interop.processes import Driver, DriverError

NEVER_S = 2.0  # what has not come so long after it was due does not come
FAR_MS = 5_000
UNKNOWN = pytest.mark.only_on_gantry  # they check certificates, and nobody has that of Apache's proxy


@pytest.fixture
def driver(sdks: Running, sdk: Client) -> Driver:
    return sdks.driver(sdk)


def expected(prefix: str, count: int) -> list[str]:
    return sorted(f"{prefix}-{number}" for number in range(count))


def ids(results: list[dict[str, object]]) -> set[object]:
    return {result["messageId"] for result in results}


def test_a_message_is_stored_as_it_was_sent(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name)
    sent = rows(driver.call("send", topic=name, count=8, prefix="n", tag="TagB", padding=" größer als 我"))
    found = stored(server, name)
    assert bodies(found) == sorted(f"n-{number} größer als 我" for number in range(8))
    assert {one.properties["UNIQ_KEY"] for one in found} == ids(sent)
    assert {one.properties["KEYS"] for one in found} == {f"n-key-{number}" for number in range(8)}
    assert {(one.properties["TAGS"], one.properties["colour"]) for one in found} == {("TagB", "blue")}
    assert len({one.queue for one in found}) > 1


def test_a_large_body_arrives_whole(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name)
    driver.call("send", topic=name, count=1, prefix="big", padding="0123456789" * 50_000)
    (found,) = stored(server, name)
    assert len(found.body) == 500_005


def test_messages_of_a_group_stand_in_one_queue_in_order(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name, "FIFO")
    for group in ("one", "two", "three"):
        driver.call("send", topic=name, count=6, prefix=group, group=group)
    found = stored(server, name)
    for group in ("one", "two", "three"):
        mine = [one for one in found if one.properties["__SHARDINGKEY"] == group]
        assert len({one.queue for one in mine}) == 1
        assert [one.body for one in mine] == [f"{group}-{number}" for number in range(6)]


@pytest.mark.only_on_gantry  # Apache's broker is started without its wheel of timers, whose files are 100 MB of zeros
def test_a_delayed_message_is_not_early(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name, "DELAY")
    begun = time.monotonic()
    sent = rows(driver.call("send", topic=name, count=3, prefix="d", deliver_in_ms=2_000))
    found = grpcclients.wait_until(lambda: stored(server, name), bool)
    assert time.monotonic() - begun >= 2.0
    found = grpcclients.wait_until(lambda: stored(server, name), lambda seen: len(seen) >= 3)
    assert bodies(found) == expected("d", 3)
    assert {one.properties["UNIQ_KEY"] for one in found} == ids(sent)


@pytest.mark.only_on_gantry
def test_a_delayed_message_is_taken_back_once(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name, "DELAY")
    (back,) = rows(driver.call("send", topic=name, count=1, prefix="r", deliver_in_ms=3_600_000))
    assert driver.call("recall", topic=name, handle=back["recallHandle"])["recalled"] == back["messageId"]
    with pytest.raises(DriverError):
        driver.call("recall", topic=name, handle=back["recallHandle"])


@pytest.mark.slow
@pytest.mark.only_on_gantry
def test_what_was_taken_back_does_not_come(sdks: Running, server: servers.Server, name: str) -> None:
    create_topic(server, name, "DELAY")
    driver = sdks.driver(grpcclients.sdk("python"))
    back, kept = rows(driver.call("send", topic=name, count=2, prefix="r", deliver_in_ms=FAR_MS))
    driver.call("recall", topic=name, handle=back["recallHandle"])
    grpcclients.wait_until(lambda: stored(server, name), bool)
    driver.settle(NEVER_S)
    (found,) = stored(server, name)
    assert found.properties["UNIQ_KEY"] == kept["messageId"]


@pytest.mark.parametrize("kind", ["FIFO", "DELAY", "TRANSACTION"])
def test_a_topic_takes_no_message_of_another_type(
    driver: Driver, server: servers.Server, name: str, kind: str
) -> None:
    create_topic(server, name, kind)
    with pytest.raises(DriverError, match=r"(?i)type"):
        driver.call("send", topic=name, count=1, prefix="n")
    assert stored(server, name) == []


@pytest.mark.only_on_gantry
def test_a_topic_of_mixed_types_takes_all(driver: Driver, server: servers.Server, name: str) -> None:
    create_topic(server, name, "MIXED")
    driver.call("send", topic=name, count=1, prefix="n")
    driver.call("send", topic=name, count=1, prefix="f", group="g")
    driver.call("send", topic=name, count=1, prefix="d", deliver_in_ms=100)
    driver.call("send", topic=name, count=1, prefix="t", execute="commit")
    found = grpcclients.wait_until(lambda: stored(server, name), lambda seen: len(seen) >= 4)
    assert bodies(found) == ["d-0", "f-0", "n-0", "t-0"]


def test_a_topic_that_is_not_there_is_an_error_that_names_it(driver: Driver, name: str) -> None:
    with pytest.raises(DriverError, match=rf"(?i){name}|route"):
        driver.call("send", topic=name, count=1, prefix="n")


@pytest.mark.parametrize("language", ["java", *(pytest.param(one, marks=UNKNOWN) for one in ("python", "node"))])
def test_a_client_may_use_tls_on_the_same_port(
    sdks: Running, proxy: proxies.Proxy, server: servers.Server, language: str, name: str
) -> None:
    require(grpcclients.TOOLS[language])
    create_topic(server, name)
    driver = sdks.driver(grpcclients.sdk(language, proxy.certificate))
    driver.call("send", topic=name, count=4, prefix="s")
    assert bodies(stored(server, name)) == expected("s", 4)
