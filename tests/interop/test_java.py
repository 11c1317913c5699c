"""What only the Java client can ask for: pulls, lookups, offsets, administration, the refusals it must understand."""

import threading
import time

import pytest

from interop import servers
from interop.clients import Client, Running
from interop.processes import Driver, DriverError, Json
from testkit.patience import HANG_S


def rows(answer: Json, field: str) -> list[dict[str, object]]:
    found = answer[field]
    assert isinstance(found, list)
    return found


def is_old_broker_with_new_client(driver: Driver) -> bool:
    """The one pair of Apache's own that does not fit in everything."""
    return servers.CHOSEN == "apache-4.9.7" and driver.name == "java-5.x"


@pytest.fixture
def driver(running: Running, java: Client) -> Driver:
    return running.driver(java)


def test_a_batch_has_consecutive_places_and_an_id_for_each(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=1, prefix="first")
    (result,) = rows(
        driver.call("send", group=name, kind="batch", topic=name, count=5, prefix="b", tag="TagA"), "results"
    )
    ids = str(result["msgId"]).split(",")
    offset_ids = str(result["offsetMsgId"]).split(",")
    assert len(set(ids)) == len(set(offset_ids)) == 5
    pulled = [m for m in rows(driver.call("pull", group=name, topic=name), "messages") if m.get("tags") == "TagA"]
    pulled.sort(key=lambda m: int(str(m["queueOffset"])))
    first = int(str(result["queueOffset"]))
    assert [(m["queueId"], m["queueOffset"]) for m in pulled] == [(result["queueId"], first + i) for i in range(5)]
    assert [m["offsetMsgId"] for m in pulled] == offset_ids
    if not is_old_broker_with_new_client(driver):  # there the batch's own id overwrites those of its messages
        assert [m["msgId"] for m in pulled] == ids


def test_a_selector_puts_messages_into_one_queue_in_order(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=1, prefix="first")
    results = rows(
        driver.call("send", group=name, kind="selector", topic=name, count=6, prefix="s", queue=2), "results"
    )
    assert len({r["queueId"] for r in results}) == 1
    offsets = [int(str(r["queueOffset"])) for r in results]
    assert offsets == list(range(offsets[0], offsets[0] + 6))


def test_a_pull_gives_everything_and_filters_by_tag(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=40, prefix="a", tag="TagA")
    driver.call("send", group=name, topic=name, count=40, prefix="b", tag="TagB")
    everything = rows(driver.call("pull", group=name, topic=name), "messages")
    assert len({m["offsetMsgId"] for m in everything}) == 80
    assert {m["colour"] for m in everything} == {"blue"}
    filtered = rows(driver.call("pull", group=name, topic=name, expression="TagB"), "messages")
    assert sorted(str(m["body"]) for m in filtered) == sorted(f"b-{i}" for i in range(40))


def test_a_pull_beyond_the_end_is_told_where_to_go(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=4, prefix="a")
    statuses = driver.call("pull", group=name, topic=name, offset=1000)["statuses"]
    assert set(statuses) == {"OFFSET_ILLEGAL"}  # type: ignore[call-overload]


def test_a_held_pull_is_woken_by_a_message(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=4, prefix="a")
    held = driver.begin("hold", group=name, topic=name, queue=1)
    driver.event("holding")
    threading.Event().wait(0.3)  # the client has no way to say that its request is on the way
    driver.call("send", group=name, kind="selector", topic=name, count=1, prefix="wake", queue=1)
    driver.call("send", group=name, kind="async", topic=name, count=4, prefix="wake")
    answer = driver.finish(held, timeout_s=45.0)  # a pull that nobody wakes is held for 60 s
    assert answer["status"] == "FOUND"


def test_a_message_is_found_by_offset_id_by_unique_id_and_by_key(
    driver: Driver, server: servers.Server, name: str
) -> None:
    servers.create_topic(server, name)
    results = rows(driver.call("send", group=name, topic=name, count=5, prefix=name, tag="TagA"), "results")
    for i, result in enumerate(results):
        for identifier in (result["offsetMsgId"], result["msgId"]):
            found = driver.call("view", topic=name, id=identifier)["found"]
            assert isinstance(found, dict)
            assert (found["body"], found["msgId"]) == (f"{name}-{i}", result["msgId"])
        by_key = rows(driver.call("query", topic=name, key=f"{name}-key-{i}"), "messages")
        assert [m["msgId"] for m in by_key] == [result["msgId"]]


