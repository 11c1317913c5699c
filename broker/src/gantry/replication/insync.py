"""Which members' acknowledgements are needed, and up to where all of them have the log.

One object for one mastership: the master makes it when it takes an epoch and drops it with the epoch.  It knows the set
that the register holds, the one change that is under way there, and what each member acknowledged; it answers
`confirmed`.  No clock, no network: the shell sends the change to the register and says how it went.

    required     the members whose acknowledgement is needed now; always a superset of what the register may hold
    confirmed    every required member, ourselves too, has the log below it; never moves back

Set before ack.  A change of the register has an unknown outcome from the moment it is sent until a *later* write of the
same master succeeded, or the register was seen changed: reading the old state proves nothing, the request may still be
on its way.  In between a member that leaves counts as still in, and one that joins as already in; therefore only one
change is under way at a time.

    shrink    never below minInSync: the set in the register is the list of electable copies, and a member that is
              thrown out for being slow may be the only one beside us.  Writes are refused instead
    expand    at max(confirmed, end of the log when the epoch began).  A master that restarted knows no
              acknowledgements, so its confirmed begins low; without the second term a stale member would get in
    replace   the same rule for a member that came back as another incarnation; old and new are required meanwhile
    leave     a shrink that the slave asked for itself: only the waiting before it is saved

With fewer than minInSync members in the set confirmed stands still, anyone who acknowledges.  Acknowledgements count
for the incarnation that gave them.  Normative: broker/docs/failover.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gantry.replication.members import MEMBERS_MAX, Member, SyncSet, format_set


class Kind(Enum):
    """What a change does."""

    SHRINK = "shrink"
    EXPAND = "expand"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Change:
    """One compare-and-set of the in-sync set: from what the register holds to what it shall hold."""

    kind: Kind
    member: Member  # who leaves, or joins
    base: SyncSet
    target: SyncSet


class InSync:
    """See the module.

    share        the member that we are; its acknowledgement is our own flushed or written mark
    recorded     the set that the register holds as we take the epoch
    start        where our log ends then
    confirmed    what we know to be confirmed from before
    """

    def __init__(self, share: Member, recorded: SyncSet, start: int, confirmed: int, min_in_sync: int) -> None:
        assert share in recorded, f"{share} is master and not in {format_set(recorded)}"
        assert 0 <= confirmed <= start, f"confirmed {confirmed} behind the log's end {start}"
        assert min_in_sync >= 1
        self.share = share
        self.start = start  # where the log ended when the epoch began
        self.confirmed = confirmed
        self.min_in_sync = min_in_sync
        self.recorded = recorded  # the register's set, apart from `change`
        self.change: Change | None = None  # sent or about to be, outcome unknown
        self._match: dict[Member, int] = {}  # of this epoch; our own share is reported like the others'

    # What the shell may ask

    @property
    def required(self) -> SyncSet:
        """Who has to acknowledge: everybody who may be in the register's set."""
        return self.recorded if self.change is None else self.recorded | self.change.target

    @property
    def has_enough(self) -> bool:
        """Whether the set is large enough to acknowledge anything, whichever way a change under way ends."""
        sizes = [len(self.recorded)] if self.change is None else [len(self.recorded), len(self.change.target)]
        return min(sizes) >= self.min_in_sync

    def match(self, member: Member) -> int:
        """How far this member has acknowledged in this epoch; 0 before its first word."""
        return self._match.get(member, 0)

    # What the shell reports

    def acknowledge(self, member: Member, end: int) -> int:
        """A member, or our own disk, has the log below `end`; the confirmed offset that follows."""
        assert 0 <= member.ordinal < MEMBERS_MAX
        if member not in self._match:
            self._forget_predecessor(member)
        self._match[member] = max(end, self._match.get(member, 0))
        return self._recount()

    def settle(self, members: SyncSet) -> int:
        """The register holds `members` for certain and no request of ours can change that any more.

        True after a write of ours succeeded (the set that it left), and after a read that shows the register changed
        since the request was made.  A read that shows it unchanged is no reason to call this.
        """
        assert self.share in members, f"{self.share} is master and not in {format_set(members)}"
        self.recorded, self.change = members, None
        return self._recount()

    # What the shell may want to change; None: not now.  The same change may be sent again until it is settled.

    def shrink(self, member: Member) -> Change | None:
        """Leave a member out: it is silent, too far behind, or says goodbye."""
        if self.change is not None or member == self.share or member not in self.recorded:
            return None
        if len(self.recorded) - 1 < self.min_in_sync:
            return None
        return self._begin(Kind.SHRINK, member, self.recorded - {member})

    def admit(self, member: Member) -> Change | None:
        """Take a member in; in the place of its former incarnation when that is still in the set."""
        if self.change is not None or member in self.recorded or member.ordinal == self.share.ordinal:
            return None
        if self.match(member) < self.entry_mark:
            return None
        former = {other for other in self.recorded if other.ordinal == member.ordinal}
        if any(other.incarnation > member.incarnation for other in former):
            return None  # the word of a disk that has been lost since
        kind = Kind.REPLACE if former else Kind.EXPAND
        return self._begin(kind, member, (self.recorded - former) | {member})

    @property
    def entry_mark(self) -> int:
        """A member may join when it has acknowledged this much."""
        return max(self.confirmed, self.start)

    def _begin(self, kind: Kind, member: Member, target: SyncSet) -> Change:
        # From here on, so before anything is sent, `required` covers both outcomes.
        self.change = Change(kind, member, self.recorded, target)
        return self.change

    def _recount(self) -> int:
        if self.has_enough:
            self.confirmed = max(self.confirmed, min(self.match(member) for member in self.required))
        return self.confirmed

    def _forget_predecessor(self, member: Member) -> None:
        """One entry for each ordinal besides those that are required, so that the table stays small."""
        needed = self.required
        for other in [known for known in self._match if known.ordinal == member.ordinal and known not in needed]:
            del self._match[other]
