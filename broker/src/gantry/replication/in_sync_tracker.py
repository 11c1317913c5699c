"""Tracks the slaves of one epoch of a master: which are in sync, what is confirmed, and whether writes are taken.

The rules of the set are in `insync`, those of time in `pace` and `timers`; this module applies them to the links.

    with a register     a change of the set goes to `on_change` and counts when `settled` says what the register holds;
                        members are known by ordinal and incarnation
    a static pair       roles come from the configuration, no register exists, so a change is settled at once.  The
                        guarantees hold as long as no operator makes a second broker master; the epochs detect that
                        mistake, and messages may be lost by it

    confirmed     consumers see it; producers are answered at it under SYNC_MASTER, at our own share under ASYNC_MASTER
    is_short      nothing can be confirmed now: writes are refused before they are stored

A slave that has caught up under load is always a round trip behind, so it never reaches the confirmed offset of a
master that confirms alone.  When it may join, the master's own acknowledgement is held back for that round trip
(`_PAUSE_S` at most): the confirmed offset waits, the slave reaches it, and from then on its acknowledgement is
required.

In a static pair members are broker ids, and a slave that comes back with less than it had acknowledged has lost
messages: it becomes another incarnation, and its earlier acknowledgements do not count.  With a register the slave
reports its incarnation; it is refused when it has less than it acknowledged in the same incarnation.

A new link alone does not prove that a slave works: one whose disk is full connects repeatedly and never stores more.
So the slave's silence and lag continue over new links until it holds what it was asked for.  After `silence_s` it
leaves the set, or writes are refused, as if it were not connected.  A slave that reports a full disk does not join a
set that is large enough without it.

A slave that makes acknowledgements late (`lateness`) leaves as well, if minInSync members remain that do not.  It joins
again when it has been quick for a while, which is longer each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gantry.replication.attendance import Attendance
from gantry.replication.handshake import Hello
from gantry.replication.insync import InSync, InSyncChange
from gantry.replication.lateness import Lateness
from gantry.replication.members import Member, SyncSet
from gantry.replication.pace import STEADY_S, Pace
from gantry.replication.timers import Waits
from gantry.wire.ha import Ack

STATIC = Member(0, 0)  # the master of a static pair
# A slave within so many bytes of the end counts as caught up: a busy master appends that in a few round trips.
NEAR_BYTES = 4 << 20
_PAUSE_S = 0.2
_PAUSE_AGAIN_S = 2.0
_REFUSED_S = 2.0  # until a refused change of the set is tried again
_UNHEARD = 0.25  # of the silence after which a member is absent
_SOON_S = 1.0  # a slave that lacks a change of the metadata for longer is not about to join


@dataclass(frozen=True, slots=True)
class InSyncPolicy:
    """min_in_sync: how many members, the master included, acknowledge a message. waits: how long the group waits for
    them. is_sync: whether producers wait for that.
    """

    min_in_sync: int = 1
    waits: Waits = field(default_factory=Waits)
    is_sync: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """The epoch that begins: its number, this member, and the set that the register holds (None: no register)."""

    epoch: int
    me: Member = STATIC
    recorded: SyncSet | None = None
    now_s: float = 0.0


class InSyncTracker:
    """Loop thread only; times are seconds on a monotonic clock."""

    def __init__(
        self,
        start: int,
        confirmed: int,
        term: Term,
        rules: InSyncPolicy,
        on_change: Callable[[InSyncChange], None] | None = None,
    ) -> None:
        """on_change: hears which change of the set the register has to agree to; None: there is no register."""
        me, recorded = term.me, term.recorded
        self.epoch = term.epoch
        self.rules = rules
        self.own = Lateness(rules.waits.slow_s, term.now_s)  # of our own disk
        self.insync = InSync(me, frozenset({me}) if recorded is None else recorded, start, confirmed, rules.min_in_sync)
        self.slaves: dict[int, Attendance] = {}  # by their place
        self.changes = 0  # of the set
        self._on_change = on_change
        self._me = me
        for member in sorted(self.insync.recorded - {me}):
            # Not connected yet: treated as if its connection had ended now.
            self.slaves[member.ordinal] = Attendance(member, "", "", rules.waits.slow_s, term.now_s)
        self._pace = Pace(rules.waits)
        self._share = 0
        self._pause_until_s = 0.0
        self._pause_again_s = 0.0
        self._awaits = False  # a member of the set came back with less than it had acknowledged

    @property
    def confirmed(self) -> int:
        """The log offset below which every required member has the log."""
        return self.insync.confirmed

    @property
    def in_sync(self) -> list[int]:
        """The places (ordinals or broker ids) of the set, in order."""
        return sorted(member.ordinal for member in self.insync.recorded)

    def is_short(self, now_s: float) -> bool:
        """Return whether new messages could not be confirmed: the set is too small, or a required member is absent."""
        if not self.insync.has_enough:
            return True
        return any(self._is_absent(member, now_s) for member in self.insync.required if member != self._me)

    def is_waited_for(self, place: int) -> bool:
        """Return whether confirming needs the slave in this place; True for every slave while the set is too small."""
        return not self.insync.has_enough or any(member.ordinal == place for member in self.insync.required)

    def _is_absent(self, member: Member, now_s: float) -> bool:
        slave = self.slaves.get(member.ordinal)
        if slave is None:
            return True
        # One that has not come since the epoch began may be one that the election did not hear either.
        wait_s = self.rules.waits.silence_s * (1.0 if slave.store_uid else _UNHEARD)
        return slave.silent_s(now_s) >= wait_s

    def share(self, offset: int, now_s: float) -> int:
        """Note that our own disk has the log below `offset`. Return the confirmed offset."""
        self._share = max(self._share, offset)
        self.own.reached(self._share, self._share, now_s)
        if now_s >= self._pause_until_s and not self._awaits:
            self.insync.acknowledge(self._me, self._share)
        return self.confirmed

    def meet(self, hello: Hello, address: str, now_s: float, floor: int) -> str:
        """Begin a slave's link; return what is wrong with that, or an empty text.

        floor: the newest change of metadata, which the slave has to hold before it joins the set.  The same slave may
        come again before its old link is known to have ended.
        """
        place = hello.place
        known = self.slaves.get(place)
        if known is not None and known.is_connected and known.store_uid != hello.store_uid:
            return f"the place {place} is taken by the slave at {known.address}; give each slave its own"
        if hello.incarnation >= 0:
            member = Member(place, hello.incarnation)
            if hello.end < self.insync.match(member):
                return f"{member} acknowledged {self.insync.match(member)} and has {hello.end}; have it cloned again"
        else:
            member = Member(place, 1) if known is None else known.member
            if hello.end < self.insync.match(member):
                member = Member(place, member.incarnation + 1)
        slow_s = self.rules.waits.slow_s
        slave = Attendance(member, hello.store_uid, address, slow_s, now_s, hello.process, floor, hello.is_full)
        self.slaves[place] = slave
        if known is not None and known.member == member and known.store_uid in ("", hello.store_uid):
            slave.go_on(known)
        self._pace.behind(member)
        self._look_for_lost()
        return ""

    def _look_for_lost(self) -> None:
        # The acknowledgements of a former incarnation would confirm bytes that its disk has lost.  So nothing is
        # confirmed until the present incarnation is in the set.
        known = ((member, self.slaves.get(member.ordinal)) for member in self.insync.recorded)
        self._awaits = any(slave is not None and slave.member != member for member, slave in known)

    def acknowledge(self, place: int, ack: Ack, written: int, now_s: float) -> int:
        """Note a slave's acknowledgement; our log ends at `written`. Return the confirmed offset."""
        slave = self.slaves[place]
        slave.acknowledge(ack, written, now_s)
        if written - slave.held <= NEAR_BYTES:
            self._pace.caught_up(slave.member, now_s)
        else:
            self._pace.behind(slave.member)
        if slave.metadata >= slave.floor:
            # A new link acknowledges its whole log before any metadata came over it.  Without the metadata, of a
            # topic that was created again for example, that log would be of no use to a next master.
            self.insync.acknowledge(slave.member, slave.held)
        self._let_in(slave, now_s)
        return self.confirmed

    def _let_in(self, slave: Attendance, now_s: float) -> None:
        if slave.member in self.insync.recorded or now_s < slave.again_s or slave.metadata < slave.floor:
            return
        # Confirming waits for a member whose former incarnation is still in the set.
        is_needed = any(member.ordinal == slave.member.ordinal for member in self.insync.recorded)
        if slave.is_full and self.insync.has_enough and not is_needed:
            return  # the next writes would wait for it
        has_enough = not self.is_short(now_s) and not is_needed
        if not self._pace.may_join(slave.member, now_s, has_enough, slave.quick_s(now_s)):
            return
        change = self.insync.admit(slave.member)
        if change is not None:
            slave.forget()  # how late it was while nothing waited for it, as it was copied for example
            self._want(change, now_s)
            self._pause_until_s = 0.0
            self.share(self._share, now_s)
        elif now_s >= self._pause_again_s:
            self._pause_until_s, self._pause_again_s = now_s + _PAUSE_S, now_s + _PAUSE_AGAIN_S

    def lose(self, place: int, is_leaving: bool, now_s: float) -> int:
        """Note that a slave's link ended, announced (`is_leaving`) or not. Return the confirmed offset."""
        slave = self.slaves[place]
        slave.is_connected = False  # and silent since its last acknowledgement
        self._pace.behind(slave.member)
        if is_leaving:
            self._leave_out(slave, now_s)
        return self.confirmed

    def tick(self, written: int, now_s: float, changes: int = 0) -> int:
        """Apply the time limits, ten times a second; our log ends at `written`, the journal of metadata at `changes`.

        Return the confirmed offset.
        """
        if self._pause_until_s and now_s >= self._pause_until_s:
            self._pause_until_s = 0.0
            if not self._awaits:
                self.insync.acknowledge(self._me, self._share)
        self.own.look(self._share, written, now_s)
        for slave in self.slaves.values():
            slave.log.look(slave.held, written, now_s)
            if slave.is_connected:
                slave.changes.look(slave.metadata, changes, now_s)
                slave.arrivals.look(slave.received, written, now_s)
            if self._is_gone(slave, now_s):
                self._pace.behind(slave.member)
                self._leave_out(slave, now_s)
            elif self._is_late(slave, now_s) and self._steadily_well(slave, now_s) >= self.rules.min_in_sync:
                if self._leave_out(slave, now_s):
                    slave.forget()
                    self._pace.left_late(slave.member, now_s)
        return self.confirmed

    def is_own_disk_late(self, now_s: float) -> bool:
        """Return whether our own disk makes acknowledgements late, and enough slaves could confirm without it."""
        is_late = self.own.late_s(now_s) >= self.rules.waits.late_s
        in_time = sum(not self._is_late(slave, now_s) for slave in self._there(None, now_s))
        return is_late and in_time >= self.rules.min_in_sync

    def are_links_late(self, now_s: float) -> bool:
        """Return whether the links to slaves make acknowledgements late, and too few come in time.

        The slaves' disks have no part in it: a next master would wait for them as well.  A connected slave outside the
        set that is in time joins soon.  Whether enough members could continue without us is for the coordinator to
        say: it also hears a slave whose late link has ended, and which has left the set.
        """
        there = self._there(None, now_s)
        reached = [slave for slave in self.slaves.values() if slave.is_connected or slave in there]
        late = sum(slave.arrivals.late_s(now_s) >= self.rules.waits.late_s for slave in reached)
        return late > 0 and 1 + len(reached) - late < self.rules.min_in_sync

    def _is_gone(self, slave: Attendance, now_s: float) -> bool:
        return self._pace.must_leave(slave.silent_s(now_s), slave.log.lag_s(now_s))

    def _is_late(self, slave: Attendance, now_s: float) -> bool:
        return slave.late_s(now_s) >= self.rules.waits.late_s

    def _there(self, without: Attendance | None, now_s: float) -> list[Attendance]:
        """Return the slaves of the set that are there, whether late or not."""
        return [
            slave
            for slave in self.slaves.values()
            if slave is not without and slave.member in self.insync.recorded and not self._is_gone(slave, now_s)
        ]

    def _steadily_well(self, without: Attendance, now_s: float) -> int:
        """Return how many members of the set acknowledge in time without this one; ourselves always count.

        Those that become late and may be so a moment later do not count: of two, the first would have left.
        """
        late_s = self.rules.waits.late_s
        return 1 + sum(
            not self._is_late(slave, now_s) and not slave.is_nearly_late(late_s, now_s)
            for slave in self._there(without, now_s)
        )

    def _leave_out(self, leaving: Attendance, now_s: float) -> bool:
        """Propose the set without this slave, whichever incarnation of it the set holds. Return whether that was done.

        Not when too few would remain that are there: nothing could be confirmed without it either, and it may be the
        next one that has to be elected.
        """
        if 1 + len(self._there(leaving, now_s)) < self.rules.min_in_sync:
            return False
        for member in self.insync.recorded:
            change = self.insync.shrink(member) if member.ordinal == leaving.member.ordinal else None
            if change is not None:
                self._want(change, now_s)
                return True
        return False

    def _want(self, change: InSyncChange, now_s: float) -> None:
        if self._on_change is not None:
            self._on_change(change)
        else:
            # No register: only this master keeps the set, so the change takes effect at once.
            self.settled(change.target, now_s)

    def settled(self, members: SyncSet, now_s: float) -> int:
        """Note the set that the register certainly holds, see `InSync.settle`. Return the confirmed offset."""
        change, before = self.insync.change, self.insync.recorded
        if change is not None and members != change.target and change.member.ordinal in self.slaves:
            self.slaves[change.member.ordinal].again_s = now_s + _REFUSED_S
        self.insync.settle(members)
        if members != before:
            self._look_for_lost()
            self._pace.changed(now_s)
            self.changes += 1
        if now_s >= self._pause_until_s and not self._awaits:
            self.insync.acknowledge(self._me, self._share)
        return self.confirmed

    def keeps(self, numbers_max: int, now_s: float) -> int:
        """Return the newest change of the metadata that every slave in the set, or about to join, has on its disk.

        Another slave is not waited for, its disk may hang: it has to hold that change before it joins.
        """
        needed: list[Attendance] = []
        others: list[Attendance] = []
        required = {member.ordinal for member in self.insync.required if member != self._me}
        for place, slave in self.slaves.items():
            slave.changes.look(slave.metadata, numbers_max, now_s)
            is_quick = slave.quick_s(now_s) >= STEADY_S and slave.changes.lag_s(now_s) < _SOON_S
            is_joining = slave.is_connected and is_quick and self._pace.is_steady(slave.member)
            (needed if place in required or is_joining else others).append(slave)
        kept = min((slave.metadata for slave in needed), default=numbers_max)
        for slave in others:
            slave.floor = max(slave.floor, kept)
        return kept

    def who_lacks(self, number: int) -> str:
        """Return which slave of the set lacks this change of the metadata."""
        places = sorted(member.ordinal for member in self.insync.required if member != self._me)
        late = next((place for place in places if self.slaves[place].metadata < number), None)
        return "a slave that is about to join" if late is None else f"slave {late}"

    def why_late(self, end: int, now_s: float) -> str:
        """Return what delays confirming the log below `end`: "self", "slow" (a slave) or "gone" (a slave)."""
        if self._share < end:
            return "self"
        if not self.insync.has_enough:
            return "gone"
        for member in self.insync.required:
            slave = self.slaves.get(member.ordinal)
            if member != self._me and (slave is None or not slave.is_connected):
                return "gone"
        return "slow"

    def slave_to_read(self) -> int:
        """Return the place of a slave that may serve consumers that are far behind; -1: none."""
        mine = self._me.ordinal
        return next((one for one in self.in_sync if one != mine and self.slaves[one].is_connected), -1)
