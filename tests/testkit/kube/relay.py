"""A way to an API server that loses and delays what it is told to: HTTP on one side, the real server on the other.

It ends HTTP, so it knows where a request ends, which nobody knows who only sees the bytes of TLS.  `faults` are taken
by the next writes, in order, and are called as in `testkit.apiserver`:

    drop      the connection breaks, nothing is sent on        lose      sent on and answered, and the connection breaks
    late      the connection breaks, sent on at `deliver()`    silent    sent on and answered, the client hears nothing
    a number  that status, nothing is sent on

Reads always pass.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

_PASSED_ON = ("Authorization", "Content-Type")


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Relay:
    """See the module."""

    def __init__(self, server: str, trust: ssl.SSLContext) -> None:
        self.faults: list[str] = []
        self.url = ""
        self._server = server
        self._trust = trust
        self._late: list[_Request] = []
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on a free port."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            self._closing.set()
            await runner.cleanup()

    async def deliver(self) -> int:
        """The request that came late reaches the server; the status that it gets."""
        return (await self._send(self._late.pop(0)))[0]

    async def _handle(self, incoming: web.Request) -> web.Response:
        headers = {name: incoming.headers[name] for name in _PASSED_ON if name in incoming.headers}
        request = _Request(incoming.method, incoming.path_qs, headers, await incoming.read())
        fault = self.faults.pop(0) if self.faults and incoming.method != "GET" else ""
        if fault.isdigit():
            return web.json_response({"message": "as the test wants it"}, status=int(fault))
        if fault == "late":
            self._late.append(request)
        status, body = (503, b"") if fault in ("late", "drop") else await self._send(request)
        if fault == "silent":
            await self._closing.wait()
        elif fault:
            assert incoming.transport is not None
            incoming.transport.abort()
        return web.Response(status=status, body=body, content_type="application/json")

    async def _send(self, request: _Request) -> tuple[int, bytes]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, self._server + request.path, headers=request.headers, data=request.body, ssl=self._trust
            ) as answer,
        ):
            return answer.status, await answer.read()
