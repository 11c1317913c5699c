"""Objects as a Kubernetes API server keeps them, in memory: what may be written, what a watch is told.

Like the real one: one version that rises for the whole server and stays when a patch changes nothing; a patch with
another version is a conflict; uid and generation are the server's, and generation rises with the specification alone;
`status` is written through its subresource and nowhere else; a delete may name the uid that it means; an object with
finalizers, and a pod, waits with a deletionTimestamp until somebody lets it go (`remove`).  Lists are replaced whole by
an apply, which the real one merges by key: nobody but the operator applies here.

`faults` are taken by the next writes, in order, and are called as in `testkit.apiserver`:

    drop      nothing is done, nobody answers          lose      done, nobody answers
    late      nobody answers, done at `deliver()`      a number  that status, nothing is done
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from testkit.apiserver import merged

Document = dict[str, Any]
HISTORY_MAX = 1000
NOW = "2026-11-21T10:00:00Z"
_OURS = ("uid", "generation", "creationTimestamp", "deletionTimestamp", "resourceVersion")
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Event(NamedTuple):
    """One change, as watches are told."""

    version: int
    kind: str  # ADDED, MODIFIED, DELETED
    folder: str
    document: Document


class NoAnswerError(Exception):
    """The connection broke; whether anything was done nobody knows."""


class StatusError(Exception):
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    """A write."""

    method: str  # POST, PATCH, DELETE
    path: str
    body: Document
    kind: str = MERGE


class Store:
    """By path; `written` hears of each write that was done."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.history: deque[Event] = deque(maxlen=HISTORY_MAX)
        self.faults: list[str] = []
        self.refused: dict[str, int] = {}  # kinds (their plurals) whose writes are refused, and how
        self.written: Callable[[Request], None] = lambda request: None
        self.version = 100
        self._late: list[Request] = []

    def get(self, path: str) -> Document:
        """A copy."""
        if path not in self.documents:
            raise StatusError(404, f"{path} not found")
        return copy.deepcopy(self.documents[path])

    def listed(self, folder: str, labels: str = "") -> list[Document]:
        """Copies of what lies in a folder, or in that folder of every namespace."""
        found = [each for path, each in sorted(self.documents.items()) if is_in(path, folder)]
        return [copy.deepcopy(each) for each in found if matches(each, labels)]

    def write(self, request: Request) -> Document:
        """Do it, or what the next fault says; the object as it is then."""
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            raise StatusError(int(fault), "as the test wants it")
        if fault == "late":
            self._late.append(request)
        if fault in ("late", "drop"):
            raise NoAnswerError
        answer = self._do(request)
        self.written(request)
        if fault == "lose":
            raise NoAnswerError
        return answer

    def deliver(self) -> int:
        """Requests that came late are carried out now; how many of them the server took."""
        late, self._late = self._late, []
        taken = 0
        for request in late:
            try:
                self._do(request)
                taken += 1
            except StatusError:
                continue
        return taken

    def since(self, version: int) -> list[Event]:
        """What happened after that version; 410 when nobody remembers."""
        oldest = self.history[0].version if self.history else self.version + 1
        if version + 1 < oldest and len(self.history) == HISTORY_MAX:
            raise StatusError(410, f"too old resource version: {version} ({oldest})")
        return [each for each in self.history if each.version > version]

    def put(self, path: str, document: Document) -> None:
        """As a controller of the cluster does; the server's own fields are kept or made."""
        former = self.documents.get(path)
        self._keep(path, former, copy.deepcopy(document))

    def remove(self, path: str) -> None:
        """It is gone, and what it owned goes with it."""
        document = self.documents.pop(path, None)
        if document is None:
            return
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Event(self.version, "DELETED", folder(path), document))
        for owned in [each for each in self.documents if _owner(self.documents[each]) == document["metadata"]["uid"]]:
            self.remove(owned)

    def _do(self, request: Request) -> Document:
        path, _, subresource = _parts(request.path)
        kind = folder(path) if request.method != "POST" else request.path
        if (status := self.refused.get(kind.rsplit("/", 1)[-1])) is not None:
            raise StatusError(status, f"{kind.rsplit('/', 1)[-1]} is forbidden: as the test wants it")
        if request.method == "POST":
            return self._create(request)
        if request.method == "DELETE":
            return self._delete(path, request.body)
        return self._patch(path, request, subresource)

    def _create(self, request: Request) -> Document:
        path = f"{request.path}/{request.body['metadata']['name']}"
        if path in self.documents:
            raise StatusError(409, f"{path} already exists")
        return self._keep(path, None, copy.deepcopy(request.body))

    def _patch(self, path: str, request: Request, subresource: str) -> Document:
        held, body = self.documents.get(path), copy.deepcopy(request.body)
        if held is None:
            if request.kind != APPLY:
                raise StatusError(404, f"{path} not found")
            return self._keep(path, None, body)
        wanted = body.get("metadata", {}).pop("resourceVersion", None)
        if wanted not in (None, held["metadata"]["resourceVersion"]):
            raise StatusError(409, f"{path} has been modified; the version is {held['metadata']['resourceVersion']}")
        if subresource:
            body = {"status": body.get("status", {})}
        else:
            body.pop("status", None)
        for name in _OURS:
            body.get("metadata", {}).pop(name, None)
        return self._keep(path, held, merged(held, body))

    def _delete(self, path: str, options: Document) -> Document:
        held = self.documents.get(path)
        if held is None:
            raise StatusError(404, f"{path} not found")
        uid = options.get("preconditions", {}).get("uid", held["metadata"]["uid"])
        if uid != held["metadata"]["uid"]:
            raise StatusError(409, f"{path}: the uid in the precondition is not the object's")
        if held["metadata"].get("finalizers") or folder(path).endswith("/pods"):
            changed = copy.deepcopy(held)
            changed["metadata"].setdefault("deletionTimestamp", NOW)
            return self._keep(path, held, changed)
        self.remove(path)
        return held

    def _keep(self, path: str, held: Document | None, document: Document) -> Document:
        """The document with what the server says about it."""
        about = document.setdefault("metadata", {})
        if held is None:
            about |= {"uid": f"uid-{self.version + 1}", "generation": 1, "creationTimestamp": NOW}
        else:
            for name in ("uid", "generation", "creationTimestamp", "resourceVersion"):
                about[name] = held["metadata"][name]
            if document == held:
                return copy.deepcopy(held)
            if {key: each for key, each in document.items() if key not in ("metadata", "status")} != {
                key: each for key, each in held.items() if key not in ("metadata", "status")
            }:
                about["generation"] += 1
        self.version += 1
        about["resourceVersion"] = str(self.version)
        self.documents[path] = document
        what = "ADDED" if held is None else "MODIFIED"
        self.history.append(Event(self.version, what, folder(path), copy.deepcopy(document)))
        return copy.deepcopy(document)


