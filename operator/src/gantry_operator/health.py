"""The HTTP server for the kubelet and Prometheus: /healthz, /readyz, /metrics.

    alive    the loop runs (or there would be no answer); while the API server answers, every watch received something
             within `WATCH_S_MAX`; the worklist of the leader begins what is due within `QUEUE_S_MAX`
    ready    the API server answered lately, watches have begun, and the process is not about to end

An API server that does not answer makes no operator unhealthy: a restart would not help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

WATCH_S_MAX = 180.0  # bookmarks come each minute
QUEUE_S_MAX = 300.0  # a pass takes 30 s at most, and many may begin at once after a start
ANSWER_S_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of the operator at one instant; ages in seconds."""

    answered_s: float  # since the API server last answered the election
    watch_s: float  # since the quietest watch was last heard of
    has_begun: bool  # whether every watch was heard of
    queue_s: float  # the oldest key that is due waits, or is worked on, for so long
    leader: str  # its identity; empty: none
    is_leaving: bool

    def complaint(self) -> str:
        """Return why the process should be restarted; an empty text when it is alive."""
        if self.answered_s < ANSWER_S_MAX and self.watch_s > WATCH_S_MAX:
            return f"a watch has been silent for {self.watch_s:.0f} s while the API server answers"
        if self.queue_s > QUEUE_S_MAX:
            return f"a cluster has waited for its pass for {self.queue_s:.0f} s"
        return ""

    def absence(self) -> str:
        """Return why it is not ready; an empty text when it is."""
        if self.is_leaving:
            return "it is about to end"
        if not self.has_begun:
            return "it does not watch yet"
        if self.answered_s >= ANSWER_S_MAX:
            return f"the API server has not answered for {self.answered_s:.0f} s"
        return self.complaint()

    def lines(self) -> str:
        """Return one line with all ages and the leader, for the body of an answer."""
        return (
            f"API server answered {self.answered_s:.1f} s ago, quietest watch {self.watch_s:.1f} s, "
            f"queue {self.queue_s:.1f} s, leader {self.leader or 'nobody'}\n"
        )


async def serve(port: int, vitals: Callable[[], Vitals], metrics: Callable[[], bytes]) -> web.AppRunner:
    """Serve health and metrics on this port until the returned runner is cleaned up."""

    async def healthy(_: web.Request) -> web.Response:
        return _said(vitals().complaint(), vitals())

    async def ready(_: web.Request) -> web.Response:
        return _said(vitals().absence(), vitals())

    async def exposed(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthy), web.get("/readyz", ready), web.get("/metrics", exposed)],
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


def _said(fault: str, vitals: Vitals) -> web.Response:
    return web.Response(text=f"{fault or 'ok'}\n{vitals.lines()}", status=503 if fault else 200)
