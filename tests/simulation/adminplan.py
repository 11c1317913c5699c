"""One run of a group in which one thing is slow, or hangs, and stays so; administrators are answered in time.

`slowplan` asks for messages.  Here it is changes of topics and groups, groups' first offsets and locks: their answers
wait until the slaves have them.  From three times the suspicion on, more than 99 of 100 of these calls are answered
with "done" within the three seconds of a client (`steadyadmin`), whatever is slow:

    the disk of a slave or of the master, a link, the register      as in `slowplan`
    the disk of a slave hangs                                       its links stay, so that it is connected for ever
    a name server                                                   a created topic is announced to it

Then the member that leads loses its power while the fault still stands, and the next one has to have everything that
was answered with "done".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from gantry.failover.decide import MARGIN_S
from simulation.groupworld import NAME_SERVER, NAME_SERVER_PORT, Shape
from simulation.register import Troubles
from simulation.routes import ByRoute
from simulation.slowplan import SECONDS, Fault, SlowRun
from simulation.steady import CALL_S
from simulation.steadyadmin import SteadyAdministrator
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Consumer, Producer
    from simulation.groupmember import GroupMember

_LEADS_S = 30.0
_HANGS = 5  # so many times as often as another fault


class AdminRun(SlowRun):
    """One seed."""

    def _shape(self, shape: Shape) -> Shape:
        # Under ASYNC_FLUSH nothing measures how slow a master's disk is, and its tables are as late as it.
        return super()._shape(replace(shape, is_sync_flush=True))

    def _more_producers(self) -> list[Producer]:
        return []

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        route = f"{NAME_SERVER}:{NAME_SERVER_PORT}"
        self._administrators = [
            SteadyAdministrator(self.world, self.group.network, f"10.0.1.{number}", ByRoute(route)) for number in (5, 6)
        ]
        self._judged = {one.host: one.calls for one in self._administrators}
        for one in self._administrators:
            one.run(one.main)
        return super()._clients()

    def _faults_of(self, leader: GroupMember) -> list[Fault]:
        slave = self.world.chance.choice([member for member in self.group.members if member is not leader])
        seconds = self.world.chance.choice(SECONDS)
        ways = [way for one in self.group.members for way in ((one.host, NAME_SERVER), (NAME_SERVER, one.host))]
        return [
            *super()._faults_of(leader),
            *_HANGS * [Fault("the disk of a slave hangs", slave.hang_disk)],
            Fault(f"both ways to a name server take {seconds:g} s", lambda: self._delay(ways, seconds)),
        ]

    def _end(self) -> None:
        for one in self._administrators:
            one.is_stopped = True
        self._run(CALL_S + 0.1)
        leader, record = self._settled_leader(), self.group.service.record
        if record is None or len(record.in_sync) == 1:
            self.world.say("nobody else could lead")
            return
        self.group.service.troubles = Troubles()  # another master is promised where the register answers
        leader.cut_power()
        if not self.world.run(self.world.now + self._leads_s, lambda: self._next(leader) is not None):
            raise Broken(f"nobody leads within {self._leads_s:g} s after {leader.host} was lost")
        self._check()
        following = self._next(leader)
        assert following is not None
        self._compare_answered(following)

    @property
    def _leads_s(self) -> float:
        return _LEADS_S + self.group.shape.timers.lease_s + MARGIN_S

    def _next(self, lost: GroupMember) -> GroupMember | None:
        leader = self.group.leader()
        parts = leader.broker.parts if leader is not None and leader.broker is not None else None
        is_led = leader is not lost and parts is not None and isinstance(parts.group, MasterRole)
        return leader if is_led else None

    def _compare_answered(self, leader: GroupMember) -> None:
        parts = leader.broker.parts if leader.broker is not None else None
        assert parts is not None
        known = {name: value for one in self._administrators for name, value in one.known.items()}
        for (kind, name), value in known.items():
            if kind == "topic":
                topic = parts.topics.get(name)
                found = None if topic is None else topic.read_queues
            else:
                group = parts.groups.get(name)
                found = None if group is None else group.retry_times_max
            if found != value:
                raise Broken(f"{kind} {name} was made {value}, and {leader.host}, which leads next, has {found}")
        self.world.say(f"{leader.host} has all {len(known)} topics and groups as they were answered")
