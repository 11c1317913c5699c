"""Masters that are killed, stopped and cut off under other people's producers: what *they* reported as SEND_OK stays.

Rounds on one group of three real processes.  Each producer has a ledger of its own, written from what its library
told it: Apache's Java client 5, the C++ client, and ours.  Who leads after a round is asserted by the register.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gantry.local.layout import Who
from interop.clients import CLIENTS
from interop.conftest import require
from interop.processes import Driver
from testkit.localplay import Cluster, Producing

pytestmark = [pytest.mark.only_on_gantry, pytest.mark.slow]
ROUNDS = int(os.environ.get("GANTRY_FAILOVER_ROUNDS", "100"))
ROUND_S_MAX = 120
TOPIC, QUEUES = "orders", 8
# What is done to the master named in the braces, and how it is undone; it "comes back" when nothing else is.
WAYS = {
    "come back": ("kill {}", ""),
    "kept down": ("kill {} --keep-down", "start {}"),
    "stands still": ("pause {}", "resume {}"),
    "cut off": ("partition {}", "heal"),
    "not heard": ("partition --from {} --to outside", "heal"),
    "hears nobody": ("partition --from outside --to {}", "heal"),
}
ASK = ("--set", "transactions.immunity_s=1", "--set", "transactions.check_interval_s=2")


class Loaded:
    """A client of somebody else that sends all the time."""

    def __init__(self, name: str, home: Path, name_server: str) -> None:
        self.name = name
        self.driver: Driver = CLIENTS[name].start(home / name, name_server)
        self.driver.live_for(ROUNDS * ROUND_S_MAX)
        self._ledger: dict[bytes, tuple[object, int]] = {}
        self._last = self.driver.begin("load", group=f"load-{name[:4]}", topic=TOPIC, prefix=name, pause=20)

    def ledger(self) -> dict[bytes, tuple[object, int]]:
        """Body -> queue and offset as the library reported them with SEND_OK; C++'s library does not tell the queue."""
        for event in self.driver.take():
            if event["event"] == "acked":
                self._ledger[str(event["body"]).encode()] = event.get("queueId"), int(str(event["queueOffset"]))
        return self._ledger

    def until_more(self) -> None:
        """Until it has reported another SEND_OK."""
        before, end = len(self.ledger()), time.monotonic() + ROUND_S_MAX
        while len(self.ledger()) == before:
            time.sleep(0.05)
            assert time.monotonic() < end, f"{self.name} sends nothing any more; {self.driver.tail()}"

    def stop(self) -> None:
        """No more; what is under way is waited for."""
        self.driver.call("unload")
        if self.name.startswith("java"):
            self.driver.finish(self._last, 120.0)
        self.ledger()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[list[Loaded]]:
    """A list that the test fills; its processes end with it."""
    made: list[Loaded] = []
    yield made
    for client in made:
        client.driver.kill()
        client.driver.wait(10.0)


def one_round(cluster: Cluster, way: str) -> str:
    """Take the master away in one of the ways, and undo that; who led before and after, with epochs."""
    before = cluster.record()
    assert before.holder is not None
    master = Who(0, before.holder.member.ordinal)
    act, repair = (text.format(master.name).split() for text in WAYS[way])
    if not repair:
        cluster.do("pause", "coordinator")  # a start on a busy machine may take longer than its patience
    cluster.do(*act)
    after = cluster.until_served(before.epoch)
    assert after.holder is not None
    if repair:
        assert after.holder.member.ordinal != master.ordinal and after.holder.member in before.in_sync
        cluster.do(*repair)
    else:
        assert after.holder.member == before.holder.member and after.holder.process != before.holder.process
        assert after.epoch == before.epoch + 1
        cluster.do("resume", "coordinator")
    return f"{before.holder} of epoch {before.epoch}, then {after.holder} of epoch {after.epoch}"


