"""Every call of HTTP queues, over real HTTP, with a real broker behind the server."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator

import pytest

from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GantryProcess]:
    folder = tmp_path_factory.mktemp("queues") / "store"
    with GantryProcess(folder, {"standalone.queues_port": "0"}) as found:
        yield found


@pytest.fixture
def mns(process: GantryProcess) -> Iterator[MnsCaller]:
    with MnsCaller(process.addresses["queues"]) as caller:
        yield caller


def test_a_queue_is_created_once_and_again_with_equal_attributes_only(mns: MnsCaller) -> None:
    made = mns.put("once", VisibilityTimeout=45)
    host, port = mns.address
    assert made.status == 201 and made.headers["location"] == f"http://{host}:{port}/queues/once"
    again = mns.put("once", VisibilityTimeout=45)
    assert again.status == 204 and again.headers["location"] == made.headers["location"]
    other = mns.put("once")
    assert (other.status, other.code) == (409, "QueueAlreadyExist")


def test_attributes_are_set_one_by_one_and_read_back(mns: MnsCaller) -> None:
    mns.put("attributes", DelaySeconds=3)
    before = mns.call("GET", "/queues/attributes")
    assert before.status == 200
    document = "<Queue><PollingWaitSeconds>7</PollingWaitSeconds><LoggingEnabled>true</LoggingEnabled></Queue>"
    assert mns.call("PUT", "/queues/attributes?metaoverride=true", document).status == 204
    found = mns.call("GET", "/queues/attributes")
    wanted = {
        "QueueName": "attributes", "DelaySeconds": "3", "MaximumMessageSize": "65536", "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "345600", "PollingWaitSeconds": "7", "LoggingEnabled": "True",
        "ActiveMessages": "0", "InactiveMessages": "0", "DelayMessages": "0",
    }  # fmt: skip
    assert {name: found.text(name) for name in wanted} == wanted
    assert found.text("CreateTime") == before.text("CreateTime")
    assert int(found.text("LastModifyTime")) > int(before.text("LastModifyTime"))
    missing = mns.call("PUT", "/queues/nobody?metaoverride=true", document)
    assert (missing.status, missing.code) == (404, "QueueNotExist")


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("DelaySeconds", "604801"), ("DelaySeconds", "-1"), ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "65537"), ("MessageRetentionPeriod", "59"), ("MessageRetentionPeriod", "1296001"),
        ("VisibilityTimeout", "0"), ("VisibilityTimeout", "43201"), ("PollingWaitSeconds", "31"),
        ("PollingWaitSeconds", "x"), ("LoggingEnabled", "maybe"), ("DelaySeconds", "1e3"), ("DelaySeconds", "٣"),
    ],
)  # fmt: skip
def test_attributes_outside_their_range_are_refused_and_nothing_is_made(
    mns: MnsCaller, element: str, text: str
) -> None:
    refused = mns.put("ranges", **{element: text})
    assert (refused.status, refused.code) == (400, "InvalidArgument") and element in refused.text("Message")
    assert mns.call("GET", "/queues/ranges").code == "QueueNotExist"


def test_names_of_queues_are_checked(mns: MnsCaller) -> None:
    assert mns.put("q" * 121).code == "QueueNameLengthError"
    assert mns.put("_first").code == "InvalidArgument"
    assert mns.put("with%20blank").code == "InvalidArgument"
    assert mns.put("rmq_sys_queue").code == "InvalidArgument"
    assert mns.put("Q-" + "q" * 118).status == 201


def test_lists_come_page_by_page_in_order(mns: MnsCaller) -> None:
    names = [f"page-{number}" for number in range(5)]
    for name in reversed(names):
        mns.put(name)
    found: list[str] = []
    marker: dict[str, str] = {}
    for _ in range(3):
        page = mns.call("GET", "/queues", headers={"x-mns-prefix": "page-", "x-mns-ret-number": "2", **marker})
        assert page.status == 200 and not page.has("QueueName")
        found += [url.rpartition("/")[2] for url in page.texts("QueueURL")]
        marker = {"x-mns-marker": page.text("NextMarker")} if page.has("NextMarker") else {}
    assert found == names and not marker
    meta = mns.call("GET", "/queues", headers={"x-mns-prefix": "page-3", "x-mns-with-meta": "true"})
    assert meta.texts("QueueName") == ["page-3"] and meta.texts("VisibilityTimeout") == ["30"]
    assert mns.call("GET", "/queues", headers={"x-mns-ret-number": "1001"}).code == "InvalidArgument"
    assert mns.call("GET", "/queues", headers={"x-mns-marker": "\x80"}).code == "InvalidArgument"


def test_a_deleted_queue_and_its_messages_are_gone_also_when_it_is_made_again(mns: MnsCaller) -> None:
    mns.put("gone")
    mns.send("gone", "leased"), mns.send("gone", "left")
    delayed = mns.send("gone", "delayed", DelaySeconds=1).text("ReceiptHandle")
    leased = mns.receive("gone").text("ReceiptHandle")
    deleted = mns.call("DELETE", "/queues/gone")
    assert deleted.status == 204, deleted.texts("Message")
    assert mns.call("DELETE", "/queues/gone").status == 204, "also when it is not there"
    assert mns.receive("gone").code == "QueueNotExist"
    assert mns.send("gone", "x").code == "QueueNotExist"
    assert mns.put("gone", VisibilityTimeout=1).status == 201
    for handle in (leased, delayed):
        assert mns.delete("gone", handle).code == "MessageNotExist"
        assert mns.change("gone", handle, 1).code == "MessageNotExist"
    assert mns.receive("gone", wait_s=4).code == "MessageNotExist", "what was delayed or leased does not come back"
    mns.send("gone", "new")
    assert mns.receive("gone", wait_s=10).text("MessageBody") == "new"


def test_a_message_is_sent_received_and_deleted_once(mns: MnsCaller) -> None:
    mns.put("tea")
    body = "<b>&\r\n\t é 茶 ]]>"
    escaped = body.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    before_ms = int(time.time() * 1000)
    sent = mns.send("tea", escaped, Priority=3)
    digest = hashlib.md5(body.encode()).hexdigest().upper()
    assert sent.status == 201 and sent.text("MessageBodyMD5") == digest and not sent.has("ReceiptHandle")
    found = mns.receive("tea")
    assert found.status == 200 and found.text("MessageBody") == body and found.text("MessageBodyMD5") == digest
    assert found.text("MessageId") == sent.text("MessageId")
    assert (found.text("DequeueCount"), found.text("Priority")) == ("1", "3")
    assert before_ms <= int(found.text("EnqueueTime")) <= int(found.text("FirstDequeueTime"))
    assert 25_000 < int(found.text("NextVisibleTime")) - int(found.text("FirstDequeueTime")) <= 30_000
    handle = found.text("ReceiptHandle")
    assert mns.receive("tea").code == "MessageNotExist"
    assert mns.delete("tea", handle).status == 204
    again = mns.delete("tea", handle)
    assert (again.status, again.code) == (404, "MessageNotExist")
    for wrong in ("", "x", handle[:-1], handle + "A"):
        malformed = mns.delete("tea", wrong)
        assert (malformed.status, malformed.code) == (400, "ReceiptHandleError"), wrong


def test_a_handle_of_another_queue_is_malformed(mns: MnsCaller) -> None:
    mns.put("one"), mns.put("two")
    mns.send("one", "x")
    handle = mns.receive("one").text("ReceiptHandle")
    assert mns.delete("two", handle).code == "ReceiptHandleError"
    assert mns.delete("one", handle).status == 204


def test_a_change_of_visibility_makes_a_new_handle_and_the_old_one_is_void(mns: MnsCaller) -> None:
    mns.put("change", VisibilityTimeout=600)
    mns.send("change", "x")
    first = mns.receive("change").text("ReceiptHandle")
    before_ms = time.time() * 1000
    changed = mns.change("change", first, 1)
    assert changed.status == 200 and changed.xml is not None and changed.xml.tag.endswith("ChangeVisibility")
    assert before_ms < int(changed.text("NextVisibleTime")) < before_ms + 1000 + HANG_S * 1000
    second = changed.text("ReceiptHandle")
    assert second != first
    assert mns.change("change", first, 5).code == "MessageNotExist"
    assert mns.delete("change", first).code == "MessageNotExist"
    found = mns.receive("change", wait_s=20)
    assert found.text("DequeueCount") == "2", "it came again after a second"
    assert mns.delete("change", second).code == "MessageNotExist", "void once the message is received again"
    assert mns.change("change", second, 5).code == "MessageNotExist"
    assert mns.delete("change", found.text("ReceiptHandle")).status == 204
    for seconds in (0, 43_201, -1):
        assert mns.change("change", first, seconds).code == "InvalidArgument"


def test_batches_of_sends_receives_and_deletes(mns: MnsCaller) -> None:
    mns.put("many", MaximumMessageSize=1024)
    messages = "".join(f"<Message><MessageBody>{n}</MessageBody></Message>" for n in range(16))
    sent = mns.call("POST", "/queues/many/messages", f"<Messages>{messages}</Messages>")
    assert sent.status == 201 and len(set(sent.texts("MessageId"))) == 16
    found = mns.receive("many", wait_s=5, count=16)
    assert found.xml is not None and found.xml.tag.endswith("}Messages")
    assert found.texts("MessageBody") == [str(n) for n in range(16)], "in the order of the sends"
    handles = found.texts("ReceiptHandle")
    assert mns.call("DELETE", "/queues/many/messages", _handles(handles[:15])).status == 204
    partly = mns.call("DELETE", "/queues/many/messages", _handles([handles[0], handles[15], "nonsense"]))
    assert partly.status == 404 and partly.xml is not None and partly.xml.tag.endswith("}Errors")
    assert partly.texts("ErrorCode") == ["MessageNotExist", "ReceiptHandleError"]
    assert partly.texts("ReceiptHandle") == [handles[0], "nonsense"]
    assert mns.receive("many", count=16).code == "MessageNotExist"
    for count in ("0", "17", "x"):
        assert mns.call("GET", f"/queues/many/messages?numOfMessages={count}").code == "InvalidArgument"


def test_a_batch_with_a_bad_message_fails_in_part(mns: MnsCaller) -> None:
    mns.put("partly", MaximumMessageSize=1024)
    bodies = ["good", "x" * 1025, "better", ""]
    messages = "".join(f"<Message><MessageBody>{body}</MessageBody></Message>" for body in bodies)
    sent = mns.call("POST", "/queues/partly/messages", f"<Messages>{messages}</Messages>")
    assert sent.status == 500 and sent.xml is not None
    shapes = [[child.tag.rpartition("}")[2] for child in message] for message in sent.xml]
    good, bad = ["MessageId", "MessageBodyMD5"], ["ErrorCode", "ErrorMessage"]
    assert shapes == [good, bad, good, bad]
    assert mns.receive("partly", wait_s=5, count=16).texts("MessageBody") == ["good", "better"]
    assert mns.send("partly", "x" * 1025).code == "InvalidArgument"
    assert mns.send("partly", "").code == "InvalidArgument"
    too_many = "<Message><MessageBody>x</MessageBody></Message>" * 17
    assert mns.call("POST", "/queues/partly/messages", f"<Messages>{too_many}</Messages>").code == "InvalidArgument"


def test_messages_come_by_priority_redelivered_ones_too(mns: MnsCaller) -> None:
    mns.put("priority", VisibilityTimeout=600)
    for priority in (16, 8, 1):
        mns.send("priority", f"p{priority}", Priority=priority)
    first = [mns.receive("priority") for _ in range(3)]
    assert [one.text("MessageBody") for one in first] == ["p1", "p8", "p16"]
    for one in first:
        assert mns.change("priority", one.text("ReceiptHandle"), 1).status == 200
    deadline = time.monotonic() + HANG_S
    while len(mns.receive("priority", count=16, is_peek=True).texts("MessageBody")) < 3:
        assert time.monotonic() < deadline, "the three do not come back"
    mns.send("priority", "new p8", Priority=8), mns.send("priority", "new p1", Priority=1)
    found = [mns.receive("priority").text("MessageBody") for _ in range(5)]
    assert found == ["p1", "new p1", "p8", "new p8", "p16"]
    for wrong in (0, 17, "high"):
        assert mns.send("priority", "x", Priority=wrong).code == "InvalidArgument"


def test_peeks_take_nothing(mns: MnsCaller) -> None:
    mns.put("peek")
    assert mns.receive("peek", is_peek=True).code == "MessageNotExist"
    mns.send("peek", "low", Priority=9), mns.send("peek", "high", Priority=2)
    looked = mns.receive("peek", is_peek=True)
    assert looked.text("MessageBody") == "high" and looked.text("DequeueCount") == "0"
    assert not looked.has("ReceiptHandle") and not looked.has("NextVisibleTime")
    assert mns.receive("peek", is_peek=True, count=5).texts("MessageBody") == ["high", "low"]
    assert mns.receive("peek").text("DequeueCount") == "1"
    assert mns.receive("peek", is_peek=True, count=5).texts("MessageBody") == ["low"]


def test_a_delayed_message_has_a_handle_that_cancels_it_or_makes_it_visible(mns: MnsCaller) -> None:
    mns.put("delay")
    cancelled = mns.send("delay", "cancelled", DelaySeconds=2).text("ReceiptHandle")
    committed = mns.send("delay", "committed", DelaySeconds=604_800).text("ReceiptHandle")
    assert len(committed) <= 512 and set(committed) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
    )
    assert mns.delete("delay", cancelled).status == 204
    assert mns.delete("delay", cancelled).code == "MessageNotExist"
    assert mns.receive("delay").code == "MessageNotExist"
    changed = mns.change("delay", committed, 1)
    assert changed.status == 200
    assert mns.change("delay", committed, 1).code == "MessageNotExist", "a handle is good once"
    found = mns.receive("delay", wait_s=20)
    assert found.text("MessageBody") == "committed" and found.text("DequeueCount") == "1"
    void = mns.delete("delay", changed.text("ReceiptHandle"))
    assert void.code == "MessageNotExist", void.texts("Message")
    assert mns.delete("delay", found.text("ReceiptHandle")).status == 204
    assert mns.send("delay", "x", DelaySeconds=604_801).code == "InvalidArgument"


def test_the_delay_of_a_queue_applies_where_a_message_has_none(mns: MnsCaller) -> None:
    mns.put("later", DelaySeconds=3600)
    assert mns.send("later", "later").has("ReceiptHandle")
    assert not mns.send("later", "now", DelaySeconds=0).has("ReceiptHandle")
    assert mns.receive("later", count=16).texts("MessageBody") == ["now"]


def test_a_prepare_nobody_commits_ends_with_its_life(mns: MnsCaller) -> None:
    mns.put("trans", DelaySeconds=172_800, MessageRetentionPeriod=169_200)
    handle = mns.send("trans", "half").text("ReceiptHandle")
    assert mns.receive("trans").code == "MessageNotExist"
    assert mns.change("trans", handle, 1).status == 200
    assert mns.receive("trans", wait_s=20).text("MessageBody") == "half"


def test_statistics_follow_within_a_second(mns: MnsCaller) -> None:
    mns.put("counts")
    mns.send("counts", "a"), mns.send("counts", "b"), mns.send("counts", "c", DelaySeconds=3600)
    handle = mns.receive("counts").text("ReceiptHandle")
    _until_counts(mns, "counts", ("1", "1", "1"))
    mns.delete("counts", handle)
    _until_counts(mns, "counts", ("1", "0", "1"))


def test_a_long_poll_is_answered_as_soon_as_a_message_comes(mns: MnsCaller, process: GantryProcess) -> None:
    mns.put("poll", PollingWaitSeconds=30)
    found: list[str] = []

    def wait() -> None:
        with MnsCaller(process.addresses["queues"]) as other:
            found.extend(other.call("GET", "/queues/poll/messages").texts("MessageBody"))

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for one in waiting:
        one.start()
    for number in range(3):
        mns.send("poll", str(number))
    for one in waiting:
        one.join(HANG_S)
    assert sorted(found) == ["0", "1", "2"]
    begun = time.monotonic()
    assert mns.receive("poll", wait_s=1).code == "MessageNotExist"
    assert time.monotonic() - begun >= 1.0
    assert mns.receive("poll", wait_s=0).code == "MessageNotExist", "0 overrides the queue's own time"
    for wait_s in (31, -1):
        assert mns.receive("poll", wait_s=wait_s).code == "InvalidArgument"


def test_what_is_no_call_is_refused(mns: MnsCaller) -> None:
    mns.put("calls")
    for method, target, status in (
        ("PATCH", "/queues/calls", 405),
        ("GET", "/queues/calls/other", 405),
        ("GET", "/nothing", 404),
        ("GET", "/queues/" + "x" * 5000, 400),
    ):
        assert mns.call(method, target).status == status, target
    assert mns.call("DELETE", "/queues/calls/messages").code == "MalformedXML"


@pytest.mark.parametrize(
    "body",
    [
        "", "no xml", "<Message>", "<Message/><Message/>", "<Queue/>", "<a>" * 10_000,
        '<!DOCTYPE M [<!ENTITY a "aaaaaaaaaa">]><Message><MessageBody>&a;</MessageBody></Message>',
        '<!DOCTYPE M SYSTEM "file:///etc/passwd"><Message><MessageBody>x</MessageBody></Message>',
        "<Message><MessageBody>&unknown;</MessageBody></Message>",
        '<?xml version="1.0" encoding="no-such"?><Message/>',
        "<Messages>" + "<Message/>" * 3000 + "</Messages>",
        "<Message><MessageBody>\x01</MessageBody></Message>",
    ],
)  # fmt: skip
def test_bodies_that_are_no_document_are_refused(mns: MnsCaller, body: str) -> None:
    mns.put("xml")
    refused = mns.call("POST", "/queues/xml/messages", body)
    assert (refused.status, refused.code) == (400, "MalformedXML")
    assert mns.receive("xml").code == "MessageNotExist"


def _handles(handles: list[str]) -> str:
    inner = "".join(f"<ReceiptHandle>{one}</ReceiptHandle>" for one in handles)
    return f"<ReceiptHandles>{inner}</ReceiptHandles>"


def _until_counts(mns: MnsCaller, queue: str, wanted: tuple[str, str, str]) -> None:
    deadline = time.monotonic() + HANG_S
    while True:
        found = mns.call("GET", f"/queues/{queue}")
        counts = found.text("ActiveMessages"), found.text("InactiveMessages"), found.text("DelayMessages")
        if counts == wanted:
            return
        assert time.monotonic() < deadline, f"{counts}, expected {wanted}"