def folder(path: str) -> str:
    """.../pods/NAME -> .../pods"""
    return path.rsplit("/", 1)[0]


def is_in(path: str, where: str) -> bool:
    """Whether an object lies in a folder; one without a namespace stands for that of every namespace."""
    if folder(path) == where:
        return True
    root, _, kind = where.rpartition("/")
    parts = folder(path).split("/namespaces/")
    return len(parts) == 2 and parts[0] == root and parts[1].split("/")[1:] == [kind]


def matches(document: Document, labels: str) -> bool:
    """Whether it has them: `a=b,c`; empty: whatever it has."""
    held = document["metadata"].get("labels", {})
    return all(_holds(held, each) for each in labels.split(",") if each)


def _holds(held: dict[str, str], wanted: str) -> bool:
    key, equals, value = wanted.partition("=")
    return held.get(key) == value if equals else key in held


def _parts(path: str) -> tuple[str, str, str]:
    """Path of the object, kind, subresource."""
    rest = path.split("/namespaces/", 1)[-1].split("/")
    if len(rest) == 4 and rest[3] in ("status", "scale"):
        return path.rsplit("/", 1)[0], rest[1], rest[3]
    return path, rest[1] if len(rest) > 1 else "", ""


def _owner(document: Document) -> str:
    owners: Iterator[Document] = iter(document["metadata"].get("ownerReferences", []))
    return str(next((each["uid"] for each in owners), ""))
