"""Keeps a transactional producer connected to every master, so that any of them can ask about the group's halves.

A broker sends checks to clients whose heartbeat named the producer group.  A producer that has just restarted has sent
nothing yet, but has to answer for the halves that its former process left open.  So it connects to all masters that the
name servers know, and reconnects when a connection is lost.
"""

from __future__ import annotations

import asyncio
import logging

from gantry.client.connections.session import Session
from gantry.client.requests import admin_requests
from gantry.client.requests.admin_requests import Cluster
from gantry.client.requests.question import Question
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import Command

_LOOK_EVERY_S = 30.0  # new masters are looked for, like RocketMQ's pollNameServerInterval
_MEET_EVERY_S = 1.0  # lost connections are made again, so that a restarted broker soon gets its answers

log = logging.getLogger(__name__)


class Presence:
    """Keeps a connection to each master."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._masters: frozenset[str] = frozenset()
        self._look_at = 0.0

    async def keep(self) -> None:
        """Connect again where a connection was lost, until the task is cancelled."""
        while True:
            await asyncio.sleep(_MEET_EVERY_S)
            await self.meet()

    async def meet(self) -> None:
        """Connect to every master that can be reached."""
        now = asyncio.get_running_loop().time()
        if not self._masters or now >= self._look_at:
            try:
                cluster, _ = await self._session.look_up(_with_masters())
            except (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError) as error:
                log.info("the list of brokers could not be read: %s", error)
                cluster = None
            if cluster is not None:
                self._masters = frozenset(cluster.masters().values())
                self._look_at = now + _LOOK_EVERY_S
        lost = self._masters.difference(self._session.brokers())
        await asyncio.gather(*(self._meet(address) for address in lost))

    async def _meet(self, address: str) -> None:
        try:
            await self._session.meet(address)
        except UnreachableError as error:
            log.debug("%s", error)


def _with_masters() -> Question[Cluster | None]:
    """Return the request for the registered brokers; its answer is None when a name server knows no master."""
    question = admin_requests.cluster_info()

    def read(reply: Command) -> Cluster | None:
        found = question.read(reply)
        return found if found.masters() else None

    return Question(question.command, read)
