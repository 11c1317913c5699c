"""HTTP topics over two masters, one of which dies: what was acknowledged reaches the subscribed queue."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.localplay import Cluster
from testkit.mnscalls import MnsCaller
from testkit.patience import HANG_S
from testkit.process import GantryProcess

pytestmark = pytest.mark.slow


class Publishing(threading.Thread):
    """Publishes one message after the other; `acknowledged` are the bodies that were answered with 201."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self._address = address
        self._ending = threading.Event()

    def run(self) -> None:
        with MnsCaller(self._address) as mns:
            number = 0
            while not self._ending.wait(0.01):
                body = f"m{number}"
                number += 1
                document = f"<Message><MessageBody>{body}</MessageBody></Message>"
                answer = mns.call("POST", "/topics/news/messages", document)
                if answer.status == 201:
                    self.acknowledged.append(body)
                else:
                    self.refused.append(f"{answer.code}: {answer.text('Message')}")

    def end(self) -> None:
        self._ending.set()
        self.join(HANG_S)
        assert not self.is_alive(), "a call hangs"


def test_what_was_published_while_a_master_died_reaches_the_queue(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "--groups", "2", "--replicas", "2") as cluster:
        command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", cluster.name_server]
        command += ["--queues-port", "0", "--http-port", "-1"]
        (tmp_path / "queues").mkdir()
        for group in range(2):
            cluster.until_all_in_sync(group)
        with GantryProcess(tmp_path / "queues" / "server", command=command) as server:
            play(cluster, server)


def play(cluster: Cluster, server: GantryProcess) -> None:
    with MnsCaller(server.addresses["queues"]) as mns:
        assert mns.put("inbox").status == 201
        assert mns.call("PUT", "/topics/news", "<Topic/>").status == 201
        document = "<Subscription><Endpoint>acs:mns:r:a:queues/inbox</Endpoint>"
        document += "<NotifyContentFormat>SIMPLIFIED</NotifyContentFormat></Subscription>"
        assert mns.call("PUT", "/topics/news/subscriptions/s", document).status == 201
        epoch = cluster.record(0).epoch
        publishing = Publishing(server.addresses["queues"])
        publishing.start()
        try:
            until(lambda: len(publishing.acknowledged) > 50)
            cluster.do("kill", "broker-a", "--master")
            cluster.until_served(epoch, 0)
            count = len(publishing.acknowledged)
            until(lambda: len(publishing.acknowledged) > count + 50)
        finally:
            publishing.end()
        assert not publishing.refused, "a message goes to the other master"
        wanted, found = set(publishing.acknowledged), set[str]()
        deadline = time.monotonic() + HANG_S
        while not wanted <= found:
            assert time.monotonic() < deadline, f"{len(wanted - found)} of {len(wanted)} messages are missing"
            reply = mns.receive("inbox", wait_s=2, count=16)
            if reply.status == 200:
                found |= set(reply.texts("MessageBody"))
                for handle in reply.texts("ReceiptHandle"):
                    mns.delete("inbox", handle)
        assert mns.call("GET", "/topics/news/subscriptions/s").status == 200


def until(happens: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    while not happens():
        assert time.monotonic() < deadline, "it does not happen"
        pause.wait(0.05)
