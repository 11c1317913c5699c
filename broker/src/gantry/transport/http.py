"""The HTTP server for /metrics, /healthz and /readyz: no authentication, no other paths.

Broker and name server share it.  The caller decides what is healthy or ready; both answers carry a line of
text for a person.  Metrics may be awaited: a long text is better made in slices.

The port is open from start() on, but aiohttp is imported only for the first request.  The import takes longer than
that of the whole broker, and many brokers (in a test, embedded in a program) never get a request.  A thread imports
it, so the loop goes on; requests that come meanwhile wait until they can be answered.  Whether the packages are
installed is checked at the start, so that an operator learns it then.

How many connections there are, and how long each may take, is bounded by `visits`; each carries one request.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gantry.errors import ConfigError
from gantry.transport.visits import Visit, Visits

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

Metrics = Callable[[], bytes | Awaitable[bytes]]
"""Makes the text; called on the loop, and must not block it."""
Verdict = Callable[[], tuple[bool, str]]

_METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LIFE_S = 60.0  # from a whole head to the last byte of the answer; scrapers give up after ten
_GOODBYE_S = 1.0  # at the end, for answers that are under way


class HealthServer:
    """Serves three paths; the callables run on the loop and must not block.

    Only `load_metrics`, which gives the function that makes the text, is called by the thread that imports, so it
    may import what only a text needs; `packages` names what has to be installed for that.
    """

    def __init__(
        self,
        host: str,
        port: int,
        load_metrics: Callable[[], Metrics],
        healthy: Verdict,
        ready: Verdict | None = None,
        packages: tuple[str, ...] = (),
    ) -> None:
        self.host = host
        self.port = port  # the real one after start() when 0 was asked for
        self._load_metrics = load_metrics
        self._verdicts = {"/healthz": healthy, "/readyz": ready or healthy}
        self._packages = ("aiohttp", *packages)
        self._listener: asyncio.Server | None = None
        self._visits = Visits(self._heard, _LIFE_S)
        self._loading: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None  # from the first request on

    async def start(self) -> int:
        """Listen and return the port; ConfigError when that is not possible."""
        for package in self._packages:
            if importlib.util.find_spec(package) is None:
                raise ModuleNotFoundError(f"no package {package} for the HTTP side door", name=package)
        try:
            self._listener = await self._visits.listen(self.host, self.port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: {error.strerror or error}") from error
        self.port = int(self._listener.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Stop listening and drop what is connected; nothing happens when it never started."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if self._loading is not None:
            await asyncio.wait({self._loading})
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._visits.close()
        if listener is not None:
            await listener.wait_closed()

    def _pages(self) -> asyncio.Protocol:
        assert self._runner is not None and self._runner.server is not None, "a runner that was set up has a server"
        return self._runner.server()

    def _heard(self, visit: Visit) -> None:
        """Answer a request, or begin to import aiohttp, which answers it later."""
        if self._runner is not None:
            visit.hand_over(self._pages())
        elif self._loading is None and self._listener is not None:
            self._loading = asyncio.ensure_future(self._load())

    async def _load(self) -> None:
        try:
            metrics = await asyncio.to_thread(self._import)
            self._runner = await _runner(metrics, self._verdicts)
        except (ImportError, OSError, RuntimeError) as error:  # no package, no descriptor to read it, no thread
            log.error("the HTTP side door cannot be opened: %s", error)
            self._loading = None  # tried again with the next request
        for visit in [one for one in self._visits.open if one.is_heard]:
            if self._runner is None or self._listener is None:
                visit.abort()
            else:
                visit.hand_over(self._pages())

    def _import(self) -> Metrics:
        importlib.import_module("aiohttp.web")
        metrics = self._load_metrics()
        if gc.get_freeze_count():
            gc.freeze()  # this stays until the end too, like all that a server had when it was ready
        return metrics


async def _runner(make: Metrics, verdicts: dict[str, Verdict]) -> web.AppRunner:
    """The three pages; aiohttp has been imported by now, and only its names are fetched here."""
    from aiohttp import web

    async def metrics(request: web.Request) -> web.Response:
        text = make()
        body = text if isinstance(text, bytes) else await text
        return web.Response(body=body, headers={"Content-Type": _METRICS_CONTENT_TYPE})

    async def verdict(request: web.Request) -> web.Response:
        good, text = verdicts[request.path]()
        return web.Response(text=text + "\n", status=200 if good else 503)

    async def end_connection(request: web.Request, response: web.StreamResponse) -> None:
        response.force_close()

    app = web.Application()
    app.on_response_prepare.append(end_connection)
    app.add_routes([web.get("/metrics", metrics), *(web.get(path, verdict) for path in verdicts)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GOODBYE_S)
    await runner.setup()
    return runner
