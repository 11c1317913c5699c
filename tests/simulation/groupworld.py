"""A group with a register, as a seed draws it: members, the register's service, coordinators, a name server.

    10.0.0.1 ...    the members, ordinals 0, 1, 2
    10.0.4.1        the name server, a real one, which is killed now and then like everybody
    10.0.5.1        the register's service
    10.0.6.1 ...    one coordinator, or two that do not know of each other
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.failover.coordinator import Group
from gantry.failover.decide import Policy
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from simulation.asking import SimMembers
from simulation.groupmember import GroupMember
from simulation.member import PORT, HostClock
from simulation.network import Network
from simulation.register import RegisterService
from simulation.simloop import SimLoop
from simulation.watching import Watcher

if TYPE_CHECKING:
    from simulation.world import World

NAME_SERVER = "10.0.4.1"
NAME_SERVER_PORT = 9876
HA_PORT = 10912
SUSPECT_S, LEASE_S, RENEW_S = 2.0, 6, 1.0
_SECRET = Path(__file__).with_name("secret")
_SMALL = {
    "store.segment_bytes": 256 << 10,
    "store.queue_file_entries": 100,
    "store.index_slots": 200,
    "store.index_entries": 400,
    "messages.body_bytes_max": 16 << 10,
    "store.flush_interval_ms": 200,
    "store.flush_full_ms": 1000,
    "store.checkpoint_interval_ms": 500,
    "transactions.check_interval_s": 1.0,
    "transactions.immunity_s": 1.0,
    "messages.ack_wait_s": 2.0,
    "registration.period_s": 3.0,
    "registration.timeout_s": 1.0,
    "replication.ack_timeout_s": 2.0,
    "replication.register": "file:/simulated",
    "replication.renew_every_s": RENEW_S,
    "replication.secret_file": str(_SECRET),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of group."""

    members: int
    is_sync_master: bool
    min_in_sync: int
    is_sync_flush: bool
    coordinators: int
    knows_gone: bool  # coordinators see that a process has ended

    def __str__(self) -> str:
        role = "SYNC_MASTER" if self.is_sync_master else "ASYNC_MASTER"
        flush = "SYNC_FLUSH" if self.is_sync_flush else "ASYNC_FLUSH"
        gone = ", deaths are seen" if self.knows_gone else ""
        return (
            f"group of {self.members}, {role}, minInSync {self.min_in_sync}, {flush}, "
            f"{self.coordinators} coordinators{gone}"
        )


def draw(world: World) -> Shape:
    """One of them."""
    chance = world.chance
    members = chance.choice((3, 3, 3, 2))
    is_sync_master = chance.random() < 0.75
    most = (1, 2, 2) if members == 3 else (1,)
    least = chance.choice(most) if is_sync_master else 1
    is_sync_flush = chance.random() < 0.65
    return Shape(members, is_sync_master, least, is_sync_flush, chance.choice((1, 1, 2)), chance.random() < 0.3)


class SimNameServer:
    """A process with a name server."""

    def __init__(self, world: World, network: Network) -> None:
        self._world = world
        self._network = network
        self._loop: SimLoop | None = None
        self._kept: list[object] = []

    def start(self) -> None:
        """A new one, which knows nobody."""
        if self._loop is None:
            loop = self._loop = SimLoop(self._world, self._network, NAME_SERVER)
            settings = NameServerSettings(host=NAME_SERVER, port=NAME_SERVER_PORT, http_port=None)
            server = NameServer(settings, HostClock(self._world))
            loop.call_soon(lambda: self._kept.append(loop.create_task(server.start())))

    def kill(self) -> None:
        """Gone, with all that it knew."""
        if self._loop is not None:
            self._world.say("the name server is killed")
            self._loop.die()
            self._network.process_died(self._loop, True)
            self._kept.append(self._loop)
            self._loop = None


class GroupWorld:
    """Everybody but the clients."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.shape = shape
        self.network = Network(world)
        self.service = RegisterService(world, self.network)
        self.name_server = SimNameServer(world, self.network)
        self.members = [self._member(world, ordinal) for ordinal in range(shape.members)]
        self.watchers = [self._watcher(world, f"10.0.6.{number + 1}") for number in range(shape.coordinators)]

    def _member(self, world: World, ordinal: int) -> GroupMember:
        shape = self.shape
        hosts = [f"10.0.0.{number + 1}" for number in range(shape.members)]
        changes: dict[str, object] = {key.replace(".", "__"): value for key, value in _SMALL.items()}
        changes |= {
            "role": "SYNC_MASTER" if shape.is_sync_master else "ASYNC_MASTER",
            "store__flush": "SYNC_FLUSH" if shape.is_sync_flush else "ASYNC_FLUSH",
            "name_servers": f"{NAME_SERVER}:{NAME_SERVER_PORT}",
            "network__ha_port": HA_PORT,
            "replication__ordinal": ordinal,
            "replication__members": ",".join(f"{host}:{HA_PORT}" for host in hosts),
            "replication__min_in_sync": shape.min_in_sync,
        }
        host = hosts[ordinal]
        return GroupMember(world, self.network, host, self.service.door(host), **changes)

    def _watcher(self, world: World, host: str) -> Watcher:
        shape = self.shape
        policy = Policy(shape.members, shape.min_in_sync, shape.is_sync_master, SUSPECT_S)
        group = Group("5ca1ab1e", "broker-a", tuple(range(shape.members)), policy, LEASE_S)
        asked = SimMembers(self.network, host, self.members, shape.knows_gone)
        return Watcher(world, self.network, host, group, self.service.door(host), asked)

    @property
    def addresses(self) -> list[str]:
        """Of the members, for clients."""
        return [f"{member.host}:{PORT}" for member in self.members]

    def start(self) -> None:
        """All of them."""
        self.name_server.start()
        for member in self.members:
            member.start()
        for watcher in self.watchers:
            watcher.start()

    def calm(self) -> None:
        """No fault is left, and everybody runs."""
        self.network.heal()
        self.network.loss, self.network.slowness = 0.0, 1.0
        self.service.troubles = type(self.service.troubles)()
        self.name_server.start()
        furthest_ms = max(member.clock.ahead_ms for member in self.members)
        for member in self.members:
            member.clock.ahead_ms = furthest_ms  # what one of them has delayed another one may deliver
            member.make_room()
            member.slow_disk(1.0)
            member.calm()
            member.start()
        for watcher in self.watchers:
            watcher.calm()
            watcher.start()

    def leader(self) -> GroupMember | None:
        """Who leads, by the register."""
        record = self.service.record
        if record is None or record.holder is None:
            return None
        return self.members[record.holder.member.ordinal]
