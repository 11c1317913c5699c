"""Passes over objects: each has a time limit and is counted; a failure is logged and written into the status.

A pass that fails is repeated by the worklist, after a pause, and counted by the class of its error.  A 403 names what
the account may not do: look at the chart's roles.  An exception that no pass should raise is a fault of the operator
(class `bug`): it is logged with its traceback, and concerns only this object.
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
from gantry_operator.metrics import BUG, Metrics, class_of

log = logging.getLogger("gantry.operator")

PASS_S_MAX = 30.0  # what is left over is done by the next one
TELL_S_MAX = 5.0  # to write into a status that a pass failed
FORESEEN = (KubeError, TimeoutError)

K = TypeVar("K", bound=Key | Declared)


async def tell_nothing(key: object, error: Exception) -> None:
    """Write nothing: for objects whose status has no place for a failed pass."""


class Passes(Generic[K]):
    """`once` and `failed` for a worklist; `kind` labels the metrics, `tell` writes a failure into a status."""

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        metrics: Metrics,
        clock: Clock,
        kind: str = "brokercluster",
        tell: Callable[[K, Exception], Awaitable[None]] = tell_nothing,
    ) -> None:
        self._work = work
        self._metrics = metrics
        self._clock = clock
        self._kind = kind
        self._tell = tell

    async def once(self, key: K) -> float | None:
        """Run a pass; TimeoutError when it takes too long."""
        start, outcome = self._clock.monotonic(), "failed"
        try:
            async with asyncio.timeout(PASS_S_MAX):
                after_s = await self._work(key)
            outcome = "done"
            return after_s
        except Exception as error:
            await self._say(key, error)
            raise
        finally:
            self._metrics.passes.labels(self._kind, outcome).inc()
            self._metrics.pass_s.labels(self._kind).observe(self._clock.monotonic() - start)

    async def _say(self, key: K, error: Exception) -> None:
        try:
            async with asyncio.timeout(TELL_S_MAX):
                await self._tell(key, error)
        except (KubeError, TimeoutError) as second:
            log.warning("%s/%s: its status does not say that a pass failed: %s", key.namespace, key.name, second)

    def failed(self, key: Key | Declared, error: Exception) -> None:
        """Count the failure and log it, with its traceback when no pass should fail in this way."""
        is_misread = isinstance(key, Declared) and isinstance(error, ValueError)  # an object of another definition
        if not isinstance(error, FORESEEN) and not is_misread:
            self._metrics.errors.labels(BUG).inc()
            log.error("%s/%s: a pass failed by a fault of the operator", key.namespace, key.name, exc_info=error)
            return
        kind = "timeout" if isinstance(error, TimeoutError) else class_of(getattr(error, "status", None))
        self._metrics.errors.labels(kind).inc()
        said = f"a pass took more than {PASS_S_MAX:g} s" if isinstance(error, TimeoutError) else str(error)
        hint = "; the operator's role has to grant it" if isinstance(error, KubeError) and error.status == 403 else ""
        log.warning("%s/%s: %s%s", key.namespace, key.name, said, hint)
