"""A pass over a cluster against an API server that is a dictionary: what is written, and what is not."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest

from gantry_operator.api.brokercluster import BrokerCluster, Key
from gantry_operator.kube import KubeError, cluster_path, folder_of, lease_path, path_of
from gantry_operator.reconcile import LATER_S, SOON_S, Reconciler
from gantry_operator.settings import Settings
from testkit.kube.clusters import document
from testkit.simclock import SimClock

Document = dict[str, Any]
KEY = Key("messaging", "orders")
PATH = cluster_path(KEY)
PODS = "/api/v1/namespaces/messaging/pods"


class Server:
    """Documents by path; `writes` in their order; `refuses` a kind with a status."""

    def __init__(self, **brokers: object) -> None:
        self.documents: dict[str, Document] = {PATH: document(**brokers)}
        self.writes: list[str] = []
        self.refuses: dict[str, int] = {}

    async def get(self, path: str) -> Document | None:
        return copy.deepcopy(self.documents.get(path))

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        found = [each for path, each in self.documents.items() if path.startswith(f"{folder}/")]
        return [each for each in found if labels.items() <= each["metadata"]["labels"].items()]

    async def create(self, document: Document) -> bool:
        self.writes.append(f"create {document['kind']}")
        assert folder_of(document)
        return self.documents.setdefault(path_of(document), document) is document

    async def apply(self, document: Document) -> None:
        if document["kind"] in self.refuses:
            raise KubeError(f"PATCH {document['kind']}", self.refuses[document["kind"]], "as the test wants it")
        self.writes.append(f"apply {document['kind']}")
        self.documents[path_of(document)] = document

    async def merge(self, path: str, change: Document) -> None:
        self.writes.append(f"merge {path.rsplit('/', 2)[-1] if path.endswith('/status') else path.rsplit('/', 1)[-1]}")
        if path == f"{PATH}/status":
            self.documents[PATH]["status"] = {key: each for key, each in change["status"].items() if each is not None}
        else:
            self.documents[path]["metadata"]["labels"] |= change["metadata"]["labels"]

    async def delete_pod(self, path: str, uid: str) -> None:
        assert self.documents[path]["metadata"]["uid"] == uid
        self.writes.append(f"delete {path.rsplit('/', 1)[-1]}")
        self.documents[path]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"

    def revised(self, revision: str) -> None:
        """The controller has seen the template of the brokers."""
        status = {"observedGeneration": 0, "updateRevision": revision}
        self.documents["/apis/apps/v1/namespaces/messaging/statefulsets/orders-b0"]["status"] = status

    def runs(self, master: int, in_sync: str = "0.0,1.0,2.0", ready: bool = True) -> None:
        """Pods and a register, as they are when a cluster works."""
        names = {f"orders-b0-{ordinal}": "broker" for ordinal in range(3)}
        names |= {f"orders-ns-{number}": "nameserver" for number in range(2)}
        for name, component in names.items():
            labels = {"gantrymq.io/cluster": "orders", "gantrymq.io/component": component}
            conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
            labels["controller-revision-hash"] = "r1"
            about = {"name": name, "uid": f"u-{name}", "labels": labels}
            made = {"metadata": about, "status": {"conditions": conditions}}
            self.documents.setdefault(f"{PODS}/{name}", made)
        annotations = {"gantrymq.io/phase": "Active", "gantrymq.io/sync-set": in_sync}
        spec = {"holderIdentity": f"{master}.0/p", "leaseTransitions": 3}
        self.documents[lease_path("messaging", "orders-b0")] = {"metadata": {"annotations": annotations}, "spec": spec}


class Loops:
    """Which groups are watched."""

    def __init__(self) -> None:
        self.kept: dict[Key, bytes] = {}

    def keep(self, cluster: BrokerCluster, key: bytes) -> None:
        self.kept[cluster.key] = key

    def forget(self, key: Key) -> None:
        self.kept.pop(key, None)


def once(server: Server, loops: Loops | None = None) -> float | None:
    reconciler = Reconciler(server, Settings("image:1"), loops or Loops(), SimClock())
    return asyncio.run(reconciler.once(KEY))


def conditions(server: Server) -> dict[str, tuple[str, str]]:
    found = server.documents[PATH]["status"]["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def test_a_new_cluster_gets_everything_and_is_not_ready() -> None:
    server, loops = Server(), Loops()
    assert once(server, loops) == SOON_S
    assert server.writes.count("apply StatefulSet") == 2 and server.writes[0] == "create Secret"
    assert len(loops.kept[KEY]) == 64
    assert conditions(server)["Ready"] == ("False", "NoNameServer")
    assert conditions(server)["FailoverPossible"] == ("False", "NobodyInSync")


def test_a_cluster_that_works_is_told_and_labelled() -> None:
    server = Server()
    once(server)
    server.runs(master=1)
    assert once(server) == LATER_S
    assert conditions(server)["Ready"] == ("True", "AllGroupsWritable")
    assert server.documents[PATH]["status"]["summary"] == {
        "masters": "1/1", "inSync": "3/3", "ready": "3/3", "updated": "3/3", "nameservers": "2/2",
    }  # fmt: skip
    labels = [server.documents[f"{PODS}/orders-b0-{each}"]["metadata"]["labels"] for each in range(3)]
    assert [each["gantrymq.io/role"] for each in labels] == ["slave", "master", "slave"]


def test_an_unchanged_cluster_costs_no_write() -> None:
    server = Server()
    once(server)
    server.runs(master=0)
    once(server)
    server.writes.clear()
    once(server)
    assert server.writes == []


def test_another_master_moves_two_labels_and_the_status() -> None:
    server = Server()
    once(server)
    server.runs(master=0)
    once(server)
    server.writes.clear()
    server.runs(master=2, in_sync="1.0,2.0")
    once(server)
    assert sorted(server.writes) == ["merge orders-b0-0", "merge orders-b0-2", "merge status"]
    (group,) = server.documents[PATH]["status"]["groups"]
    assert (group["master"], group["syncSet"]) == ({"ordinal": 2, "pod": "orders-b0-2"}, [1, 2])


def test_another_template_replaces_one_slave_and_waits_for_it() -> None:
    server = Server()
    once(server)
    server.runs(master=0)
    once(server)
    server.revised("r2")
    server.writes.clear()
    assert once(server) == SOON_S
    assert server.writes == ["merge status", "delete orders-b0-1"]
    assert conditions(server)["Reconciling"] == ("True", "RollingUpdate")
    server.writes.clear()
    assert once(server) == SOON_S
    assert server.writes == ["merge status"]


def test_what_somebody_deleted_comes_back() -> None:
    server = Server()
    once(server)
    del server.documents["/api/v1/namespaces/messaging/services/orders-b0-1"]
    server.writes.clear()
    once(server)
    assert server.writes == ["apply Service"]


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    server = Server()
    once(server)
    before = server.documents[PATH]["status"]["conditions"]
    server.runs(master=0)
    reconciler = Reconciler(server, Settings("image:1"), Loops(), clock := SimClock())
    clock.advance(3_600_000)
    asyncio.run(reconciler.once(KEY))
    after = {each["type"]: each["lastTransitionTime"] for each in server.documents[PATH]["status"]["conditions"]}
    moved = [each["type"] for each in before if after[each["type"]] != each["lastTransitionTime"]]
    assert sorted(moved) == ["FailoverPossible", "Ready", "Reconciling"]


@pytest.mark.parametrize("status", [403, 422])
def test_what_the_server_refuses_is_said_in_a_condition(status: int) -> None:
    server, loops = Server(), Loops()
    server.refuses["StatefulSet"] = status
    assert once(server, loops) == LATER_S
    assert conditions(server)["Stalled"] == ("True", "Refused")
    assert KEY in loops.kept, "a refused object stops no failover"


def test_a_server_that_is_busy_is_asked_again() -> None:
    server = Server()
    server.refuses["Service"] = 503
    with pytest.raises(KubeError):
        once(server)


def test_a_cluster_that_is_gone_is_watched_no_longer() -> None:
    server, loops = Server(), Loops()
    once(server, loops)
    del server.documents[PATH]
    assert once(server, loops) is None and not loops.kept


def test_a_cluster_that_is_being_deleted_gets_nothing_new() -> None:
    server = Server()
    server.documents[PATH]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert once(server) == LATER_S and not server.writes
