"""One run of a group of which one member is struck by a fault that stays for minutes; somebody leads all the same.

`standingplan` has faults of masters and ways, which end with the next answer.  These are faults of disks and links,
and they do not end while progress is asked for.  The other members are enough to serve.  So within three times the
suspicion somebody leads who takes writes and confirms them, and no later time without that is longer.

    the disk of a slave is full         with no byte left, with a little, or with some messages' worth
    its disk hangs                      no job and no sync ends
    its link fails after each welcome   it cannot take the first chunk, or the first change of metadata
    the master's disk hangs             the same as for a slave, to anyone who led when the fault began
    a newer master                      tells of a table that nobody knows

A member that is struck stays so over its lives and its promotions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.errors import CorruptRecordError
from gantry.failover.decide import MARGIN_S
from simulation.groupworld import LEASE_S, Shape
from simulation.ledplan import PROMISED_S, LedRun

if TYPE_CHECKING:
    from gantry.broker.broker import Broker
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

STANDS_S = (45.0, 90.0)
_SETTLES_S = 4.0  # a fault begins in a group whose members are in sync
_ANSWERED_S = 20.0  # clients find a new master by their time-outs
Strike = Callable[["GroupMember"], None]


class StruckRun(LedRun):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        """One member can be missed."""
        return replace(shape, min_in_sync=min(shape.min_in_sync, shape.members - 1))

    @property
    def _without_s(self) -> float:
        """How long the group may be without a master that works."""
        shape = self.group.shape
        is_silent = shape.is_sync_master and shape.min_in_sync > 1
        # The former master acknowledges alone until its lease ends, and one whose disk hangs promises nothing.
        return PROMISED_S + (0.0 if is_silent else LEASE_S + MARGIN_S)

    def _go_wrong(self, producers: list[Producer]) -> None:
        world, group = self.world, self.group
        world.run(world.now + _SETTLES_S, lambda: bool(world.problems))
        leader = self._settled_leader()
        slaves = [member for member in group.members if member is not leader]
        name, strike, struck = world.chance.choice(self._faults_of(leader, slaves))
        world.say(f"{struck.host}: {name}, and that stays")
        self._faults.count += 1
        before = list(struck.on_life)
        strike(struck)
        self._somebody_leads(name, world.chance.choice(STANDS_S), self._without_s)
        self._until_answered(producers, _ANSWERED_S, f"{name}, which stands")
        struck.on_life[:] = before
        struck.kill()  # what was done to its broker ends with it

    def _faults_of(
        self, leader: GroupMember, slaves: list[GroupMember]
    ) -> list[tuple[str, Callable[[GroupMember], None], GroupMember]]:
        chance = self.world.chance
        slave, room = chance.choice(slaves), chance.choice((0, 4096, 50_000, 300_000))
        return [
            (f"{room} bytes are left", lambda member: member.fill_disk(room), slave),
            ("its disk hangs", hang, slave),
            ("it cannot take a chunk", _each_life(damage), slave),
            ("it cannot take a change of metadata", _each_life(refuse), slave),
            ("its disk hangs", hang, leader),
            ("it is of a newer version", _each_life(renew), leader),
        ]


def _each_life(do: Callable[[Broker], None]) -> Strike:
    """Strike this life of the member and each that follows."""

    def life(member: GroupMember, broker: Broker) -> None:
        do(broker)

    def strike(member: GroupMember) -> None:
        member.on_life.append(life)
        if member.broker is not None and member.broker.parts is not None:
            do(member.broker)

    return strike


def hang(member: GroupMember) -> None:
    """No job of the disk that begins from now on ends."""
    member.hang_disk()


def damage(broker: Broker) -> None:
    """What the master sends is damaged on its way into this member's memory."""
    assert broker.parts is not None

    def append_raw(start: int, data: memoryview) -> int:
        raise CorruptRecordError(f"{len(data)} bytes for {start} do not have the checksum that they should have")

    broker.parts.store.append_raw = append_raw  # type: ignore[method-assign]


def refuse(broker: Broker) -> None:
    """The first words of each link are refused."""
    assert broker.parts is not None

    def apply(number: int, changes: list[object]) -> None:
        raise ValueError(f"{len(changes)} changes up to {number} cannot be")

    if isinstance(broker.parts.group, SlaveRole):
        broker.parts.group.apply = apply  # type: ignore[method-assign]


def renew(broker: Broker) -> None:
    """While this member leads it tells of a table of tomorrow."""
    assert broker.parts is not None
    if isinstance(broker.parts.group, MasterRole):
        broker.parts.group._journal.carry("of tomorrow", ["a thing"], lambda key: {"value": key})
