"""Push consumers of Apache's Java client that pop: the broker leases them messages instead of queues.

A consumer asks the broker how it consumes (QUERY_ASSIGNMENT), so the mode is set before it starts.  Its shortest
invisible time is 5 s.  What was acknowledged does not come again, which is waited for longer than that.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.wire.codes import RequestCode
from interop import servers
from interop.clients import CLIENTS, Running
from interop.conftest import require
from interop.processes import Driver, Json
from testkit.patience import HANG_S

INVISIBLE_MS = 5_000
# For messages that the client gives back itself.  One that stands still for longer than the lease hands the message to
# no listener, and it comes again with its next attempt; on a busy machine 5 s are not enough.
LONG_MS = 60_000
NEVER_S = 8.0  # longer than that, and the second that RocketMQ's reviver sleeps
JAVA = CLIENTS["java-5.x"]
SETTINGS: servers.Settings = {"timerWheelEnable": "true", "messageDelayLevel": "1s 5s 10s"}


class Popping:
    """A server, and drivers that pop from one topic for one group."""

    def __init__(self, server: servers.Server, driver: Driver, name: str) -> None:
        self.server = server
        self.driver = driver
        self.name = name
        self.group = "g" + name

    def begin(self, queues: int = 4, attempts: int = 16) -> None:
        """Make topic and group, and tell the broker that the group pops."""
        servers.create_topic(self.server, self.name, queues)
        group = {"groupName": self.group, "retryMaxTimes": attempts, "consumeEnable": True, "retryQueueNums": 1}
        header, _ = servers.rpc(
            self.server.broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode()
        )
        assert header["code"] == 0, header
        where = {"broker": self.server.broker, "topic": self.name, "group": self.group}
        self.driver.call("pop_mode", mode="POP", **where)

    def consume(self, consumer: str = "one", driver: Driver | None = None, **how: object) -> None:
        """Start a consumer; how: see Pop.java."""
        fields = {"id": consumer, "group": self.group, "topic": self.name, "invisible_ms": INVISIBLE_MS, "retry_s": 1}
        (driver or self.driver).call("pop", **(fields | how))

    def send(self, prefix: str, count: int, **how: object) -> list[str]:
        """Send messages; return their bodies."""
        fields = {"group": "p" + self.name, "topic": self.name, "count": count, "prefix": prefix, "tag": "TagA"}
        self.driver.call("send", **(fields | how))
        return [f"{prefix}-{number}" for number in range(count)]


def bodies(messages: list[Json]) -> list[str]:
    return [str(message["body"]) for message in messages]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    require("java")
    home = tmp_path_factory.mktemp("server")
    made = servers.make(servers.CHOSEN, home, home / "data", SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def running(server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    drivers = Running(tmp_path_factory.mktemp("clients"), server.name_server)
    yield drivers
    drivers.end()


@pytest.fixture
def popping(server: servers.Server, running: Running, name: str) -> Popping:
    return Popping(server, running.driver(JAVA), name)


@pytest.fixture
def victim(server: servers.Server, tmp_path: Path) -> Iterator[Driver]:
    """A consumer's process of its own, which a test may kill."""
    made = JAVA.start(tmp_path / "victim", server.name_server)
    yield made
    made.kill()
    made.wait(10.0)


def test_what_a_consumer_handled_came_once_and_does_not_come_again(popping: Popping) -> None:
    popping.begin()
    before = popping.send("before", 40)
    popping.consume()
    received = popping.driver.receive("one", 40)
    after = popping.send("after", 40)
    received = popping.driver.receive("one", 80)
    assert sorted(bodies(received)) == sorted(before + after)
    assert all(len(str(message["handle"]).split(" ")) == 8 for message in received), "they were pulled, not popped"
    popping.driver.settle(NEVER_S)
    assert len(popping.driver.received("one")) == 80


def test_a_message_that_fails_comes_again_until_it_is_handled(popping: Popping) -> None:
    popping.begin()
    popping.consume(fail_times=2, invisible_ms=LONG_MS)
    sent = popping.send("sour", 3)
    received = popping.driver.receive("one", 9)
    assert {(message["topic"], message["tags"]) for message in received} == {(popping.name, "TagA")}
    for body in sent:
        own = [message for message in received if message["body"] == body]
        assert [message["times"] for message in own] == [0, 1, 2]
        assert len({message["msgId"] for message in own}) == 1
    popping.driver.settle(NEVER_S)
    assert len(popping.driver.received("one")) == 9


