"""Transactions by other people's producers: Apache's Java client, and the C++ client through its Python wrapper.

The driver does what the message says: `execute` is how the local transaction ends, `answer` what the checker says.
"""

import time
from pathlib import Path

import pytest

from interop import servers
from interop.clients import CLIENTS, Client, Running
from interop.conftest import require
from interop.processes import Driver, Json
from testkit.patience import HANG_S

# Against Apache the ends of 5.x are noted in batches, three seconds apart, and a check has to come round twice.
CHECKS_S = 5.0  # two rounds of checks and a bit: what has not happened by then does not happen


@pytest.fixture(params=[pytest.param("java-4.9.7", marks=pytest.mark.slow), "java-5.x", "cpp-2.1.11"], scope="module")
def producing(request: pytest.FixtureRequest) -> Client:
    require(request.param.split("-")[0])
    return CLIENTS[request.param]


@pytest.fixture
def driver(running: Running, producing: Client, server: servers.Server, name: str) -> Driver:
    """A driver with a consumer of the topic."""
    servers.create_topic(server, name)
    driver = running.driver(producing)
    driver.call("subscribe", id=name, group="g" + name, topic=name)
    return driver


def transact(driver: Driver, name: str, execute: str, answer: str = "unknown", count: int = 3) -> list[Json]:
    fields = {"kind": "transaction", "topic": name, "count": count, "execute": execute, "answer": answer}
    results = driver.call("send", HANG_S, group="tx" + name, prefix=execute, tag="TagB", **fields)["results"]
    assert isinstance(results, list)
    assert {result["status"] for result in results} <= {"SEND_OK", "OK"}  # C++ says it shorter
    return results


def bodies(driver: Driver, name: str) -> list[str]:
    return sorted(str(message["body"]) for message in driver.received(name))


def checked(driver: Driver, name: str) -> list[str]:
    return [str(event["keys"]) for event in driver.events if event["event"] == "checked" and event["topic"] == name]


def until_checked(driver: Driver, name: str, count: int) -> None:
    deadline = time.monotonic() + HANG_S
    while len(set(checked(driver, name))) < count:
        assert time.monotonic() < deadline, f"checked: {checked(driver, name)}"
        driver.settle(0.2)


def test_a_committed_message_is_delivered_once_under_its_id(driver: Driver, name: str) -> None:
    results = transact(driver, name, "commit")
    received = driver.receive(name, 3, HANG_S)
    assert {m["msgId"] for m in received} == {r["msgId"] for r in results}
    assert all(m.get("transactionId", m["msgId"]) == m["msgId"] for m in received)
    assert {(m["tags"], m["colour"]) for m in received} == {("TagB", "blue")}
    driver.settle(CHECKS_S)
    assert bodies(driver, name) == ["commit-0", "commit-1", "commit-2"]
    assert checked(driver, name) == []


def test_a_message_that_was_rolled_back_is_never_delivered_nor_asked_about(driver: Driver, name: str) -> None:
    transact(driver, name, "rollback", "commit")
    transact(driver, name, "commit", count=1)
    driver.receive(name, 1, HANG_S)
    driver.settle(CHECKS_S)
    assert bodies(driver, name) == ["commit-0"]
    assert checked(driver, name) == []


def test_an_unknown_outcome_is_asked_for_and_committed(driver: Driver, name: str) -> None:
    transact(driver, name, "unknown", "commit")
    driver.receive(name, 3, HANG_S)
    driver.settle(CHECKS_S)
    assert bodies(driver, name) == ["unknown-0", "unknown-1", "unknown-2"]
    assert set(checked(driver, name)) == {f"unknown-key-{number}" for number in range(3)}


def test_an_unknown_outcome_is_asked_for_and_rolled_back(driver: Driver, name: str) -> None:
    transact(driver, name, "unknown", "rollback")
    until_checked(driver, name, 3)
    transact(driver, name, "commit", count=1)
    driver.receive(name, 1, HANG_S)
    driver.settle(CHECKS_S)
    assert bodies(driver, name) == ["commit-0"]


def test_what_stays_unknown_is_asked_for_again(driver: Driver, name: str) -> None:
    transact(driver, name, "unknown", "unknown", count=1)
    until_checked(driver, name, 1)
    driver.events = [event for event in driver.events if event["event"] != "checked"]
    until_checked(driver, name, 1)
    assert bodies(driver, name) == []


def test_another_instance_answers_for_a_producer_that_died_after_the_half(
    driver: Driver, producing: Client, server: servers.Server, name: str, tmp_path: Path
) -> None:
    dying = producing.start(tmp_path / "dying", server.name_server)
    try:
        fields = {"kind": "transaction", "topic": name, "count": 1, "execute": "halt", "answer": "commit"}
        dying.begin("send", group="tx" + name, prefix="orphan", **fields)
        dying.event("executed", HANG_S)
        assert dying.process.wait(HANG_S) == 1
    finally:
        dying.kill()
        dying.wait(5.0)
    driver.call("open", group="tx" + name)
    if producing.name != "java-4.9.7":  # the others greet only brokers to which they have sent something
        driver.call("send", group="tx" + name, kind="transaction", topic=name, count=1, prefix="b", execute="rollback")
    (message,) = driver.receive(name, 1, HANG_S)
    assert message["body"] == "orphan-0"
    assert "orphan-key-0" in checked(driver, name)
