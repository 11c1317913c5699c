"""Tells brokers which consumers live, so that they renew the leases of those, and of no others.

Every ten seconds each broker hears of every client that called in the last 40 s and has a consumer group.  A client
that says goodbye is reported at once: what it has not settled becomes visible after a second.  One that just goes is
not reported any more, and its leases end by themselves.  Brokers that do not know these requests (RocketMQ's) get a few
of them each time; their leases last for their 60 s.

A broker forgets a client after 30 s.  So no broker waits for another one's answers, and one that does not answer is
left alone until the next time: it must not cost the clients their leases at the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from gantry.client.requests import pop_requests
from gantry.errors import GantryError, RefusedError
from gantry.gateway.brokers import Brokers
from gantry.proxy.clients import KnownClients
from gantry.proxy.receiving import ReceiveCalls
from gantry.transport.tasks import cancelled, essential
from gantry.wire.codes import ResponseCode

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_ASK_S = 3.0
_AT_ONCE = 32  # reports under way to one broker


class OwnerReports:
    """Reports the consumers of all clients; start() once, close() at the end."""

    def __init__(self, brokers: Brokers, clients: KnownClients, receiving: ReceiveCalls) -> None:
        self._brokers = brokers
        self._clients = clients
        self._receiving = receiving
        self._keeping: asyncio.Task[None] | None = None

    def start(self, fail: Callable[[str], None]) -> None:
        """Start to report; fail: called with the reason when that ends, because leases are not renewed then."""
        self._keeping = essential(self._keep(), "gantry-proxy-owners", fail)

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
            await self.report()

    async def report(self) -> None:
        """Tell every broker of all clients that live, once."""
        now = asyncio.get_running_loop().time()
        self._clients.expire(now)
        alive = [(one.caller.client_id, sorted(one.groups)) for one in self._clients.alive(now) if one.groups]
        if not alive:
            return
        try:
            masters = await self._brokers.masters()
        except GantryError as error:
            log.info("the list of brokers could not be read: %s", error)
            return
        await asyncio.gather(*(self._report(address, alive) for address in masters.values()))

    async def _report(self, address: str, alive: Sequence[tuple[str, Sequence[str]]]) -> None:
        for at in range(0, len(alive), _AT_ONCE):
            told = (self._told(address, *one) for one in alive[at : at + _AT_ONCE])
            if not all(await asyncio.gather(*told)):
                return

    async def _told(self, address: str, client_id: str, groups: Sequence[str]) -> bool:
        """Tell a broker of one client. Return whether it can be told of others."""
        try:
            await self._brokers.session.ask(address, pop_requests.keep_owners(client_id, groups), _ASK_S)
        except RefusedError as error:
            log.info("%s: %s: %s", address, client_id, error)
            return error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        except GantryError as error:
            log.info("%s: %s", address, error)
            return False
        return True
