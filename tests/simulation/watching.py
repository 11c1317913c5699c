"""Coordinators of a simulated group: processes that watch it, and die at any step of what they do.

    read        the register was read
    sealing     a seal is about to be written        sealed       it was
    asking      a member is about to be asked for its promise    promised    it answered
    promoting   a promotion is about to be written   promoted     it was
    nudging     the new master is about to be told
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.failover.coordinator import Coordinator, Group
from gantry.failover.decide import Decision
from gantry.replication.hastate import MemberState
from gantry.replication.record import RegisterRecord
from gantry.replication.register import Register, Seen
from simulation.member import HostClock
from simulation.simloop import SimLoop

if TYPE_CHECKING:
    from gantry.failover.coordinator import Members
    from simulation.network import Network
    from simulation.world import World

STEPS = ("read", "sealing", "sealed", "asking", "promised", "promoting", "promoted", "nudging")
Step = Callable[[str], asyncio.Future[None]]


class Watcher:
    """One host with a coordinator."""

    def __init__(
        self,
        world: World,
        network: Network,
        host: str,
        group: Group,
        register: Register,
        members: Members,
        poll_s: float,
    ) -> None:
        self.host = host
        self.dies_at = ""  # a step
        self.deaths = 0
        self.tell: Callable[[Decision], None] = lambda decision: None
        self._world = world
        self._network = network
        self._group = group
        self._register = register
        self._members = members
        self._poll_s = poll_s
        self._loop: SimLoop | None = None
        self._kept: list[object] = []

    def start(self) -> None:
        """A new process, which knows nothing."""
        if self._loop is not None:
            return
        loop = self._loop = SimLoop(self._world, self._network, self.host)
        step = self._step(loop)
        coordinator = Coordinator(
            self._group,
            _SteppedRegister(self._register, step),
            _SteppedMembers(self._members, step),
            HostClock(self._world),
            self._decided,
        )
        loop.call_soon(lambda: self._kept.append(loop.begin(coordinator.run(self._poll_s))))

    def _decided(self, decision: Decision) -> None:
        self._world.say(f"{self.host}: {decision}")
        self.tell(decision)

    def set_terms(self, is_sync_master: bool, min_in_sync: int) -> None:
        """Watch on other terms, if it does not yet: as a coordinator that knows nothing."""
        policy = replace(self._group.policy, is_sync_master=is_sync_master, min_in_sync=min_in_sync)
        if policy == self._group.policy:
            return
        self._group = replace(self._group, policy=policy)
        if self._loop is not None:
            self.kill(f"on other terms: {policy}")
            self.start()

    def kill(self, why: str = "killed") -> None:
        """Dead, until it is started again."""
        if self._loop is None:
            return
        self._world.say(f"{self.host}: the coordinator is {why}")
        self._kept.append(self._loop)
        self._loop.die()
        self._loop = None
        self.deaths += 1

    def pause(self, seconds: float) -> None:
        """It stands still, and does not know it."""
        if self._loop is not None:
            self._loop.paused_until = self._world.now + seconds

    def calm(self) -> None:
        """It goes on, and dies no more."""
        self.dies_at = ""
        if self._loop is not None:
            self._loop.paused_until = 0.0

    def _step(self, loop: SimLoop) -> Step:
        def step(name: str) -> asyncio.Future[None]:
            passed: asyncio.Future[None] = loop.create_future()
            if self.dies_at == name and self._loop is loop:
                self.dies_at = ""
                self.kill(f"dead at the step {name!r}")
                self._world.after(self._world.chance.choice((0.5, 3.0, 8.0)), self.start)
            else:
                passed.set_result(None)
            return passed

        return step


class _SteppedRegister:
    def __init__(self, inner: Register, step: Step) -> None:
        self._inner = inner
        self._step = step

    async def read(self) -> Seen | None:
        seen = await self._inner.read()
        await self._step("read")
        return seen

    async def create(self, record: RegisterRecord) -> Seen:
        return await self._inner.create(record)

    async def write(self, record: RegisterRecord, version: str) -> Seen:
        await self._step("promoting" if record.holder is not None else "sealing")
        done = await self._inner.write(record, version)
        await self._step("promoted" if record.holder is not None else "sealed")
        return done

    async def close(self) -> None:
        await self._inner.close()


class _SteppedMembers:
    def __init__(self, inner: Members, step: Step) -> None:
        self._inner = inner
        self._step = step

    async def state(self, ordinal: int) -> MemberState | None:
        return await self._inner.state(ordinal)

    async def seal(self, ordinal: int, epoch: int) -> MemberState | None:
        await self._step("asking")
        state = await self._inner.seal(ordinal, epoch)
        await self._step("promised")
        return state

    async def nudge(self, ordinal: int) -> None:
        await self._step("nudging")
        await self._inner.nudge(ordinal)

    async def hand_over(self, ordinal: int, target: int, within_s: float) -> bool:
        return await self._inner.hand_over(ordinal, target, within_s)

    def gone(self) -> frozenset[int]:
        return self._inner.gone()
