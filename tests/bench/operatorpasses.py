"""What the operator's passes cost: API calls, time, CPU and memory, on a real API server and etcd.

    PYTHONPATH=tests .venv/bin/python tests/bench/operatorpasses.py            100 clusters of 3 groups, then one of 64
    PYTHONPATH=tests .venv/bin/python tests/bench/operatorpasses.py 20 3 1     that many clusters, groups and rounds

The passes are the operator's own (`Reconciler` over `Kube`).  Pods, statuses of sets and registers are written as the
rest of Kubernetes would, so every cluster is Ready and settled.  Members answer without a network, and there are no
failover loops: their cost does not depend on passes.  A table for RESULTS.md is printed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, ClassVar

from gantry.clock import SystemClock
from gantry_operator.account import Account
from gantry_operator.api.brokercluster import LABEL_CLUSTER, LABEL_COMPONENT, Key
from gantry_operator.kube import Document, Kube, cluster_path, folder_in
from gantry_operator.reconcile import Reconciler
from gantry_operator.settings import Settings
from testkit.kube.api import RefusedError
from testkit.kube.controlplane import ADMIN_TOKEN, ControlPlane
from testkit.kube.operatorbench import STORES, Doors, Loops
from testkit.pairplay import until
from testkit.sources import ROOT

SPACE = "messaging"
MEMBERS, NAMESERVERS = 3, 2
AT_ONCE = 8  # writes of pods, side by side
ROUNDS = 3


class Counted(Kube):
    """Counts what it asks, by method and kind."""

    calls: ClassVar[Counter[str]] = Counter()

    async def _ask(self, method: str, path: str, *more: Any, **named: Any) -> Document:
        rest = path.split("/namespaces/", 1)[-1].split("/")
        self.calls["LIST" if method == "GET" and len(rest) == 2 else method] += 1
        return await super()._ask(method, path, *more, **named)


async def _each(work: Iterable[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async with places:
            await do()

    await asyncio.gather(*map(one, work))


class Fleet:
    """Clusters on one API server, and one operator's passes over them."""

    def __init__(self, kube: Counted, prefix: str, clusters: int, groups: int) -> None:
        self.kube = kube
        self.groups = groups
        self.keys = [Key(SPACE, f"{prefix}{number}") for number in range(clusters)]
        self.operator = Reconciler(kube, Settings("image:1"), Loops(), Doors(), SystemClock())

    async def apply(self) -> None:
        """As people do."""
        kind = {"apiVersion": "gantrymq.io/v1alpha1", "kind": "BrokerCluster"}
        spec = {"brokers": {"groups": self.groups, "replicasPerGroup": MEMBERS}}
        for key in self.keys:
            about = {"name": key.name, "namespace": SPACE}
            await self.kube.create_at(cluster_path(key).rsplit("/", 1)[0], kind | {"metadata": about, "spec": spec})

    async def run(self) -> None:
        """What kubelets, the controller of sets and brokers write."""
        sets = await self.kube.listed(folder_in("StatefulSet", SPACE), {})
        names = {key.name for key in self.keys}
        ours = [each for each in sets if each["metadata"]["labels"][LABEL_CLUSTER] in names]
        await _each((lambda made=made: self._run(made)) for made in ours)

    async def _run(self, made: Document) -> None:
        about, spec = made["metadata"], made["spec"]
        name, generation = about["name"], about["generation"]
        seen = {"observedGeneration": generation, "updateRevision": "r1", "currentRevision": "r1"}
        path = f"{folder_in('StatefulSet', SPACE)}/{name}/status"
        await self.kube.merge(path, {"status": seen | {"replicas": spec["replicas"]}})
        for ordinal in range(spec["replicas"]):
            await self._pod(name, ordinal, spec["template"])
        if about["labels"][LABEL_COMPONENT] == "broker":
            await self._register(name, about["labels"])

    async def _pod(self, of: str, ordinal: int, template: Document) -> None:
        name = f"{of}-{ordinal}"
        labels = template["metadata"]["labels"] | {"controller-revision-hash": "r1"}
        about = {"name": name, "namespace": SPACE, "labels": labels}
        about |= {"annotations": template["metadata"].get("annotations", {})}
        claim = {"name": "store", "emptyDir": {}}  # a set's controller would write the volume claim here
        spec = template["spec"] | {"volumes": [*template["spec"].get("volumes", []), claim]}
        await self.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-23T08:00:00Z"}
        change = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.kube.merge(f"{folder_in('Pod', SPACE)}/{name}/status", change)

    async def _register(self, name: str, labels: Document) -> None:
        notes = {"gantrymq.io/phase": "Active", "gantrymq.io/sync-set": "0.0,1.0,2.0", "gantrymq.io/stores": STORES}
        spec = {"holderIdentity": "0.0/p", "leaseTransitions": 3, "leaseDurationSeconds": 15}
        spec |= {"renewTime": "2099-01-01T00:00:00.000000Z"}
        about = {"name": name, "namespace": SPACE, "labels": labels, "annotations": notes}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}
        await self.kube.create(lease)

    async def settle(self) -> None:
        """Passes until every cluster says that nothing is left."""
        for _ in range(5):
            waits = [await self.operator.once(key) for key in self.keys]
            if set(waits) == {60.0}:
                return
        conditions = (await self.kube.get(cluster_path(self.keys[0])) or {})["status"]["conditions"]
        raise AssertionError(f"not settled: {conditions}")

    async def measure(self, rounds: int) -> tuple[list[float], float, Counter[str]]:
        """Seconds of each pass, CPU seconds of one, calls of all."""
        took, cpu = [], time.process_time()
        before = Counter(self.kube.calls)
        for _ in range(rounds):
            for key in self.keys:
                begun = time.monotonic()
                assert await self.operator.once(key) == 60.0, key
                took.append(time.monotonic() - begun)
        return took, (time.process_time() - cpu) / len(took), Counter(self.kube.calls) - before


