"""Delayed messages of other people's clients: levels, times, taking back; and folders with timers of Apache's broker.

That a message is not early is measured from before it was sent to when it was seen, so a slow machine cannot break it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import servers
from interop.clients import CLIENTS, Running
from interop.conftest import require
from interop.processes import Driver, DriverError, Json
from testkit.patience import HANG_S

FAR_MS = 3_000
NEVER_S = 2.0  # what has not come so long after it was due does not come

RARER = [pytest.param(client, marks=pytest.mark.slow) for client in ("java-4.9.7", "cpp-2.1.8")]
LEVELS = [*RARER, "java-5.x", "cpp-2.1.11"]
TIMES = [("ali-ons-3.12", "deliver_in_ms"), ("java-5.x", "deliver_in_ms"), ("java-5.x", "delay_ms")]


def results_of(answer: Json) -> list[Json]:
    results = answer["results"]
    assert isinstance(results, list)
    return results


def listening(running: Running, server: servers.Server, client: str, topic: str) -> Driver:
    require({"ali-ons-3.12": "node"}.get(client, client.split("-")[0]))
    servers.create_topic(server, topic)
    driver = running.driver(CLIENTS[client])
    driver.call("subscribe", id=topic, group="g" + topic, topic=topic)
    return driver


@pytest.mark.parametrize("client", LEVELS)
def test_a_level_is_kept(running: Running, server: servers.Server, client: str, name: str) -> None:
    driver = listening(running, server, client, name)
    begun = time.monotonic()
    sent = results_of(driver.call("send", group=name, topic=name, count=3, prefix="l", tag="T", delay_level=1))
    received = driver.receive(name, 3, HANG_S)
    assert time.monotonic() - begun >= 1.0
    assert sorted(str(message["body"]) for message in received) == ["l-0", "l-1", "l-2"]
    assert {message["msgId"] for message in received} == {result["msgId"] for result in sent}
    driver.settle(NEVER_S)
    assert len(driver.received(name)) == 3


@pytest.mark.only_on_gantry
@pytest.mark.parametrize(("client", "field"), TIMES)
def test_a_time_is_kept(running: Running, server: servers.Server, client: str, field: str, name: str) -> None:
    driver = listening(running, server, client, name)
    begun = time.monotonic()
    sent = results_of(driver.call("send", group=name, topic=name, count=3, prefix="t", tag="T", **{field: 1500}))
    received = driver.receive(name, 3, HANG_S)
    assert time.monotonic() - begun >= 1.5
    assert sorted(str(message["body"]) for message in received) == ["t-0", "t-1", "t-2"]
    if client != "ali-ons-3.12":  # its ids are log offsets, and a delivery stands elsewhere
        assert {message["msgId"] for message in received} == {result["msgId"] for result in sent}
    driver.settle(NEVER_S)
    assert len(driver.received(name)) == 3


@pytest.mark.only_on_gantry
def test_a_message_is_taken_back_with_its_handle(running: Running, server: servers.Server, name: str) -> None:
    driver = listening(running, server, "java-5.x", name)
    fields = {"group": name, "topic": name, "count": 2, "tag": "T", "delay_ms": FAR_MS}
    back, kept = results_of(driver.call("send", prefix="r", **fields))
    answer = driver.call("recall", group=name, topic=name, handle=back["recallHandle"])
    assert answer["recalled"] == back["msgId"]
    with pytest.raises(DriverError):
        driver.call("recall", group=name, topic=name, handle=back["recallHandle"])
    (received,) = driver.receive(name, 1, HANG_S)
    assert received["msgId"] == kept["msgId"]
    driver.settle(NEVER_S)
    assert len(driver.received(name)) == 1


@pytest.fixture
def folders(tmp_path: Path) -> Iterator["Folders"]:
    require("java")
    made = Folders(tmp_path)
    yield made
    made.end()


class Folders:
    """One folder that goes from broker to broker on one address; one client that stays."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._address: tuple[str, str] | None = None
        self._server: servers.Server | None = None
        self._driver: Driver | None = None

    def open(self, kind: str) -> servers.Server:
        settings = {"brokerName": "broker-a", "timerWheelEnable": "true"}
        self._server = servers.make(kind, self._home / kind, self._home / "data", settings)
        if self._address is not None:
            self._server.name_server, self._server.broker = self._address
        self._server.start()
        self._address = self._server.name_server, self._server.broker
        return self._server

    def close(self) -> None:
        assert self._server is not None
        self._server.stop()
        self._server.close()
        self._server = None

    def driver(self) -> Driver:
        if self._driver is None:
            assert self._address is not None
            self._driver = CLIENTS["java-5.x"].start(self._home / "client", self._address[0])
        return self._driver

    def end(self) -> None:
        if self._driver is not None:
            self._driver.quit()
        if self._server is not None:
            self._server.close()


@pytest.mark.slow
@pytest.mark.only_on_gantry
def test_a_wheel_of_apache_is_taken_over_and_given_back(folders: Folders) -> None:
    """Delivered there, not again here; pending there, delivered here; and the other way round, at least once."""
    topic = "Wheel"
    servers.create_topic(folders.open("apache-5.x"), topic)
    driver = folders.driver()
    driver.call("subscribe", id=topic, group="g" + topic, topic=topic)

    def send(prefix: str, after_ms: int) -> None:
        driver.call("send", HANG_S, group=topic, topic=topic, count=3, prefix=prefix, tag="T", delay_ms=after_ms)

    def bodies() -> list[str]:
        return sorted(str(message["body"]) for message in driver.received(topic))

    send("soon", 2_000)
    driver.receive(topic, 3, HANG_S)
    sent = time.monotonic()
    send("later", 25_000)
    driver.settle(3.0)  # into the wheel, and the check file written
    folders.close()
    folders.open("gantry")
    driver.receive(topic, 6, HANG_S)
    assert time.monotonic() - sent >= 24.0, "RocketMQ floors to a second"
    driver.settle(NEVER_S)
    assert bodies() == [f"{prefix}-{number}" for prefix in ("later", "soon") for number in range(3)]
    send("back", 25_000)
    folders.close()
    folders.open("apache-5.x")
    deadline = time.monotonic() + HANG_S
    while not {"back-0", "back-1", "back-2"} <= set(bodies()):
        assert time.monotonic() < deadline, bodies()
        driver.settle(0.5)
