"""One run of a group in which one thing is slow and stays so; producers are answered in time all the same.

`standingplan` and `struckplan` ask whether somebody leads who confirms messages.  A client wants more: SEND_OK within
its three seconds.  So producers that send at a steady rate (`steady`) judge here: from three times the suspicion on,
more than 99 of 100 of their calls end well, whatever is slow:

    the disk of a slave or of the master      each sync of the log, or each job, takes from 0.1 s to 20 s
    its link to one member, or to everybody   in one direction or both, from 0.1 s to 20 s later
    the register                              answers reads, writes or both after 0.1 s to 20 s

The group has one member more than it needs, and its timers are the default ones.  `LinkedRun` makes all links
between the master and its slaves slow: a fault of the master's machine that only its slaves notice.  What it draws may
be given instead (`Links`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gantry.failover.decide import MARGIN_S
from gantry.replication.timers import TIMERS
from simulation.groupplan import PLACES, GroupRun
from simulation.groupworld import Shape
from simulation.register import Troubles
from simulation.steady import CALL_S, Call, Steady, share_ok, why_not
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

SECONDS = (0.1, 0.5, 1.0, 2.0, 3.3, 4.0, 4.8, 6.0, 9.0, 12.0, 20.0)
SHARE_OK = 0.99
_SETTLES_S = 4.0  # a fault begins in a group whose members are in sync
_JUDGED_S = 30.0


class Fault(NamedTuple):
    """What becomes slow."""

    name: str
    begin: Callable[[], None]


class SlowRun(GroupRun):
    """One seed."""

    _judged: dict[str, list[Call]]  # by client

    def _shape(self, shape: Shape) -> Shape:
        return replace(shape, timers=TIMERS["default"])

    def _more_producers(self) -> list[Producer]:
        world, network = self.world, self.group.network
        steady = [Steady(world, network, f"10.0.1.{number}", self._route(), self._ledger, PLACES) for number in (5, 6)]
        self._judged = {one.host: one.calls for one in steady}
        return [*steady]

    @property
    def _judged_after_s(self) -> float:
        shape = self.group.shape
        is_silent = shape.is_sync_master and shape.min_in_sync > 1
        # Another master waits for the lease of a former one that may acknowledge alone.
        return shape.promised_s + (0.0 if is_silent else shape.timers.lease_s + MARGIN_S)

    def _go_wrong(self, producers: list[Producer]) -> None:
        self._run(_SETTLES_S)
        leader = self._settled_leader()
        fault = self.world.chance.choice(self._faults_of(leader))
        self.world.say(f"{fault.name}, and that stays")
        self._faults.count += 1
        fault.begin()
        self._judge(fault.name, self._judged_after_s)
        self._end()

    def _judge(self, name: str, after_s: float) -> None:
        """Broken unless calls that begin from then on end well."""
        self._run(after_s)
        begun_s = self.world.now
        self._run(_JUDGED_S)
        until_s = self.world.now
        self._run(CALL_S + 0.1)
        for host, calls in self._judged.items():
            well, count = share_ok(calls, begun_s, until_s)
            self.world.say(f"{host}: {well} of {count} calls ended well")
            if well <= SHARE_OK * count:
                told = why_not(calls, begun_s)
                raise Broken(f"{name}: {well} of {count} calls of {host} ended well; most often told: {told}")

    def _end(self) -> None:
        """The fault is over; what it kept up may take as long again."""

    def _faults_of(self, leader: GroupMember) -> list[Fault]:
        chance = self.world.chance
        slave = chance.choice([member for member in self.group.members if member is not leader])
        seconds = chance.choice(SECONDS)
        return [
            *self._of_disk(slave, "a slave", seconds),
            *self._of_disk(leader, "the master", seconds),
            *self._of_links(slave, leader, seconds),
            *self._of_register(seconds),
        ]

    def _of_disk(self, member: GroupMember, who: str, seconds: float) -> list[Fault]:
        return [
            Fault(f"each sync of {who} takes {seconds:g} s", lambda: member.delay_disk(seconds, 0.0)),
            Fault(f"each job of the disk of {who} takes {seconds:g} s", lambda: member.delay_disk(seconds, seconds)),
        ]

    def _of_links(self, slave: GroupMember, leader: GroupMember, seconds: float) -> list[Fault]:
        way, back = (leader.host, slave.host), (slave.host, leader.host)
        of_slave = self._ways_of(slave)
        of_master = self._ways_of(leader)
        return [
            Fault(f"a slave hears its master {seconds:g} s late", lambda: self._delay([way], seconds)),
            Fault(f"the master hears a slave {seconds:g} s late", lambda: self._delay([back], seconds)),
            Fault(f"both ways of a slave's link take {seconds:g} s", lambda: self._delay([way, back], seconds)),
            Fault(f"everything from and to a slave takes {seconds:g} s", lambda: self._delay(of_slave, seconds)),
            Fault(f"everything from and to the master takes {seconds:g} s", lambda: self._delay(of_master, seconds)),
        ]

    def _of_register(self, seconds: float) -> list[Fault]:
        def begin(reads_s: float, writes_s: float) -> Callable[[], None]:
            return lambda: setattr(self.group.service, "troubles", Troubles(read_s=reads_s, write_s=writes_s))

        return [
            Fault(f"the register answers reads after {seconds:g} s", begin(seconds, 0.0)),
            Fault(f"the register answers writes after {seconds:g} s", begin(0.0, seconds)),
            Fault(f"the register answers after {seconds:g} s", begin(seconds, seconds)),
        ]

    def _ways_of(self, member: GroupMember) -> list[tuple[str, str]]:
        others = self.group.hosts | {f"10.0.{kind}.{number}" for kind in (1, 2) for number in range(7)}
        return [way for other in others - {member.host} for way in ((member.host, other), (other, member.host))]

    def _delay(self, ways: list[tuple[str, str]], seconds: float) -> None:
        for way in ways:
            self.group.network.delay(*way, seconds)


class Links(NamedTuple):
    """Which links are how slow, in which group. ways: "both", "out" (from the master) or "in" (to it)."""

    members: int
    min_in_sync: int
    ways: str
    seconds: float

    @classmethod
    def read(cls, text: str) -> Links:
        """Return what MEMBERS/MINIMUM/WAYS/SECONDS says, as "3/2/both/4.7"."""
        members, least, ways, seconds = text.split("/")
        return cls(int(members), int(least), ways, float(seconds))


class LinkedRun(SlowRun):
    """One seed in which all links between the master and its slaves are slow, and nothing else is."""

    def __init__(self, seed: int, links: Links | None = None) -> None:
        self._links = links
        super().__init__(seed)

    def _shape(self, shape: Shape) -> Shape:
        shape = replace(super()._shape(shape), is_sync_master=True)
        if self._links is not None:
            return replace(shape, members=self._links.members, min_in_sync=self._links.min_in_sync)
        least = max(2, shape.min_in_sync)
        return replace(shape, min_in_sync=least, members=max(shape.members, least + 1))

    def _faults_of(self, leader: GroupMember) -> list[Fault]:
        if self._links is None:
            return [self._of_all_links(leader, "both", self.world.chance.choice(SECONDS))]
        return [self._of_all_links(leader, self._links.ways, self._links.seconds)]

    def _of_all_links(self, leader: GroupMember, which: str, seconds: float) -> Fault:
        slaves = [member.host for member in self.group.members if member is not leader]
        ways = {"out": [(leader.host, slave) for slave in slaves], "in": [(slave, leader.host) for slave in slaves]}
        ways["both"] = ways["out"] + ways["in"]
        return Fault(f"{which}: each slave's link takes {seconds:g} s", lambda: self._delay(ways[which], seconds))
