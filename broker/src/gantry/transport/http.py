"""The HTTP side door: /metrics, /healthz, /readyz, without authentication and without anything else.

Broker and name server share it.  What is healthy or ready is the caller's to say; both answers carry a line of
text for the one who looks.  Metrics may be awaited: a long text is better made in slices.  aiohttp is loaded
when the server starts, so that whoever never starts one (a client, a test) needs no third-party module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gantry.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

_METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    """Serves three paths; the callables run on the loop and must not block."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], bytes | Awaitable[bytes]],
        healthy: Callable[[], tuple[bool, str]],
        ready: Callable[[], tuple[bool, str]] | None = None,
    ) -> None:
        self.host = host
        self.port = port  # the real one after start() when 0 was asked for
        self._metrics = metrics
        self._healthy = healthy
        self._ready = ready or healthy
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; gives back the port."""
        from aiohttp import web

        async def metrics(request: web.Request) -> web.Response:
            text = self._metrics()
            body = text if isinstance(text, bytes) else await text
            return web.Response(body=body, headers={"Content-Type": _METRICS_CONTENT_TYPE})

        async def healthz(request: web.Request) -> web.Response:
            return _verdict(*self._healthy())

        async def readyz(request: web.Request) -> web.Response:
            return _verdict(*self._ready())

        app = web.Application()
        app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host or None, self.port)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: {error.strerror or error}") from error
        self.port = int(self._runner.addresses[0][1])
        return self.port

    async def close(self) -> None:
        """Stop listening and drop what is connected; nothing happens when it never started."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


def _verdict(good: bool, text: str) -> web.Response:
    from aiohttp import web

    return web.Response(text=text + "\n", status=200 if good else 503)
