"""One run of a group with clients whose histories are compared with a model (`histories`), while everything else goes
wrong as in `groupplan`.

The group is one in which nothing acknowledged is lost, so a change of a topic that was answered with 0 stays under the
next master.  Which commits may be gone is said in `leads`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from simulation.groupplan import PLACES, GroupRun
from simulation.groupworld import NAME_SERVER, NAME_SERVER_PORT, Shape
from simulation.histories import WORK_SHARE, Administrator, Committer, Histories, Locker
from simulation.leads import Leads
from simulation.plan import Outcome
from simulation.routes import ByRoute
from simulation.world import Broken

if TYPE_CHECKING:
    from gantry.broker.broker import Broker
    from simulation.clients import Consumer, Producer
    from simulation.groupmember import GroupMember

_TOPICS = ("changed-0", "changed-1", "changed-2", "changed-3")
_QUEUES = PLACES[:2]
_LAST_S = 6.0  # what was asked is answered, or never


class HistoryRun(GroupRun):
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.histories = Histories()
        super().__init__(seed)
        self._leads = Leads(self.group.members, self._ledger)
        for member in self.group.members:
            member.on_life.append(self._lives)

    def _shape(self, shape: Shape) -> Shape:
        return replace(shape, is_sync_master=True, is_sync_flush=True)

    def play(self) -> Outcome:
        """See `GroupRun`."""
        outcome = super().play()
        return replace(outcome, summary=f"{outcome.summary}; {self.histories}")

    def _clients(self) -> tuple[list[Producer], list[Consumer]]:
        world, network = self.world, self.group.network
        administrators = [Administrator(world, network, f"10.0.1.{20 + number}", self._by_route()) for number in (0, 1)]
        for administrator in administrators:
            administrator.topics, administrator.leads, administrator.believes = _TOPICS, self._leads, self._believes
        lockers = [Locker(world, network, f"10.0.1.{30 + number}", self._by_route()) for number in (0, 1, 2)]
        for locker in lockers:
            locker.queues, locker.work_s = tuple(_QUEUES), self.group.shape.lock_s * WORK_SHARE
        committers = [
            Committer(world, network, f"10.0.2.{10 + number}", self._by_route(), self._ledger, place)
            for number, place in enumerate(_QUEUES)
        ]
        for committer in committers:
            committer.leads, committer.beats_to = self._leads, self.group.addresses
        self._told: list[Administrator | Locker | Committer] = [*administrators, *lockers, *committers]
        for client in self._told:
            client.histories = self.histories
            client.run(client.main)
        return super()._clients()

    def _finished(self, producers: list[Producer]) -> None:
        for client in self._told:
            client.is_stopped = True
        super()._finished(producers)
        self._run(_LAST_S)
        if wrong := self.histories.wrong():
            raise Broken(wrong)

    def _check(self) -> None:
        super()._check()
        if self.histories.broken:
            raise Broken(self.histories.broken[0])

    def _by_route(self) -> ByRoute:
        return ByRoute(f"{NAME_SERVER}:{NAME_SERVER_PORT}")

    # -- who leads

    def _lives(self, member: GroupMember, broker: Broker) -> None:
        if broker.parts is not None and isinstance(broker.parts.group, MasterRole):
            self._leads.began(self.world.now, member.address)
            self.histories.known.led()

    def _believes(self, address: str) -> bool:
        """Whether this member believes that it leads."""
        member = next(one for one in self.group.members if one.address == address)
        parts = member.broker.parts if member.broker is not None else None
        return parts is not None and isinstance(parts.group, MasterRole)
