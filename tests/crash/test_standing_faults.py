"""Groups of three real processes with a fault that stays: somebody takes writes all the same.

Each round waits until all members are in sync, begins a fault, leaves it for three times the suspicion, and wants more
messages acknowledged while it still stands.  Then the fault ends, all members are in sync again, and everything that
was acknowledged is there.  GANTRY_FAULT_ROUNDS says how many rounds (1; 50 by hand).  The longest pause between two
acknowledged messages of a round is printed, in seconds and in suspicions: it is no verdict, because a busy machine
adds to it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantry.local.cuts import OUTSIDE
from gantry.local.layout import Who
from gantry.replication.timers import TIMERS
from testkit.diskshim import DiskShim
from testkit.localplay import Cluster, Producing

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("GANTRY_FAULT_ROUNDS", "1"))
ROUND_S_MAX = 300
SUSPECT_S = TIMERS["fast"].suspect_after_s
STANDS_S = 3 * SUSPECT_S
TOPIC, QUEUES = "orders", 8
_TMPFS_BYTES = 160 << 20
_SMALL = ("--set", f"store.segment_bytes={16 << 20}", "--set", "store.disk_used_refuse=0.9")


class Group:
    """A cluster, what can be done to its members, and who leads."""

    def __init__(self, cluster: Cluster, shim: DiskShim) -> None:
        self.cluster = cluster
        self.shim = shim

    def ends(self) -> tuple[str, list[str]]:
        """Who leads, and the others."""
        holder = self.cluster.record().holder
        assert holder is not None
        names = [who.name for who in self.cluster.folder.load().layout.members()]
        return names.pop(holder.member.ordinal), names

    @contextlib.contextmanager
    def cut(self, *ways: str) -> Iterator[None]:
        """Cut ways between members; all of them are whole again afterwards."""
        self.cluster.do("partition", *ways)
        try:
            yield
        finally:
            self.cluster.do("heal")

    @contextlib.contextmanager
    def hanging_flush(self, name: str) -> Iterator[None]:
        """No fdatasync of this member's log returns."""
        self.shim.control(f"block /{name}/")
        try:
            yield
        finally:
            self.shim.control("pass")

    @contextlib.contextmanager
    def slow_start(self, name: str) -> Iterator[None]:
        """Kill a member; its next start hangs when it makes its log durable."""
        with self.hanging_flush(name):
            self.cluster.do("kill", name)
            yield

    @contextlib.contextmanager
    def flapping(self, name: str) -> Iterator[None]:
        """A member stands still for a suspicion, and goes on for as long, over and over."""
        stopping = threading.Event()

        def flap() -> None:
            while not stopping.is_set():
                for command in ("pause", "resume"):
                    self.cluster.do(command, name)
                    stopping.wait(SUSPECT_S)

        flapper = threading.Thread(target=flap)
        flapper.start()
        try:
            yield
        finally:
            stopping.set()
            flapper.join()

    @contextlib.contextmanager
    def full_disk(self, name: str) -> Iterator[None]:
        """There is no room where this member stores."""
        folder = self.cluster.folder.path / name / "store"
        filler = folder / "filler"
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        try:
            yield
        finally:
            filler.unlink()


Fault = Callable[[Group, str, list[str]], contextlib.AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {
    "the master does not hear its slaves": lambda group, master, slaves: group.cut("--from", *slaves, "--to", master),
    "the slaves do not hear their master": lambda group, master, slaves: group.cut("--from", master, "--to", *slaves),
    "the master does not hear one slave": lambda group, master, slaves: group.cut("--from", slaves[0], "--to", master),
    "nobody outside hears the master": lambda group, master, _: group.cut("--from", master, "--to", OUTSIDE),
    "the master hears nobody outside": lambda group, master, _: group.cut("--from", OUTSIDE, "--to", master),
    "the flush of the master hangs": lambda group, master, _: group.hanging_flush(master),
    "the flush of a slave hangs": lambda group, _, slaves: group.hanging_flush(slaves[0]),
    "the master starts slowly": lambda group, master, _: group.slow_start(master),
    "a slave starts slowly": lambda group, _, slaves: group.slow_start(slaves[0]),
    "a slave stands still now and then": lambda group, _, slaves: group.flapping(slaves[0]),
    "the disk of the master is full": lambda group, master, _: group.full_disk(master),
    "the disk of a slave is full": lambda group, _, slaves: group.full_disk(slaves[0]),
}


@contextlib.contextmanager
def small_disks(path: Path) -> Iterator[None]:
    """Memory of bounded size where the members store; needs root."""
    if os.geteuid() != 0:
        pytest.skip("file systems of a bounded size need root")
    with contextlib.ExitStack() as stack:
        for ordinal in range(3):
            folder = path / Who(0, ordinal).name / "store"
            folder.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "tmpfs", str(folder)], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        yield


def longest_pause_s(acknowledged: dict[bytes, int], begun_ms: int) -> float:
    """The longest time between two acknowledged messages of which one came after this instant."""
    instants = sorted(acknowledged.values())
    pairs = itertools.pairwise(instants)
    return max((after - before for before, after in pairs if after >= begun_ms), default=0) / 1000


def one_round(group: Group, producing: Producing, name: str) -> str:
    """Begin the fault, want writes while it stands, end it; what is to be told about it."""
    cluster = group.cluster
    cluster.until_all_in_sync()
    producing.until_more()
    before, begun_ms = cluster.record(), time.time_ns() // 1_000_000
    with FAULTS[name](group, *group.ends()):
        threading.Event().wait(STANDS_S)
        producing.until_more()
        pause_s = longest_pause_s(producing.acknowledged(), begun_ms)
        after = cluster.record()
    cluster.until_all_in_sync()
    told = f"epoch {before.epoch} then {after.epoch}, {before.holder} then {after.holder}"
    return f"{told}; longest pause {pause_s:.1f} s = {pause_s / SUSPECT_S:.1f} suspicions"


@pytest.mark.timeout(ROUNDS * ROUND_S_MAX + 300)
@pytest.mark.parametrize("name", FAULTS)
def test_a_group_with_a_fault_that_stays_takes_writes_and_loses_nothing(tmp_path: Path, name: str) -> None:
    shim, path = DiskShim(tmp_path / "shim"), tmp_path / "cluster"
    preloaded = {key: value for key, value in shim.environment.items() if key != "DISKSHIM_LOG"}
    disks = small_disks(path) if "disk" in name else contextlib.nullcontext()
    with (
        disks,
        Cluster(path, "--failover-timers", "fast", *_SMALL, environment=preloaded) as cluster,
        Producing(cluster.name_server, TOPIC, tmp_path / "ledger", pause_ms=20.0) as producing,
    ):
        for number in range(ROUNDS):
            print(f"round {number}: {name}: {one_round(Group(cluster, shim), producing, name)}", flush=True)
        places, stored = producing.places(), cluster.stored(TOPIC, QUEUES)
        lost = sorted(body for body, place in places.items() if stored.get(place) != body)
        assert not lost, f"{len(lost)} of {len(places)} lost: {lost[:10]}\n{cluster.story()}"
