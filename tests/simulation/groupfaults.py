"""What goes wrong in a simulated group: one fault every few seconds, drawn from the seed.

Most of them strike the master, because that is where something happens.  A disk is only lost, and under SYNC_FLUSH
only, while somebody else of the in-sync set has everything: nothing protects from losing all copies.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from gantry.replication import haapi
from gantry.replication.record import Phase, RegisterRecord
from simulation.groupworld import NAME_SERVER, GroupWorld
from simulation.register import HOST as REGISTER
from simulation.register import Troubles
from simulation.watching import STEPS

if TYPE_CHECKING:
    from simulation.groupmember import GroupMember
    from simulation.witness import Witness
    from simulation.world import World

_BACK_S = (0.1, 0.5, 4.0, 8.0, 12.0)
_CUT_S = (0.2, 3.0, 6.0, 9.0, 12.0)
_SET_BACK_S = 12.0
Fault = Callable[[], None]


class GroupFaults:
    """Chooses and does."""

    def __init__(self, world: World, group: GroupWorld, witness: Witness) -> None:
        self.count = 0
        self._world = world
        self._group = group
        self._witness = witness
        self._had_accident = False  # of the register: one is enough
        self._quiet_until = 0.0

    def one(self) -> None:
        """The next."""
        if self._world.now < self._quiet_until:
            return
        self.count += 1
        chance = self._world.chance
        leader = self._group.leader()
        member = leader if leader is not None and chance.random() < 0.55 else chance.choice(self._group.members)
        families = (self._processes, self._disks, self._ways, self._ways, self._others, self._masters, self._masters)
        chance.choice(chance.choice(families)(member))()

    # -- who leads is away for long enough

    def _masters(self, member: GroupMember) -> list[Fault]:
        leader = self._group.leader() or member
        return [
            lambda: self._away(leader),
            lambda: self._away(leader),
            lambda: self._away(leader, has_power=False),
            lambda: leader.pause(self._world.chance.choice((6.0, 10.0))),
            self._arm_watcher_and_kill_leader,
            lambda: self._hand_over(leader),
            lambda: self._hand_over(leader),
            lambda: self._hand_over(leader),
            lambda: self._alone_with_clients(leader),
            lambda: self._alone_with_clients(leader),
        ]

    def _away(self, member: GroupMember, has_power: bool = True) -> None:
        if has_power:
            member.kill()
        else:
            member.cut_power_in_a_write()
        self._world.after(self._world.chance.choice((6.0, 9.0, 15.0)), member.start)

    def _hand_over(self, leader: GroupMember) -> None:
        """A planned change; in half of them something happens in the middle."""
        chance = self._world.chance
        target = chance.choice([one for one in self._group.members if one is not leader])
        leader.order(haapi.HANDOVER, target=target.ordinal, deadlineMs=chance.choice((200, 2000, 8000)))
        hurt = chance.choice((None, None, leader, target))
        if hurt is not None:
            self._world.after(chance.uniform(0.0, 0.05), lambda: self._kill(hurt))

    def _alone_with_clients(self, member: GroupMember) -> None:
        """It takes messages that nobody else gets."""
        others = [one.host for one in self._group.members if one is not member]
        watchers = [watcher.host for watcher in self._group.watchers]
        self._cut("alone with its clients", _both(member.host, [*others, *watchers, REGISTER]))

    # -- processes

    def _processes(self, member: GroupMember) -> list[Fault]:
        chance = self._world.chance
        return [
            lambda: self._kill(member),
            lambda: self._kill(member),
            lambda: member.pause(chance.choice((0.5, 4.0))),
            member.stop,
            lambda: chance.choice(self._group.members).order(haapi.CLONE),
            self._kill_watcher,
            self._arm_watcher,
            self._arm_watcher_and_kill_leader,
            lambda: chance.choice(self._group.watchers).pause(chance.choice((1.0, 6.0))),
        ]

    def _kill(self, member: GroupMember) -> None:
        member.kill()
        self._world.after(self._world.chance.choice(_BACK_S), member.start)

    def _kill_watcher(self) -> None:
        watcher = self._world.chance.choice(self._group.watchers)
        watcher.kill()
        self._world.after(self._world.chance.choice(_BACK_S), watcher.start)

    def _arm_watcher(self) -> None:
        for watcher in self._group.watchers:
            watcher.dies_at = self._world.chance.choice(STEPS)

    def _arm_watcher_and_kill_leader(self) -> None:
        self._arm_watcher()
        leader = self._group.leader()
        if leader is not None:
            leader.kill()
            self._world.after(self._world.chance.choice((6.0, 12.0)), leader.start)

    # -- disks

    def _disks(self, member: GroupMember) -> list[Fault]:
        chance = self._world.chance
        return [
            lambda: self._cut_power(member),
            lambda: self._cut_power(member),
            self._cut_all_power,
            lambda: member.fail_next(chance.choice(("sync", "sync", "write", "sync folder", "rename"))),
            lambda: self._fill_disk(member),
            lambda: self._slow_disk(member),
            lambda: self._wipe(member),
        ]

    def _cut_power(self, member: GroupMember) -> None:
        self._world.chance.choice((member.cut_power, member.cut_power_in_a_write))()
        self._world.after(self._world.chance.choice(_BACK_S), member.start)

    def _cut_all_power(self) -> None:
        for member in self._group.members:
            member.cut_power()
            self._world.after(self._world.chance.choice(_BACK_S), member.start)

    def _fill_disk(self, member: GroupMember) -> None:
        member.fill_disk(self._world.chance.choice((0, 4096, 50_000, 300_000)))
        self._world.after(self._world.chance.choice((1.0, 4.0)), member.make_room)

    def _slow_disk(self, member: GroupMember) -> None:
        slowness = self._world.chance.choice((5.0, 50.0, 400.0))
        self._world.say(f"{member.host}: the disk is {slowness:g} times slower")
        member.slow_disk(slowness)
        self._world.after(3.0, lambda: member.slow_disk(1.0))

    def _wipe(self, member: GroupMember) -> None:
        """While somebody leads: the disk of a member that is being elected may be the only one that counts."""
        record = self._group.service.record
        is_known = record is not None and record.phase is Phase.ACTIVE
        if not (self._group.shape.is_sync_flush and is_known and self._witness.has_other_copies(member.ordinal)):
            self._kill(member)
            return
        member.wipe()
        self._world.after(self._world.chance.choice(_BACK_S), member.start)

    # -- ways

    def _ways(self, member: GroupMember) -> list[Fault]:
        hosts = [one.host for one in self._group.members]
        others = [host for host in hosts if host != member.host]
        watchers = [watcher.host for watcher in self._group.watchers]
        clients = [f"10.0.{kind}.{number}" for kind in (1, 2) for number in range(4)]
        return [
            lambda: self._cut("alone", _both(member.host, [*others, *watchers, *clients, REGISTER, NAME_SERVER])),
            lambda: self._cut("without a register", _both(member.host, [REGISTER])),
            lambda: self._cut("nobody has the register", [way for host in hosts for way in _both(host, [REGISTER])]),
            lambda: self._cut("unseen", [way for host in watchers for way in _both(host, [member.host])]),
            lambda: self._cut("unseen, and without a register", _both(member.host, [REGISTER, *watchers])),
            lambda: self._cut("alone among members", _both(member.host, others)),
            lambda: self._cut("speaks and hears nothing", [(other, member.host) for other in (*others, *watchers)]),
            lambda: self._cut("hears and cannot speak", [(member.host, other) for other in (*others, *watchers)]),
            lambda: self._cut("halves", self._halves([*hosts, *watchers, *clients, REGISTER, NAME_SERVER])),
            lambda: self._cut("a ring", self._ring(hosts)),
            lambda: self._cut("no name server", _both(NAME_SERVER, [*hosts, *clients])),
            lambda: self._cut("coordinators see nothing", [w for host in watchers for w in _both(host, hosts)]),
            self._slow_network,
            self._lossy_network,
        ]

    def _halves(self, hosts: list[str]) -> list[tuple[str, str]]:
        left = [host for host in hosts if self._world.chance.random() < 0.5]
        return [way for host in left for way in _both(host, [other for other in hosts if other not in left])]

    def _ring(self, hosts: list[str]) -> list[tuple[str, str]]:
        """Each hears its neighbour on one side only."""
        return [(one, other) for one, other in pairwise([*hosts, hosts[0]])]

    def _cut(self, name: str, ways: list[tuple[str, str]]) -> None:
        self._world.say(f"cut, {name}: {', '.join(f'{one}>{other}' for one, other in ways[:6])}")
        for way in ways:
            self._group.network.cut(*way)
        self._world.after(self._world.chance.choice(_CUT_S), self._heal)

    def _heal(self) -> None:
        self._world.say("ways are open")
        self._group.network.heal()

    def _slow_network(self) -> None:
        network = self._group.network
        network.slowness = self._world.chance.choice((20.0, 200.0))
        self._world.say(f"everything is {network.slowness:g} times later")
        self._world.after(3.0, lambda: setattr(network, "slowness", 1.0))

    def _lossy_network(self) -> None:
        network = self._group.network
        network.loss = self._world.chance.choice((0.1, 0.5))
        self._world.say(f"{network.loss:.0%} of questions and answers are lost")
        self._world.after(6.0, lambda: setattr(network, "loss", 0.0))

    # -- the register, clocks, the name server

    def _others(self, member: GroupMember) -> list[Fault]:
        return [
            self._trouble_register,
            self._trouble_register,
            self._trouble_register,
            self._delete_register,
            self._set_register_back,
            lambda: self._jump(member),
            self._kill_name_server,
        ]

    def _trouble_register(self) -> None:
        chance, service = self._world.chance, self._group.service
        service.troubles = chance.choice(
            (Troubles(refused=1.0), Troubles(lost=0.5), Troubles(unanswered=0.6), Troubles(late=0.6))
        )
        self._world.say(f"register: {service.troubles}")
        self._world.after(chance.choice((1.0, 4.0, 10.0)), lambda: setattr(service, "troubles", Troubles()))

    def _delete_register(self) -> None:
        record = self._group.service.record
        if not self._had_accident and record is not None and record.phase is not Phase.BOOTSTRAPPING:
            self._had_accident = True
            self._group.service.delete()

    def _set_register_back(self) -> None:
        """To an epoch before this one; everybody is there to say so, because nothing else can tell."""
        service = self._group.service
        if self._had_accident or service.record is None:
            return
        past = [one for one in service.past if one.phase is Phase.ACTIVE and one.epoch < service.record.epoch]
        if past:
            self._had_accident = True
            self._group.calm()
            self._quiet_until = self._world.now + _SET_BACK_S
            self._world.after(3.0, lambda: self._restore(self._world.chance.choice(past)))

    def _restore(self, past: RegisterRecord) -> None:
        """Not while somebody is away or has not heard of a later epoch: he would believe what is restored."""
        brokers = [member.broker for member in self._group.members if member.broker is not None]
        fenced = [broker.member_lifecycle.fencing for broker in brokers]
        promises = [fencing.state().promise for fencing in fenced if fencing is not None]
        if len(promises) == len(self._group.members) and min(promises) > past.epoch:
            self._group.service.set_back(past)

    def _jump(self, member: GroupMember) -> None:
        by_ms = self._world.chance.choice((-3000, -200, 1000, 60_000))
        self._world.say(f"{member.host}: the wall clock jumps by {by_ms} ms")
        member.clock.ahead_ms += by_ms

    def _kill_name_server(self) -> None:
        server = self._group.name_servers[0]
        server.kill()
        self._world.after(self._world.chance.choice(_BACK_S), server.start)


def _both(host: str, others: list[str]) -> list[tuple[str, str]]:
    return [way for other in others for way in ((host, other), (other, host))]