@pytest.mark.only_on_gantry
def test_when_the_group_s_attempts_are_used_up_it_is_a_dead_letter(popping: Popping) -> None:
    """The Java client itself gives up only after hours, by the message's age, and acknowledges it then."""
    popping.begin(attempts=1)
    popping.consume(fail="yes", invisible_ms=LONG_MS)
    popping.send("sour", 1)
    assert [message["times"] for message in popping.driver.receive("one", 2)] == [0, 1]
    topic = "%DLQ%" + popping.group
    servers.wait_until_routed(popping.server.name_server, topic, HANG_S)
    popping.driver.call("subscribe", id="dead", group="d" + popping.name, topic=topic)
    (dead,) = popping.driver.receive("dead", 1)
    assert (dead["body"], dead["tags"]) == ("sour-0", "TagA")
    popping.driver.settle(NEVER_S)
    assert len(popping.driver.received("one")) == 2


@pytest.mark.slow
def test_two_consumers_share_one_queue_and_each_message_has_one_of_them(popping: Popping) -> None:
    popping.begin(queues=1)
    for consumer in ("one", "two"):
        popping.consume(consumer, batch=1)
    popping.driver.settle(3.0)  # until both have popped
    sent: list[str] = []
    driver = popping.driver
    for turn in range(100):
        sent += popping.send(f"turn{turn}", 2)
        if driver.received("one") and driver.received("two"):
            break
        driver.settle(0.1)
    driver.settle(NEVER_S)
    both = [bodies(driver.received(consumer)) for consumer in ("one", "two")]
    assert all(both), "one consumer has the queue"
    assert sorted(both[0] + both[1]) == sorted(sent)


def test_messages_of_a_killed_consumer_come_to_another_one(popping: Popping, victim: Driver) -> None:
    popping.begin()
    popping.consume("victim", victim, stuck="yes")
    sent = popping.send("left", 8)
    assert set(bodies(victim.receive("victim", 1))) <= set(sent)
    victim.kill()
    popping.consume("heir")
    popping.driver.receive("heir", 8)
    popping.driver.settle(NEVER_S)
    received = popping.driver.received("heir")
    assert sorted(bodies(received)) == sorted(sent)
    assert 1 in {message["times"] for message in received}


def test_messages_are_consumed_in_order_and_one_that_fails_holds_up_its_queue(popping: Popping) -> None:
    popping.begin(queues=1)
    sent = popping.send("step", 5)
    popping.consume(order="yes", batch=2)
    popping.driver.receive("one", 5)
    popping.consume("stumbling", order="yes", batch=1, fail_times=1)
    popping.driver.call("close", id="one")
    more = popping.send("stumble", 3)
    popping.driver.receive("stumbling", 6)
    popping.driver.settle(NEVER_S)
    assert bodies(popping.driver.received("one")) == sent
    received = popping.driver.received("stumbling")
    assert bodies(received) == [body for body in more for _ in range(2)]
    assert [message["times"] for message in received] == [0, 1] * 3


@pytest.mark.slow
@pytest.mark.only_on_gantry  # RocketMQ's broker saves what was popped on a timer
@pytest.mark.parametrize("order", ["", "yes"])
def test_a_killed_broker_forgets_neither_what_was_acknowledged_nor_what_was_not(
    popping: Popping, victim: Driver, order: str
) -> None:
    driver, server = popping.driver, popping.server
    popping.begin(queues=1)
    popping.consume("first", order=order)
    done = popping.send("done", 10)
    driver.receive("first", 10)
    driver.settle(2.0)  # the client acknowledges in the background
    driver.call("close", id="first")
    popping.consume("victim", victim, order=order, stuck="yes")
    left = popping.send("left", 5)
    victim.receive("victim", 1)
    server.kill()
    victim.kill()
    server.start()
    servers.wait_until_routed(server.name_server, popping.name)
    popping.consume("heir", order=order)
    driver.receive("heir", 5)
    driver.settle(NEVER_S)
    first, second = (bodies(driver.received(consumer)) for consumer in ("first", "heir"))
    assert (first, second) == (done, left) if order else (sorted(first), sorted(second)) == (done, left)
