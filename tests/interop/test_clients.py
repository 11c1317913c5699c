"""What every client must be able to do, unmodified: send, receive, filter, resume, survive a broker's death."""

import time

import pytest

from interop import servers
from interop.clients import CLIENTS, Client, Running
from interop.processes import Driver, DriverError, Json
from testkit.patience import HANG_S


def bodies(events: list[Json]) -> list[str]:
    return sorted(str(event["body"]) for event in events)


def expected(prefix: str, count: int) -> list[str]:
    return sorted(f"{prefix}-{i}" for i in range(count))


@pytest.fixture
def topic(server: servers.Server, name: str) -> str:
    servers.create_topic(server, name)
    return name


def committed(server: servers.Server, group: str, topic: str, queues: int = 4) -> int:
    """The sum of a group's offsets on the broker, asked by hand."""
    total = 0
    for queue in range(queues):
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        header, _ = servers.rpc(server.broker, 14, ext)
        if header["code"] == 0:
            fields = header["extFields"]
            assert isinstance(fields, dict)
            total += max(int(fields["offset"]), 0)
    return total


def stored(server: servers.Server, topic: str, queues: int = 4) -> int:
    """How many messages the queues of a topic have ever got."""
    asked = ({"topic": topic, "queueId": str(queue)} for queue in range(queues))
    fields = [servers.rpc(server.broker, 30, ext)[0]["extFields"] for ext in asked]
    return sum(int(one["offset"]) for one in fields if isinstance(one, dict))


def wait_until_committed(server: servers.Server, driver: Driver, client: Client, topic: str, total: int) -> None:
    """Until the broker knows what the group, named like its topic, has done."""
    deadline = time.monotonic() + HANG_S
    while committed(server, topic, topic) != total:
        if client.reports:
            driver.call("report", id=topic + "a")
        assert time.monotonic() < deadline, f"{committed(server, topic, topic)} committed, {total} expected"
        time.sleep(0.1)


