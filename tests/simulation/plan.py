"""One run: a broker or a master with slaves, clients, faults from the seed, then quiet, and the comparison.

    0 .. FAULTS_S       clients at work, something goes wrong every few seconds
    then                ways are healed, the disk is large and quick, the broker runs: everybody has to get on
    at the end          producers stop, what is owed is delivered, every queue is read from its beginning and compared;
                        slaves have the master's log, byte by byte, and give the same messages
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simulation.clients import Consumer, Producer, TransactionalProducer
from simulation.ledger import Found, Ledger, Place
from simulation.member import Member
from simulation.network import Network
from simulation.world import Broken, World

FAULTS_S = 30.0
HA_PORT = 10912
_SECRET = Path(__file__).with_name("secret")
_SETTLE_S = 60.0
_PLACES: list[Place] = [("orders", 0), ("orders", 1), ("payments", 0)]
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
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was."""

    seed: int
    summary: str
    faults: int
    lives: int
    trace: list[str]


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self._seed = seed
        chance = self.world.chance
        self._network = Network(self.world)
        self._flush = chance.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"))
        self._ledger = Ledger(is_sync=self._flush == "SYNC_FLUSH")
        self._faults = 0
        self._role = chance.choice(("SYNC_MASTER", "ASYNC_MASTER"))
        self._member = self._make(chance.choice((0, 0, 1, 2)))
        self._member.on_power_cut.append(self._ledger.cut)
        self.world.say(f"seed {seed}: {self.shape}")

    @property
    def shape(self) -> str:
        """What plays."""
        slaves = len(self._members) - 1
        return f"{self._role} with {slaves} slaves, {self._flush}" if slaves else self._flush

    def _make(self, slaves: int) -> Member:
        """The master and its slaves; the master."""
        changes: dict[str, object] = {key.replace(".", "__"): value for key, value in _SMALL.items()}
        changes["store__flush"] = self._flush
        if slaves:
            changes |= {"replication__secret_file": str(_SECRET), "replication__ack_timeout_s": 2.0}
        master = Member(self.world, self._network, "10.0.0.1", **changes, **({"role": self._role} if slaves else {}))
        self._members = [master]
        for number in range(1, slaves + 1):
            changes |= {"role": "SLAVE", "id": number, "replication__master": f"{master.host}:{HA_PORT}"}
            self._members.append(Member(self.world, self._network, f"10.0.0.{number + 1}", **changes))
        return master

    def play(self) -> Outcome:
        """From the first moment to the comparison; Broken when a promise is."""
        world = self.world
        for member in self._members:
            member.start()
        producers, consumers = self._clients()
        for client in (*producers, *consumers):
            client.run(client.main)
        self._next_fault()
        world.run(FAULTS_S)
        self._quiet()
        world.say("faults are over")
        if world.problems:
            raise Broken(world.problems[0])
        before = {producer.host: producer.acked for producer in producers}
        if not world.run(world.now + _SETTLE_S, lambda: all(one.acked > before[one.host] + 1 for one in producers)):
            slow = [one.host for one in producers if one.acked <= before[one.host] + 1]
            raise Broken(f"nothing was acknowledged to {slow} for {_SETTLE_S:g} s after the last fault")
        for producer in producers:
            producer.is_stopped = True
        world.run(world.now + 30.0)  # questions are asked and answered, delays are over
        summary = self._ledger.check(self._read_all(self._member))
        for slave in self._members[1:]:
            self._compare(slave)
        if world.problems:
            raise Broken(world.problems[0])
        lives = sum(member.lives for member in self._members)
        return Outcome(self._seed, f"{self.shape}: {summary}", self._faults, lives, world.trace)

    # -- clients

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        world, network, address, ledger = self.world, self._network, self._member.address, self._ledger
        producers = [
            Producer(world, network, "10.0.1.1", address, ledger, _PLACES),
            Producer(world, network, "10.0.1.2", address, ledger, _PLACES),
            TransactionalProducer(world, network, "10.0.1.3", address, ledger, _PLACES),
        ]
        for producer in producers:
            producer.wall_ms = self._member.clock.now_ms
            producer.pause_s = world.chance.choice((0.02, 0.1, 0.3))
        consumers = [
            Consumer(world, network, f"10.0.2.{number}", address, ledger, place) for number, place in enumerate(_PLACES)
        ]
        return producers, consumers

    def _read_all(self, member: Member) -> dict[Place, list[Found]]:
        log: dict[Place, list[Found]] = {}
        for number, place in enumerate(_PLACES):
            reader = Consumer(self.world, self._network, f"10.0.3.{number}", member.address, self._ledger, place)
            log[place] = self._read_one(reader)
        return log

    def _read_one(self, reader: Consumer) -> list[Found]:
        found: list[Found] = []
        ended: list[bool] = []

        async def main() -> None:
            while (more := await reader.read(0)) is not None:
                found.extend(more)
            ended.append(True)

        reader.run(main)
        if not self.world.run(self.world.now + 30.0, lambda: bool(ended)):
            raise Broken(f"{reader.host} could not read its queue to the end")
        return found

    def _compare(self, slave: Member) -> None:
        """A slave has what the master has."""
        master = self._member
        if not self.world.run(self.world.now + _SETTLE_S, lambda: slave.confirmed == master.confirmed):
            raise Broken(f"{slave.host} has {slave.confirmed} confirmed and the master {master.confirmed}")
        theirs, own = slave.log(), master.log()
        common = sorted(theirs.keys() & own.keys())
        if not common or common[-1] != max(own):
            raise Broken(f"{slave.host} has other segments: {sorted(theirs)} and not {sorted(own)}")
        for name in common:
            if theirs[name] != own[name]:
                raise Broken(f"{slave.host}: segment {name} is not the master's")
        if self._read_all(slave) != self._read_all(master):
            raise Broken(f"{slave.host} gives other messages than the master")

    # -- faults

    def _next_fault(self) -> None:
        self.world.after(self.world.chance.expovariate(1 / 2.0), self._fault)

    def _fault(self) -> None:
        if self.world.now >= FAULTS_S:
            return
        self._faults += 1
        self.world.chance.choice(self._kinds())()
        self._next_fault()

    def _kinds(self) -> list[Callable[[], None]]:
        chance = self.world.chance
        member = chance.choice(self._members)
        return [
            lambda: self._kill(member),
            lambda: self._kill(member),
            lambda: self._cut_power(member),
            lambda: self._cut_power(member),
            lambda: member.pause(chance.choice((0.05, 0.5, 4.0))),
            lambda: self._cut_a_way(member.host),
            lambda: member.fail_next(chance.choice(("sync", "sync", "write", "sync folder"))),
            lambda: self._fill_disk(member),
            lambda: self._slow_disk(member),
            lambda: self._jump(member),
            member.stop,
        ]

    def _kill(self, member: Member) -> None:
        member.kill()
        self._start_soon(member)

    def _cut_power(self, member: Member) -> None:
        if member is self._member and len(self._members) > 1 and not self._ledger.is_sync:
            # It would come back without what its slaves know to be confirmed, and a static group waits for a person.
            member.kill()
        else:
            self.world.chance.choice((member.cut_power, member.cut_power_in_a_write))()
        self._start_soon(member)

    def _start_soon(self, member: Member) -> None:
        self.world.after(self.world.chance.choice((0.1, 0.5, 3.0)), member.start)

    def _cut_a_way(self, host: str) -> None:
        chance = self.world.chance
        others = [f"10.0.{kind}.{number}" for kind in (1, 2) for number in range(4)]
        others += 3 * [member.host for member in self._members if member.host != host]
        other = chance.choice(others)
        ways = chance.choice(([(host, other)], [(other, host)], [(host, other), (other, host)]))
        for way in ways:
            self.world.say(f"cut {way[0]} -> {way[1]}")
            self._network.cut(*way)
        self.world.after(chance.choice((0.2, 2.0, 8.0)), self._network.heal)

    def _fill_disk(self, member: Member) -> None:
        chance = self.world.chance
        member.fill_disk(chance.choice((0, 4096, 50_000, 300_000)))
        self.world.after(chance.choice((1.0, 4.0)), member.make_room)

    def _slow_disk(self, member: Member) -> None:
        slowness = self.world.chance.choice((5.0, 50.0))
        self.world.say(f"{member.host}: the disk is {slowness:g} times slower")
        member.slow_disk(slowness)
        self.world.after(2.0, lambda: member.slow_disk(1.0))

    def _jump(self, member: Member) -> None:
        by_ms = self.world.chance.choice((-3000, -200, 1000, 60_000))
        self.world.say(f"{member.host}: the wall clock jumps by {by_ms} ms")
        member.clock.ahead_ms += by_ms

    def _quiet(self) -> None:
        self._network.heal()
        for member in self._members:
            member.make_room()
            member.slow_disk(1.0)
            member.calm()
            member.start()
