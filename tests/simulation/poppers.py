"""Clients that pop, and what they were told: the oracle of groups that pop.

    delivered       a message that was sent and not acknowledged is popped sooner or later
    not again       a pop that was asked for after an acknowledgement was answered does not bring the message
    one handle      a handle is not valid any more when a pop or a change, asked for after it came, brought a newer one

A popper acknowledges some messages, alone or together, some of them late, changes the time of some, and drops others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode, ResponseCode
from simulation.clients import Client
from simulation.ledger import Attempt
from simulation.network import Network
from simulation.routes import Route
from simulation.world import World
from testkit.popplay import (
    GROUP,
    Popped,
    ack_request,
    batch_ack_request,
    change_request,
    changed,
    lease_of,
    pop_request,
    popped,
)

_INVISIBLE_MS = (300, 1_000, 4_000)
_LATE_S = (0.0, 0.0, 0.5, 2.0)
_DILIGENT_MS = 10_000
_POLLED_S = 2.0
_EMPTY = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)


@dataclass(slots=True)
class Handle:
    """A message that a popper got: when it asked, and when the answer came."""

    message: Popped
    asked_at: float
    came_at: float


@dataclass(slots=True)
class PopLedger:
    """What all poppers were told, by the bodies of messages."""

    handles: dict[bytes, list[Handle]] = field(default_factory=dict)
    done: dict[bytes, float] = field(default_factory=dict)  # when the answer to an acknowledgement came
    doubtful: set[bytes] = field(default_factory=set)  # an acknowledgement was sent, and not answered
    broken: list[str] = field(default_factory=list)
    pops: int = 0
    again: int = 0

    def came(self, handle: Handle) -> None:
        """A pop or a change brought this handle."""
        body, known = handle.message.body, self.handles.setdefault(handle.message.body, [])
        done_at = self.done.get(body)
        if done_at is not None and handle.asked_at > done_at:
            self.broken.append(
                f"{body[:20]!r} was acknowledged at {done_at:.3f} and came to a pop of {handle.asked_at:.3f}"
            )
        self.pops += 1
        self.again += bool(known)
        known.append(handle)

    def acknowledged(self, handle: Handle, asked_at: float, now: float, is_open: bool) -> None:
        """An acknowledgement that was sent at `asked_at` was answered now: the message is done."""
        body = handle.message.body
        newer = [one for one in self.handles[body] if handle.came_at < one.asked_at and one.came_at < asked_at]
        if is_open and newer:
            self.broken.append(f"{body[:20]!r}: {handle.message.handle!r} was valid beside {newer[0].message.handle!r}")
        self.done.setdefault(body, now)

    def owed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return what has to be delivered and was not acknowledged yet, as far as is known."""
        kept = [one for one in attempts if one.acked_at is not None and (one.is_committed or not one.is_half)]
        settled = self.done.keys() | self.doubtful
        return [one for one in kept if not one.may_be_lost and one.body not in settled]


class Popper(Client):
    """Pops one topic after the other."""

    def __init__(
        self, world: World, network: Network, host: str, route: Route, ledger: PopLedger, topics: Sequence[str]
    ) -> None:
        super().__init__(world, network, host, route)
        self.is_diligent = False  # acknowledges all that it gets
        self._ledger = ledger
        self._topics = topics

    async def main(self) -> None:
        """Until stopped."""
        group = dumps({"groupName": GROUP, "retryMaxTimes": 100_000})
        made = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
        while (answer := await self.ask(made)) is None or answer.code != ResponseCode.SUCCESS:
            self._route.missed()
            await asyncio.sleep(0.2)
        while not self.is_stopped:
            for topic in self._topics:
                await self._pop(topic)
            await asyncio.sleep(self.chance.uniform(0, 0.2))

    async def _pop(self, topic: str) -> None:
        chance, asked_at = self.chance, self._world.now
        invisible_ms = _DILIGENT_MS if self.is_diligent else chance.choice(_INVISIBLE_MS)
        poll_s = 0.0 if self.is_diligent else chance.choice((0.0, _POLLED_S))
        count = 32 if self.is_diligent else chance.choice((1, 4, 32))
        request = pop_request(count, invisible_ms, topic=topic, pollTime=int(1000 * poll_s))
        answer = await self.ask(request, poll_s + 3.0)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            if answer is not None and answer.code not in _EMPTY:
                self._route.missed()
            return
        found = [Handle(one, asked_at, self._world.now) for one in popped(answer)]
        for one in found:
            self._ledger.came(one)
        if self.is_diligent:
            await self._ack_all(found, topic)
            return
        await asyncio.sleep(chance.choice(_LATE_S))
        if chance.random() < 0.3:
            await self._ack_all(found, topic)
            return
        for one in found:
            luck = chance.random()
            if luck < 0.5:
                await self._ack(one)
            elif luck < 0.7:
                await self._change(one)

    async def _ack(self, one: Handle) -> None:
        asked_at = self._world.now
        answer = await self.ask(ack_request(one.message))
        if answer is None or answer.code:
            self._ledger.doubtful.add(one.message.body)
            return
        verdict = answer.ext["gantryVerdict"]
        if verdict in ("open", "done"):
            self._ledger.acknowledged(one, asked_at, self._world.now, verdict == "open")

    async def _ack_all(self, found: list[Handle], topic: str) -> None:
        asked_at = self._world.now
        answer = await self.ask(batch_ack_request([one.message for one in found], topic=topic))
        if answer is None or answer.code:
            self._ledger.doubtful.update([one.message.body for one in found])
            return
        stale = json.loads(answer.body)["stale"] if answer.body else []
        leases = list(dict.fromkeys(lease_of(one.message) for one in found))
        for one in found:
            if [leases.index(lease_of(one.message)), one.message.offset] not in stale:
                self._ledger.acknowledged(one, asked_at, self._world.now, is_open=True)

    async def _change(self, one: Handle) -> None:
        asked_at = self._world.now
        answer = await self.ask(change_request(one.message, self.chance.choice((0, *_INVISIBLE_MS))))
        if answer is None or answer.code:
            return
        newer = Handle(changed(one.message, answer), asked_at, self._world.now)
        self._ledger.came(newer)
        if self.chance.random() < 0.5:
            await self._ack(self.chance.choice((one, newer)))
