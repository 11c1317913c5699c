"""As much of a Kubernetes API server as a Lease needs, with faults: for tests of `gantry.replication.lease`.

Like the real one: resourceVersion rises for the whole server, a patch with another version is a conflict, a patch that
changes nothing keeps the version, an unknown media type is refused.  `faults` are taken by the next writes, in order:

    drop      the connection breaks, nothing is done          lose      done, and the connection breaks
    late      the connection breaks, done at `deliver()`      a number  that status, nothing is done
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

Lease = dict[str, object]


class ApiServer:
    """One namespace of Leases."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.faults: list[str] = []
        self.tokens: list[str] = []
        self.url = ""
        self.reads_take_s = 0.0
        self._version = 100
        self._late: list[tuple[str, Lease]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve on a free port; gives the address."""
        app = web.Application()
        folder = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        app.router.add_post(folder, self._post)
        app.router.add_get(folder + "/{name}", self._get)
        app.router.add_patch(folder + "/{name}", self._patch)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self.url
        finally:
            await runner.cleanup()

    def deliver(self) -> int:
        """The request that came late is looked at; the status that it would have got."""
        name, patch = self._late.pop(0)
        return self._apply(name, patch)[0]

    async def _get(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        await asyncio.sleep(self.reads_take_s)
        lease = self.leases.get(request.match_info["name"])
        return _status(404) if lease is None else web.json_response(lease)

    async def _post(self, request: web.Request) -> web.Response:
        lease = await request.json()
        name = lease["metadata"]["name"]
        if name in self.leases:
            return _status(409)
        self.leases[name] = self._stamped(lease)
        return web.json_response(self.leases[name], status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        if request.content_type != "application/merge-patch+json":
            return _status(415)
        name, patch = request.match_info["name"], await request.json()
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            return _status(int(fault))
        if fault == "late":
            self._late.append((name, patch))
        status, lease = (0, None) if fault in ("drop", "late") else self._apply(name, patch)
        if fault:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(lease) if status == 200 else _status(status or 503)

    def _apply(self, name: str, patch: Lease) -> tuple[int, Lease | None]:
        lease = self.leases.get(name)
        if lease is None:
            return 404, None
        metadata = patch.get("metadata")
        assert isinstance(metadata, dict)
        held = lease["metadata"]
        assert isinstance(held, dict)
        if metadata.get("resourceVersion") not in (None, held["resourceVersion"]):
            return 409, None
        changed = merged(lease, patch)
        if changed != lease:
            self.leases[name] = self._stamped(changed)
        return 200, self.leases[name]

    def _stamped(self, lease: Lease) -> Lease:
        self._version += 1
        stamped = json.loads(json.dumps(lease))
        stamped["metadata"]["resourceVersion"] = str(self._version)
        return dict(stamped)


def merged(lease: Lease, patch: Lease) -> Lease:
    """RFC 7386."""
    whole = copy.deepcopy(lease)
    for name, value in patch.items():
        found = whole.get(name)
        if value is None:
            whole.pop(name, None)
        elif isinstance(value, dict):
            whole[name] = merged(found if isinstance(found, dict) else {}, value)
        else:
            whole[name] = value
    return whole


def _status(code: int) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": "as the test wants it"}, status=code)