def nothing_lost(cluster: Cluster, ours: Producing, others: list[Loaded]) -> None:
    """Each ledger against what the group shows; what a library told about the place has to be so, too."""
    told = ours.places()  # it may be sending still
    stored = cluster.stored(TOPIC, QUEUES)
    bodies = set(stored.values())
    lost = [body for body, place in told.items() if stored.get(place) != body]
    for client in others:
        for body, (queue, offset) in client.ledger().items():
            is_there = body in bodies if queue is None else stored.get((int(str(queue)), offset)) == body
            lost += [] if is_there else [body]
    assert not lost, f"{len(lost)} lost: {sorted(lost)[:10]}\n{cluster.story()}"


def logs_are_equal(cluster: Cluster) -> None:
    """Byte for byte, as far as the shortest confirmed mark of all."""
    survey = cluster.survey()
    marks = [each.state.confirmed for each in survey.members if each.state is not None]
    assert len(marks) == survey.layout.replicas
    logs = []
    for who in survey.layout.members():
        segments = sorted((cluster.folder.member(who) / "store" / "commitlog").iterdir())
        logs.append(b"".join(path.read_bytes() for path in segments)[: min(marks)])
    assert min(marks) > 0 and all(log == logs[0] for log in logs)


@pytest.mark.timeout(ROUNDS * ROUND_S_MAX + 600)
def test_rounds_of_lost_masters_lose_nothing_that_a_client_reported(tmp_path: Path, clients: list[Loaded]) -> None:
    for kind in ("java", "cpp"):
        require(kind)
    chance, ways = Random(ROUNDS), list[str]()
    with (
        Cluster(tmp_path / "cluster", "--failover-timers", "fast", *ASK) as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger", "ours", pause_ms=40.0) as ours,
    ):
        clients += [Loaded(name, tmp_path, cluster.name_server) for name in ("java-5.x", "cpp-2.1.11")]
        for number in range(ROUNDS):
            cluster.until_all_in_sync()
            ours.until_more()
            ways = ways or chance.sample(list(WAYS), len(WAYS))  # each of them, then each again in another order
            way, began_s = ways.pop(), time.monotonic()
            told = one_round(cluster, way)
            print(f"round {number}: {way}: {told}; {time.monotonic() - began_s:.1f} s", flush=True)
        cluster.until_all_in_sync()
        for client in clients:
            client.until_more()
            client.stop()
            print(f"{client.name} was told SEND_OK {len(client.ledger())} times")
        print(f"our producer was told SEND_OK {len(ours.places())} times")
        nothing_lost(cluster, ours, clients)
    with Cluster(tmp_path / "cluster") as again:
        again.until_all_in_sync()
        nothing_lost(again, ours, clients)
        logs_are_equal(again)


@pytest.mark.parametrize("name", ["java-4.9.7", "java-5.x", "cpp-2.1.11"])
def test_the_new_master_asks_another_producer_about_a_half_whose_own_one_died_before_the_old_master(
    tmp_path: Path, name: str
) -> None:
    require(name.split("-")[0])
    with Cluster(tmp_path / "cluster", "--failover-timers", "fast", *ASK) as cluster:
        dying = CLIENTS[name].start(tmp_path / "dying", cluster.name_server)
        try:
            fields = {"kind": "transaction", "topic": TOPIC, "count": 1, "execute": "halt", "answer": "commit"}
            dying.begin("send", group="txorders", prefix="orphan", **fields)
            dying.event("executed", 60.0)
            assert dying.process.wait(60.0) == 1
        finally:
            dying.kill()
            dying.wait(5.0)
        before = cluster.record()
        cluster.do("kill", "broker-a", "--master", "--keep-down")
        after = cluster.until_served(before.epoch)
        assert before.holder is not None and after.holder is not None
        assert after.holder.member.ordinal != before.holder.member.ordinal
        successor = CLIENTS[name].start(tmp_path / "successor", cluster.name_server)
        try:
            successor.call("subscribe", id="one", group="packing", topic=TOPIC)
            successor.call("open", group="txorders")
            if name != "java-4.9.7":  # the others greet only brokers to which they have sent something
                other = {"kind": "transaction", "topic": TOPIC, "count": 1, "execute": "rollback"}
                successor.call("send", group="txorders", prefix="other", **other)
            (message,) = successor.receive("one", 1, 120.0)
            assert message["body"] == "orphan-0"
        finally:
            successor.quit()
