"""Messages that other people's consumers could not handle: they come again, and in the end they are dead letters.

The server's ladder of delays is short, but for its last steps; a consumer fails as often as the test says.
"""

import asyncio
from collections.abc import Iterator

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from interop import servers
from interop.clients import CLIENTS, Client, Running
from interop.conftest import require
from interop.processes import Driver, Json
from testkit.patience import HANG_S

RARER = [pytest.param(client, marks=pytest.mark.slow) for client in ("java-4.9.7", "java-5.x", "cpp-2.1.11")]
OLD_JAVA, JAVA, OLD_CPP = RARER
LADDER = " ".join(["1s", "5s", *["1s"] * 16, "1h"])  # without a choice the delays begin with the third


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    if servers.CHOSEN != "gantry":
        require("java")
    home = tmp_path_factory.mktemp("server")
    made = servers.make(servers.CHOSEN, home, home / "data", {"messageDelayLevel": LADDER})
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


@pytest.fixture(params=[OLD_JAVA, "java-5.x", OLD_CPP, "ali-ons-3.12"], scope="module")
def failing(request: pytest.FixtureRequest) -> Client:
    require(request.param.split("-")[0].replace("ali", "node"))
    return CLIENTS[request.param]


def consume(driver: Driver, server: servers.Server, name: str, **how: object) -> None:
    """A consumer of a topic that fails in the way that is said."""
    servers.create_topic(server, name)
    driver.call("subscribe", id=name, group="g" + name, topic=name, **how)


def send(driver: Driver, name: str, count: int) -> list[str]:
    """The ids of messages that were sent."""
    rows = driver.call("send", group="p" + name, topic=name, count=count, prefix="sour", tag="TagB")["results"]
    assert isinstance(rows, list)
    return [row["msgId"] for row in rows]


def dead_letters(driver: Driver, server: servers.Server, name: str, count: int) -> list[Json]:
    """What a consumer of the group's dead-letter topic gets."""
    topic = "%DLQ%g" + name
    servers.wait_until_routed(server.name_server, topic, HANG_S)
    driver.call("subscribe", id="dead" + name, group="d" + name, topic=topic)
    return driver.receive("dead" + name, count, HANG_S)


def test_a_message_comes_again_under_its_topic_and_id_until_it_is_handled(
    running: Running, failing: Client, server: servers.Server, name: str
) -> None:
    driver = running.driver(failing)
    consume(driver, server, name, fail_times=2)
    # Of redeliveries that it pulled together the C++ core shows the first one, and sends back the others unseen.
    count = 1 if failing.name.startswith("cpp") else 2
    ids = send(driver, name, count)
    received = driver.receive(name, 3 * count, HANG_S)
    for number, message_id in enumerate(ids):
        own = [message for message in received if message["body"] == f"sour-{number}"]
        assert [message["times"] for message in own] == [0, 1, 2]
        assert {(message["topic"], message["tags"]) for message in own} == {(name, "TagB")}
        if failing.name.startswith("java"):  # the others show the id of each copy's place in the log
            assert {message["msgId"] for message in own} == {message_id}
    driver.settle(3.0)
    assert len(driver.received(name)) == 3 * count


def test_the_consumer_chooses_the_delay(running: Running, java: Client, server: servers.Server, name: str) -> None:
    driver = running.driver(java)
    consume(driver, server, name, fail_times=1, level=2)
    send(driver, name, 1)
    first, second = driver.receive(name, 2, HANG_S)
    assert (first["times"], second["times"]) == (0, 1)
    assert int(str(second["stored"])) - int(str(first["stored"])) >= 5000


def test_a_delay_beyond_the_ladder_is_its_last_step(
    running: Running, java: Client, server: servers.Server, name: str
) -> None:
    driver = running.driver(java)
    consume(driver, server, name, fail_times=1, level=99)
    send(driver, name, 1)
    driver.receive(name, 1, HANG_S)
    driver.settle(5.0)
    assert len(driver.received(name)) == 1


@pytest.mark.parametrize("failing", [OLD_JAVA, JAVA, "ali-ons-3.12"], indirect=True)
def test_it_is_a_dead_letter_when_the_consumer_s_attempts_are_used_up(
    running: Running, failing: Client, server: servers.Server, name: str
) -> None:
    driver = running.driver(failing)
    consume(driver, server, name, fail="yes", max_times=1)
    ids = send(driver, name, 1)
    assert [message["times"] for message in driver.receive(name, 2, HANG_S)] == [0, 1]
    (dead,) = dead_letters(driver, server, name, 1)
    assert (dead["body"], dead["times"], dead["tags"]) == ("sour-0", 2, "TagB")
    if failing.name.startswith("java"):
        assert dead["msgId"] == ids[0]
    assert len(driver.received(name)) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_cpp_client_fails_to_handle_sixteen_times_is_a_dead_letter(
    running: Running, server: servers.Server, name: str
) -> None:
    """It says 16 with each message that it sends back, and its bindings cannot say anything else."""
    require("cpp")
    driver = running.driver(CLIENTS["cpp-2.1.11"])
    consume(driver, server, name, fail="yes")
    send(driver, name, 1)
    assert [message["times"] for message in driver.receive(name, 17, 2 * HANG_S)] == list(range(17))
    (dead,) = dead_letters(driver, server, name, 1)
    assert (dead["body"], dead["times"], dead["tags"]) == ("sour-0", 17, "TagB")
    assert len(driver.received(name)) == 17


def test_a_consumer_may_give_a_message_up_at_once(
    running: Running, java: Client, server: servers.Server, name: str
) -> None:
    driver = running.driver(java)
    consume(driver, server, name, fail="yes", level=-1)
    ids = send(driver, name, 1)
    (dead,) = dead_letters(driver, server, name, 1)
    assert (dead["msgId"], dead["times"]) == (ids[0], 1)
    assert len(driver.received(name)) == 1


async def test_our_own_consumer_does_the_same_with_any_broker(server: servers.Server, name: str) -> None:
    servers.create_topic(server, name)
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)
        if message.reconsume_times == 1:
            await message.give_up()
        else:
            raise RuntimeError("sour")

    settings = ConsumerSettings(start_from=StartFrom.FIRST)
    consumer = Consumer(
        "g" + name, nameserver=server.name_server, subscription={name: "*"}, listener=listener, settings=settings
    )
    async with Producer("p" + name, nameserver=server.name_server) as producer:
        sent = await producer.send(Message(name, b"sour"))
    async with consumer:
        dead_topic = "%DLQ%g" + name
        await asyncio.to_thread(servers.wait_until_routed, server.name_server, dead_topic, HANG_S)
        async with Consumer(
            "d" + name, nameserver=server.name_server, subscription={dead_topic: "*"}, settings=settings
        ) as reading:
            dead = await asyncio.wait_for(anext(reading), HANG_S)
            await dead.ack()
    assert [(message.reconsume_times, message.topic) for message in seen] == [(0, name), (1, name)]
    assert {message.message_id for message in [*seen, dead]} == {sent.message_id}
    assert dead.reconsume_times == 2
