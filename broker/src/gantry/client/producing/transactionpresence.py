"""Being there for every broker, so that any of them can ask about the group's halves.

A broker asks anyone who has told it, by a heartbeat, that he is of the producer group; a producer that has
just restarted has not sent anything yet and still has to be asked for what its predecessor left open.
So all masters that the name servers know are met at once, and met again when a connection is lost.
"""

from __future__ import annotations

import asyncio
import logging

from gantry.client.connections.session import Session
from gantry.client.requests import adminquestions
from gantry.client.requests.adminquestions import Cluster
from gantry.client.requests.question import Question
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import Command

_LOOK_EVERY_S = 30.0  # for masters that are new, like RocketMQ's pollNameServerInterval
_MEET_EVERY_S = 1.0  # those we have lost; a broker that restarts should not have to wait for its answers

log = logging.getLogger(__name__)


class Presence:
    """Keeps a connection to each master; start() and stop() once each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._masters: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Meet everybody once, as far as they can be reached, and go on in the background."""
        await self._round()
        self._running = asyncio.create_task(self._run(), name="gantry-presence")

    async def stop(self) -> None:
        """Meet nobody any more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_MEET_EVERY_S)
            await self._round()

    async def _round(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._masters or now >= self._look_at:
            try:
                cluster, _ = await self._session.look_up(_with_masters())
            except (UnreachableError, OutcomeUnknownError, RefusedError, RemoteProtocolError) as error:
                log.info("no news of the brokers: %s", error)
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
    """Which brokers live; None where a name server knows no master: another one may."""
    question = adminquestions.cluster_info()

    def read(reply: Command) -> Cluster | None:
        found = question.read(reply)
        return found if found.masters() else None

    return Question(question.command, read)
