"""HTTP queues over two masters, one of which dies: calls go on at the next one, and handles go on too."""

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

QUEUE = "orders"
_COUNT_S = 60.0


class Sending(threading.Thread):
    """Sends one message after the other; `sent` are the acknowledged bodies, `refused` the codes of other answers."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.refused: list[str] = []
        self.longest_s = 0.0
        self._address = address
        self._ending = threading.Event()

    def run(self) -> None:
        with MnsCaller(self._address) as mns:
            number = 0
            while not self._ending.is_set():
                begun = time.monotonic()
                answer = mns.send(QUEUE, f"m{number}")
                self.longest_s = max(self.longest_s, time.monotonic() - begun)
                if answer.status == 201:
                    self.sent.append(f"m{number}")
                else:
                    self.refused.append(f"{answer.code}: {answer.text('Message')}")
                number += 1

    def end(self) -> None:
        self._ending.set()
        self.join(HANG_S)
        assert not self.is_alive(), "a call hangs"


def test_calls_and_handles_go_on_at_the_next_master(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "--groups", "2", "--replicas", "2") as cluster:
        command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", cluster.name_server]
        command += ["--queues-port", "0", "--http-port", "-1"]
        (tmp_path / "queues").mkdir()
        for group in range(2):
            cluster.until_all_in_sync(group)
        with GantryProcess(tmp_path / "queues/server", command=command) as process:
            address = process.addresses["queues"]
            with MnsCaller(address) as mns:
                _check(cluster, mns, address)


def test_a_queue_that_is_deleted_while_a_group_has_no_master_stays_deleted(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "--groups", "2", "--replicas", "2") as cluster:
        command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", cluster.name_server]
        command += ["--queues-port", "0", "--http-port", "-1"]
        (tmp_path / "queues").mkdir()
        for group in range(2):
            cluster.until_all_in_sync(group)
        started = GantryProcess(tmp_path / "queues/server", command=command)
        with started as process, MnsCaller(process.addresses["queues"]) as mns:
            assert mns.put(QUEUE).status == 201
            for number in range(8):
                assert mns.send(QUEUE, f"m{number}").status == 201
            epoch = cluster.record(0).epoch
            cluster.do("kill", "broker-a", "--master")
            _until(lambda: mns.call("DELETE", f"/queues/{QUEUE}").status == 204)
            cluster.until_served(epoch, 0)
            _until(lambda: mns.put("other").status == 201)
            found = {mns.call("GET", f"/queues/{QUEUE}").code for _ in range(200)}
            assert found == {"QueueNotExist"}
            assert mns.put(QUEUE).status == 201
            assert mns.receive(QUEUE).code == "MessageNotExist"


def _check(cluster: Cluster, mns: MnsCaller, address: tuple[str, int]) -> None:
    assert mns.put(QUEUE, VisibilityTimeout=3600).status == 201
    for number in range(8):
        assert mns.send(QUEUE, f"before {number}").status == 201
    counts = mns.call("GET", f"/queues/{QUEUE}")
    assert counts.text("ActiveMessages") == "8"
    leased = [mns.receive(QUEUE) for _ in range(8)]
    assert sorted(one.text("MessageBody") for one in leased) == [f"before {number}" for number in range(8)]
    delayed = [mns.send(QUEUE, f"delayed {number}", DelaySeconds=86_400).text("ReceiptHandle") for number in range(4)]
    epoch = cluster.record(0).epoch
    sending = Sending(address)
    sending.start()
    try:
        _until(lambda: len(sending.sent) > 20)
        cluster.do("kill", "broker-a", "--master")
        at_kill = len(sending.sent)
        for one in leased[:4]:
            answer = mns.delete(QUEUE, one.text("ReceiptHandle"))
            assert answer.status == 204, answer.texts("Message")
        cluster.until_served(epoch, 0)
        _until(lambda: len(sending.sent) > at_kill + 20)
    finally:
        sending.end()
    assert not sending.refused, "a send goes to the other master"
    # Each delayed message is at one of the two masters: its handle is good at the new one.
    for handle in delayed[:2]:
        changed = mns.change(QUEUE, handle, 1)
        assert changed.status == 200, changed.texts("Message")
    for handle in delayed[2:]:
        deleted = mns.delete(QUEUE, handle)
        assert deleted.status == 204, deleted.texts("Message")
    for one in leased[4:]:
        changed = mns.change(QUEUE, one.text("ReceiptHandle"), 1)
        assert changed.status == 200, changed.texts("Message")
    wanted = {*sending.sent, "delayed 0", "delayed 1", *(one.text("MessageBody") for one in leased[4:])}
    found: set[str] = set()
    deadline = time.monotonic() + _COUNT_S
    while not wanted <= found:
        assert time.monotonic() < deadline, f"lost: {sorted(wanted - found)[:10]}"
        answer = mns.receive(QUEUE, wait_s=2, count=16)
        if answer.status == 200:
            found.update(answer.texts("MessageBody"))
            handles = "".join(f"<ReceiptHandle>{one}</ReceiptHandle>" for one in answer.texts("ReceiptHandle"))
            done = mns.call("DELETE", f"/queues/{QUEUE}/messages", f"<ReceiptHandles>{handles}</ReceiptHandles>")
            assert done.status == 204
    assert not found & {"delayed 2", "delayed 3"}, "deleted"
    assert not found & {one.text("MessageBody") for one in leased[:4]}, "deleted while the master was gone"


def _until(happens: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    while not happens():
        assert time.monotonic() < deadline, "it does not happen"
        pause.wait(0.05)
