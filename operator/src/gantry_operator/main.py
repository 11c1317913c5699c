"""`gantry-operator`: watches BrokerClusters, makes their objects, and lets each group fail over.

Four parts run side by side: kopf, which watches; the election, which decides whether we work; the worklist, which
reconciles; the failover loops, which go on whatever the others do.  Only the leader runs the worklist.  A standby keeps
its watches open, so it knows what there is to do, follows each group (`glances`), and writes nothing.  A failed pass or
failover loop concerns only its object.  When a part itself ends by a fault, the process ends, and Kubernetes starts it
again: it keeps nothing that could not be read again.

How it ends.  A lost Lease: at once, since another operator may be working.  SIGTERM: no key and no decision is begun
any more, what was begun has `FINISH_S`, and then the Lease is released, so that the other one leads within two seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import kopf

from gantry.clock import SystemClock
from gantry.failover.decide import Decision, Promote, Seal
from gantry_operator import health
from gantry_operator.account import Account, of_pod
from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared
from gantry_operator.declared.kinds import DeclaredKinds
from gantry_operator.glances import Glances
from gantry_operator.handlers import WATCHED, WATCHED_IF_KNOWN, registry, watch_declared
from gantry_operator.hearing import Heard
from gantry_operator.kube import Kube
from gantry_operator.leader import ANSWER_S, Election, LeaseName
from gantry_operator.members import Members
from gantry_operator.metrics import BUG, Gauges, Metrics
from gantry_operator.passes import Passes
from gantry_operator.queue import Worklist
from gantry_operator.reconcile import Reconciler
from gantry_operator.settings import Settings, from_environment, with_options
from gantry_operator.sightings import Sightings
from gantry_operator.watching import Watches

log = logging.getLogger("gantry.operator")

EXIT_FAULT, EXIT_LOST = 1, 3
FINISH_S = 10.0


def main() -> None:
    """Run the operator until SIGTERM; exit status 0, or 1 after a fault or a lost Lease."""
    environment = with_options(os.environ, sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # a line for every event of every pod
    try:
        settings = from_environment(environment)
        logging.getLogger().setLevel(settings.log_level)
        account = of_pod(environment, settings.account)
        settings = replace(settings, home=account.namespace)
        place = LeaseName(settings.home, settings.lease)
    except (ValueError, OSError) as error:
        sys.exit(f"gantry-operator: {error}")
    sys.exit(asyncio.run(Operator(settings, account, place).run()))


class Operator:
    """One operator process: `run` works until SIGTERM; `leave` ends it when it has lost the Lease."""

    def __init__(
        self, settings: Settings, account: Account, place: LeaseName, leave: Callable[[int], None] = os._exit
    ) -> None:
        self._leave = leave
        self._settings = settings
        self._account = account
        self._place = place
        self._clock = SystemClock()
        self._sightings = Sightings()
        self._heard = Heard(self._clock, WATCHED, max(1, len(settings.namespaces)), WATCHED_IF_KNOWN)
        self._metrics = Metrics()
        self._faults: list[str] = []
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Run all parts until the end; return the exit status."""
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(Kube(self._account, self._account.token, timeout_s=ANSWER_S))
            who = f"{self._settings.identity}_{secrets.token_hex(4)}"
            election = Election(lease, self._place, who, self._clock)
            token = election.token(self._account.token)
            kube = await stack.enter_async_context(Kube(self._account, token, wrote=self._metrics.wrote))
            watches = self._watches_of(token, election)
            asks = Members(self._sightings, self._clock)
            reconciler = Reconciler(kube, self._settings, watches, asks, self._clock, self._metrics.refused)
            passes = Passes(reconciler.once, self._metrics, self._clock, tell=reconciler.failed)
            self._declared = DeclaredKinds(kube, self._clock, self._metrics, self._add)
            stack.push_async_callback(self._declared.close)
            self._worklist = self._worklist_of(passes, self._declared)
            self._glances = Worklist(Glances(lease, watches).once, passes.failed)
            self._metrics.watch(lambda: self._gauges(election, watches))
            runner = await health.serve(
                self._settings.http_port, lambda: self._vitals(election), self._metrics.text
            )  # fmt: skip
            stack.push_async_callback(runner.cleanup)
            await self._work(election, watches)
        for fault in self._faults:
            log.error("%s", fault)
        return EXIT_FAULT if self._faults else 0

    async def _work(self, election: Election, watches: Watches) -> None:
        stop_kopf, watching = asyncio.Event(), asyncio.Event()
        self._hear_signals()
        kopf_task = self._part(self._kopf(stop_kopf, watching))
        elected = self._part(self._elect(election))
        worked = self._part(self._reconcile(election))
        reclaimed = asyncio.create_task(self._reclaim_signals(watching))
        await self._stop.wait()
        reclaimed.cancel()
        self._worklist.close()
        await watches.close()
        _, late = await asyncio.wait([worked], timeout=FINISH_S if election.leads() else 0.0)
        elected.cancel()
        await asyncio.gather(elected, return_exceptions=True)
        if not late:  # while a write may be under way, the Lease is kept until it runs out
            await election.release()
        stop_kopf.set()
        worked.cancel()
        await asyncio.wait([kopf_task, worked, reclaimed], timeout=FINISH_S)

    async def _elect(self, election: Election) -> None:
        lost = await election.run()
        log.error("%s: this operator ends at once", lost)
        logging.shutdown()
        self._leave(EXIT_LOST)

    async def _reconcile(self, election: Election) -> None:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._glances.run())
            await election.began.wait()
            looking.cancel()
        await self._worklist.run()

    def _worklist_of(self, clusters: Passes[Key], declared: DeclaredKinds) -> Worklist[Key | Declared]:
        async def once(key: Key | Declared) -> float | None:
            return await (declared.once(key) if isinstance(key, Declared) else clusters.once(key))

        return Worklist(once, clusters.failed)

    def _add(self, key: Declared, after_s: float) -> None:
        self._worklist.add(key, after_s)

    def _hear_of(self, key: Key) -> None:
        self._worklist.add(key)
        self._glances.add(key)

    async def _kopf(self, stop: asyncio.Event, watching: asyncio.Event) -> None:
        handlers = registry(self._hear_of, self._sightings, self._account, self._heard)
        watch_declared(handlers, self._declared.waking)
        await kopf.operator(
            registry=handlers,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
            standalone=True,
            stop_flag=stop,
            ready_flag=watching,
        )
        self._stop.set()  # kopf may hear SIGTERM before we do

    def stop(self) -> None:
        """End like after SIGTERM: `run` returns soon."""
        self._stop.set()

    def _hear_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    async def _reclaim_signals(self, watching: asyncio.Event) -> None:
        """Take the signals back after kopf has taken them at its start, since kopf has to end last."""
        await watching.wait()
        self._hear_signals()

    def _told(self, key: Key, _: str, decision: Decision) -> None:
        if isinstance(decision, Seal | Promote):
            self._metrics.failovers.labels(type(decision).__name__.lower()).inc()
        self._worklist.add(key)
        self._declared.waking.decided(key)

    def _end(self, fault: str) -> None:
        self._faults.append(fault)
        self._stop.set()

    def _part(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a part of the operator: if it ends before the operator is stopped, the process ends."""

        def ended(task: asyncio.Task[None]) -> None:
            if not self._stop.is_set():
                self._end(f"a part of the operator ended: {None if task.cancelled() else task.exception()!r}")

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        return task

    def _watches_of(self, token: Callable[[], str], election: Election) -> Watches:
        failed = self._metrics.errors.labels(BUG).inc
        return Watches(self._account, token, self._sightings, self._clock, self._told, failed, election.leads)

    def _gauges(self, election: Election, watches: Watches) -> Gauges:
        queue = self._worklist
        return Gauges(election.leads(), queue.due, queue.oldest_s, self._heard.ages_s(), watches.unwatched_count)

    def _vitals(self, election: Election) -> health.Vitals:
        queue_s = self._worklist.oldest_s if election.leads() else 0.0
        heard = self._heard
        return health.Vitals(
            election.unanswered_s, heard.quietest_s, heard.has_begun, queue_s, election.holder, self._stop.is_set()
        )


if __name__ == "__main__":
    main()
