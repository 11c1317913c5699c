"""`gantry-operator`: watches BrokerClusters, makes what they need, and lets each group fail over.

Three parts side by side, of which none may die alone: kopf, which watches; the worklist, which reconciles; the
failover loops, which go on whatever the other two do.  When one of them ends by a fault the process ends, and
Kubernetes starts it anew: nothing is kept here that could not be read again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import kopf
from aiohttp import web

from gantry.clock import SystemClock
from gantry.failover.decide import Decision
from gantry_operator.api.brokercluster import Key
from gantry_operator.handlers import registry
from gantry_operator.kube import Kube, KubeError
from gantry_operator.queue import Worklist
from gantry_operator.reconcile import Reconciler
from gantry_operator.settings import Settings, from_environment
from gantry_operator.sightings import Sightings
from gantry_operator.watching import Watches

log = logging.getLogger("gantry.operator")

EXIT_FAULT = 1


def main() -> None:
    """Serve until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # a line for every event of every pod
    try:
        settings = from_environment(os.environ)
    except ValueError as error:
        sys.exit(f"gantry-operator: {error}")
    sys.exit(asyncio.run(_serve(settings)))


async def _serve(settings: Settings) -> int:
    stop = asyncio.Event()
    faults: list[str] = []

    def end(fault: str) -> None:
        faults.append(fault)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sightings, clock = Sightings(), SystemClock()
    async with Kube() as kube:

        def told(key: Key, _: str, __: Decision) -> None:
            worklist.add(key)

        watches = Watches(kube.server, sightings, clock, told, end)
        reconciler = Reconciler(kube, settings, watches, clock)
        worklist: Worklist[Key] = Worklist(reconciler.once, _complain)
        tasks = [
            asyncio.create_task(worklist.run((KubeError, ValueError))),
            asyncio.create_task(_kopf(registry(worklist.add, sightings), settings, stop)),
        ]
        for task in tasks:
            task.add_done_callback(lambda done: _ended(done, stop, end))
        runner = await _health(settings.http_port)
        await stop.wait()
        await runner.cleanup()
        await watches.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for fault in faults:
        log.error("%s", fault)
    return EXIT_FAULT if faults else 0


async def _kopf(handlers: kopf.OperatorRegistry, settings: Settings, stop: asyncio.Event) -> None:
    await kopf.operator(
        registry=handlers,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
        stop_flag=stop,
    )
    stop.set()  # kopf hears SIGTERM before we do


async def _health(port: int) -> web.AppRunner:
    """/healthz: the loop answers."""

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/healthz", healthy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


def _ended(task: asyncio.Task[None], stop: asyncio.Event, end: object) -> None:
    if not stop.is_set() and callable(end):
        end(f"a part of the operator ended: {None if task.cancelled() else task.exception()!r}")


def _complain(key: Key, error: Exception) -> None:
    log.warning("%s/%s: %s", key.namespace, key.name, error)


if __name__ == "__main__":
    main()
