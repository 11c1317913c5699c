"""Passes as people see them: each has an end, is counted, and a failure is said in one line.

A pass that fails is repeated by the worklist, after a pause; what failed is told by the class of its error.  A 403
names what the account may not do: the chart's roles are the place to look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from gantry.clock import Clock
from gantry_operator.api.brokercluster import Key
from gantry_operator.api.declared import Declared
from gantry_operator.kube import KubeError
from gantry_operator.metrics import Metrics, class_of

log = logging.getLogger("gantry.operator")

PASS_S_MAX = 30.0  # what is left over is done by the next one


K = TypeVar("K", bound=Key | Declared)


class Passes(Generic[K]):
    """`once` and `failed` of a worklist; `kind` says whose passes these are."""

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        metrics: Metrics,
        clock: Clock,
        kind: str = "brokercluster",
    ) -> None:
        self._work = work
        self._metrics = metrics
        self._clock = clock
        self._kind = kind

    async def once(self, key: K) -> float | None:
        """The pass; TimeoutError when it takes too long."""
        start, outcome = self._clock.monotonic(), "failed"
        try:
            async with asyncio.timeout(PASS_S_MAX):
                after_s = await self._work(key)
            outcome = "done"
            return after_s
        finally:
            self._metrics.passes.labels(self._kind, outcome).inc()
            self._metrics.pass_s.labels(self._kind).observe(self._clock.monotonic() - start)

    def failed(self, key: Key | Declared, error: Exception) -> None:
        """Say so."""
        kind = "timeout" if isinstance(error, TimeoutError) else class_of(getattr(error, "status", None))
        self._metrics.errors.labels(kind).inc()
        said = f"a pass took more than {PASS_S_MAX:g} s" if isinstance(error, TimeoutError) else str(error)
        hint = "; the operator's role has to grant it" if isinstance(error, KubeError) and error.status == 403 else ""
        log.warning("%s/%s: %s%s", key.namespace, key.name, said, hint)
