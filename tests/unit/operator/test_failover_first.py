"""Failover loops before everything: what cannot be read, listed or applied takes none away, and the status is live."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gantry_operator import following
from gantry_operator.kube import KubeError, lease_path
from gantry_operator.reconcile import LATER_S
from gantry_operator.settings import OnUpgrade
from gantry_operator.snapshot import Snapshot
from testkit.kube.operatorbench import KEY, PATH, SET, Bench

Document = dict[str, Any]
SETS = ["apply StatefulSet", "apply ConfigMap"]


def remade(bench: Bench) -> bytes:
    """Another operator, which knows nothing yet; what the former one kept."""
    key = bench.loops.kept.pop(KEY)
    bench.upgrade("image:1", OnUpgrade.ONE_BY_ONE)
    return key


def master(bench: Bench) -> str:
    """As the status says."""
    (group,) = bench.server.documents[PATH]["status"]["groups"]
    return str(group["master"]["pod"])


def unreadable(bench: Bench) -> None:
    bench.server.changed(profile="of a later version", config={"pull.count_max": "64"})


def uncounted(bench: Bench) -> None:
    bench.server.changed(config={"pull.count_max": "64"})
    del bench.server.documents[PATH]["spec"]["brokers"]["groups"]


def refused(bench: Bench) -> None:
    bench.server.changed(config={"pull.count_mx": "64"})


@pytest.mark.parametrize("change", [unreadable, uncounted, refused])
def test_a_stalled_cluster_has_its_loops_also_after_a_restart_and_says_who_leads(change: Any) -> None:
    bench = Bench().works()
    change(bench)
    key = remade(bench)
    bench.server.runs(master=2, in_sync="1.0,2.0")
    assert bench.once() == LATER_S
    assert bench.loops.kept == {KEY: key} and master(bench) == "orders-b0-2"
    assert bench.conditions()["Stalled"][0] == "True" and bench.conditions()["Ready"][0] == "False"
    assert bench.conditions()["InSync"] == ("False", "MembersBehind")
    assert bench.server.documents[PATH]["status"]["summary"]["inSync"] == "2/3"
    assert ("Normal", "MasterChanged") in bench.server.events()
    assert not set(SETS) & set(bench.server.deeds), "nothing is applied"


def test_what_cannot_be_read_is_named_with_what_to_do() -> None:
    bench = Bench().works()
    unreadable(bench)
    bench.once()
    assert bench.conditions()["Stalled"] == ("True", "Invalid")
    assert "spec.brokers.profile: 'of a later version' is not known" in bench.said("Stalled")
    assert "failover goes on" in bench.said("Stalled") and bench.conditions()["FailoverPossible"][0] == "True"


def test_an_operator_that_is_newer_than_its_definitions_stalls_no_cluster() -> None:
    bench = Bench().works()
    for section, key in (("brokers", "antiAffinity"), ("brokers", "disruption"), ("networkPolicy", "clients")):
        del bench.server.documents[PATH]["spec"][section][key]
    remade(bench)
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError") and bench.conditions()["Ready"][0] == "True"
    assert bench.server.deeds == [] and KEY in bench.loops.kept


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("kind", ["pods", "statefulsets", "leases", "persistentvolumeclaims", "services"])
def test_a_list_that_fails_keeps_no_loop_from_being_begun_and_no_master_from_being_told(kind: str, status: int) -> None:
    bench = Bench().works()
    key = remade(bench)
    bench.server.runs(master=2, in_sync="1.0,2.0")
    bench.server.unlisted[kind] = status
    try:
        bench.once()
    except KubeError as error:
        asyncio.run(bench.operator.failed(KEY, error))
    assert bench.loops.kept == {KEY: key} and master(bench) == "orders-b0-2"
    if status == 403:
        assert bench.conditions()["Stalled"] == ("True", "Refused") and "403" in bench.said("Stalled")
    bench.server.unlisted.clear()
    bench.once()
    assert bench.conditions()["Stalled"] == ("False", "NoError")


def test_while_pods_cannot_be_listed_objects_are_applied_and_nobody_is_replaced() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"}, replicasPerGroup=4)
    bench.server.unlisted["pods"] = 403
    assert bench.once() == LATER_S
    assert "apply StatefulSet" in bench.server.deeds
    assert not [each for each in bench.server.deeds if each.startswith("delete")]
    assert bench.server.documents[SET]["spec"]["replicas"] == 3
    assert "grant the operator's role" in bench.said("Stalled") and "Pods" in bench.said("Stalled")


def test_while_sets_cannot_be_listed_none_is_applied() -> None:
    bench = Bench().works()
    bench.server.changed(config={"pull.count_max": "64"})
    bench.server.unlisted["statefulsets"] = 403
    bench.once()
    assert "apply StatefulSet" not in bench.server.deeds and "apply ConfigMap" in bench.server.deeds


def test_registers_whose_list_is_refused_are_read_one_by_one() -> None:
    bench = Bench().works()
    bench.server.runs(master=1)
    bench.server.unlisted["leases"] = 403
    bench.once()
    assert master(bench) == "orders-b0-1" and bench.refused == [403]
    bench.server.unread[lease_path("messaging", "orders-b0")] = 403
    bench.once()
    (group,) = bench.server.documents[PATH]["status"]["groups"]
    assert (group["phase"], group.get("master")) == ("Unknown", None), "a former master is not told"
    assert bench.conditions()["FailoverPossible"] == ("False", "NotRead")


class Slow:
    """Lists that are not answered until `go`; `began` is set when the loops are there."""

    def __init__(self, bench: Bench) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.unseen: list[frozenset[str]] = []
        self._listed, self._keep = bench.server.listed, bench.loops.keep
        bench.server.listed = self.listed  # type: ignore[method-assign]
        bench.loops.keep = self.keep  # type: ignore[method-assign]

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        await self.go.wait()
        return await self._listed(folder, labels)

    def keep(self, snapshot: Snapshot, key: bytes) -> None:
        self.unseen.append(snapshot.unseen)
        self._keep(snapshot, key)
        self.began.set()


async def test_loops_wait_for_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_S", 0.01)
    bench = Bench()
    await bench.operator.once(KEY)
    bench.server.runs(master=0)
    remade(bench)
    slow = Slow(bench)
    task = asyncio.create_task(bench.operator.once(KEY))
    async with asyncio.timeout(60):
        await slow.began.wait()
        assert KEY in bench.loops.kept and "Pod" in slow.unseen[0], "with careful terms"
        slow.go.set()
        await task
    assert not slow.unseen[-1], "and then with those of the pods"


def test_a_cluster_without_a_loop_says_so_and_why() -> None:
    bench = Bench().works()
    bench.loops.faults = {"b0": "the failover loop failed (ZeroDivisionError())"}
    bench.once()
    assert bench.conditions()["FailoverPossible"] == ("False", "NotWatched")
    assert "b0 has no failover loop: the failover loop failed (ZeroDivisionError())" in bench.said("FailoverPossible")
    bench.loops.faults = {"b0": ""}
    bench.once()
    assert "its failover loop was not begun" in bench.said("FailoverPossible")
    bench.loops.faults = {}
    bench.once()
    assert bench.conditions()["FailoverPossible"][0] == "True"


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), KubeError("x", 403, "no"), KubeError("x", 503, "busy")])
def test_after_a_pass_that_failed_the_status_names_who_leads(error: Exception) -> None:
    bench = Bench().works()
    bench.server.runs(master=2)
    bench.clock.advance(3000)
    asyncio.run(bench.operator.failed(KEY, error))
    assert master(bench) == "orders-b0-2"


def test_a_cluster_whose_members_refuse_values_is_looked_at_when_an_order_is_due_again() -> None:
    bench = Bench().works()
    bench.doors.refusal = "as the test wants it"
    bench.doors.differs = {"permission": 4}
    passes, begun_ms = 0, bench.clock.now_ms()
    while bench.clock.now_ms() - begun_ms < 600_000:
        pause_s = bench.once()
        assert pause_s is not None
        bench.clock.advance(int(pause_s * 1000))
        passes += 1
    assert bench.conditions()["Stalled"] == ("True", "ConfigRefused")
    orders = len(bench.doors.orders)
    assert orders > 20 and passes - orders < 10, (passes, orders)