def _rss_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


async def _prepared(kube: Kube) -> None:
    """The namespace, and the default account that its controller would make."""
    await kube.create_at("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    about = {"name": "default", "namespace": SPACE}
    await kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})


def _is_served(plane: ControlPlane) -> bool:
    try:
        plane.admin.get(cluster_path(Key(SPACE, "any")).rsplit("/", 1)[0])
    except RefusedError:
        return False
    return True


async def _figures(plane: ControlPlane, folder: Path, fleets: list[tuple[str, int, int]], rounds: int) -> list[str]:
    (folder / "token").write_text(ADMIN_TOKEN)
    (folder / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
    account, rows = Account(plane.server, folder), []
    async with Counted(account, account.token) as kube:
        await _prepared(kube)
        for prefix, clusters, groups in fleets:
            fleet, empty = Fleet(kube, prefix, clusters, groups), _rss_mib()
            await fleet.apply()
            before, begun = kube.calls.total(), time.monotonic()
            for key in fleet.keys:
                await fleet.operator.once(key)
            made, calls = time.monotonic() - begun, kube.calls.total() - before
            await fleet.run()
            await fleet.settle()
            took, cpu, found = await fleet.measure(rounds)
            took.sort()
            each = ", ".join(f"{name} {count / len(took):g}" for name, count in sorted(found.items()))
            rows.append(
                f"| {clusters} x {groups} groups | {each} | {took[len(took) // 2] * 1000:.0f} | "
                f"{took[int(len(took) * 0.99)] * 1000:.0f} | {cpu * 1000:.0f} | {empty:.0f} -> {_rss_mib():.0f} | "
                f"{calls / clusters:g} calls, {made / clusters:.1f} s |"
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Print the table."""
    given = [int(each) for each in sys.argv[1:]]
    fleets = [("c", given[0], given[1])] if len(given) > 1 else [("c", 100, 3), ("wide", 1, 64)]
    rounds = given[2] if len(given) > 2 else ROUNDS
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        for path in sorted((ROOT / "charts/gantrymq/crds").iterdir()):
            plane.admin.apply(path.read_text())
        until(lambda: _is_served(plane), "the kind is served")
        rows = asyncio.run(_figures(plane, Path(folder), fleets, rounds))
    print("| clusters | calls of a pass | p50_ms | p99_ms | cpu_ms | rss_mib | the first pass of a cluster |")
    print("|-|-|-|-|-|-|-|", *rows, sep="\n")


if __name__ == "__main__":
    main()
