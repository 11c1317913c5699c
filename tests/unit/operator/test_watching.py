"""Failover loops: a loop that fails by a fault of ours is told, counted and begun again, and ends no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.clock import SystemClock
from gantry.failover.decide import Blocked, Decision, Wait
from gantry_operator import watching
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import Key
from gantry_operator.sightings import Sightings
from gantry_operator.snapshot import GroupSeen, Snapshot
from testkit.kube.clusters import cluster
from testkit.ports import free_port

SECRET = b"0" * 32


class Watched:
    """Watches over the groups of one cluster, at an API server that is not there."""

    def __init__(self, folder: Path, groups: int = 2) -> None:
        (folder / "token").write_text("t", encoding="utf-8")
        self.cluster = cluster(groups=groups)
        self.told: dict[str, list[Decision]] = {}
        self.changed = asyncio.Event()
        self.faults = 0
        account = Account(f"http://127.0.0.1:{free_port()}", folder)
        self.loops = watching.Watches(
            account, lambda: "t", Sightings(), SystemClock(), self._hear, self._failed, lambda: True
        )
        self.seen = Snapshot(self.cluster, [GroupSeen(each, None, {}) for each in self.cluster.groups()])

    def _hear(self, key: Key, group: str, decision: Decision) -> None:
        self.told.setdefault(group, []).append(decision)
        self.changed.set()

    def _failed(self) -> None:
        self.faults += 1

    async def until(self, group: str, kind: type) -> None:
        async with asyncio.timeout(60):
            while not any(isinstance(each, kind) for each in self.told.get(group, [])):
                self.changed.clear()
                await self.changed.wait()


async def test_a_loop_that_fails_is_told_and_begun_again_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "PAUSE_S_MIN", 0.01)
    watched, real, is_faulty = Watched(tmp_path), watching.Watch.run, True

    async def run(watch: watching.Watch) -> None:
        if is_faulty and watch._watched.name == "orders-b0":
            raise ZeroDivisionError("as the test wants it")
        await real(watch)

    monkeypatch.setattr(watching.Watch, "run", run)
    key = watched.cluster.key
    watched.loops.expect(key)
    assert watched.loops.unwatched_count == 1, "it is known, and not watched yet"
    watched.loops.keep(watched.seen, SECRET)
    assert (watched.loops.unwatched_count, watched.loops.key_of(key)) == (0, SECRET)
    await watched.until("b0", Blocked)
    await watched.until("b1", Wait)
    assert list(watched.loops.unwatched(key)) == ["b0"] and watched.faults and "Traceback" in caplog.text
    assert "ZeroDivisionError" in watched.loops.unwatched(key)["b0"] and watched.loops.unwatched_count == 1
    is_faulty = False
    await watched.until("b0", Wait)
    assert watched.loops.unwatched_count == 0
    await watched.loops.close()
    watched.loops.forget(key)
    assert watched.loops.unwatched_count == 0


def test_the_size_of_a_group_is_that_of_the_resource() -> None:
    """The members' own lists have a place for every pod that the group may ever have."""
    (group,) = cluster(groups=1).groups()
    seen = GroupSeen(group, None, {})
    policy = watching.order_of(seen).policy
    assert policy.knows_size and policy.replicas == seen.size
