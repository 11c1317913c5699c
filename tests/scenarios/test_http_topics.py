"""Every call of HTTP topics over real HTTP, and what reaches the subscribers, with a real broker behind the servers."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from xml.etree import ElementTree

import pytest

from gantry.client import Message, Producer, PullConsumer
from testkit.mnscalls import SPACE, MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess

KEY = "9f3c1d5a7b8e2064c1f09a8d7e6b5c4a39f3c1d5a7b8e2064c1f09a8d7e6b5c4\n"


def server(
    folder: Path, nameserver: tuple[str, int], *flags: str, environment: Mapping[str, str] | None = None
) -> GantryProcess:
    """Start one more `gantry queues`, with the keys that all of them have."""
    keys = folder.with_name("handle.key")
    keys.write_text(KEY)
    keys.chmod(0o600)
    command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", "{}:{}".format(*nameserver)]
    command += ["--queues-port", "0", "--http-port", "-1", "--handle-key-file", str(keys), *flags]
    return GantryProcess(folder, environment=environment, command=command)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GantryProcess]:
    with GantryProcess(tmp_path_factory.mktemp("topics") / "store", {"standalone.queues_port": "0"}) as found:
        yield found


@pytest.fixture
def mns(process: GantryProcess) -> Iterator[MnsCaller]:
    with MnsCaller(process.addresses["queues"]) as caller:
        yield caller


@pytest.fixture(scope="module")
def pushing(process: GantryProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MnsCaller]:
    """A second server, which pushes."""
    folder = tmp_path_factory.mktemp("pushing") / "server"
    started = server(folder, process.addresses["nameserver"], "--topic-push")
    with started as found, MnsCaller(found.addresses["queues"]) as caller:
        yield caller


def put_topic(mns: MnsCaller, topic: str) -> None:
    assert mns.call("PUT", f"/topics/{topic}", "<Topic/>").status == 201


def subscribe(mns: MnsCaller, topic: str, name: str, endpoint: str, **more: object) -> int:
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in {"Endpoint": endpoint, **more}.items())
    return mns.call("PUT", f"/topics/{topic}/subscriptions/{name}", f"<Subscription>{inner}</Subscription>").status


def subscribed_queue(mns: MnsCaller, topic: str, queue: str, **more: object) -> None:
    assert mns.put(queue).status == 201
    more.setdefault("NotifyContentFormat", "SIMPLIFIED")
    assert subscribe(mns, topic, f"for-{queue}", f"acs:mns:r:a:queues/{queue}", **more) == 201


def publish(mns: MnsCaller, topic: str, body: str, **more: object) -> str:
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in {"MessageBody": body, **more}.items())
    reply = mns.call("POST", f"/topics/{topic}/messages", f"<Message>{inner}</Message>")
    assert reply.status == 201, reply
    return reply.text("MessageId")


def taken(mns: MnsCaller, queue: str, bodies: set[str]) -> list[str]:
    """Receive and delete until all these bodies were there. Return everything that was received."""
    found: list[str] = []
    deadline = time.monotonic() + HANG_S
    while not bodies <= set(found):
        assert time.monotonic() < deadline, f"{queue}: still without {bodies - set(found)}"
        reply = mns.receive(queue, wait_s=2, count=16)
        if reply.status == 200:
            found += reply.texts("MessageBody")
            for handle in reply.texts("ReceiptHandle"):
                mns.delete(queue, handle)
    return found


def test_a_topic_is_created_altered_listed_and_deleted(mns: MnsCaller) -> None:
    made = mns.call("PUT", "/topics/life", "<Topic><MaximumMessageSize>2048</MaximumMessageSize></Topic>")
    assert made.status == 201 and made.headers["location"].endswith("/topics/life")
    again = mns.call("PUT", "/topics/life", "<Topic><MaximumMessageSize>2048</MaximumMessageSize></Topic>")
    assert again.status == 204 and again.headers["location"] == made.headers["location"]
    assert mns.call("PUT", "/topics/life", "<Topic/>").code == "TopicAlreadyExist"
    change = "<Topic><LoggingEnabled>True</LoggingEnabled></Topic>"
    assert mns.call("PUT", "/topics/life?metaoverride=true", change).status == 204
    found = mns.call("GET", "/topics/life")
    wanted = {
        "TopicName": "life", "MaximumMessageSize": "2048", "MessageRetentionPeriod": "86400", "MessageCount": "0",
        "LoggingEnabled": "True",
    }  # fmt: skip
    assert {name: found.text(name) for name in wanted} == wanted
    assert int(found.text("LastModifyTime")) > int(found.text("CreateTime"))
    listed = mns.call("GET", "/topics", headers={"x-mns-prefix": "lif", "x-mns-with-meta": "true"})
    assert listed.texts("TopicName") == ["life"] and not listed.has("NextMarker")
    assert mns.call("DELETE", "/topics/life").status == 204
    assert mns.call("DELETE", "/topics/life").status == 204, "also when it is not there"
    assert mns.call("GET", "/topics/life").code == "TopicNotExist"
    assert mns.call("PUT", "/topics/life?metaoverride=true", change).code == "TopicNotExist"


def test_a_name_is_a_queue_or_a_topic(mns: MnsCaller) -> None:
    mns.put("both-queue")
    put_topic(mns, "both-topic")
    assert mns.call("PUT", "/topics/both-queue", "<Topic/>").code == "TopicAlreadyExist"
    assert mns.put("both-topic").code == "QueueAlreadyExist"
    assert mns.call("GET", "/topics/both-queue").code == "TopicNotExist"


@pytest.mark.parametrize(
    ("target", "document", "code"),
    [
        ("/topics/-t", "<Topic/>", "InvalidArgument"),
        ("/topics/" + "t" * 121, "<Topic/>", "TopicNameLengthError"),
        ("/topics/bad", "<Topic><MaximumMessageSize>9</MaximumMessageSize></Topic>", "InvalidArgument"),
        ("/topics/bad", "<Queue/>", "MalformedXML"),
        ("/topics/bad", "<Topic>", "MalformedXML"),
        ("/topics/checked/subscriptions/" + "s" * 121, "<Subscription/>", "SubscriptionNameLengthError"),
        ("/topics/checked/subscriptions/s", "<Subscription/>", "InvalidArgument"),
        (
            "/topics/checked/subscriptions/s",
            "<Subscription><Endpoint>mail:x</Endpoint></Subscription>",
            "InvalidArgument",
        ),
        (
            "/topics/checked/subscriptions/s",
            "<Subscription><Endpoint>http://127.0.0.1/</Endpoint></Subscription>",
            "InvalidArgument",
        ),
        (
            "/topics/checked/subscriptions/s",
            "<Subscription><Endpoint>acs:mns:r:a:queues/q</Endpoint><FilterTag>a b</FilterTag></Subscription>",
            "InvalidArgument",
        ),
        (
            "/topics/nowhere/subscriptions/s",
            "<Subscription><Endpoint>acs:mns:r:a:queues/q</Endpoint></Subscription>",
            "TopicNotExist",
        ),
    ],
)
def test_what_is_not_allowed_is_refused_and_changes_nothing(
    mns: MnsCaller, target: str, document: str, code: str
) -> None:
    mns.call("PUT", "/topics/checked", "<Topic/>")
    refused = mns.call("PUT", target, document)
    assert refused.code == code and refused.status in (400, 404)
    assert not mns.call("GET", "/topics/checked/subscriptions").has("SubscriptionURL")
    assert mns.call("GET", "/topics/bad").code == "TopicNotExist"


def test_a_subscription_is_made_altered_listed_and_ended(mns: MnsCaller) -> None:
    put_topic(mns, "subs")
    endpoint = "acs:mns:cn:1:queues/somewhere"
    assert subscribe(mns, "subs", "one", endpoint, FilterTag="red") == 201
    assert subscribe(mns, "subs", "one", endpoint, FilterTag="red") == 204
    assert subscribe(mns, "subs", "one", endpoint) == 409
    assert subscribe(mns, "subs", "two", endpoint) == 201
    change = "<Subscription><NotifyStrategy>EXPONENTIAL_DECAY_RETRY</NotifyStrategy></Subscription>"
    assert mns.call("PUT", "/topics/subs/subscriptions/one?metaoverride=true", change).status == 204
    found = mns.call("GET", "/topics/subs/subscriptions/one")
    wanted = {
        "TopicName": "subs", "SubscriptionName": "one", "Endpoint": endpoint, "FilterTag": "red",
        "NotifyStrategy": "EXPONENTIAL_DECAY_RETRY", "NotifyContentFormat": "XML",
    }  # fmt: skip
    assert {name: found.text(name) for name in wanted} == wanted and found.has("TopicOwner")
    page = mns.call("GET", "/topics/subs/subscriptions", headers={"x-mns-ret-number": "1"})
    marker = {"x-mns-marker": page.text("NextMarker")}
    rest = mns.call("GET", "/topics/subs/subscriptions", headers=marker)
    urls = page.texts("SubscriptionURL") + rest.texts("SubscriptionURL")
    assert [url.rpartition("/subs/")[2] for url in urls] == ["subscriptions/one", "subscriptions/two"]
    for _ in range(2):
        assert mns.call("DELETE", "/topics/subs/subscriptions/one").status == 204
    assert mns.call("GET", "/topics/subs/subscriptions/one").code == "SubscriptionNotExist"
    assert mns.call("PUT", "/topics/subs/subscriptions/one?metaoverride=true", change).code == "SubscriptionNotExist"


def test_each_subscribed_queue_gets_what_its_tag_wants_in_its_format(mns: MnsCaller) -> None:
    put_topic(mns, "formats")
    subscribed_queue(mns, "formats", "formats-xml", NotifyContentFormat="XML", FilterTag="red")
    subscribed_queue(mns, "formats", "formats-json", NotifyContentFormat="JSON", FilterTag="red")
    subscribed_queue(mns, "formats", "formats-all")
    message_id = publish(mns, "formats", "ä&lt;b&gt;", MessageTag="red")
    publish(mns, "formats", "blue", MessageTag="blue")
    publish(mns, "formats", "untagged")
    assert sorted(taken(mns, "formats-all", {"ä<b>", "blue", "untagged"})) == ["blue", "untagged", "ä<b>"]
    xml = ElementTree.fromstring(mns.receive("formats-xml", wait_s=20).text("MessageBody"))
    values = {child.tag.removeprefix(SPACE): child.text for child in xml}
    found = json.loads(mns.receive("formats-json", wait_s=20).text("MessageBody"))
    for one, subscription in ((values, "for-formats-xml"), (found, "for-formats-json")):
        assert (one["TopicName"], one["SubscriptionName"]) == ("formats", subscription)
        assert (one["MessageId"], one["Message"], one["MessageTag"]) == (message_id, "ä<b>", "red")
        assert one["MessageMD5"] == hashlib.md5("ä<b>".encode()).hexdigest().upper()
        assert abs(int(one["PublishTime"] or 0) - time.time() * 1000) < HANG_S * 1000
    for queue in ("formats-xml", "formats-json"):
        assert mns.receive(queue).code == "MessageNotExist", "the other tags are not wanted"


def test_properties_reach_the_subscriber(mns: MnsCaller) -> None:
    put_topic(mns, "properties")
    subscribed_queue(mns, "properties", "properties-queue")
    value = "<PropertyValue><Name>n</Name><Value>1.5</Value><Type>NUMBER</Type></PropertyValue>"
    publish(mns, "properties", "x", UserProperties=value, MessageGroupId="g")
    found = mns.receive("properties-queue", wait_s=20)
    assert (found.text("Name"), found.text("Value"), found.text("Type")) == ("n", "1.5", "NUMBER")
    assert found.text("MessageGroupId") == "g"


def test_a_subscription_gets_what_is_published_while_it_is_there(mns: MnsCaller) -> None:
    put_topic(mns, "while")
    publish(mns, "while", "before")
    subscribed_queue(mns, "while", "while-queue")
    publish(mns, "while", "first")
    assert taken(mns, "while-queue", {"first"}) == ["first"]
    assert mns.call("DELETE", "/topics/while/subscriptions/for-while-queue").status == 204
    publish(mns, "while", "between")
    endpoint = "acs:mns:r:a:queues/while-queue"
    assert subscribe(mns, "while", "for-while-queue", endpoint, NotifyContentFormat="SIMPLIFIED") == 201
    publish(mns, "while", "last")
    assert taken(mns, "while-queue", {"last"}) == ["last"]


def test_a_message_waits_for_a_queue_that_is_made_later(mns: MnsCaller) -> None:
    put_topic(mns, "early")
    more = {"NotifyStrategy": "EXPONENTIAL_DECAY_RETRY", "NotifyContentFormat": "SIMPLIFIED"}
    assert subscribe(mns, "early", "s", "acs:mns:r:a:queues/later", **more) == 201
    subscribed_queue(mns, "early", "in-time")
    publish(mns, "early", "patient")
    taken(mns, "in-time", {"patient"})  # the other one was tried at the same time, and failed
    mns.put("later")
    assert taken(mns, "later", {"patient"}) == ["patient"]


async def test_other_protocols_read_and_write_the_same_topic(process: GantryProcess, mns: MnsCaller) -> None:
    put_topic(mns, "mixed")
    subscribed_queue(mns, "mixed", "mixed-queue", FilterTag="red")
    nameserver = "{}:{}".format(*process.addresses["nameserver"])
    message_id = publish(mns, "mixed", "over http", MessageTag="red")
    long = b"over remoting" * 1000  # so long that the client compresses it
    async with Producer("mixed-producer", nameserver=nameserver) as producer:
        await producer.send(Message("mixed", long, tags="red"))
        await producer.send(Message("mixed", b"not wanted", tags="blue"))
    assert set(taken(mns, "mixed-queue", {"over http", long.decode()})) == {"over http", long.decode()}
    found = {}
    async with PullConsumer("mixed-group", nameserver=nameserver) as consumer:
        await consumer.assign(await consumer.topic_queues("mixed"))
        for queue in consumer.queues:
            await consumer.seek_to_first(queue)
        while len(found) < 3:
            found |= {one.body: one for one in await consumer.poll(HANG_S)}
    assert set(found) == {b"over http", long, b"not wanted"}
    assert (found[b"over http"].message_id, found[b"over http"].tags) == (message_id, "red")


@pytest.mark.slow
def test_what_was_published_reaches_the_queue_although_servers_are_killed(
    process: GantryProcess, mns: MnsCaller, tmp_path: Path
) -> None:
    put_topic(mns, "killed")
    subscribed_queue(mns, "killed", "killed-queue", NotifyStrategy="EXPONENTIAL_DECAY_RETRY")
    wanted: set[str] = set()
    for round_ in range(3):
        with server(tmp_path / f"server-{round_}", process.addresses["nameserver"]) as victim:
            with MnsCaller(victim.addresses["queues"]) as caller:
                for number in range(30):
                    publish(caller, "killed", f"{round_}-{number}")
                    wanted.add(f"{round_}-{number}")
            victim.kill()
    taken(mns, "killed-queue", wanted)


def test_subscriptions_and_messages_survive_a_killed_broker(tmp_path: Path) -> None:
    folder, ports = tmp_path / "store", {"standalone.queues_port": "0"}
    with GantryProcess(folder, ports) as first:
        with MnsCaller(first.addresses["queues"]) as mns:
            put_topic(mns, "kept")
            subscribed_queue(mns, "kept", "kept-queue")
            wanted = {f"message {number}" for number in range(20)}
            for body in wanted:
                publish(mns, "kept", body)
        first.kill()
    with GantryProcess(folder, ports) as second, MnsCaller(second.addresses["queues"]) as mns:
        assert mns.call("GET", "/topics/kept/subscriptions/for-kept-queue").status == 200
        publish(mns, "kept", "after")
        taken(mns, "kept-queue", {*wanted, "after"})


class _Endpoint(ThreadingHTTPServer):
    """An HTTP endpoint that fails as often as it is told to, and keeps what it got."""

    def __init__(self, failures: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failures = failures
        self.got: Queue[tuple[str, dict[str, str], bytes]] = Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/notifications"


class _Handler(BaseHTTPRequestHandler):
    server: _Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.put((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.server.failures -= 1
        self.send_response(500 if self.server.failures >= 0 else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        pass


@pytest.mark.shows("queues --topic-push")
def test_an_endpoint_gets_a_message_again_until_it_takes_it(mns: MnsCaller, pushing: MnsCaller) -> None:
    put_topic(mns, "pushed")
    with _Endpoint(failures=2) as endpoint:
        more = {"NotifyStrategy": "EXPONENTIAL_DECAY_RETRY", "NotifyContentFormat": "SIMPLIFIED"}
        document = f"<Subscription><Endpoint>{endpoint.url}</Endpoint></Subscription>"
        refused = mns.call("PUT", "/topics/pushed/subscriptions/s", document)
        assert refused.status == 400 and "--topic-push" in refused.text("Message"), "this one was started without it"
        assert subscribe(pushing, "pushed", "s", endpoint.url, **more) == 201
        message_id = publish(mns, "pushed", "to you", MessageTag="red")
        for _ in range(3):
            path, headers, body = endpoint.got.get(timeout=HANG_S)
            assert (path, body) == ("/notifications", b"to you")
            assert (headers["x-mns-message-id"], headers["x-mns-message-tag"]) == (message_id, "red")
        publish(mns, "pushed", "and you", MessageTag="red")
        assert endpoint.got.get(timeout=HANG_S)[2] == b"and you", "the first one was taken, and does not come again"
        assert mns.call("DELETE", "/topics/pushed").status == 204
        endpoint.shutdown()


def test_the_account_has_nothing_to_set(mns: MnsCaller) -> None:
    document = "<Account><LoggingBucket>b</LoggingBucket></Account>"
    assert mns.call("PUT", "/?accountmeta=true", document).status == 204
    assert mns.call("GET", "/?accountmeta=true").text("LoggingBucket") == ""
    assert mns.call("POST", "/commonbuy/openservice").status == 200
    assert mns.call("GET", "/").code == "MethodNotAllowed"
