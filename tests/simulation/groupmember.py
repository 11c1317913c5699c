"""A member of a group with a register: one process in which the broker lives several times.

A change of role is a life that ends and another that begins in the same process, as `cli.serve` does it; a broker that
cannot go on takes its process along, and anyone who supervises it starts another one.  `on_life` tells each life whose
parts stand, `on_loss` each moment after which this disk may have lost something.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.broker.broker import Broker
from gantry.broker.machine import Carrying, Machine
from gantry.broker.role.master_role import MasterRole
from gantry.broker.settings.config import Role
from gantry.errors import GantryError, SyncFailedError
from simulation.member import Member
from simulation.revisions import Revision
from simulation.simloop import SimLoop
from simulation.slowstarts import Delays, SlowBroker
from testkit.simdisk import SimDisk

if TYPE_CHECKING:
    from gantry.broker.group.fencing import Fencing
    from gantry.broker.group.orders import Orders
    from gantry.replication.register import Register
    from simulation.network import Network
    from simulation.world import World

_BEGINS_S = (0.5, 3.0)
_DOOR_LINE = 5
_ON_THE_WAY_S = 10.0  # longer than a producer waits for an answer


class GroupMember(Member):
    """One ordinal; see the module."""

    def __init__(
        self, world: World, network: Network, host: str, register: Register, **changes: object
    ) -> None:
        super().__init__(world, network, host, **changes)
        self.ordinal = int(str(changes["replication__ordinal"]))
        self.on_life: list[Callable[[GroupMember, Broker], None]] = []
        self.on_loss: list[Callable[[GroupMember, float], None]] = []
        self.on_failed_sync: list[Callable[[GroupMember], None]] = []
        self.on_power_cut.append(lambda since: [told(self, since) for told in self.on_loss] and None)
        self.delays = Delays()
        self.revision = Revision.PRESENT  # of the next process
        self._carrying = Carrying()
        self._register = register
        self._boots = 0
        self._living: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_over = False
        self._has_door = False
        self._alone_until_s = 0.0

    @property
    def answers_alone(self) -> bool:
        """Whether what it says may be the word of an ASYNC_MASTER, which answers before others have a message."""
        return self._config.role is Role.ASYNC_MASTER or self._world.now < self._alone_until_s

    def may_serve_alone(self) -> bool:
        """Whether it is a master that has a serving lease at this moment, and needs nobody to acknowledge."""
        parts = self.broker.parts if self.broker is not None else None
        role = parts.group if parts is not None else None
        if not isinstance(role, MasterRole) or role.is_sealed or role.serving_lease is None:
            return False
        is_alone = self._config.role is Role.ASYNC_MASTER or len(role.tracker.insync.required) == 1
        return is_alone and role.serving_lease.is_valid(self._world.now)

    @property
    def fencing(self) -> Fencing | None:
        """What stands behind `/ha/v1`, while there is a broker that answers."""
        return self.broker.member_lifecycle.fencing if self.broker is not None and self._has_door else None

    @property
    def orders(self) -> Orders | None:
        """What carries out orders of `/ha/v1`, while there is a broker that answers."""
        return self.broker.member_lifecycle.orders if self.broker is not None and self._has_door else None

    def order(self, call: str, told: Callable[[str], None] | None = None, **asked: object) -> None:
        """What an operator tells it to do, as by `/ha/v1`."""
        orders, loop = self.orders, self._loop
        if orders is None or loop is None:
            return
        say = told or (lambda text: self._world.say(f"{self.host}: {text}"))
        name = call.rpartition("/")[2]
        say(f"ordered: {name} {asked or ''}".rstrip())

        async def carry_out() -> None:
            try:
                answer = await orders.carry_out(call, asked)
            except GantryError as error:
                say(f"{name} failed: {error}")
            else:
                say(f"{name}: {'done' if answer is None else answer.document.get('error', 'done')}")

        loop.call_soon(lambda: self._dead.append(loop.begin(carry_out())))

    def set_terms(self, role: Role, min_in_sync: int) -> None:
        """The next process has this role and set; there is none now."""
        assert not self.is_alive
        if self.answers_alone:
            self._alone_until_s = self._world.now + _ON_THE_WAY_S
        replication = replace(self._config.replication, min_in_sync=min_in_sync)
        self._config = replace(self._config, role=role, replication=replication)

    def nudge(self) -> None:
        """The register is worth a look, says a coordinator."""
        watcher = self.broker.member_lifecycle.watcher if self.broker is not None else None
        if watcher is not None:
            watcher.hurry()

    def cut_power(self) -> None:
        """Another boot of the machine follows."""
        self._boots += 1
        super().cut_power()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self._world.say(f"{self.host}: the disk is lost")
        self._troubled_s.append(self._world.now)
        self.kill()
        self.disk = SimDisk(self._world.chance.getrandbits(32))
        self.disk.now_ms = self.clock.now_ms
        for told in self.on_loss:
            told(self, 0.0)

    def stop(self, for_good: bool = False) -> None:
        """SIGTERM: in order, with whatever the broker does about its role first; another process follows, or none."""
        if self._loop is None or not self.is_serving or self._is_stopping:
            return
        self._world.say(f"{self.host}: asked to stop")
        self._is_stopping, self._is_over = True, for_good
        loop, living = self._loop, self._living
        assert living is not None
        loop.call_soon(living.cancel)

    def _run(self, loop: SimLoop, broker: Broker) -> None:
        del broker
        loop.revision = self.revision
        self._is_stopping = self._is_over = False
        process = f"{self._world.chance.getrandbits(32):08x}"
        self._carrying = Carrying()
        self._living = loop.begin(self._live(loop, process))
        self._dead.append(self._living)

    async def _live(self, loop: SimLoop, process: str) -> None:
        """Life after life, until one fails or is asked to stop."""
        machine = self._machine(loop, process)
        while True:
            ending = asyncio.Event()
            broker = self.broker = SlowBroker(self._config, on_failed=ending.set, machine=machine)
            broker.delays = self.delays
            self._has_door = True
            try:
                await self._one_life(broker, ending)
            except asyncio.CancelledError:
                await broker.stop(self._passed)
                self._ended(loop, "has stopped", has_saved=True)
                return
            except GantryError as error:
                self._world.say(f"{self.host}: could not start: {error}")
            self.is_serving = False
            with contextlib.suppress(GantryError):
                await broker.stop(self._passed)
            if not broker.starts_again:
                if broker.parts is not None and isinstance(broker.parts.store.failed, SyncFailedError):
                    for told in self.on_failed_sync:
                        told(self)
                self._ended(loop, f"the broker ends by itself: {broker.failure}")
                return
            self.lives += 1
            self._world.say(f"{self.host}: the broker starts again")

    def _passed(self, line: int) -> None:
        """A line of the broker's end is done; the fifth closes the door."""
        self._has_door = self._has_door and line < _DOOR_LINE - 1

    def _machine(self, loop: SimLoop, process: str) -> Machine:
        """One for all lives of the process, as in `gantry broker`: what a life leaves to the next goes by its clock."""
        return Machine(
            self.clock,
            self.disk,
            lambda disk: self._new_background(loop)(disk),
            self._reserve,
            self._world.chance,
            lambda: f"boot-{self._boots}",
            process=process,
            register=lambda *_: self._register,
            wanted_s=lambda: 0.0,
            carrying=self._carrying,
        )

    async def _one_life(self, broker: Broker, ending: asyncio.Event) -> None:
        starting, ended = asyncio.ensure_future(broker.start()), asyncio.ensure_future(ending.wait())
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            await starting
            self.is_serving = self._has_served = True
            self._troubles.append((self._died_at, self._world.now))
            for told in self.on_life:
                told(self, broker)
            await ended
        finally:
            ended.cancel()
            if not starting.done():
                starting.cancel()
                await asyncio.wait({starting})

    def _ended(self, loop: SimLoop, why: str, has_saved: bool = False) -> None:
        def end() -> None:
            if self._loop is loop:
                self._world.say(f"{self.host}: {why}")
                self.kill()
                if has_saved and not self.had_trouble(self._world.now, self._world.now):
                    self.died_s.pop()
                if not self._is_over:
                    self._world.after(self._world.chance.uniform(*_BEGINS_S), self.start)

        self._world.after(0.0, end)
