"""How a simulated coordinator asks members: `failover.coordinator.Members` without the HTTP.

What stands behind `/ha/v1` is the broker's own; only the way to it is the simulation's: a question and an answer, each
of them slow, lost, or cut off.  No answer within a second, a dead process, a refusal: None, as by HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from gantry.errors import GantryError
from gantry.replication import haapi
from gantry.replication.hastate import MemberState
from simulation import revisions

if TYPE_CHECKING:
    from gantry.broker.group.fencing import Fencing
    from simulation.groupmember import GroupMember
    from simulation.network import Network

_TIMEOUT_S = 1.0
Serve = Callable[["Fencing"], Awaitable["MemberState | None"]]


class SimMembers:
    """The members as the processes of one host see them; knows_gone: a supervisor on their machine sees them die."""

    def __init__(self, network: Network, host: str, members: Sequence[GroupMember], knows_gone: bool) -> None:
        self._network = network
        self._host = host
        self._members = members
        self._knows_gone = knows_gone
        self._kept: set[object] = set()

    async def state(self, ordinal: int) -> MemberState | None:
        """What it is."""

        async def serve(fencing: Fencing) -> MemberState | None:
            return self._told(ordinal, fencing)

        return await self.ask(ordinal, serve)

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        """Its promise."""

        async def serve(fencing: Fencing) -> MemberState | None:
            refused = await fencing.seal(epoch)
            return self._told(ordinal, fencing) if refused is None else None

        state = await self.ask(ordinal, serve)
        return state if state is not None and state.promise >= epoch else None

    async def nudge(self, ordinal: int) -> None:
        """Worth a look."""

        async def serve(fencing: Fencing) -> MemberState | None:
            del fencing
            self._members[ordinal].nudge()
            return None

        await self.ask(ordinal, serve)

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        """A planned change; the answer comes back with the state of who was asked."""
        asked = {"target": target, "deadlineMs": round(within_s * 1000)}

        async def serve(fencing: Fencing) -> MemberState | None:
            orders = self._members[ordinal].orders
            refused = None if orders is None else await orders.carry_out(haapi.HANDOVER, asked)
            return self._told(ordinal, fencing) if orders is not None and refused is None else None

        return await self.ask(ordinal, serve, within_s + _TIMEOUT_S) is not None

    def _told(self, ordinal: int, fencing: Fencing) -> MemberState:
        return revisions.told(fencing.state(), self._members[ordinal].revision)

    def gone(self) -> frozenset[int]:
        """Whose process is known to have ended."""
        if not self._knows_gone:
            return frozenset()
        return frozenset(number for number, member in enumerate(self._members) if not member.is_alive)

    async def ask(self, ordinal: int, serve: Serve, within_s: float = _TIMEOUT_S) -> MemberState | None:
        """One question, answered in a turn of the member's own loop."""
        answer: asyncio.Future[MemberState | None] = asyncio.get_running_loop().create_future()
        member = self._members[ordinal]
        self._network.carry(self._host, member.host, lambda: self._arrived(member, serve, answer))
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            return None

    def _arrived(self, member: GroupMember, serve: Serve, answer: asyncio.Future[MemberState | None]) -> None:
        def back(state: MemberState | None) -> None:
            def arrive() -> None:
                answer.get_loop().call_soon(lambda: None if answer.done() else answer.set_result(state))

            self._network.carry(member.host, self._host, arrive)

        async def answered() -> None:
            fencing = member.fencing
            try:
                back(None if fencing is None else await serve(fencing))
            except GantryError:
                back(None)

        loop = member.loop
        if loop is None:
            back(None)  # a closed port
        else:
            loop.call_soon(lambda: self._kept.add(loop.create_task(answered())))
