"""What RocketMQ's tools ask about groups, clients and messages, and resets of groups that work."""

from __future__ import annotations

import time

import pytest

from interop import servers
from interop.clients import Client, Running
from interop.processes import Driver, DriverError, Json
from testkit.patience import HANG_S


@pytest.fixture
def driver(running: Running, java: Client) -> Driver:
    return running.driver(java)


def rows(answer: Json, field: str = "queues") -> list[dict[str, object]]:
    found = answer[field]
    assert isinstance(found, list)
    return found


def total(found: list[dict[str, object]], field: str) -> int:
    return sum(int(str(row[field])) for row in found)


def progress(driver: Driver, name: str) -> list[dict[str, object]]:
    """What is told of the group once it has committed all eight messages; before its first commit there is nothing."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        try:
            found = rows(driver.call("stats", group=name, topic=name))
        except DriverError:
            found = []
        if total(found, "consumer") == 8:
            return found
        driver.settle(0.3)
    raise AssertionError("not committed")


def once_known(driver: Driver, op: str, **asked: object) -> Json:
    """The answer once there is one: members are known by heartbeats 30 s apart, statistics are sampled every ten."""
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            return driver.call(op, **asked)
        except DriverError as error:
            if "not exist" not in str(error) or time.monotonic() > deadline:
                raise
        driver.settle(1.0)


def filled(driver: Driver, server: servers.Server, name: str, count: int) -> None:
    servers.create_topic(server, name)
    driver.call("send", group=name + "p", topic=name, count=count, prefix=name)


@pytest.mark.only_on_gantry
def test_a_group_at_work_is_seen_and_goes_back_in_time(driver: Driver, server: servers.Server, name: str) -> None:
    filled(driver, server, name, 8)
    stored = rows(driver.call("topic_stats", topic=name))
    assert (total(stored, "min"), total(stored, "max")) == (0, 8)
    driver.call("subscribe", id=name, group=name, topic=name, expression="*")
    first = driver.receive(name, 8, HANG_S)
    assert total(progress(driver, name), "broker") == 8
    seen = once_known(driver, "connections", group=name, topic=name, producers=name + "p")
    client_id = str(seen["consumers"][0])  # type: ignore[index]
    assert seen["model"] == "CLUSTERING" and name in seen["topics"]  # type: ignore[operator]
    assert len(rows(seen, "producers")) == 1
    info = driver.call("running", group=name, client=client_id)
    assert info["type"] == "CONSUME_PASSIVELY" and name in info["topics"]  # type: ignore[operator]
    moved = rows(driver.call("reset", group=name, topic=name, time=0))
    assert total(moved, "offset") == 0
    again = driver.receive(name, 16, HANG_S)
    assert {message["msgId"] for message in again} == {message["msgId"] for message in first}


@pytest.mark.only_on_gantry
def test_what_tools_compare_groups_by_is_read_by_rocketmqs_own(
    driver: Driver, server: servers.Server, name: str
) -> None:
    filled(driver, server, name, 8)
    driver.call("subscribe", id=name, group=name, topic=name, expression="*")
    first = driver.receive(name, 8, HANG_S)
    progress(driver, name)
    seen = once_known(driver, "connections", group=name, topic=name, producers=name + "p")
    client_id = str(seen["consumers"][0])  # type: ignore[index]
    asked = {"group": name, "topic": name, "client": client_id, "broker": server.broker}
    asked["id"] = str(first[0]["offsetMsgId"])
    found = once_known(driver, "survey", **asked)
    assert found["direct"] == "CR_SUCCESS"
    assert (found["offsets"], found["where"], found["put"], found["delay"]) == (8, 8, 8, 0)
    assert int(str(found["spans"])) > 0 and name + "p" in found["producers"]  # type: ignore[operator]
    assert len(driver.receive(name, 9, HANG_S)) >= 9, "the message came once more, to be tried"


@pytest.mark.slow
@pytest.mark.only_on_gantry
def test_a_consumer_at_work_gets_all_of_a_topic_that_is_made_again(
    driver: Driver, server: servers.Server, name: str
) -> None:
    filled(driver, server, name, 8)
    driver.call("subscribe", id=name, group=name, topic=name, expression="*")
    driver.receive(name, 8, HANG_S)
    progress(driver, name)
    header, _ = servers.rpc(server.broker, 215, {"topic": name})
    assert header["code"] == 0
    # At once again, and with more messages than there were.
    servers.create_topic(server, name)
    driver.call("send", group=name + "p", topic=name, count=24, prefix=name + "-new")
    found = driver.receive(name, 32, HANG_S)
    new = {str(message["body"]) for message in found[8:]}
    assert new == {f"{name}-new-{number}" for number in range(24)}


def test_messages_are_found_by_key_within_a_span_of_time(driver: Driver, server: servers.Server, name: str) -> None:
    filled(driver, server, name, 3)
    [found] = rows(driver.call("query_between", topic=name, key=f"{name}-key-1"), "messages")
    stored = int(str(found["stored"]))
    [again] = rows(
        driver.call("query_between", topic=name, key=f"{name}-key-1", begin=stored - 2000, end=stored + 2000),
        "messages",
    )
    assert again["msgId"] == found["msgId"]
    with pytest.raises(DriverError):
        driver.call("query_between", topic=name, key=f"{name}-key-1", begin=stored - 60_000, end=stored - 30_000)


def test_a_producers_trace_is_kept_and_found_by_the_message_id(
    driver: Driver, server: servers.Server, name: str
) -> None:
    servers.create_topic(server, name)
    sent = driver.call("traced", group=name + "t", topic=name, key=name + "-traced")
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            found = rows(driver.call("query_between", topic="RMQ_SYS_TRACE_TOPIC", key=sent["msgId"]), "messages")
            break
        except DriverError:
            assert time.monotonic() < deadline, "no trace"
            driver.settle(0.3)
    assert name in str(found[0]["body"]) and "Pub" in str(found[0]["body"])
