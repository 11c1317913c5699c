"""HTTP queues over two masters, one of which dies: calls go on at the next one, and handles go on too.

Two servers stand in front: what one of them gave is settled at the other.
"""

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

QUEUE, BUSY = "orders", "busy"
_COUNT_S = 60.0


class Sending(threading.Thread):
    """Sends one message after the other; `sent` are the acknowledged bodies, `refused` the codes of other answers."""

    def __init__(self, address: tuple[str, int], queue: str = QUEUE) -> None:
        super().__init__()
        self._queue = queue
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
                answer = mns.send(self._queue, f"m{number}", Priority=1 + number % 16)
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


class Consuming(threading.Thread):
    """Receives at one server and settles at the other, until it is told to end and nothing comes any more.

    The first delivery of every third message is made visible in a second; all others are deleted.  `faults` are
    messages that came after their deletion was answered, and answers that nobody may get.
    """

    def __init__(self, receiving: tuple[str, int], settling: tuple[str, int]) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.deleted: dict[str, float] = {}  # when the deletion was answered
        self.faults: list[str] = []
        self.ending = threading.Event()
        self._addresses = receiving, settling

    def run(self) -> None:
        with MnsCaller(self._addresses[0]) as at, MnsCaller(self._addresses[1]) as other:
            is_empty = False
            while not (is_empty and self.ending.is_set()):
                begun = time.monotonic()
                answer = at.receive(BUSY, wait_s=1, count=16)
                is_empty = answer.code == "MessageNotExist"
                if answer.status >= 500:
                    continue
                counts, priorities = answer.texts("DequeueCount"), answer.texts("Priority")
                messages = zip(answer.texts("MessageBody"), answer.texts("ReceiptHandle"), counts, strict=True)
                self.faults += [f"priority {one}" for one in priorities if not 1 <= int(one) <= 16]
                for body, handle, count in messages:
                    if self.deleted.get(body, begun) < begun:
                        self.faults.append(f"{body} came again after its deletion")
                    self._settle(other, body, handle, int(count))

    def _settle(self, other: MnsCaller, body: str, handle: str, count: int) -> None:
        self.found.add(body)
        if int(body.removeprefix("m")) % 3 == 0 and count == 1:
            answer = other.change(BUSY, handle, 1)
        else:
            answer = other.delete(BUSY, handle)
            if answer.status == 204:
                self.deleted[body] = time.monotonic()
        # 404: a deletion whose answer was lost, or a lease that ended.
        if answer.status not in (200, 204, 404) and answer.status < 500:
            self.faults.append(f"{body}: {answer.status} {answer.code}")


def test_calls_and_handles_go_on_at_the_next_master(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", "--groups", "2", "--replicas", "2") as cluster:
        command = [sys.executable, "-m", "gantry.cli.main", "queues", "--namesrv", cluster.name_server]
        command += ["--queues-port", "0", "--http-port", "-1", "--handle-key-file", str(tmp_path / "keys")]
        (tmp_path / "keys").write_text("a key of at least sixteen bytes")
        (tmp_path / "queues").mkdir()
        for group in range(2):
            cluster.until_all_in_sync(group)
        with (
            GantryProcess(tmp_path / "queues/one", command=command) as one,
            GantryProcess(tmp_path / "queues/two", command=command) as two,
            MnsCaller(one.addresses["queues"]) as mns,
        ):
            _check(cluster, mns, two.addresses["queues"])


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
    assert mns.put(BUSY, VisibilityTimeout=20).status == 201
    sending, busy = Sending(address), Sending(mns.address, BUSY)
    consuming = Consuming(mns.address, address), Consuming(address, mns.address)
    for thread in (sending, busy, *consuming):
        thread.start()
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
        busy.end()
        for thread in consuming:
            thread.ending.set()
    assert not sending.refused and not busy.refused, "a send goes to the other master"
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
    for thread in consuming:
        thread.join(_COUNT_S)
        assert not thread.is_alive() and not thread.faults
    deleted = {body for thread in consuming for body in thread.deleted}
    _until(lambda: _rest(mns, deleted) or set(busy.sent) <= deleted)
    assert not found & {"delayed 2", "delayed 3"}, "deleted"
    assert not found & {one.text("MessageBody") for one in leased[:4]}, "deleted while the master was gone"


def _rest(mns: MnsCaller, deleted: set[str]) -> bool:
    """Delete what is visible now: leases of the time without a master have to end first."""
    answer = mns.receive(BUSY, wait_s=1, count=16)
    for body, handle in zip(answer.texts("MessageBody"), answer.texts("ReceiptHandle"), strict=True):
        assert mns.delete(BUSY, handle).status == 204
        deleted.add(body)
    return False


def _until(happens: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + HANG_S, threading.Event()
    while not happens():
        assert time.monotonic() < deadline, "it does not happen"
        pause.wait(0.05)
