"""BrokerTopics and ConsumerGroups for tests, and an API server that is a dictionary with versions.

The server puts the defaults of the definitions in, counts generations and resource versions, refuses a merge on another
version, lets an object that is deleted wait for its finalizers, and notes every write.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gantry_operator.api import groupdefinition, topicdefinition
from gantry_operator.api.brokercluster import GROUP, VERSION, Key
from gantry_operator.api.declared import Declared, Kind
from gantry_operator.kube import KubeError, cluster_path, declared_folder, declared_path, lease_path
from testkit.kube import clusters

Document = dict[str, Any]
NAMESPACE, CLUSTER = "messaging", "orders"
_DEFINITIONS = {Kind.TOPIC: topicdefinition, Kind.CONSUMER_GROUP: groupdefinition}
_NAMES = {Kind.TOPIC: "BrokerTopic", Kind.CONSUMER_GROUP: "ConsumerGroup"}


def document(kind: Kind, name: str, **spec: object) -> Document:
    """An object as the API server hands it out; `spec` beside the cluster, and the defaults are in."""
    schema = _DEFINITIONS[kind].definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    wanted = _defaulted(schema["properties"]["spec"], {"clusterRef": {"name": CLUSTER}, **spec})
    metadata = {
        "namespace": NAMESPACE, "name": name, "uid": f"u-{name}", "generation": 1, "resourceVersion": "1",
        "creationTimestamp": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": _NAMES[kind], "metadata": metadata, "spec": wanted}


def key_of(kind: Kind, name: str) -> Declared:
    """In the tests' namespace."""
    return Declared(kind, NAMESPACE, name)


def kind_of(path: str) -> Kind | None:
    """Of what lies there."""
    return next((kind for kind in Kind if path.startswith(f"{declared_folder(kind, NAMESPACE)}/")), None)


class DiedError(Exception):
    """The operator was killed here."""


class Life:
    """Of an operator that dies behind the n-th thing that it did, whatever it was."""

    def __init__(self) -> None:
        self.left = -1  # for ever

    def did(self) -> None:
        """Something was done."""
        self.left -= 1
        if self.left == 0:
            raise DiedError


class Server:
    """Documents by path."""

    def __init__(self) -> None:
        self.life = Life()
        self.documents: dict[str, Document] = {}
        self.writes: list[str] = []
        self.faults: list[int] = []  # statuses of the next merges
        self._version = 100

    def add_cluster(self, groups: int = 1, master: int = 0, epoch: int = 1) -> None:
        """A BrokerCluster whose groups are led by this member."""
        made = clusters.document(groups=groups)
        self.documents[cluster_path(Key(NAMESPACE, CLUSTER))] = made
        for number in range(groups):
            self.lead(number, master, epoch)

    def lead(self, group: int, master: int, epoch: int) -> None:
        """Its register."""
        annotations = {"gantrymq.io/phase": "Active", "gantrymq.io/sync-set": f"{master}.0"}
        spec = {"holderIdentity": f"{master}.0/p", "leaseTransitions": epoch}
        name = f"{CLUSTER}-b{group}"
        self.documents[lease_path(NAMESPACE, name)] = {"metadata": {"annotations": annotations}, "spec": spec}

    def remove_cluster(self) -> None:
        """The object alone."""
        del self.documents[cluster_path(Key(NAMESPACE, CLUSTER))]

    def declare(self, kind: Kind, name: str, **spec: object) -> Declared:
        """Apply an object again."""
        made, key = document(kind, name, **spec), key_of(kind, name)
        self._touch(made)
        self.documents[declared_path(key)] = made
        return key

    @contextmanager
    def changed(self, key: Declared) -> Iterator[Document]:
        """Its document, to be changed by a person."""
        found = self.documents[declared_path(key)]
        before = copy.deepcopy(found["spec"])
        yield found
        found["metadata"]["generation"] += before != found["spec"]
        self._touch(found)

    def delete(self, key: Declared) -> None:
        """As a person does: it goes when nobody holds it."""
        found = self.documents[declared_path(key)]
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
            self._touch(found)
        else:
            del self.documents[declared_path(key)]

    def has(self, key: Declared) -> bool:
        """Whether it is there."""
        return declared_path(key) in self.documents

    def status(self, key: Declared) -> Document:
        """What its status says."""
        return dict(self.documents[declared_path(key)].get("status", {}))

    def condition(self, key: Declared, kind: str = "Ready") -> tuple[str, str]:
        """Status and reason; of none: empty."""
        found = [each for each in self.status(key).get("conditions", []) if each["type"] == kind]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def get(self, path: str) -> Document | None:
        """As `kube.Kube`."""
        return copy.deepcopy(self.documents.get(path))

    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]:
        """As `kube.Kube`."""
        assert not labels and folder in {declared_folder(kind, NAMESPACE) for kind in Kind}
        return [copy.deepcopy(each) for path, each in self.documents.items() if path.startswith(f"{folder}/")]

    async def merge(self, path: str, change: Document) -> None:
        """As `kube.Kube`."""
        place = path.removesuffix("/status")
        found = self.documents.get(place)
        if self.faults:
            raise KubeError(f"PATCH {path}", self.faults.pop(0), "as the test wants it")
        if found is None:
            raise KubeError(f"PATCH {path}", 404, "not found")
        metadata, version = change.get("metadata", {}), found["metadata"]["resourceVersion"]
        if metadata.get("resourceVersion", version) != version:
            raise KubeError(f"PATCH {path}", 409, "the object has been modified")
        self.writes.append("status" if path.endswith("/status") else "finalizers")
        if path.endswith("/status"):
            told = found.get("status", {}) | change["status"]
            found["status"] = {key: copy.deepcopy(each) for key, each in told.items() if each is not None}
        else:
            found["metadata"]["finalizers"] = list(metadata["finalizers"])
        self._touch(found)
        if "deletionTimestamp" in found["metadata"] and not found["metadata"].get("finalizers"):
            del self.documents[place]
        self.life.did()

    def _touch(self, found: Document) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)


def _defaulted(schema: Mapping[str, Any], value: Any) -> Any:
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    found = dict(value)
    for name, each in schema["properties"].items():
        if name not in found and "default" in each:
            found[name] = copy.deepcopy(each["default"])
        if name in found:
            found[name] = _defaulted(each, found[name])
    return found
