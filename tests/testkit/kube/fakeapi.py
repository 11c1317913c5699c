"""The store of `fakestore` as an API server on a port: enough for kopf to watch and for the operator to work.

Plain HTTP; watches tell events in their order, bookmarks every `bookmark_s`, and 410 to anyone who comes too late.
What may go wrong: `duplicates` tells each event twice, `held` keeps events back until `let_go()`, `break_watches()`
ends every watch, with 410 if told so, and `refused` answers to reads of a kind (its plural) with a status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from testkit.kube.fakestore import Document, Event, NoAnswerError, Request, StatusError, Store, matches

KINDS = {
    "v1": (
        "namespaces/Namespace", "pods/Pod", "services/Service", "secrets/Secret", "configmaps/ConfigMap",
        "serviceaccounts/ServiceAccount", "persistentvolumeclaims/PersistentVolumeClaim",
    ),
    "apps/v1": ("statefulsets/StatefulSet",),
    "coordination.k8s.io/v1": ("leases/Lease",),
    "networking.k8s.io/v1": ("networkpolicies/NetworkPolicy",),
    "policy/v1": ("poddisruptionbudgets/PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("roles/Role", "rolebindings/RoleBinding"),
    "gantrymq.io/v1alpha1": (
        "brokerclusters/BrokerCluster", "brokertopics/BrokerTopic", "consumergroups/ConsumerGroup",
    ),
}  # fmt: skip
_VERBS = ["get", "list", "watch", "create", "patch", "delete"]


class FakeApi:
    """See the module."""

    def __init__(self, store: Store, bookmark_s: float = 0.2) -> None:
        self.store = store
        self.bookmark_s = bookmark_s
        self.duplicates = False
        self.held = False
        self.refused: dict[str, int] = {}
        self.watches = 0  # how many were ever begun
        self.url = ""
        self._ending: asyncio.Event = asyncio.Event()
        self._is_gone = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve on a free port; gives the address."""
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/api", self._old_group)
        app.router.add_get("/apis", self._groups)
        app.router.add_route("*", "/{path:.*}", self._any)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            self.break_watches()
            await runner.cleanup()

    def break_watches(self, gone: bool = False) -> None:
        """All of them end; `gone`: with 410, so that everything is listed again."""
        self._is_gone = gone
        self._ending.set()
        self._ending = asyncio.Event()

    def let_go(self) -> None:
        """Events that were held back are told."""
        self.held = False

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "34"})

    async def _old_group(self, _: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def _groups(self, _: web.Request) -> web.Response:
        found = []
        for each in KINDS:
            group, _, version = each.rpartition("/")
            if group:
                about = {"groupVersion": each, "version": version}
                found.append({"name": group, "versions": [about], "preferredVersion": about})
        return web.json_response({"groups": found})

    async def _any(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in KINDS:
            return web.json_response({"resources": _resources(version)})
        if request.method == "GET":
            return await self._read(request, path)
        body: Document = json.loads(await request.read() or b"{}")
        try:
            return web.json_response(self.store.write(Request(request.method, path, body, request.content_type)))
        except StatusError as error:
            return _status(error)
        except NoAnswerError:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

    async def _read(self, request: web.Request, path: str) -> web.StreamResponse:
        labels, kind = request.query.get("labelSelector", ""), path.rsplit("/", 1)[-1]
        if (status := self.refused.get(kind)) is not None:
            return _status(StatusError(status, f"{kind} is forbidden: as the test wants it"))
        if request.query.get("watch") == "true":
            return await self._watch(request, path, labels)
        try:
            if kind in {each.partition("/")[0] for kinds in KINDS.values() for each in kinds}:
                items = self.store.listed(path, labels)
                version = {"resourceVersion": str(self.store.version)}
                return web.json_response({"kind": "List", "metadata": version, "items": items})
            return web.json_response(self.store.get(path))
        except StatusError as error:
            return _status(error)

    async def _watch(self, request: web.Request, path: str, labels: str) -> web.StreamResponse:
        self.watches += 1
        answer = web.StreamResponse()
        await answer.prepare(request)
        told, ending = int(request.query.get("resourceVersion", "0")), self._ending
        while not ending.is_set():
            try:
                events = [] if self.held else self.store.since(told)
            except StatusError as error:
                return await _end(answer, error)
            for event in events:
                told = event.version
                for _ in range(2 if self.duplicates else 1):
                    await _tell(answer, event, path, labels)
            about = {"metadata": {"resourceVersion": str(told)}}
            await answer.write(json.dumps({"type": "BOOKMARK", "object": about}).encode() + b"\n")
            try:
                async with asyncio.timeout(self.bookmark_s):
                    await ending.wait()
            except TimeoutError:
                continue
        return await _end(answer, StatusError(410, "as the test wants it")) if self._is_gone else answer


def _resources(version: str) -> list[Document]:
    kinds = [each.split("/") for each in KINDS[version]]
    common = {"verbs": _VERBS}
    return [
        common | {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": plural != "namespaces"}
        for plural, kind in kinds
    ]


async def _tell(answer: web.StreamResponse, event: Event, path: str, labels: str) -> None:
    root, _, kind = path.rpartition("/")
    is_below = event.folder.startswith(f"{root}/namespaces/") and event.folder.endswith(f"/{kind}")
    is_here = event.folder == path or is_below
    if is_here and matches(event.document, labels):
        await answer.write(json.dumps({"type": event.kind, "object": event.document}).encode() + b"\n")


async def _end(answer: web.StreamResponse, error: StatusError) -> web.StreamResponse:
    about = {"kind": "Status", "code": error.status, "message": error.message}
    await answer.write(json.dumps({"type": "ERROR", "object": about}).encode() + b"\n")
    return answer


def _status(error: StatusError) -> web.Response:
    about = {"kind": "Status", "code": error.status, "message": error.message}
    return web.json_response(about, status=error.status)
