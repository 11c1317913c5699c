"""An operator on a bench: an API server that is a dictionary, members that answer, failover loops that decide nothing.

`Bench(...)` is a cluster that was just applied; `once()` is a pass, three seconds after the one before; `works()` is
a cluster at which everything is as it should be.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any

from gantry.failover.decide import Decision
from gantry_operator.api.brokercluster import Key
from gantry_operator.api.terms import terms_of
from gantry_operator.desired.brokers import as_run
from gantry_operator.desired.labels import digest_of
from gantry_operator.kube import KubeError, cluster_path, folder_of, lease_path, path_of
from gantry_operator.reconcile import Reconciler
from gantry_operator.settings import OnUpgrade, Settings
from gantry_operator.snapshot import Answer, GroupSeen, Snapshot
from testkit.kube.clusters import cluster, document
from testkit.simclock import SimClock

Document = dict[str, Any]
KEY = Key("messaging", "orders")
PATH = cluster_path(KEY)
PODS = "/api/v1/namespaces/messaging/pods"
SET = "/apis/apps/v1/namespaces/messaging/statefulsets/orders-b0"
CLAIMS = "/api/v1/namespaces/messaging/persistentvolumeclaims"
STORES = ",".join(f"{ordinal}=disk{ordinal}:0" for ordinal in range(5))


class Server:
    """Documents by path; `reads` and `writes` in their order; sets are seen by their controller.

    `refuses` to apply a kind with a status; `unlisted` answers a list of a kind (its plural), and `unread` any read of
    a path, in the same way; `admits` a kind changed, as an admission webhook does.
    """

    def __init__(self, **brokers: object) -> None:
        self.documents: dict[str, Document] = {PATH: document(**brokers)}
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.refuses: dict[str, int] = {}
        self.unlisted: dict[str, int] = {}
        self.unread: dict[str, int] = {}
        self.admits: dict[str, Callable[[Document], None]] = {}

    async def get(self, path: str) -> Document | None:
        self.reads.append(path)
        if path in self.unread:
            raise KubeError(f"GET {path}", self.unread[path], "as the test wants it")
        return copy.deepcopy(self.documents.get(path))

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        self.reads.append(folder)
        kind = folder.rsplit("/", 1)[-1]
        if kind in self.unlisted:
            raise KubeError(f"GET {folder}", self.unlisted[kind], "as the test wants it")
        found = [each for path, each in self.documents.items() if path.startswith(f"{folder}/")]
        return [copy.deepcopy(each) for each in found if labels.items() <= each["metadata"].get("labels", {}).items()]

    async def create(self, document: Document) -> bool:
        self.writes.append(f"create {document['kind']}")
        document["metadata"].setdefault("resourceVersion", "1")
        assert folder_of(document)
        return self.documents.setdefault(path_of(document), document) is document

    async def apply(self, document: Document) -> Document:
        if document["kind"] in self.refuses:
            raise KubeError(f"PATCH {document['kind']}", self.refuses[document["kind"]], "as the test wants it")
        self.writes.append(f"apply {document['kind']}")
        former = self.documents.get(path_of(document), {})
        annotations = former.get("metadata", {}).get("annotations", {}) | document["metadata"]["annotations"]
        uid = f"u-{document['kind']}-{document['metadata']['name']}"
        made = document | {"metadata": document["metadata"] | {"annotations": annotations, "uid": uid}}
        if document["kind"] == "StatefulSet":
            made["status"] = {"observedGeneration": 0, "updateRevision": digest_of(document["spec"]["template"])[:10]}
        made = copy.deepcopy(made)
        self.admits.get(document["kind"], lambda made: None)(made)
        self.documents[path_of(document)] = made
        return copy.deepcopy(made)

    async def merge(self, path: str, change: Document) -> None:
        self.writes.append(f"merge {path.rsplit('/', 2)[-1] if path.endswith('/status') else path.rsplit('/', 1)[-1]}")
        if path == f"{PATH}/status":
            told = {name: each for name, each in change["status"].items() if each is not None}  # as a merge patch does
            self.documents[PATH]["status"] = copy.deepcopy(told)
            return
        self.documents[path] |= {name: value for name, value in change.items() if name != "metadata"}
        for name, value in change.get("metadata", {}).items():
            if isinstance(value, dict):
                kept = self.documents[path]["metadata"].setdefault(name, {}) | value
                value = {key: each for key, each in kept.items() if each is not None}
            self.documents[path]["metadata"][name] = value

    async def delete(self, path: str, uid: str) -> None:
        assert self.documents[path]["metadata"]["uid"] == uid
        self.writes.append(f"delete {path.rsplit('/', 1)[-1]}")
        if "/pods/" in path:
            self.documents[path]["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
        else:
            del self.documents[path]

    @property
    def deeds(self) -> list[str]:
        """Writes beside events."""
        return [each for each in self.writes if each != "create Event" and not each.startswith("merge orders.")]

    @property
    def told(self) -> list[str]:
        """Writes of events."""
        return [each for each in self.writes if each == "create Event" or each.startswith("merge orders.")]

    def named(self, folder: str) -> list[str]:
        """Names of what lies in a folder."""
        return [path.rsplit("/", 1)[-1] for path in self.documents if path.startswith(f"{folder}/")]

    def events(self) -> list[tuple[str, str]]:
        found = [each for path, each in self.documents.items() if "/events/" in path]
        return [(each["type"], each["reason"]) for each in found]

    def changed(self, **brokers: object) -> None:
        """A person applies another specification."""
        about, status = self.documents[PATH]["metadata"], self.documents[PATH].get("status", {})
        about["generation"] += 1
        self.documents[PATH] = document(**brokers) | {"metadata": about, "status": status}

    def annotate(self, path: str, **annotations: str) -> None:
        self.documents[path]["metadata"].setdefault("annotations", {}).update(annotations)

    def runs(self, master: int, in_sync: str = "0.0,1.0,2.0", ready: bool = True, members: int = 3) -> None:
        """Pods of the present template and a register, as they are when a cluster works."""
        names = {f"orders-b0-{ordinal}": "broker" for ordinal in range(members)}
        names |= {f"orders-ns-{number}": "nameserver" for number in range(2)}
        revision = self.documents[SET]["status"]["updateRevision"]
        for name, component in names.items():
            labels = {"gantrymq.io/cluster": "orders", "gantrymq.io/component": component}
            labels["controller-revision-hash"] = revision
            terms = str(terms_of(cluster().brokers))
            about = {"name": name, "uid": f"u-{name}", "labels": labels, "annotations": {"gantrymq.io/terms": terms}}
            made = {"metadata": about, "status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}
            made["spec"] = {"containers": [{"name": component, "image": "image:1"}]}
            self.documents.setdefault(f"{PODS}/{name}", made)
        annotations = {"gantrymq.io/phase": "Active", "gantrymq.io/sync-set": in_sync, "gantrymq.io/stores": STORES}
        spec = {"holderIdentity": f"{master}.0/p", "leaseTransitions": 3, "renewTime": "2099-01-01T00:00:00.0Z"}
        about = {"name": "orders-b0", "labels": {"gantrymq.io/cluster": "orders"}, "annotations": annotations}
        lease = {"metadata": about | {"uid": "lease"}, "spec": spec}
        self.documents[lease_path("messaging", "orders-b0")] = lease


class Loops:
    """Which groups are watched, and what was decided about them."""

    def __init__(self) -> None:
        self.kept: dict[Key, bytes] = {}
        self.expected: set[Key] = set()
        self.faults: dict[str, str] = {}
        self.decision: Decision | None = None
        self.heard: list[tuple[str, Decision]] = []
        self.forgotten: list[int] = []

    def expect(self, key: Key) -> None:
        self.expected.add(key)

    def keep(self, snapshot: Snapshot, key: bytes) -> None:
        self.kept[snapshot.cluster.key] = key

    def key_of(self, key: Key) -> bytes | None:
        return self.kept.get(key)

    def unwatched(self, key: Key) -> dict[str, str]:
        return self.faults

    def last(self, key: Key, group: str) -> Decision | None:
        return self.decision

    def news(self, key: Key) -> list[tuple[str, Decision]]:
        heard, self.heard = self.heard, []
        return heard

    def forget(self, key: Key) -> None:
        self.kept.pop(key, None)

    async def forget_disk(self, seen: GroupSeen, ordinal: int) -> str:
        self.forgotten.append(ordinal)
        return ""


class Doors:
    """Members that run with what is wanted, and `differs`."""

    def __init__(self) -> None:
        self.differs: dict[str, object] = {}
        self.orders: list[tuple[int, str, Document]] = []
        self.refusal = ""

    async def look(self, seen: GroupSeen, key: bytes) -> Mapping[int, Answer]:
        config = as_run(seen.group) | self.differs
        return {ordinal: Answer(config) for ordinal in range(seen.size) if seen.pod(ordinal) is not None}

    async def order(self, seen: GroupSeen, key: bytes, ordinal: int, path: str, **more: Any) -> str:
        self.orders.append((ordinal, path, more))
        return self.refusal


class Bench:
    """One operator and what it works on; `server` begins with a cluster that was just applied."""

    def __init__(self, **brokers: object) -> None:
        self.server, self.loops, self.doors, self.clock = Server(**brokers), Loops(), Doors(), SimClock()
        self.refused: list[int] = []  # statuses that an alert counts
        self.upgrade("image:1", OnUpgrade.ONE_BY_ONE)

    def upgrade(self, image: str, policy: OnUpgrade) -> None:
        """Another operator takes over, with this default image."""
        settings = Settings(image, on_upgrade=policy)
        self.operator = Reconciler(self.server, settings, self.loops, self.doors, self.clock, self.refused.append)

    def once(self) -> float | None:
        self.clock.advance(3000)
        return asyncio.run(self.operator.once(KEY))

    def works(self, **more: Any) -> Bench:
        """Until everything is as it should be."""
        self.once()
        self.server.runs(**({"master": 0} | more))
        self.once()
        self.server.writes.clear()
        return self

    def serves(self, component: str, ready: int = 2) -> None:
        """The controller of the Deployment of proxies or HTTP queues has made its pods."""
        deployment = self.server.documents[f"/apis/apps/v1/namespaces/messaging/deployments/orders-{component}"]
        count = deployment["spec"]["replicas"]
        deployment["status"] = {"replicas": count, "updatedReplicas": count, "readyReplicas": ready}
        for number in range(count):
            labels = {"gantrymq.io/cluster": "orders", "gantrymq.io/component": component}
            about = {"name": f"orders-{component}-7f-{number}", "uid": f"u-{component}-{number}", "labels": labels}
            status = {"conditions": [{"type": "Ready", "status": str(number < ready)}]}
            spec = {"containers": [{"name": component, "image": "image:1"}]}
            self.server.documents[f"{PODS}/{about['name']}"] = {"metadata": about, "status": status, "spec": spec}

    def conditions(self) -> dict[str, tuple[str, str]]:
        found = self.server.documents[PATH]["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def said(self, kind: str) -> str:
        found = self.server.documents[PATH]["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == kind)
