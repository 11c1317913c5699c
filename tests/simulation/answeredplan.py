"""One run of a group whose master goes right after an answer: the next one has to have what was answered.

Clients are those of `historyplan`.  Again and again one kind of answer is waited for, and at the moment at which a
client gets it the member that gave it loses its power, alone or with all others, is killed, or is told to hand over:

    a change of a topic         the next master says so (`knowntopics`)
    a new lock of a queue       nobody else gets the lock from the next master while its owner works
    the first offset of a group the next master knows it
    a later offset              the same, where the change was a planned one

Meanwhile the slaves get everything, or acknowledge it, a while later: what is answered before they have it is lost
then.  Nothing else goes wrong, so that no answer is excused for another fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gantry.replication import haapi
from simulation.groupworld import Shape
from simulation.histories import Answered, Committer
from simulation.historyplan import HistoryRun
from simulation.world import Broken

if TYPE_CHECKING:
    from simulation.clients import Producer
    from simulation.groupmember import GroupMember

_STRIKES = 6
_LOCK_S = 14.0  # half of it is more than a group needs for another master
_SETTLES_S = 2.0
_ANSWERED_S = 12.0  # until there is an answer of the kind that is waited for
_LEADS_S = 20.0
_LOOKS_S = 3.0  # clients ask the next master about everything
_QUIET_S = 60.0
_LATE_S = (0.05, 0.2, 0.35)  # less than half of what clients wait for an answer
_HANDOVER_MS = 8000


class AnsweredRun(HistoryRun):
    """One seed."""

    _waits_for: Answered | None = None
    _struck: GroupMember | None = None
    _is_refused = False  # the last handover

    def _shape(self, shape: Shape) -> Shape:
        members = max(3, shape.members)
        least = min(max(2, shape.min_in_sync), members - 1)
        return super()._shape(replace(shape, members=members, min_in_sync=least, lock_s=_LOCK_S))

    def _go_wrong(self, producers: list[Producer]) -> None:
        for client in self._told:
            if isinstance(client, Committer):
                client.commits_max = 3
        self.histories.on_answered.append(self._answered)
        self.group.network.keeps_sent = False
        for _ in range(_STRIKES):
            self._run(_SETTLES_S)
            self._strike(producers)

    def _strike(self, producers: list[Producer]) -> None:
        chance = self.world.chance
        slow = chance.choice((self._well, self._late_links, self._late_disks))
        slow(self._settled_leader())
        self._waits_for, self._struck, self._is_refused = chance.choice(list(Answered)), None, False
        self.world.say(f"waits for {self._waits_for.value}; {slow.__name__.strip('_')}")
        leads = self._leads.count
        self.world.run(self.world.now + _ANSWERED_S, lambda: bool(self.world.problems) or self._struck is not None)
        self._check()
        if (struck := self._struck) is not None:
            self._faults.count += 1
            if not self.world.run(self.world.now + _LEADS_S, lambda: self._leads.count > leads or self._is_refused):
                raise Broken(f"nobody leads within {_LEADS_S:g} s after {struck.host} was struck")
            self._run(_LOOKS_S)
        self._waits_for = None
        self.group.calm()
        if not self.world.run(self.world.now + _QUIET_S, self._is_whole):
            raise Broken(f"not everybody was in sync again within {_QUIET_S:g} s")
        self._until_answered(producers, _QUIET_S, "a change of master")

    def _is_whole(self) -> bool:
        record = self.group.service.record
        is_set = record is not None and record.holder is not None and len(record.in_sync) == self.group.shape.members
        return bool(self.world.problems) or (is_set and all(member.is_serving for member in self.group.members))

    # -- what is slow meanwhile

    def _well(self, leader: GroupMember) -> None:
        """Nothing is."""

    def _late_links(self, leader: GroupMember) -> None:
        seconds = self.world.chance.choice(_LATE_S)
        for member in self._slaves_of(leader):
            self.group.network.delay(leader.host, member.host, seconds)

    def _late_disks(self, leader: GroupMember) -> None:
        seconds = self.world.chance.choice(_LATE_S)
        for member in self._slaves_of(leader):
            member.delay_disk(seconds, seconds)

    def _slaves_of(self, leader: GroupMember) -> list[GroupMember]:
        return [member for member in self.group.members if member is not leader]

    # -- the strike

    def _answered(self, what: Answered, address: str) -> None:
        member = next(one for one in self.group.members if one.address == address)
        if what is not self._waits_for or self._struck is not None or member is not self.group.leader():
            return
        self._struck = member
        # A later offset may be gone with its master, unless the change is a planned one.
        if what is Answered.COMMIT or self.world.chance.random() < 0.2:
            self._hand_over(member)
        else:
            # Not within the turn of the client that got the answer.
            strikes = (member.cut_power, member.cut_power, member.kill, lambda: self._cut_all(member))
            self.world.after(0.0, self.world.chance.choice(strikes))

    def _cut_all(self, leader: GroupMember) -> None:
        """All disks keep what was synced; the others are back first, and one of them leads."""
        leader.cut_power()
        for member in self._slaves_of(leader):
            member.cut_power()
            self.world.after(1.0, member.start)

    def _hand_over(self, leader: GroupMember) -> None:
        target = self.world.chance.choice(self._slaves_of(leader))

        def told(text: str) -> None:
            self.world.say(f"{leader.host}: {text}")
            if text == "handover: done":
                self._leads.handed_over(leader.address)
            elif not text.startswith("ordered: "):
                self._is_refused = True

        leader.order(haapi.HANDOVER, told, target=target.ordinal, deadlineMs=_HANDOVER_MS)
