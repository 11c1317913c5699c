"""Which queues of a topic are ours: asks the brokers who is in the group, and takes our share.

Nobody coordinates.  Each member asks a broker for the list of members and computes its own share (see
`assign`).  It does so every 20 s, and at once when a broker says that somebody came or went.  Where an
answer is missing, nothing changes: keeping old queues for a while costs duplicates at worst, giving them
up would stop the group.  Slaves get heartbeats as well, and are asked where no master answers.

A queue changes hands without a word between the two members, so time does what a word would do:

    the old one   stops handing out at once, lets what is in work end for half of `handover_s`, commits
    the new one   begins `handover_s` after it learned that the queue is its own, unless it is alone in the group

After a restart a broker has forgotten who is in the group, and maybe the last seconds of what was committed.  Anyone
who is back first would seem to be alone: so for `RETURN_S` nobody begins a queue that was another's, and anyone who
held it is back before that, tells how far it is with its next pull, and goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from gantry.client.connections.routes import Routes
from gantry.client.connections.session import Session
from gantry.client.consuming.assign import share_of
from gantry.client.requests import questions
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.model.names import is_retry_topic
from gantry.model.route import MessageQueue, TopicRoute

log = logging.getLogger(__name__)

_FAULTS = (RefusedError, UnreachableError, OutcomeUnknownError, RemoteProtocolError)
_TIMEOUT_S = 3.0
# Longer than any member takes to try a broker again (transport.client: 1 s; replicas, after a slave: 1 s more).
RETURN_S = 5.0


class Share(NamedTuple):
    """Our queues, and how long those that we did not have before wait until they begin."""

    queues: list[MessageQueue]
    wait_s: float


class Rebalance:
    """One member's view of its group."""

    def __init__(self, session: Session, routes: Routes, group: str, client_id: str, handover_s: float) -> None:
        self._session = session
        self._routes = routes
        self._group = group
        self._client_id = client_id
        self._handover_s = handover_s
        self._steady_at = 0.0  # loop time from which on the list of members is taken for complete
        self._hurry = asyncio.Event()
        self._complaints: dict[str, str] = {}  # topic or address -> what was logged last, so that it is logged once

    def hurry(self) -> None:
        """Somebody came or went: look again now."""
        self._hurry.set()

    def broker_returned(self) -> None:
        """A broker is there again: the others of the group come back to it, too, in a moment."""
        self._steady_at = asyncio.get_running_loop().time() + RETURN_S
        self._hurry.set()

    async def wait(self, at_most_s: float) -> None:
        """Until it is time to look again."""
        try:
            # Not wait_for: when the event comes as the task is cancelled, it swallows the cancellation (Python 3.11).
            async with asyncio.timeout(at_most_s):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def share(self, topic: str, broadcast: bool) -> Share | None:
        """Our queues of a topic; None when it cannot be said now."""
        try:
            route = await self._routes.route(topic)
            queues = await self._routes.to_read(topic)
        except _FAULTS as error:
            self._complain(topic, f"no route: {error}")
            return None
        self._complaints.pop(topic, None)
        addresses = await self._met(route)
        if broadcast:
            return Share(queues, 0.0)
        for address in addresses:
            try:
                members = await self._session.ask(address, questions.members(self._group), _TIMEOUT_S)
            except _FAULTS as error:
                self._complain(address, f"does not say who is in the group: {error}")
                continue
            self._complaints.pop(address, None)
            if self._client_id in members:
                return Share(share_of(self._client_id, members, queues), self._wait_s(members))
        self._routes.doubt(topic)
        return None

    def _wait_s(self, members: list[str]) -> float:
        handover_s = self._handover_s if len(set(members)) > 1 else 0.0
        return max(handover_s, self._steady_at - asyncio.get_running_loop().time())

    def _complain(self, about: str, text: str) -> None:
        if self._complaints.get(about) != text:
            self._complaints[about] = text
            # A new group's retry topic comes into being with its first heartbeat, a moment later.
            log.log(logging.DEBUG if is_retry_topic(about) else logging.WARNING, "%s: %s: %s", self._group, about, text)

    async def _met(self, route: TopicRoute) -> list[str]:
        """Those that we could reach, masters first; all have to know us, whichever one a member asks.

        Slaves are among them: one may have to serve us, and say who is in the group, while its master is away.
        """
        members = sorted((broker_id, one) for broker in route.brokers for broker_id, one in broker.addresses.items())
        addresses = [address for _, address in members]
        results = await asyncio.gather(*(self._session.meet(one) for one in addresses), return_exceptions=True)
        for result in results:
            if result is not None and not isinstance(result, UnreachableError):
                raise result
        return [one for one, result in zip(addresses, results, strict=True) if result is None]
