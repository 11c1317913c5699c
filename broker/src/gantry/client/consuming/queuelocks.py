"""Requests the locks of an orderly consumer's queues: one request for each broker, with all queues that are due.

When a broker does not answer, the lease of its queues ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.queue_lock import Lease
from gantry.client.requests import lock_requests
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.route import MessageQueue

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_TIMEOUT_S = 3.0


class QueueLockClient:
    """Sends one member's lock requests."""

    def __init__(self, session: Session, routes: Routes, group: str, client_id: str) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._client_id = client_id

    async def lock(self, leases: Sequence[tuple[MessageQueue, Lease]]) -> None:
        """Request these locks and note the results in the leases."""
        by_queue = dict(leases)
        await asyncio.gather(
            *(
                self._lock(address, [(queue, by_queue[queue]) for queue in queues])
                for address, queues in self._by_master(by_queue).items()
            )
        )

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give these locks back; where that fails, the broker's lease ends by itself."""
        for address, found in self._by_master(queues).items():
            try:
                await self._session.ask(
                    address, lock_requests.unlock(self._group, self._client_id, found), _TIMEOUT_S
                )
            except _FAULTS as error:
                log.warning("%s: %d locks not given back, they expire: %s", self._group, len(found), error)

    async def _lock(self, address: str, leases: list[tuple[MessageQueue, Lease]]) -> None:
        now = asyncio.get_running_loop().time()
        for _, lease in leases:
            lease.asked(now)
        question = lock_requests.lock(self._group, self._client_id, [queue for queue, _ in leases])
        try:
            granted = await self._session.ask(address, question, _TIMEOUT_S)
        except _FAULTS as error:
            log.warning("%s: %s does not lock %d queues: %s", self._group, address, len(leases), error)
            for queue, _ in leases:
                self._routes.doubt(queue.topic)
            return
        for queue, lease in leases:
            if queue in granted:
                lease.granted(now)
            else:
                lease.refused()

    def _by_master(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            try:
                found[self._routes.master(queue)].append(queue)
            except UnreachableError as error:
                log.warning("%s: no lock: %s", queue, error)
        return found