def test_a_key_that_nobody_used_is_not_found(driver: Driver, server: servers.Server, name: str) -> None:
    servers.create_topic(server, name)  # and known to the name server, which the lookup asks first
    driver.call("send", group=name, topic=name, count=1, prefix="a")
    with pytest.raises(DriverError) as refused:
        driver.call("query", topic=name, key="no-such-key")
    assert refused.value.code == 208  # the client's NO_MESSAGE


def test_offsets_and_times_of_a_queue(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=8, prefix="a")
    queues = rows(driver.call("offsets", group=name, topic=name, time=0), "queues")
    assert sum(int(str(q["max"])) for q in queues) == 8
    assert {q["min"] for q in queues} == {0}
    assert {q["by_time"] for q in queues} == {0}
    assert all(int(str(q["earliest_store_time"])) > 1_600_000_000_000 for q in queues if q["max"])
    later = rows(driver.call("offsets", group=name, topic=name, time=4_000_000_000_000), "queues")
    assert all(int(str(q["by_time"])) >= int(str(q["max"])) - 1 for q in later if q["max"])


def test_committed_offsets_are_those_of_the_group(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=32, prefix="a")  # a commit beyond the end of a queue is refused
    driver.call("pull", group=name, topic=name)  # 5.x takes offsets only of groups that it has seen
    driver.call("commit", group=name, topic=name, base=1)
    offsets = driver.call("committed", group=name, topic=name)["offsets"]
    assert offsets == {str(queue): 1 + queue for queue in range(4)}
    other = driver.call("committed", group=name + "other", topic=name)["offsets"]
    assert isinstance(other, dict)
    assert all(int(offset) <= 0 for offset in other.values())


def test_the_members_of_a_group_share_the_queues(driver: Driver, name: str) -> None:
    driver.call("send", group=name, topic=name, count=1, prefix="first", tag="Made")
    for member in ("a", "b"):
        driver.call("subscribe", id=name + member, group=name, topic=name, expression="TagA")
    deadline = time.monotonic() + HANG_S
    sent: set[object] = set()
    while not (driver.received(name + "a") and driver.received(name + "b")):  # until both know of each other
        assert time.monotonic() < deadline, "one member alone gets everything"
        results = rows(driver.call("send", group=name, topic=name, count=8, prefix="m", tag="TagA"), "results")
        sent |= {result["msgId"] for result in results}
        driver.settle(0.2)
    while {m["msgId"] for m in [*driver.received(name + "a"), *driver.received(name + "b")]} != sent:
        assert time.monotonic() < deadline, "not all of it arrives"
        driver.settle(0.1)


def test_a_topic_is_created_and_the_cluster_described(driver: Driver, server: servers.Server, name: str) -> None:
    driver.call("create", topic=name, broker=server.broker, queues=3)
    servers.wait_until_routed(server.name_server, name)
    results = rows(driver.call("send", group=name, topic=name, count=9, prefix="a"), "results")
    assert {r["queueId"] for r in results} == {0, 1, 2}
    cluster = driver.call("cluster")
    assert cluster["addresses"] == [server.broker]
    assert name in cluster["topics"]  # type: ignore[operator]
    runtime = cluster["runtime"]
    assert isinstance(runtime, dict)
    assert "brokerVersionDesc" in runtime
    assert int(runtime["msgPutTotalTodayNow"]) >= 9


@pytest.mark.not_in_the_old_pair  # 5.x waits in vain for what 4.9.7 does not say
def test_a_lite_pull_consumer_receives(driver: Driver, server: servers.Server, name: str) -> None:
    servers.create_topic(server, name)
    driver.call("send", group=name, topic=name, count=6, prefix="a")
    messages = rows(driver.call("lite", 90.0, group=name, topic=name, count=6, wait_ms=60_000), "messages")
    assert sorted(str(m["body"]) for m in messages) == sorted(f"a-{i}" for i in range(6))
