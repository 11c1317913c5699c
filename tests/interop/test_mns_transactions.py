"""The transaction queue of MNS's client for Java, the only one that has one: prepare, commit, rollback, checks.

The client keeps an operation log in a second queue.  Every test ends with that log empty.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from interop import mnsclients
from interop.clients import Running
from interop.conftest import require
from interop.mnsclients import GantryQueues
from interop.processes import Driver, DriverError, running
from testkit.patience import HANG_S

pytestmark = pytest.mark.only_on_gantry


@pytest.fixture
def java(mns: Running) -> Driver:
    require("java")
    return mns.driver(mnsclients.CLIENTS["java"])


def is_empty(driver: Driver, queue: str) -> bool:
    """Whether a queue has no message of any kind."""
    found = driver.call("get_queue", queue=queue)["attributes"]
    assert isinstance(found, dict)
    return not any(found[name] for name in ("ActiveMessages", "InactiveMessages", "DelayMessages"))


def wait_until_empty(driver: Driver, queue: str) -> None:
    deadline = time.monotonic() + HANG_S
    while not is_empty(driver, queue):
        assert time.monotonic() < deadline, f"{queue} still has messages"
        time.sleep(0.2)


def received(driver: Driver, queue: str) -> str:
    got = driver.call("receive", queue=queue, wait_s=30)
    driver.call("delete", queue=queue, handle=got["handle"])
    return str(got["body"])


def has_nothing(driver: Driver, queue: str, wait_s: int) -> bool:
    try:
        driver.call("receive", queue=queue, wait_s=wait_s)
    except DriverError as error:
        return error.answer["error"] == "MessageNotExist"
    return False


def log_of(queue: str) -> str:
    return f"{queue}-operation-log-queue"


def test_a_committed_message_is_seen_and_a_rolled_back_one_never(java: Driver, name: str) -> None:
    java.call("tx_open", queue=name)
    for body, end in (("yes", "commit"), ("no", "rollback"), ("also yes", "commit"), ("failed", "throw")):
        java.call("tx_send", queue=name, body=body, end=end)
    assert {received(java, name) for _ in range(2)} == {"yes", "also yes"}
    assert has_nothing(java, name, 3)
    wait_until_empty(java, name)
    wait_until_empty(java, log_of(name))


def test_settling_twice_changes_nothing(java: Driver, name: str) -> None:
    java.call("tx_open", queue=name)
    kept = java.call("tx_prepare", queue=name, body="kept")["handle"]
    gone = java.call("tx_prepare", queue=name, body="gone")["handle"]
    assert has_nothing(java, name, 2), "a prepared message is not seen"
    java.call("tx_commit", queue=name, handle=kept)
    java.call("tx_rollback", queue=name, handle=gone)
    for op, handle in (("tx_commit", kept), ("tx_rollback", kept), ("tx_commit", gone), ("tx_rollback", gone)):
        java.call(op, queue=name, handle=handle)  # the client takes "there is no message" for done
    assert received(java, name) == "kept"
    assert has_nothing(java, name, 3)
    wait_until_empty(java, name)


@pytest.mark.parametrize("verdict", ["commit", "rollback"])
def test_what_a_killed_producer_left_is_settled_by_a_checker(
    java: Driver, queues: GantryQueues, tmp_path: Path, name: str, verdict: str
) -> None:
    with running(mnsclients.start("java", tmp_path, queues.url)) as producer:
        producer.call("tx_open", queue=name, log_delay_s=2)
        producer.begin("tx_send", queue=name, body="whole", end="halt")
        handle = producer.event("prepared")["handle"]
        producer.process.wait(HANG_S)
    assert has_nothing(java, name, 1)
    java.call("tx_open", queue=name, check=verdict)
    asked = java.event("checked")
    assert (asked["queue"], asked["handle"]) == (name, handle)
    if verdict == "commit":
        assert received(java, name) == "whole"
    wait_until_empty(java, log_of(name))
    assert has_nothing(java, name, 3)
    wait_until_empty(java, name)
    java.call("tx_close", queue=name)


def test_a_prepared_message_outlives_the_server(
    java: Driver, mns: Running, queues: GantryQueues, name: str
) -> None:
    java.call("tx_open", queue=name)
    handles = [java.call("tx_prepare", queue=name, body=body)["handle"] for body in ("kept", "gone")]
    queues.kill()
    queues.start()
    java.call("tx_commit", queue=name, handle=handles[0])
    java.call("tx_rollback", queue=name, handle=handles[1])
    assert received(java, name) == "kept"
    assert has_nothing(java, name, 3)
    mns.end()  # the clients for Python do not survive that a server closed their connection
