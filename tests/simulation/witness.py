"""Who stands beside a simulated group and sees everything: what has to hold at every moment, not only at the end.

    register    the epoch never falls, an epoch has one holder ever, the set is the holder's to change, a sealed one
                stays as it was until somebody is promoted
    lead        who leads does so in an epoch that the register gave to this very process
    promise     what a disk promised never falls
    confirmed   everybody has the same bytes below its confirmed mark, the master, and whatever was confirmed once
    one voice   once an epoch has begun, nothing is confirmed in a lower one but what the higher one began with: who
                stood still may pass on what slaves had acknowledged before they promised, and nothing else
    alone       when somebody is promoted, no former master that acknowledges alone may serve any more
    one master  once a master has acknowledged a message, none of a lower epoch acknowledges what is sent afterwards
    offsets     of consumers do not count what is not in the queues of who leads

What may be lost is said to the ledger: under ASYNC_MASTER what a master answered and did not confirm before another
one led; under ASYNC_FLUSH what all disks of the in-sync set lost together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry.broker.role.master_role import MasterRole
from gantry.replication import member_files
from gantry.replication.members import SyncSet
from gantry.replication.record import Phase

if TYPE_CHECKING:
    from gantry.broker.broker import Broker
    from gantry.replication.record import RegisterRecord
    from simulation.groupmember import GroupMember
    from simulation.groupworld import Shape
    from simulation.ledger import Attempt, Ledger
    from simulation.register import RegisterService
    from simulation.world import World

_AT_WORK_S = 0.5


@dataclass(slots=True)
class Loss:
    """A disk that may lack what it acknowledged since then."""

    since: float
    incarnation: int | None  # in the set of that moment


class Witness:
    """See the module; what is wrong becomes a problem of the world."""

    def __init__(
        self, world: World, service: RegisterService, members: Sequence[GroupMember], ledger: Ledger, shape: Shape
    ) -> None:
        self.failovers = 0  # somebody else leads
        self._world = world
        self._service = service
        self._members = members
        self._ledger = ledger
        self.min_in_sync = shape.min_in_sync  # the least that a member runs with
        self._is_sync_flush = shape.is_sync_flush
        self._truth: dict[int, bytearray] = {}  # the confirmed log, by segment
        self._end = 0
        self._epoch_led = 0  # the highest in which somebody led
        self._holders: dict[int, str] = {}
        self._begins: dict[int, int] = {}  # where the log of who leads in an epoch ended when it began
        self._promises: dict[tuple[int, str], int] = {}
        self._losses: dict[int, Loss] = {}
        self._failed: dict[int, int | None] = {}  # in which incarnation a member's sync failed last
        self._ends_when_acked: dict[bytes, int] = {}
        self._leading: dict[int, int] = {}  # in which epoch a member led last
        self._first_acked_s: dict[int, float] = {}  # by epoch: its first SEND_OK
        service.on_change.append(self._changed)
        ledger.on_acknowledged.append(self._acknowledged)
        for member in members:
            member.on_life.append(self._lives)
            member.on_loss.append(self._lost)
            member.on_failed_sync.append(self._failed_sync)

    # -- the register

    def _changed(self, how: str, before: RegisterRecord | None, record: RegisterRecord | None) -> None:
        if record is None or how == "restored":
            return
        if before is None:
            self._made(record)
        else:
            self._compare(before, record)
        if record.holder is not None:
            known = self._holders.setdefault(record.epoch, str(record.holder))
            if known != str(record.holder):
                self._wrong(f"epoch {record.epoch} has the holder {record.holder}, and had {known}")
        if record.phase is Phase.ACTIVE:
            self._recovered(record)
            self._led(before, record)

    def _made(self, record: RegisterRecord) -> None:
        """Again: nobody may have led in its epoch; one that only stood in the lost register may come again."""
        if record.epoch <= self._epoch_led:
            self._wrong(f"the register was made with epoch {record.epoch}, and {self._epoch_led} had a master")
        for epoch in [epoch for epoch in self._holders if epoch >= record.epoch]:
            del self._holders[epoch]

    def _compare(self, before: RegisterRecord, record: RegisterRecord) -> None:
        if record.epoch < before.epoch:
            self._wrong(f"the epoch falls from {before.epoch} to {record.epoch}")
        if record.epoch == before.epoch and before.holder is not None and record.holder != before.holder:
            self._wrong(f"epoch {record.epoch} goes from {before.holder} to {record.holder}")
        if before.phase is Phase.ACTIVE and record.phase is Phase.SEALED and record.in_sync != before.in_sync:
            self._wrong("a seal changed the set")
        if record.phase is Phase.SEALED and before.phase is Phase.SEALED and record.in_sync != before.in_sync:
            self._wrong("the set of a sealed group was changed")
        if len(record.in_sync) < min(len(before.in_sync), self.min_in_sync) and record.epoch == before.epoch:
            if before.phase is Phase.ACTIVE:
                self._wrong(f"the set shrank to {len(record.in_sync)}")

    def _led(self, before: RegisterRecord | None, record: RegisterRecord) -> None:
        """ASYNC_MASTER: another one leads, and what its predecessor alone had is gone."""
        holder = record.holder
        assert holder is not None
        last = next((one for one in reversed(self._service.past) if one.holder is not None), before)
        if last is None or last.holder is None or last.holder.member == holder.member:
            return
        self.failovers += 1
        for member in self._members:
            if member.ordinal != holder.member.ordinal and member.may_serve_alone():
                self._wrong(f"{holder} leads in epoch {record.epoch}, and {member.host} may still acknowledge alone")
        for body, end in self._ends_when_acked.items():
            if end > self._end:
                self._ledger.attempts[body].may_be_lost = True

    def _acknowledged(self, attempt: Attempt) -> None:
        self._one_master(attempt)
        member = next(one for one in self._members if one.address == attempt.acked_by)
        if not member.answers_alone:
            return
        parts = member.broker.parts if member.broker is not None else None
        self._ends_when_acked[attempt.body] = parts.store.written.offset if parts is not None else 1 << 62
        record = self._service.record
        if record is None or record.holder is None or record.holder.member.ordinal != member.ordinal:
            attempt.may_be_lost = True

    def _one_master(self, attempt: Attempt) -> None:
        """A master of a later epoch may not have acknowledged anything before this was sent."""
        epoch = self._epoch_of(next(one for one in self._members if one.address == attempt.acked_by))
        self._first_acked_s.setdefault(epoch, self._world.now)
        for later, since_s in self._first_acked_s.items():
            if later > epoch and attempt.sent_at > since_s:
                self._wrong(
                    f"{attempt.acked_by} acknowledged in epoch {epoch} what was sent at {attempt.sent_at:.3f}, and the "
                    f"master of epoch {later} had acknowledged at {since_s:.3f}: two masters"
                )

    def _epoch_of(self, member: GroupMember) -> int:
        """In which it leads, or led last: it may acknowledge a moment before its life is told of."""
        group = member.broker.parts.group if member.broker is not None and member.broker.parts is not None else None
        now = group.tracker.epoch if isinstance(group, MasterRole) else 0
        return max(now, self._leading.get(member.ordinal, 0))

    # -- disks

    def _lost(self, member: GroupMember, since: float) -> None:
        if self._is_sync_flush and since:
            return
        known = self._losses.get(member.ordinal)
        since = since if known is None else min(since, known.since)
        self._losses[member.ordinal] = Loss(since, self._incarnation(member.ordinal, self._in_sync()))
        if all(one.ordinal in self._losses for one in self._in_sync()):
            self._world.say("every disk of the set may have lost its newest records")
            self._ledger.lost_everywhere(max(self._losses[one.ordinal].since for one in self._in_sync()))
            self._truth.clear()
            self._begins.clear()

    def _failed_sync(self, member: GroupMember) -> None:
        """It lost nothing that was acknowledged, and comes back as another incarnation all the same."""
        self._failed[member.ordinal] = self._incarnation(member.ordinal, self._in_sync())

    def _in_sync(self) -> SyncSet:
        record = self._service.record
        if record is None or not record.in_sync:
            record = next((one for one in reversed(self._service.past) if one.in_sync), None)
        return record.in_sync if record is not None else frozenset()

    def has_other_copies(self, ordinal: int) -> bool:
        """Whether somebody else of the set has everything, and is what the set says."""
        others = [one for one in self._in_sync() if one.ordinal != ordinal and one.ordinal not in self._losses]
        return any(self._failed.get(one.ordinal) != one.incarnation for one in others)

    def _incarnation(self, ordinal: int, members: SyncSet) -> int | None:
        return next((one.incarnation for one in members if one.ordinal == ordinal), None)

    def _recovered(self, record: RegisterRecord) -> None:
        """Who is in the set as what it is now has everything."""
        for ordinal, loss in list(self._losses.items()):
            incarnation = self._incarnation(ordinal, record.in_sync)
            if incarnation is not None and incarnation != loss.incarnation:
                del self._losses[ordinal]

    # -- members

    def _lives(self, member: GroupMember, broker: Broker) -> None:
        parts = broker.parts
        assert parts is not None
        store, group = parts.store, parts.group
        self._promised(member, broker)
        start, confirmed = store.reader.log_start, store.confirmed.offset
        self._same(member, start, confirmed)
        epoch = group.tracker.epoch if isinstance(group, MasterRole) else 0
        marks = [confirmed]

        def advanced(offset: int) -> None:
            if member.broker is not broker:
                return
            self._same(member, marks[0], offset)
            marks[0] = offset
            if epoch:
                self.spoke(member.host, epoch, offset)

        store.confirmed.listen(advanced)
        if epoch:
            self._leads(member, broker, epoch)

    def _leads(self, member: GroupMember, broker: Broker, epoch: int) -> None:
        self._world.say(f"{member.host}: leads in epoch {epoch}")
        self._epoch_led = max(self._epoch_led, epoch)
        self.led(member.ordinal, epoch)
        known = self._holders.get(epoch, "")
        if not known.startswith(f"{member.ordinal}."):
            self._wrong(f"{member.host} leads in epoch {epoch}, which the register gave to {known or 'nobody'}")
        assert broker.parts is not None
        table = member_files.load_epochs(member.disk, broker.parts.store.settings.root)
        begins = [entry.start for entry in table.entries if entry.epoch == epoch]
        if not begins:
            self._wrong(f"{member.host} leads in epoch {epoch}, which its table does not have")
        self.began(epoch, min(begins, default=0))
        self._world.after(_AT_WORK_S, lambda: self._works(member, broker))

    def _works(self, member: GroupMember, broker: Broker) -> None:
        """It has begun to work: offsets of consumers are within its queues."""
        parts = broker.parts
        if member.broker is not broker or parts is None or not parts.activity.is_on or not self._ledger.is_sync:
            return
        for key in parts.offsets.keys():  # noqa: SIM118  a method of its own
            for queue_id, offset in (parts.offsets.value(key) or {}).items():
                end = parts.store.next_queue_offset(key.partition("@")[0], int(queue_id))
                if offset > end:
                    self._wrong(f"{member.host}: {key} is at {offset} of queue {queue_id}, which ends at {end}")

    def led(self, ordinal: int, epoch: int) -> None:
        """This member leads in it."""
        self._leading[ordinal] = epoch

    def began(self, epoch: int, offset: int) -> None:
        """Somebody leads in it whose log ended there."""
        self._begins[epoch] = offset

    def spoke(self, host: str, epoch: int, offset: int) -> None:
        """Something was confirmed in this epoch, up to this offset."""
        for later, begin in self._begins.items():
            if later > epoch and offset > begin:
                self._wrong(f"{host} confirms {offset} in epoch {epoch}, and {later} has begun at {begin}")

    def _promised(self, member: GroupMember, broker: Broker) -> None:
        fencing = broker.member_lifecycle.fencing
        if fencing is not None:
            state = fencing.state()
            key = (member.ordinal, state.store_uid)
            if state.promise < self._promises.get(key, 0):
                self._wrong(f"{member.host} promised {self._promises[key]} once, and {state.promise} now")
            self._promises[key] = max(state.promise, self._promises.get(key, 0))

    def _same(self, member: GroupMember, start: int, end: int) -> None:
        """The bytes of this member's log are those that were confirmed."""
        broker = member.broker
        parts = broker.parts if broker is not None else None
        if parts is None:
            return
        size = parts.store.settings.segment_bytes
        while start < end:
            number, at = divmod(start, size)
            upto = min(end, (number + 1) * size)
            mine = bytes(parts.store.raw(start, upto))
            known = self._truth.setdefault(number, bytearray())
            if len(known) < at:  # begun behind, after a loss of everything
                known.extend(parts.store.raw(number * size, start))
            overlap = bytes(known[at : at + len(mine)])
            if overlap != mine[: len(overlap)]:
                self._differs(member, start, overlap, mine)
                return
            known.extend(mine[len(overlap) :])
            start = upto
        self._end = max(self._end, end)

    def _differs(self, member: GroupMember, start: int, known: bytes, mine: bytes) -> None:
        at = next(number for number, (one, other) in enumerate(zip(known, mine, strict=False)) if one != other)
        self._wrong(f"{member.host}: its log differs at {start + at}, which was confirmed")

    def _wrong(self, what: str) -> None:
        self._world.problem(what)
