"""One run of a group with a register: everybody at work, faults from the seed, then quiet, and the comparison.

    until a master answers      the group is made: an empty register, empty disks
    then for one of FAULTS_S    something goes wrong every few seconds; `witness` looks on all the time
    then                        nothing goes wrong any more: within _SETTLE_S a master answers every producer
    at the end                  producers stop, what is owed is delivered within _OWED_S; a while later every queue is
                                read and compared with what producers were told; all logs are equal, and every member
                                gives the same messages

Files of queues and of the index are small, so that a run has many of each: they begin and end in the middle of it, and
a disk that loses its power is copied in no time.
"""

from __future__ import annotations

import random
from dataclasses import replace

from simulation.clients import Consumer, Producer, TransactionalProducer
from simulation.groupfaults import GroupFaults
from simulation.groupmember import GroupMember
from simulation.groupworld import NAME_SERVER, NAME_SERVER_PORT, GroupWorld, Shape, draw
from simulation.ledger import Found, Ledger, Place
from simulation.plan import Outcome
from simulation.routes import Always, ByRoute, Route, TryAll
from simulation.sinks import Sink
from simulation.witness import Witness
from simulation.world import Broken, World

FAULTS_S = (20.0, 30.0, 45.0)
_BEGIN_S = 30.0
_SETTLE_S = 90.0
_OWED_S = 30.0  # questions are asked and answered, delays are over
_LATER_S = 5.0  # what is asked or delivered once more would be by then
_FAULT_EVERY_S = 2.2
PLACES: list[Place] = [("orders", 0), ("orders", 1), ("payments", 0)]


class GroupRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        self._seed = seed
        shape = self._shape(draw(world))
        self.group = GroupWorld(world, shape)
        self._ledger = Ledger(is_sync=True, is_whole=True)
        self.witness = Witness(world, self.group.service, self.group.members, self._ledger, shape)
        self._faults = GroupFaults(world, self.group, self.witness)
        self._knows_routes = world.chance.random() < 0.5
        world.say(f"seed {seed}: {shape}")

    def play(self) -> Outcome:
        """From the first moment to the comparison; Broken when a promise is."""
        world = self.world
        self.group.start()
        producers, consumers = self._clients()
        for client in (*producers, *consumers):
            client.run(client.main)
        self._until_answered(producers, _BEGIN_S, "the group was started")
        self._go_wrong(producers)
        self.group.calm()
        world.say("faults are over")
        self._until_answered(producers, _SETTLE_S, "the last fault")
        for producer in producers:
            producer.is_stopped = True
        self._finished(producers)
        until = world.now + _OWED_S
        while self._ledger.owes() and world.now < until:
            self._run(1.0)
        self._run(_LATER_S)
        leader = self._settled_leader()
        summary = self._ledger.check(self._read_all(leader))
        for member in self.group.members:
            if member is not leader:
                self._compare(member, leader)
        self._offsets(leader)
        self._check()
        lives = sum(member.lives for member in self.group.members)
        shape = f"{self.group.shape}: {self.witness.failovers} failovers, {summary}"
        return Outcome(self._seed, shape, self._faults.count, lives, world.trace)

    def _go_wrong(self, producers: list[Producer]) -> None:
        """Faults for a while, whatever producers are told meanwhile."""
        del producers
        faults_s = self.world.chance.choice(FAULTS_S)
        self._next_fault(self.world.now + faults_s)
        self._run(faults_s)

    def _shape(self, shape: Shape) -> Shape:
        return shape

    def _more_producers(self) -> list[Producer]:
        return []

    def _finished(self, producers: list[Producer]) -> None:
        """Wait for producers that have begun something."""

    def _check(self) -> None:
        if self.world.problems:
            raise Broken(self.world.problems[0])

    def _run(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds, lambda: bool(self.world.problems))
        self._check()

    def _until_answered(self, producers: list[Producer], patience_s: float, what: str) -> None:
        world = self.world
        before = {producer.host: producer.acked for producer in producers}

        def is_over() -> bool:
            return bool(world.problems) or all(one.acked > before[one.host] + 1 for one in producers)

        begun = world.now
        is_done = world.run(world.now + patience_s, is_over)
        self._check()
        if not is_done:
            slow = [one.host for one in producers if one.acked <= before[one.host] + 1]
            raise Broken(f"nothing was acknowledged to {slow} within {patience_s:g} s after {what}")
        world.say(f"everybody is answered, {world.now - begun:.1f} s after {what}")

    def _settled_leader(self) -> GroupMember:
        leader = self.group.leader()
        if leader is None:
            raise Broken("nobody leads")
        return leader

    # -- clients

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        world, network, ledger = self.world, self.group.network, self._ledger
        producers = [
            Producer(world, network, "10.0.1.1", self._route(), ledger, PLACES),
            Producer(world, network, "10.0.1.2", self._route(), ledger, PLACES),
            TransactionalProducer(world, network, "10.0.1.3", self._route(), ledger, PLACES),
            *self._more_producers(),
        ]
        for producer in producers:
            producer.wall_ms = self._wall_ms
            producer.beats_to = self.group.addresses
            producer.pause_s = world.chance.choice((0.05, 0.2, 0.5))
        consumers = [
            Consumer(world, network, f"10.0.2.{number}", self._route(is_reader=True), ledger, place)
            for number, place in enumerate(PLACES)
        ]
        for consumer in consumers:
            consumer.group = "readers"
        return producers, consumers

    def _wall_ms(self) -> int:
        """By the clock of who leads, which decides when delays are over."""
        return (self.group.leader() or self.group.members[0]).clock.now_ms()

    def _route(self, is_reader: bool = False) -> Route:
        chance = random.Random(self.world.chance.getrandbits(64))
        if self._knows_routes:
            return ByRoute(f"{NAME_SERVER}:{NAME_SERVER_PORT}", is_reader)
        return TryAll(self.group.addresses, chance)

    # -- the end

    def _read_all(self, member: GroupMember) -> dict[Place, list[Found]]:
        log: dict[Place, list[Found]] = {}
        for number, place in enumerate(PLACES):
            host = f"10.0.3.{number}"
            reader = Consumer(self.world, self.group.network, host, Always(member.address), self._ledger, place)
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

    def _compare(self, member: GroupMember, leader: GroupMember) -> None:
        """It has what the leader has."""
        world = self.world
        if not world.run(world.now + _SETTLE_S, lambda: member.confirmed == leader.confirmed > 0):
            raise Broken(f"{member.host} has {member.confirmed} confirmed and {leader.host} {leader.confirmed}")
        theirs, own = member.log(), leader.log()
        common = sorted(theirs.keys() & own.keys())
        if not common or common[-1] != max(own):
            raise Broken(f"{member.host} has other segments: {sorted(theirs)} and not {sorted(own)}")
        for name in common:
            if theirs[name] != own[name]:
                raise Broken(f"{member.host}: segment {name} is not that of {leader.host}")
        if self._read_all(member) != self._read_all(leader):
            raise Broken(f"{member.host} gives other messages than {leader.host}")

    def _offsets(self, leader: GroupMember) -> None:
        """No reader's offset counts what is not there."""
        broker = leader.broker
        parts = broker.parts if broker is not None else None
        if parts is None:
            raise Broken(f"{leader.host} leads and does not run")
        for key in parts.offsets.keys():  # noqa: SIM118  a method of its own
            topic = key.partition("@")[0]
            for queue_id, offset in (parts.offsets.value(key) or {}).items():
                end = parts.store.next_queue_offset(topic, int(queue_id))
                if offset > end and self._ledger.is_sync:
                    raise Broken(f"{key}: offset {offset} of queue {queue_id}, which ends at {end}")

    # -- faults

    def _next_fault(self, until_s: float) -> None:
        def strike() -> None:
            if self.world.now < until_s:
                self._faults.one()
                self._next_fault(until_s)

        self.world.after(self.world.chance.expovariate(1 / _FAULT_EVERY_S), strike)


class SinkRun(GroupRun):
    """The same, and a sink that writes batches; what was acknowledged is never lost in such a group."""

    def _shape(self, shape: Shape) -> Shape:
        return replace(shape, is_sync_master=True, is_sync_flush=True)

    def _more_producers(self) -> list[Producer]:
        return [Sink(self.world, self.group.network, "10.0.1.4", self._route(), self._ledger, PLACES)]

    def _finished(self, producers: list[Producer]) -> None:
        sinks = [one for one in producers if isinstance(one, Sink)]
        if not self.world.run(self.world.now + _SETTLE_S, lambda: all(one.is_idle for one in sinks)):
            raise Broken(f"a batch was not done within {_SETTLE_S:g} s after the last fault")
        self.world.say(f"{sum(one.done for one in sinks)} batches are done")
