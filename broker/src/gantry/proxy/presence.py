"""Tells brokers which consumers live, so that they renew the leases of those, and of no others.

Every ten seconds each broker hears of every client that called in the last 40 s and has a consumer group.  A client
that says goodbye is reported at once: what it has not settled becomes visible after a second.  One that just goes is
not reported any more, and its leases end by themselves.  Brokers that do not know these requests (RocketMQ's) are asked
again rarely; their leases last for their 60 s.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gantry.client.requests import pop_requests
from gantry.proxy.brokers import Brokers
from gantry.proxy.clients import KnownClients
from gantry.proxy.receiving import ReceiveCalls
from gantry.transport.tasks import cancelled

_EVERY_S = 10.0


class OwnerReports:
    """Reports the consumers of all clients; start() once, close() at the end."""

    def __init__(self, brokers: Brokers, clients: KnownClients, receiving: ReceiveCalls) -> None:
        self._brokers = brokers
        self._clients = clients
        self._receiving = receiving
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to report."""
        self._keeping = asyncio.create_task(self._keep(), name="gantry-proxy-owners")

    async def close(self) -> None:
        """Report no more; the clients go on with another proxy."""
        if self._keeping is not None:
            await cancelled([self._keeping])

    async def ended(self, client_id: str) -> None:
        """Forget a client that said goodbye, answer what it waits for, and let its leases end."""
        client = self._clients.ended(client_id)
        self._receiving.ended(client_id)
        if client is not None and client.groups:
            for group in sorted(client.groups):
                await self._brokers.tell_all(partial(pop_requests.end_owner, client_id, group))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            now = asyncio.get_running_loop().time()
            self._clients.expire(now)
            for client in self._clients.alive(now):
                if client.groups:
                    groups = sorted(client.groups)
                    await self._brokers.tell_all(partial(pop_requests.keep_owners, client.caller.client_id, groups))
