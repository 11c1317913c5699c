"""Rebalancing: finds the members of the group, and computes this member's queues of a topic.

There is no coordinator.  Each member asks a broker for the list of members and computes its own share (see `assign`).
It does so every 20 s, and at once when a broker reports that a member joined or left.  Without an answer nothing
changes: keeping old queues for a while causes duplicates at worst, giving them up would stop the group.  Slaves get
heartbeats as well, and are asked when no master answers.

The two members do not talk to each other when a queue moves, so they use time-outs:
    the old one   hands out no more messages, waits half of `handover_s` for messages in work, commits
    the new one   begins `handover_s` after it got the queue, unless it is the only member of the group

After a restart a broker has forgotten the members of the group, and perhaps the last seconds of committed offsets.  The
first member that reconnects would seem to be the only one.  So for `RETURN_S` no member begins a queue that it did not
have before.  The former owner reconnects within that time, sends its progress with the next pull, and continues.
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
# Longer than any member takes to reconnect to a broker (transport.client: 1 s; replicas, after a slave: 1 s more).
RETURN_S = 5.0


class Share(NamedTuple):
    """This member's queues, and how many seconds to wait before new ones are begun."""

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
        self._steady_at = 0.0  # loop time after which the list of members is assumed to be complete
        self._hurry = asyncio.Event()
        self._complaints: dict[str, str] = {}  # topic or address -> what was logged last, so that it is logged once

    def hurry(self) -> None:
        """Rebalance now: a member joined or left."""
        self._hurry.set()

    def broker_returned(self) -> None:
        """Note that a broker restarted: the other members reconnect to it within `RETURN_S`."""
        self._steady_at = asyncio.get_running_loop().time() + RETURN_S
        self._hurry.set()

    async def wait(self, at_most_s: float) -> None:
        """Wait until it is time to rebalance, at most `at_most_s`."""
        try:
            # Not wait_for: when the event comes as the task is cancelled, it swallows the cancellation (Python 3.11).
            async with asyncio.timeout(at_most_s):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    async def share(self, topic: str, broadcast: bool) -> Share | None:
        """Return this member's queues of a topic; None when they are unknown now."""
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
                self._complain(address, f"does not return the group's members: {error}")
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
            # A new group's retry topic is created by its first heartbeat, a moment later.
            log.log(logging.DEBUG if is_retry_topic(about) else logging.WARNING, "%s: %s: %s", self._group, about, text)

    async def _met(self, route: TopicRoute) -> list[str]:
        """Connect to every broker of the route, masters and slaves. Return the reachable addresses, masters first.

        All of them need this member's heartbeat: any may be asked for the members, and a slave may have to replace its
        master.
        """
        members = sorted((broker_id, one) for broker in route.brokers for broker_id, one in broker.addresses.items())
        addresses = [address for _, address in members]
        results = await asyncio.gather(*(self._session.meet(one) for one in addresses), return_exceptions=True)
        for result in results:
            if result is not None and not isinstance(result, UnreachableError):
                raise result
        return [one for one, result in zip(addresses, results, strict=True) if result is None]
