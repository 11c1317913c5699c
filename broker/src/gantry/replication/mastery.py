"""One mastership: who of the slaves is in step, and what follows from it for producers and consumers.

The rules of the set itself stand in `insync`, those of time in `pace`; here they meet the links.  This is the form for
a **static pair**: roles come from the configuration, no register exists, so a change of the set is settled at once.
What it promises holds as long as nobody makes a second broker master by hand; the epochs see to it that such a mistake
is found, not that it costs nothing.

    confirmed     consumers see it; producers are answered at it under SYNC_MASTER, at our own share under ASYNC_MASTER
    is_short      nothing can be confirmed now: writes are refused before they are stored

A slave that has caught up under load is always a round trip behind, so it never quite has what is confirmed while we
confirm alone.  When it may join, our own share is held back for that round trip (`_PAUSE_S` at most): confirmed waits,
the slave arrives, and from then on its acknowledgement is required.

Members are broker ids.  A slave that comes back with less than it had acknowledged has lost something; it is another
incarnation, and what it said before counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.replication.insync import InSync
from gantry.replication.members import Member
from gantry.replication.pace import SILENCE_S, Pace

# So near the end, a slave is as good as equal: what a few round trips of a busy master bring.
NEAR_BYTES = 4 << 20
_PAUSE_S = 0.2
_PAUSE_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Rules:
    """min_in_sync: how many members, ourselves too, acknowledge a message.  max_lag_s: who is further behind leaves."""

    min_in_sync: int = 1
    max_lag_s: float = 15.0


class Attendance:
    """What is known about one slave that is or was connected."""

    __slots__ = (
        "address",
        "held",
        "is_connected",
        "lag_since_s",
        "member",
        "metadata",
        "probe",
        "seen_s",
        "store_uid",
        "written",
    )

    def __init__(self, member: Member, store_uid: str, address: str, now_s: float) -> None:
        self.member = member
        self.store_uid = store_uid
        self.address = address
        self.is_connected = True
        self.written = 0
        self.held = 0
        self.metadata = 0
        self.seen_s = now_s  # when we last heard of it
        self.probe = -1  # what our log held at `lag_since_s`; -1: it has all of that
        self.lag_since_s = now_s


class Mastery:
    """Loop thread only; times are seconds that never go back."""

    def __init__(self, start: int, confirmed: int, epoch: int, rules: Rules) -> None:
        me = Member(0, 0)
        self.epoch = epoch
        self.rules = rules
        self.insync = InSync(me, frozenset({me}), start, confirmed, rules.min_in_sync)
        self.slaves: dict[int, Attendance] = {}  # by broker id
        self.changes = 0  # of the set
        self._me = me
        self._pace = Pace(rules.max_lag_s)
        self._share = 0
        self._pause_until_s = 0.0
        self._pause_again_s = 0.0
        self._awaits = False  # a member of the set came back without what it had acknowledged

    @property
    def confirmed(self) -> int:
        """Every required member has the log below it."""
        return self.insync.confirmed

    @property
    def in_sync(self) -> list[int]:
        """The broker ids of the set, ours (0) first."""
        return sorted(member.ordinal for member in self.insync.recorded)

    def is_short(self, now_s: float) -> bool:
        """Whether what is written now could not be confirmed: too few members, or one that is needed is gone."""
        if not self.insync.has_enough:
            return True
        return any(self._is_absent(member, now_s) for member in self.insync.required if member != self._me)

    def _is_absent(self, member: Member, now_s: float) -> bool:
        slave = self.slaves.get(member.ordinal)
        return slave is None or (not slave.is_connected and now_s - slave.seen_s >= SILENCE_S)

    def share(self, offset: int, now_s: float) -> int:
        """Our own disk has the log below `offset`; the confirmed mark that follows."""
        self._share = max(self._share, offset)
        if now_s >= self._pause_until_s and not self._awaits:
            self.insync.acknowledge(self._me, self._share)
        return self.confirmed

    def meet(self, broker_id: int, store_uid: str, address: str, end: int, now_s: float) -> str:
        """A slave's link begins, its log ends at `end`.  What is wrong with that; empty: nothing.

        The same slave may come again before its old link is known to have ended.
        """
        known = self.slaves.get(broker_id)
        if known is not None and known.is_connected and known.store_uid != store_uid:
            return f"brokerId {broker_id} is taken by the slave at {known.address}; give each slave its own"
        member = Member(broker_id, 1) if known is None else known.member
        if end < self.insync.match(member):
            member = Member(broker_id, member.incarnation + 1)
        slave = self.slaves[broker_id] = Attendance(member, store_uid, address, now_s)
        slave.written = end
        self._pace.behind(member)
        self._look_for_lost()
        return ""

    def _look_for_lost(self) -> None:
        # Its former word would still confirm what its disk no longer has; nothing is, until it is in as what it is now.
        known = ((member, self.slaves.get(member.ordinal)) for member in self.insync.recorded)
        self._awaits = any(slave is not None and slave.member != member for member, slave in known)

    def acknowledge(self, broker_id: int, ack: tuple[int, int, int], written: int, now_s: float) -> int:
        """A slave (written, holds, keeps of the metadata) so much; our log ends at `written`.  The confirmed mark."""
        slave = self.slaves[broker_id]
        slave.written, slave.held, slave.metadata = ack
        slave.seen_s = now_s
        if slave.held >= slave.probe:
            slave.probe, slave.lag_since_s = (-1 if slave.held >= written else written), now_s
        if written - slave.held <= NEAR_BYTES:
            self._pace.caught_up(slave.member, now_s)
        else:
            self._pace.behind(slave.member)
        self.insync.acknowledge(slave.member, slave.held)
        self._let_in(slave, now_s)
        return self.confirmed

    def _let_in(self, slave: Attendance, now_s: float) -> None:
        if slave.member in self.insync.recorded:
            return
        # Who was in the set as another incarnation is waited for by everybody.
        is_needed = any(member.ordinal == slave.member.ordinal for member in self.insync.recorded)
        if not self._pace.may_join(slave.member, now_s, self.insync.has_enough and not is_needed):
            return
        change = self.insync.admit(slave.member)
        if change is not None:
            self._settle(change.target, now_s)
            self._pause_until_s = 0.0
            self.insync.acknowledge(self._me, self._share)
        elif now_s >= self._pause_again_s:
            self._pause_until_s, self._pause_again_s = now_s + _PAUSE_S, now_s + _PAUSE_AGAIN_S

    def lose(self, broker_id: int, is_leaving: bool, now_s: float) -> int:
        """A slave's link ended; it may have said goodbye.  The confirmed mark."""
        slave = self.slaves[broker_id]
        slave.is_connected = False
        slave.seen_s = now_s
        self._pace.behind(slave.member)
        if is_leaving:
            self._leave_out(slave.member.ordinal, now_s)
        return self.confirmed

    def tick(self, written: int, now_s: float) -> int:
        """What goes by the clock, every tenth of a second.  The confirmed mark."""
        if self._pause_until_s and now_s >= self._pause_until_s:
            self._pause_until_s = 0.0
            if not self._awaits:
                self.insync.acknowledge(self._me, self._share)
        for slave in self.slaves.values():
            if slave.probe < 0 and slave.held < written:
                slave.probe, slave.lag_since_s = written, now_s
            if self._pace.must_leave(slave.is_connected, now_s - slave.seen_s, self.lag_s(slave, now_s)):
                self._pace.behind(slave.member)
                self._leave_out(slave.member.ordinal, now_s)
        return self.confirmed

    def lag_s(self, slave: Attendance, now_s: float) -> float:
        """For how long the slave has not had all that was there then."""
        return now_s - slave.lag_since_s if slave.probe >= 0 else 0.0

    def _leave_out(self, broker_id: int, now_s: float) -> None:
        """The member in this place, whichever incarnation of it the set has."""
        for member in self.insync.recorded:
            change = self.insync.shrink(member) if member.ordinal == broker_id else None
            if change is not None:
                self._settle(change.target, now_s)
                if now_s >= self._pause_until_s and not self._awaits:
                    self.insync.acknowledge(self._me, self._share)
                return

    def _settle(self, members: frozenset[Member], now_s: float) -> None:
        # No register: the set is ours alone, so a change is certain as soon as it is wanted.
        self.insync.settle(members)
        self._look_for_lost()
        self._pace.changed(now_s)
        self.changes += 1

    def keeps(self, numbers_max: int) -> int:
        """Up to which change of the metadata every slave of the set has it on its disk."""
        needed = [self.slaves[member.ordinal].metadata for member in self.insync.required if member != self._me]
        return min(needed, default=numbers_max)

    def why_late(self, end: int, now_s: float) -> str:
        """Who keeps the log below `end` from being confirmed: "self", "slow" or "gone"."""
        if self._share < end:
            return "self"
        if not self.insync.has_enough:
            return "gone"
        for member in self.insync.required:
            slave = self.slaves.get(member.ordinal)
            if member != self._me and (slave is None or not slave.is_connected):
                return "gone"
        return "slow"

    def reader(self) -> int:
        """The broker id of a slave that may serve consumers who are far behind; 0: none."""
        return next((one for one in self.in_sync if one and self.slaves[one].is_connected), 0)
