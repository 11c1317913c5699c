"""A group with a register, as a seed draws it: members, the register's service, coordinators, name servers.

    10.0.0.1 ...    the members, ordinals 0, 1, 2 and so on
    10.0.4.1 ...    name servers, real ones; the first one is killed now and then like everybody
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
from gantry.replication.timers import TIMERS, Timers
from simulation.asking import SimMembers
from simulation.groupmember import GroupMember
from simulation.member import PORT, HostClock
from simulation.network import Network
from simulation.register import HOST as REGISTER
from simulation.register import Door, RegisterService
from simulation.simloop import SimLoop
from simulation.watching import Watcher

if TYPE_CHECKING:
    from simulation.world import World

NAME_SERVER = "10.0.4.1"
NAME_SERVER_PORT = 9876
HA_PORT = 10912
SUSPECT_S, LEASE_S = TIMERS["fast"].suspect_after_s, TIMERS["fast"].lease_s
# How often a seed has a group of so many members. With a size comes each minInSync that is smaller, up to _LEAST_MAX.
_SIZES = {2: 2, 3: 7, 4: 2, 5: 2, 6: 1, 7: 1}
_LEAST_MAX = 4
LOCK_S = 6.0  # how long a queue lock lasts, where a run does not say otherwise
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
    "transactions.checks_max": 1000,  # one is asked each second, also while its producer is cut off
    "registration.period_s": 3.0,
    "registration.timeout_s": 1.0,
    "replication.register": "file:/simulated",
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
    timers: Timers = TIMERS["fast"]
    name_servers: int = 1
    lock_s: float = LOCK_S

    @property
    def promised_s(self) -> float:
        """Within so long somebody leads who confirms messages, whatever stays broken while enough members can serve."""
        return 3 * self.timers.suspect_after_s

    def __str__(self) -> str:
        role = "SYNC_MASTER" if self.is_sync_master else "ASYNC_MASTER"
        flush = "SYNC_FLUSH" if self.is_sync_flush else "ASYNC_FLUSH"
        gone = ", deaths are seen" if self.knows_gone else ""
        pace = "" if self.timers == TIMERS["fast"] else f", suspicion after {self.timers.suspect_after_s:g} s"
        return (
            f"group of {self.members}, {role}, minInSync {self.min_in_sync}, {flush}, "
            f"{self.coordinators} coordinators{gone}{pace}"
        )


def draw(world: World) -> Shape:
    """One of them."""
    chance = world.chance
    (members,) = chance.choices(list(_SIZES), weights=list(_SIZES.values()))
    is_sync_master = chance.random() < 0.75
    # The usual one is drawn most often; all members but one are the most that survives a loss.
    most = min(_LEAST_MAX, members - 1)
    least = chance.choice((*range(1, most + 1), min(2, most))) if is_sync_master else 1
    is_sync_flush = chance.random() < 0.65
    return Shape(members, is_sync_master, least, is_sync_flush, chance.choice((1, 1, 2)), chance.random() < 0.3)


class SimNameServer:
    """A process with a name server."""

    def __init__(self, world: World, network: Network, host: str) -> None:
        self.host = host
        self._world = world
        self._network = network
        self._loop: SimLoop | None = None
        self._kept: list[object] = []

    def start(self) -> None:
        """A new one, which knows nobody."""
        if self._loop is None:
            loop = self._loop = SimLoop(self._world, self._network, self.host)
            settings = NameServerSettings(host=self.host, port=NAME_SERVER_PORT, http_port=None)
            server = NameServer(settings, HostClock(self._world))
            loop.call_soon(lambda: self._kept.append(loop.begin(server.start())))

    def kill(self) -> None:
        """Gone, with all that it knew."""
        if self._loop is not None:
            self._world.say(f"{self.host}: the name server is killed")
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
        self.name_servers = [
            SimNameServer(world, self.network, f"10.0.4.{number + 1}") for number in range(shape.name_servers)
        ]
        self.members = [self._member(world, ordinal) for ordinal in range(shape.members)]
        self.watchers = [self._watcher(world, f"10.0.6.{number + 1}") for number in range(shape.coordinators)]

    def _member(self, world: World, ordinal: int) -> GroupMember:
        shape = self.shape
        hosts = [f"10.0.0.{number + 1}" for number in range(shape.members)]
        changes: dict[str, object] = {key.replace(".", "__"): value for key, value in _SMALL.items()}
        changes |= {
            "role": "SYNC_MASTER" if shape.is_sync_master else "ASYNC_MASTER",
            "store__flush": "SYNC_FLUSH" if shape.is_sync_flush else "ASYNC_FLUSH",
            "name_servers": ";".join(self.name_server_addresses),
            "network__ha_port": HA_PORT,
            "clients__queue_lock_s": shape.lock_s,
            "messages__ack_wait_s": shape.timers.suspect_after_s,
            "replication__ack_timeout_s": min(3.0, shape.timers.suspect_after_s),
            "replication__renew_every_s": shape.timers.renew_every_s,
            "replication__ordinal": ordinal,
            "replication__members": ",".join(f"{host}:{HA_PORT}" for host in hosts),
            "replication__min_in_sync": shape.min_in_sync,
        }
        host = hosts[ordinal]
        return GroupMember(world, self.network, host, self._door(host), **changes)

    def _door(self, host: str) -> Door:
        return self.service.door(host, self.shape.timers.answer_within_s)

    def _watcher(self, world: World, host: str) -> Watcher:
        shape = self.shape
        policy = Policy(shape.members, shape.min_in_sync, shape.is_sync_master, shape.timers.suspect_after_s)
        group = Group("5ca1ab1e", "broker-a", tuple(range(shape.members)), policy, shape.timers.lease_s)
        asked = SimMembers(self.network, host, self.members, shape.knows_gone)
        poll_s = shape.timers.poll_every_s
        return Watcher(world, self.network, host, group, self._door(host), asked, poll_s)

    @property
    def addresses(self) -> list[str]:
        """Of the members, for clients."""
        return [f"{member.host}:{PORT}" for member in self.members]

    @property
    def hosts(self) -> set[str]:
        """Everybody's but the clients'."""
        here = {REGISTER, *(member.host for member in self.members), *(server.host for server in self.name_servers)}
        return here | {watcher.host for watcher in self.watchers}

    @property
    def name_server_addresses(self) -> list[str]:
        """Of the name servers."""
        return [f"{server.host}:{NAME_SERVER_PORT}" for server in self.name_servers]

    def start(self) -> None:
        """All of them."""
        for server in self.name_servers:
            server.start()
        for member in self.members:
            member.start()
        for watcher in self.watchers:
            watcher.start()

    def calm(self) -> None:
        """No fault is left, and everybody runs."""
        self.network.heal()
        self.network.loss, self.network.slowness = 0.0, 1.0
        self.service.troubles = type(self.service.troubles)()
        for server in self.name_servers:
            server.start()
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