def test_a_send_is_acknowledged_with_its_place(running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    answer = driver.call("send", group=topic, topic=topic, count=8, prefix="m", tag="TagA")
    results = answer["results"]
    assert isinstance(results, list)
    assert [r["status"] in ("SEND_OK", "OK") for r in results] == [True] * 8
    assert len({r["msgId"] for r in results}) == 8
    assert all(len(r["msgId"]) in (32, 56) for r in results)  # 56: the id carries an IPv6 address
    if "queueId" in results[0]:
        assert len({(r["queueId"], r["queueOffset"]) for r in results}) == 8


def test_every_kind_of_send_arrives(server: servers.Server, running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    # Acknowledged sends before and behind the others: the C++ core drops a one-way message, with a line in its own log
    # only, while its connection is not there; and an answer shows that the broker has read what came before it.
    kinds = ("sync", *client.kinds, "sync")
    for number, kind in enumerate(kinds):
        driver.call("send", group=topic, kind=kind, topic=topic, count=3, prefix=f"{kind}{number}", tag="TagA")
    assert stored(server, topic) == 3 * len(kinds)
    driver.call("subscribe", id=topic, group=topic, topic=topic)
    events = driver.receive(topic, 3 * len(kinds))
    assert bodies(events) == sorted(f"{kind}{number}-{i}" for number, kind in enumerate(kinds) for i in range(3))


@pytest.mark.parametrize("name_of_client", ["cpp-2.1.8", "cpp-2.1.11", "java-4.9.7", "java-5.x"])
def test_the_first_send_makes_the_topic(running: Running, name_of_client: str, name: str) -> None:
    driver = running.driver(CLIENTS[name_of_client])
    driver.call("send", group=name, topic=name, count=5, prefix="m", tag="TagA")
    driver.call("subscribe", id=name, group=name, topic=name)
    assert bodies(driver.receive(name, 5)) == expected("m", 5)


def test_what_was_sent_is_received(running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    driver.call("subscribe", id=topic, group=topic, topic=topic, expression="TagA")
    sent = driver.call("send", group=topic, topic=topic, count=10, prefix="m", tag="TagA", padding=" größer als 我")
    events = driver.receive(topic, 10)
    assert bodies(events) == sorted(f"m-{i} größer als 我" for i in range(10))
    assert {e["tags"] for e in events} == {"TagA"}
    assert {e["keys"] for e in events} == {f"m-key-{i}" for i in range(10)}
    results = sent["results"]
    assert isinstance(results, list)
    assert {e["msgId"] for e in events} == {r["msgId"] for r in results}


def test_a_large_body_that_the_client_compresses_comes_back_whole(running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    driver.call("subscribe", id=topic, group=topic, topic=topic, expression="Big")
    driver.call("send", group=topic, topic=topic, count=2, prefix="big", tag="Big", padding="0123456789" * 5000)
    events = driver.receive(topic, 2)
    assert {len(str(e["body"])) for e in events} == {50_005}


def test_a_tag_expression_filters(running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    driver.call("subscribe", id=topic, group=topic, topic=topic, expression="TagA || TagC")
    for tag in ("TagA", "TagB", "TagC"):
        driver.call("send", group=topic, topic=topic, count=4, prefix=tag, tag=tag)
    assert bodies(driver.receive(topic, 8)) == sorted(expected("TagA", 4) + expected("TagC", 4))


def test_a_consumer_that_comes_back_goes_on_where_it_stopped(
    server: servers.Server, running: Running, client: Client, topic: str
) -> None:
    driver = running.driver(client)
    driver.call("send", group=topic, topic=topic, count=6, prefix="before", tag="TagA")
    driver.call("subscribe", id=topic + "a", group=topic, topic=topic)
    first = driver.receive(topic + "a", 6)
    assert bodies(first) == expected("before", 6)
    # While it lives: what was given to it is done only when the listener has returned, and a pull that carries an older
    # offset may still be on its way.
    wait_until_committed(server, driver, client, topic, 6)
    if client.own_process_per_test:
        running.end_test()
        driver = running.driver(client)
    else:
        driver.call("close", id=topic + "a")
        assert committed(server, topic, topic) == 6
    driver.call("send", group=topic, topic=topic, count=6, prefix="after", tag="TagA")
    driver.call("subscribe", id=topic + "b", group=topic, topic=topic)
    assert bodies(driver.receive(topic + "b", 6)) == expected("after", 6)


def test_two_groups_each_receive_everything(running: Running, client: Client, topic: str) -> None:
    driver = running.driver(client)
    for group in ("one", "two"):
        driver.call("subscribe", id=topic + group, group=topic + group, topic=topic, expression="TagA")
    driver.call("send", group=topic, topic=topic, count=10, prefix="m", tag="TagA")
    for group in ("one", "two"):
        assert bodies(driver.receive(topic + group, 10)) == expected("m", 10)


def resend(driver: Driver, deadline: float, **fields: str) -> None:
    """One send, again and again until it is acknowledged."""
    while True:
        try:
            driver.call("send", count=1, tag="TagA", **fields)
            return
        except DriverError:
            assert time.monotonic() < deadline, f"{driver.name} got no acknowledgement after the restart"
            time.sleep(0.3)


@pytest.mark.usefixtures("every_tool")
@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.slow)])
def test_a_broker_that_dies_and_returns_loses_nothing_acknowledged(
    server: servers.Server, running: Running, name: str, end: str
) -> None:
    """All clients at once: the C++ core takes half a minute to come back, whatever the broker does."""
    drivers = {f"{name}-{client.name.replace('.', '_')}": running.driver(client) for client in CLIENTS.values()}
    for topic, driver in drivers.items():
        servers.create_topic(server, topic)
        driver.call("subscribe", id=topic, group=topic, topic=topic)
        driver.call("send", group=topic, topic=topic, count=10, prefix="before", tag="TagA")
        driver.receive(topic, 10)
    getattr(server, end)()
    server.start()
    deadline = time.monotonic() + HANG_S
    for topic, driver in drivers.items():
        for number in range(10):
            resend(driver, deadline, group=topic, topic=topic, prefix=f"after{number}")
    for topic, driver in drivers.items():
        wanted = {*expected("before", 10), *(f"after{number}-0" for number in range(10))}
        while not wanted <= set(bodies(driver.received(topic))):
            driver.receive(topic, len(driver.received(topic)) + 1, deadline - time.monotonic())


def test_a_batch_of_the_old_c_core_is_acknowledged(server: servers.Server, running: Running, topic: str) -> None:
    """It comes as request 10 with `batch` set, which RocketMQ stores as one message with the packed body."""
    driver = running.driver(CLIENTS["cpp-2.1.8"])
    answer = driver.call("send", group=topic, kind="batch", topic=topic, count=3, prefix="b")
    assert answer["results"] == [{"status": "OK", "msgId": "", "queueOffset": 0}]
