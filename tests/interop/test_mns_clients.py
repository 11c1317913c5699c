"""MNS's own clients, unmodified, at `gantry queues`: every call that each of them has."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from interop import mnsclients
from interop.clients import Running
from interop.conftest import require
from interop.grpcclients import rows
from interop.mnsclients import GantryQueues
from interop.processes import Driver, DriverError, Json, running

pytestmark = pytest.mark.only_on_gantry

BODY = "hällo <&> 中"


@pytest.fixture(params=mnsclients.CLIENTS)
def sdk(request: pytest.FixtureRequest) -> str:
    require(mnsclients.TOOLS[request.param])
    return str(request.param)


@pytest.fixture
def driver(sdk: str, mns: Running) -> Driver:
    return mns.driver(mnsclients.CLIENTS[sdk])


def refusal(driver: Driver, op: str, **fields: object) -> str:
    """Return the code with which the client says no."""
    with pytest.raises(DriverError) as caught:
        driver.call(op, **fields)
    return str(caught.value.answer["error"])


def attributes(answer: Json) -> Json:
    found = answer["attributes"]
    assert isinstance(found, dict)
    return found


def md5(body: str) -> str:
    return hashlib.md5(body.encode()).hexdigest().upper()


def names(answer: Json) -> list[str]:
    urls = answer["urls"]
    assert isinstance(urls, list)
    return [str(url).rpartition("/")[2] for url in urls]


def test_queues_are_made_altered_listed_and_deleted(driver: Driver, queues: GantryQueues, name: str) -> None:
    first = {"VisibilityTimeout": 40, "DelaySeconds": 2}
    made = driver.call("create_queue", queue=name, attributes=first)
    assert made["url"] == f"{queues.url}/queues/{name}"
    assert driver.call("create_queue", queue=name, attributes=first)["url"] == made["url"]
    assert refusal(driver, "create_queue", queue=name, attributes={"VisibilityTimeout": 50}) == "QueueAlreadyExist"
    changes = {"DelaySeconds": 0, "LoggingEnabled": True, "VisibilityTimeout": 40}
    driver.call("set_queue", queue=name, attributes=changes)
    found = attributes(driver.call("get_queue", queue=name))
    wanted = {"QueueName": name, "VisibilityTimeout": 40, "DelaySeconds": 0, "LoggingEnabled": True}
    wanted |= {"ActiveMessages": 0, "InactiveMessages": 0, "DelayMessages": 0}
    assert {key: found[key] for key in wanted} == wanted
    driver.call("create_queue", queue=f"{name}b")
    assert names(driver.call("list_queues", prefix=name)) == [name, f"{name}b"]
    page = driver.call("list_queues", prefix=name, count=1)
    assert names(page) == [name]
    if page["marker"]:
        assert names(driver.call("list_queues", prefix=name, count=1, marker=page["marker"])) == [f"{name}b"]
    for _ in range(2):
        driver.call("delete_queue", queue=name)
    assert refusal(driver, "get_queue", queue=name) == "QueueNotExist"
    assert refusal(driver, "send", queue=name, body="x") == "QueueNotExist"


def test_a_message_is_sent_looked_at_received_kept_longer_and_deleted(driver: Driver, name: str) -> None:
    driver.call("create_queue", queue=name)
    assert refusal(driver, "receive", queue=name) == "MessageNotExist"
    assert refusal(driver, "peek", queue=name) == "MessageNotExist"
    sent = driver.call("send", queue=name, body=BODY)
    assert not sent["handle"]
    peeked = driver.call("peek", queue=name)
    got = driver.call("receive", queue=name, wait_s=10)
    for one in (peeked, got):
        assert (one["messageId"], one["md5"], one["body"]) == (sent["messageId"], sent["md5"], BODY)
    assert (got["count"], got["priority"]) == (1, 8)
    assert int(str(got["visibleMs"])) - int(str(got["firstMs"])) == 30_000
    assert refusal(driver, "receive", queue=name) == "MessageNotExist"
    kept = driver.call("change", queue=name, handle=got["handle"], seconds=60)
    assert int(str(kept["visibleMs"])) > int(str(got["visibleMs"]))
    assert refusal(driver, "delete", queue=name, handle=got["handle"]) == "MessageNotExist"
    assert refusal(driver, "change", queue=name, handle=got["handle"], seconds=5) == "MessageNotExist"
    driver.call("delete", queue=name, handle=kept["handle"])
    assert refusal(driver, "delete", queue=name, handle=kept["handle"]) == "MessageNotExist"
    assert refusal(driver, "delete", queue=name, handle="no-handle") == "ReceiptHandleError"
    counts = attributes(driver.call("get_queue", queue=name))
    assert (counts["ActiveMessages"], counts["InactiveMessages"]) == (0, 0)


def test_a_released_message_comes_again_and_counts(driver: Driver, name: str) -> None:
    driver.call("create_queue", queue=name)
    driver.call("send", queue=name, body="again")
    first = driver.call("receive", queue=name, wait_s=10)
    driver.call("change", queue=name, handle=first["handle"], seconds=1)
    second = driver.call("receive", queue=name, wait_s=20)
    assert (second["messageId"], second["count"]) == (first["messageId"], 2)
    assert int(str(first["firstMs"])) <= int(str(second["firstMs"])) < int(str(second["visibleMs"])) - 30_000


def test_many_are_sent_received_and_deleted_together(driver: Driver, name: str) -> None:
    driver.call("create_queue", queue=name)
    sent = rows(driver.call("send_many", queue=name, bodies=["a", "b", BODY]), "messages")
    assert len({str(one["messageId"]) for one in sent}) == 3
    peeked = rows(driver.call("peek_many", queue=name, count=16), "messages")
    assert {str(one["body"]) for one in peeked} == {"a", "b", BODY}
    got: list[Json] = []
    while len(got) < 3:
        got += rows(driver.call("receive_many", queue=name, count=16, wait_s=10), "messages")
    assert {str(one["body"]) for one in got} == {"a", "b", BODY}
    assert {one["messageId"] for one in got} == {one["messageId"] for one in sent}
    driver.call("delete_many", queue=name, handles=[one["handle"] for one in got])
    handles = [one["handle"] for one in got]
    assert refusal(driver, "delete_many", queue=name, handles=handles) == "MessageNotExist"
    assert refusal(driver, "receive_many", queue=name, count=2) == "MessageNotExist"


def test_a_message_that_is_too_long_fails_alone(driver: Driver, name: str) -> None:
    driver.call("create_queue", queue=name, attributes={"MaximumMessageSize": 1024})
    assert refusal(driver, "send_many", queue=name, bodies=["short", "x" * 2000]) == "InvalidArgument"
    assert driver.call("receive", queue=name, wait_s=10)["body"] == "short"
    assert refusal(driver, "receive", queue=name) == "MessageNotExist"


def test_a_delayed_message_has_a_handle_by_which_it_comes_sooner_or_never(
    driver: Driver, sdk: str, name: str
) -> None:
    driver.call("create_queue", queue=name)
    if sdk == "old":  # it does not read the handle of a send
        driver.call("send", queue=name, body="soon", delay_s=1)
        assert driver.call("receive", queue=name, wait_s=20)["body"] == "soon"
        return
    late = driver.call("send", queue=name, body="late", delay_s=172_800)
    soon = driver.call("change", queue=name, handle=late["handle"], seconds=1)
    assert soon["handle"] and soon["handle"] != late["handle"]
    assert refusal(driver, "change", queue=name, handle=late["handle"], seconds=1) == "MessageNotExist"
    got = driver.call("receive", queue=name, wait_s=20)
    assert (got["body"], got["messageId"]) == ("late", late["messageId"])
    gone = driver.call("send", queue=name, body="gone", delay_s=1)
    driver.call("delete", queue=name, handle=gone["handle"])
    assert refusal(driver, "delete", queue=name, handle=gone["handle"]) == "MessageNotExist"
    assert refusal(driver, "receive", queue=name, wait_s=3) == "MessageNotExist"


def test_the_first_priority_comes_first(driver: Driver, name: str) -> None:
    driver.call("create_queue", queue=name)
    for priority, body in ((16, "last"), (8, "middle"), (1, "first")):
        driver.call("send", queue=name, body=body, priority=priority)
    assert [driver.call("receive", queue=name, wait_s=10)["body"] for _ in range(3)] == ["first", "middle", "last"]


def test_raw_bodies_are_taken_as_they_are(driver: Driver, sdk: str, name: str) -> None:
    if sdk == "old":
        return  # it cannot send them on Python 3
    body = "raw 中" if sdk == "node" else "raw <&>\r\n\t中"  # Node.js's does not escape
    driver.call("create_queue", queue=name)
    sent = driver.call("send", queue=name, body=body, raw=True)
    if sdk != "sdk":  # it does not escape the carriage return, which is a line feed for every reader of XML then
        assert sent["md5"] == md5(body)
        assert driver.call("receive", queue=name, raw=True, wait_s=10)["body"] == body
    else:
        assert driver.call("receive", queue=name, raw=True, wait_s=10)["body"] == body.replace("\r\n", "\n")


def test_topics_are_made_altered_listed_and_published_to(
    driver: Driver, sdk: str, queues: GantryQueues, name: str
) -> None:
    first = {"MaximumMessageSize": 2048}
    made = driver.call("create_topic", topic=name, attributes=first)
    assert made["url"] == f"{queues.url}/topics/{name}"
    assert refusal(driver, "create_topic", topic=name, attributes={"MaximumMessageSize": 4096}) == "TopicAlreadyExist"
    driver.call("set_topic", topic=name, attributes={"MaximumMessageSize": 8192})
    found = attributes(driver.call("get_topic", topic=name))
    assert (found["TopicName"], found["MaximumMessageSize"]) == (name, 8192)
    assert names(driver.call("list_topics", prefix=name)) == [name]
    sent = driver.call("publish", topic=name, body="x" if sdk == "node" else BODY, tag="red")
    assert sent["messageId"] and sent["md5"] == md5("x" if sdk == "node" else BODY)
    assert refusal(driver, "publish", topic=f"{name}-none", body="x") == "TopicNotExist"
    if sdk != "node":  # whose call does nothing
        for _ in range(2):
            driver.call("delete_topic", topic=name)
        assert refusal(driver, "get_topic", topic=name) == "TopicNotExist"


def test_subscribed_queues_get_what_is_published(driver: Driver, sdk: str, name: str) -> None:
    if sdk == "node":
        return  # it has no such calls
    topic, red, every = f"{name}-t", f"{name}-red", f"{name}-all"
    driver.call("create_topic", topic=topic)
    for queue in (red, every):
        driver.call("create_queue", queue=queue)
    driver.call("subscribe", topic=topic, subscription="red", queue=red, tag="red")
    made = driver.call("subscribe", topic=topic, subscription="all", queue=every)
    assert str(made["url"]).endswith(f"/topics/{topic}/subscriptions/all")
    assert refusal(driver, "subscribe", topic=topic, subscription="all", queue=red) == "SubscriptionAlreadyExist"
    driver.call("set_subscription", topic=topic, subscription="all", strategy="BACKOFF_RETRY")
    found = driver.call("get_subscription", topic=topic, subscription="all")
    assert (found["strategy"], found["format"]) == ("BACKOFF_RETRY", "SIMPLIFIED")
    assert str(found["endpoint"]).endswith(f":queues/{every}")
    assert names(driver.call("list_subscriptions", topic=topic)) == ["all", "red"]
    raw = sdk != "old"  # which decodes base64 always
    body = "red one" if raw else "cmVkIG9uZQ=="
    driver.call("publish", topic=topic, body=body, tag="red")
    driver.call("publish", topic=topic, body=body.upper() if raw else "Qg==", tag="blue")
    bodies = {str(driver.call("receive", queue=every, wait_s=20, raw=raw)["body"]) for _ in range(2)}
    assert bodies == {"red one", "RED ONE" if raw else "B"}
    assert driver.call("receive", queue=red, wait_s=20, raw=raw)["body"] == "red one"
    assert refusal(driver, "receive", queue=red) == "MessageNotExist"
    driver.call("unsubscribe", topic=topic, subscription="red")
    assert refusal(driver, "get_subscription", topic=topic, subscription="red") == "SubscriptionNotExist"
    driver.call("delete_topic", topic=topic)


def test_the_account(driver: Driver, sdk: str) -> None:
    if sdk != "node":  # it has no such calls
        driver.call("set_account", bucket="b")
    if sdk not in ("node", "old"):  # the old one cannot read any answer on Python 3
        assert driver.call("get_account")["bucket"] == ""


def test_properties_come_back(mns: Running, name: str) -> None:
    driver = mns.driver(mnsclients.CLIENTS["sdk"])
    driver.call("create_queue", queue=name)
    given = {"s": ["STRING", "v<"], "n": ["NUMBER", "1.5"], "b": ["BOOLEAN", "true"], "y": ["BINARY", "6869"]}
    driver.call("send", queue=name, body="x", properties=given, group="g")
    for got in (driver.call("peek", queue=name), driver.call("receive", queue=name, wait_s=10)):
        assert got["properties"] == given | {"y": ["BINARY", "hi"], "traceparent": ["STRING", "00-trace"]}
    assert got["group"] == "g"


@pytest.mark.parametrize("sender", mnsclients.CLIENTS)
def test_what_one_client_sends_another_receives(mns: Running, sdk: str, sender: str, name: str) -> None:
    require(mnsclients.TOOLS[sender])
    one, other = mns.driver(mnsclients.CLIENTS[sender]), mns.driver(mnsclients.CLIENTS[sdk])
    one.call("create_queue", queue=name)
    sent = one.call("send", queue=name, body=BODY)
    got = other.call("receive", queue=name, wait_s=10)
    assert (got["body"], got["messageId"], got["md5"]) == (BODY, sent["messageId"], sent["md5"])
    one.call("delete", queue=name, handle=got["handle"])


def test_a_pulled_topic_of_java(mns: Running, name: str) -> None:
    require("java")
    driver = mns.driver(mnsclients.CLIENTS["java"])
    consumers = [f"{name}-a", f"{name}-b"]
    driver.call("pull_topic", topic=f"{name}-t", queues=consumers, body="to both")
    for queue in consumers:
        assert driver.call("receive", queue=queue, wait_s=20, raw=True)["body"] == "to both"


@pytest.mark.parametrize("wrong", ["user", "secret"])
def test_a_wrong_signature_is_refused(queues: GantryQueues, tmp_path: Path, sdk: str, wrong: str) -> None:
    user, secret = ("nobody", mnsclients.SECRET) if wrong == "user" else (mnsclients.USER, "guessed")
    with running(mnsclients.start(sdk, tmp_path, queues.url, user, secret)) as driver:
        code = refusal(driver, "get_queue", queue="q")
    assert code == {"user": "AccessIDAuthError", "secret": "SignatureDoesNotMatch"}[wrong]
