"""Shares of what all clients of a process use together: places for requests under way, and turns of long work.

A bound for all clients together is not enough: one client could use all of it, and the others would be refused, or
wait behind it.  So places and turns are given by host and by connection.  Both levels are needed: a client can open
many connections, and many clients can share a host (a proxy, a network behind one address).

Nothing here knows a socket; an owner is compared, and its `peer` names its host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Protocol

from gantry.transport.addresses import host_of


class Owner(Protocol):
    """A connection, as far as shares need it."""

    @property
    def peer(self) -> str:
        """`ip:port` of the other side."""
        ...


class SharedPlaces:
    """Counts the places that requests take, or the bytes, `most` in total.

    A host gets no more than what is free beside it, and a connection no more than half of that.  So one host alone gets
    half of all places, one connection a third, and every further host half of what is left.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._of_host: dict[str, int] = {}  # those that have any
        self._of_owner: dict[Owner, int] = {}

    def take(self, owner: Owner, count: int = 1) -> bool:
        """Take places; False, and none is taken, when the owner or its host would have more than its share."""
        if not count:
            return True  # nothing is kept of nothing, so that nothing is left of it
        host, free = host_of(owner.peer), self.most - self.taken
        of_host = self._of_host.get(host, 0)
        of_owner = self._of_owner.get(owner, 0)
        if of_host + count > free or 2 * of_owner + count > free:
            return False
        self.taken += count
        self._of_host[host] = of_host + count
        self._of_owner[owner] = of_owner + count
        return True

    def give_back(self, owner: Owner, count: int = 1) -> None:
        """Give back places that were taken."""
        if not count:
            return
        host = host_of(owner.peer)
        self.taken -= count
        self._of_host[host] -= count
        if not self._of_host[host]:
            del self._of_host[host]
        self._of_owner[owner] -= count
        if not self._of_owner[owner]:
            del self._of_owner[owner]


class FairTurns:
    """Lets `at_once` pieces of work run; those that wait get their turns host by host, then connection by connection.

    What one connection asks for keeps its order.  So a client that asks for one thing waits for one piece of
    work of every other host that asks, however many these have asked for.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        # Host -> connection -> its requests.  The first of each is served next, and goes to the end then.
        self._waiting: dict[str, dict[Owner, deque[asyncio.Future[None]]]] = {}

    def of(self, owner: Owner) -> FairTurn:
        """Return a turn of this connection, for `async with`."""
        return FairTurn(self, owner)

    async def take(self, owner: Owner) -> None:
        """Wait for a turn; `give_back` ends it."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host_of(owner.peer), {}).setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()  # it was given in the same turn of the loop
            raise

    def give_back(self) -> None:
        """End a turn: the next one begins."""
        turn = self._next()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        while self._waiting:
            host, of_host = next(iter(self._waiting.items()))
            owner, turns = next(iter(of_host.items()))
            turn = turns.popleft()
            del self._waiting[host], of_host[owner]
            if turns:
                of_host[owner] = turns
            if of_host:
                self._waiting[host] = of_host
            if not turn.cancelled():
                return turn
        return None


class FairTurn:
    """One turn of `FairTurns`; it is given back when its block ends, however that ends."""

    def __init__(self, turns: FairTurns, owner: Owner) -> None:
        self._turns = turns
        self._owner = owner

    async def __aenter__(self) -> None:
        """Wait for it."""
        await self._turns.take(self._owner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        self._turns.give_back()
