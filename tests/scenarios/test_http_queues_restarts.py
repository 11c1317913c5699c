"""HTTP queues over kill -9 of the broker, and of the server that standalone keeps."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from scenarios.test_http_topics import server
from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess, children_of

CONFIG = {"standalone.queues_port": "0"}


def test_messages_and_handles_outlive_a_killed_broker(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with GantryProcess(folder, CONFIG) as process, MnsCaller(process.addresses["queues"]) as mns:
        mns.put("kept", VisibilityTimeout=3600, PollingWaitSeconds=5)
        for body in ("deleted", "returned", "left"):
            mns.send("kept", body)
        handles = [mns.receive("kept").text("ReceiptHandle") for _ in range(2)]
        committed = mns.send("kept", "committed", DelaySeconds=86_400).text("ReceiptHandle")
        cancelled = mns.send("kept", "cancelled", DelaySeconds=86_400).text("ReceiptHandle")
        moved = mns.change("kept", mns.send("kept", "moved", DelaySeconds=86_400).text("ReceiptHandle"), 43_200)
        process.kill()
    with GantryProcess(folder, CONFIG) as process, MnsCaller(process.addresses["queues"]) as mns:
        _until_served(mns, "kept")
        assert mns.call("GET", "/queues", headers={"x-mns-with-meta": "true"}).texts("PollingWaitSeconds") == ["5"]
        assert mns.receive("kept", wait_s=5).text("MessageBody") == "left", "the others are leased still"
        assert mns.delete("kept", handles[0]).status == 204
        assert mns.change("kept", handles[1], 1).status == 200
        assert mns.delete("kept", cancelled).status == 204
        assert mns.change("kept", committed, 1).status == 200
        assert mns.delete("kept", moved.text("ReceiptHandle")).status == 204
        found = sorted(mns.receive("kept", wait_s=30).text("MessageBody") for _ in range(2))
        assert found == ["committed", "returned"]


def test_a_killed_server_of_standalone_comes_back_on_its_port(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "store", CONFIG) as process:
        address = process.addresses["queues"]
        with MnsCaller(address) as mns:
            mns.put("back", VisibilityTimeout=3600)
            mns.send("back", "x")
            handle = mns.receive("back").text("ReceiptHandle")
        (child,) = children_of(process.popen.pid)
        os.kill(child, signal.SIGKILL)
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                with MnsCaller(address) as mns:
                    assert mns.delete("back", handle).status == 204, "its keys are those of before"
                return
            except ConnectionError:
                assert time.monotonic() < deadline, process.stderr()


def _until_served(mns: MnsCaller, queue: str) -> None:
    """Until the server has heard of the broker that has just started."""
    deadline = time.monotonic() + HANG_S
    while mns.receive(queue, is_peek=True).status >= 500:
        assert time.monotonic() < deadline, "the queue is not served"


def test_a_server_that_does_not_know_of_a_deletion_yet_makes_no_topic_of_the_queue(tmp_path: Path) -> None:
    """Messages in such a topic were acknowledged, and came when the queue was made again."""
    with (
        GantryProcess(tmp_path / "store", CONFIG) as process,
        server(tmp_path / "server", process.addresses["nameserver"]) as second,
        MnsCaller(process.addresses["queues"]) as mns,
        MnsCaller(second.addresses["queues"]) as other,
    ):
        one = "<Message><MessageBody>late</MessageBody><Priority>1</Priority></Message>"
        delayed = one.replace("</Message>", "<DelaySeconds>1</DelaySeconds></Message>")
        for document in (one, delayed, f"<Messages>{one}{one}</Messages>"):
            assert mns.put("gone").status == 201
            assert other.send("gone", "before").status == 201
            assert mns.call("DELETE", "/queues/gone").status == 204
            answer = other.call("POST", "/queues/gone/messages", document)
            assert answer.status >= 404 and set(answer.texts("Code") + answer.texts("ErrorCode")) == {"QueueNotExist"}
            assert mns.receive("gone").code == "QueueNotExist"
            assert mns.put("gone").status == 201
            assert mns.receive("gone", wait_s=1).code == "MessageNotExist"
            assert mns.call("DELETE", "/queues/gone").status == 204
