"""The in-sync set: which members' acknowledgements are needed, and the confirmed offset.

A master makes one object for each epoch.  It holds the set of the register, the one change that is under way there, and
each member's acknowledgement; from these it derives `confirmed`.  It has no clock and no network: the caller sends the
change to the register and reports the outcome.

    required     the members whose acknowledgement is needed now; always a superset of what the register may hold
    confirmed    every required member, this master too, has the log below it; never moves back

Set before ack.  The outcome of a change is unknown from the moment it is sent until a *later* write of the same master
succeeded, or the register was read changed.  Reading the old state proves nothing: the request may still be under way.
Meanwhile a leaving member still counts, and a joining one counts already; so only one change is under way at a time.

    shrink    never below minInSync: the set in the register is the list of electable copies, and a slow member may
              be the only other copy.  Writes are refused instead
    expand    at max(confirmed, end of the log when the epoch began).  A master that restarted knows no
              acknowledgements, so its confirmed begins low; without the second term a stale member would get in
    replace   the same rule for a member that came back as another incarnation; old and new are required meanwhile
    leave     a shrink that the slave asked for itself, without the wait before it

With fewer than minInSync members in the set `confirmed` does not move.  Acknowledgements count for the incarnation that
gave them.  Normative: broker/docs/failover.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.replication.members import MEMBERS_MAX, Member, SyncSet, format_set


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """One compare-and-set of the in-sync set, from `base` to `target`."""

    member: Member  # the one that leaves or joins
    base: SyncSet
    target: SyncSet


class InSync:
    """The set and the acknowledgements of one epoch.

    share        this member; its acknowledgement is its own flushed or written offset
    recorded     the set that the register holds when the epoch begins
    start        the end of the log at that moment
    confirmed    the offset that is known to be confirmed from before
    """

    def __init__(self, share: Member, recorded: SyncSet, start: int, confirmed: int, min_in_sync: int) -> None:
        assert share in recorded, f"{share} is master and not in {format_set(recorded)}"
        assert 0 <= confirmed <= start, f"confirmed {confirmed} behind the log's end {start}"
        assert min_in_sync >= 1
        self.share = share
        self.start = start  # where the log ended when the epoch began
        self.confirmed = confirmed
        self.min_in_sync = min_in_sync
        self.recorded = recorded  # the register's set, without `change`
        self.change: InSyncChange | None = None  # sent or about to be, outcome unknown
        self._match: dict[Member, int] = {}  # of this epoch; our own share is reported like the others'

    # Queries

    @property
    def required(self) -> SyncSet:
        """The members that have to acknowledge: all that may be in the register's set."""
        return self.recorded if self.change is None else self.recorded | self.change.target

    @property
    def others(self) -> list[int]:
        """The ordinals of the required members without this master."""
        return [member.ordinal for member in self.required if member != self.share]

    @property
    def has_enough(self) -> bool:
        """Whether the set is large enough to confirm anything, whatever the outcome of a change under way."""
        sizes = [len(self.recorded)] if self.change is None else [len(self.recorded), len(self.change.target)]
        return min(sizes) >= self.min_in_sync

    def match(self, member: Member) -> int:
        """Return the offset that this member has acknowledged in this epoch; 0 before its first acknowledgement."""
        return self._match.get(member, 0)

    # Reports

    def acknowledge(self, member: Member, end: int) -> int:
        """Note that a member, or our own disk, has the log below `end`. Return the confirmed offset."""
        assert 0 <= member.ordinal < MEMBERS_MAX
        if member not in self._match:
            self._forget_predecessor(member)
        self._match[member] = max(end, self._match.get(member, 0))
        return self._recount()

    def settle(self, members: SyncSet) -> int:
        """Note that the register certainly holds `members`, and no request of ours can change that. Return the
        confirmed offset.

        Call it after a successful write of ours, with the set that it left, and after a read that shows the register
        changed since the request was made. Do not call it after a read that shows the register unchanged.
        """
        assert self.share in members, f"{self.share} is master and not in {format_set(members)}"
        self.recorded, self.change = members, None
        return self._recount()

    # Changes to send; None: not now.  The same change may be sent again until it is settled.

    def shrink(self, member: Member) -> InSyncChange | None:
        """Return the change that removes a member; None when it is not allowed or another change is under way."""
        if self.change is not None or member == self.share or member not in self.recorded:
            return None
        if len(self.recorded) - 1 < self.min_in_sync:
            return None
        return self._begin(member, self.recorded - {member})

    def admit(self, member: Member) -> InSyncChange | None:
        """Return the change that adds a member, in place of its former incarnation if that is in the set; None: not
        now.
        """
        if self.change is not None or member in self.recorded or member.ordinal == self.share.ordinal:
            return None
        if self.match(member) < self.entry_mark:
            return None
        former = {other for other in self.recorded if other.ordinal == member.ordinal}
        if any(other.incarnation > member.incarnation for other in former):
            return None  # an acknowledgement of a disk that has been lost since
        return self._begin(member, (self.recorded - former) | {member})

    @property
    def entry_mark(self) -> int:
        """The offset that a member must have acknowledged before it may join."""
        return max(self.confirmed, self.start)

    def _begin(self, member: Member, target: SyncSet) -> InSyncChange:
        # Before anything is sent `required` covers both outcomes.
        self.change = InSyncChange(member, self.recorded, target)
        return self.change

    def _recount(self) -> int:
        if self.has_enough:
            self.confirmed = max(self.confirmed, min(self.match(member) for member in self.required))
        return self.confirmed

    def _forget_predecessor(self, member: Member) -> None:
        """Drop acknowledgements of other incarnations that are not required, so that the table stays small."""
        needed = self.required
        for other in [known for known in self._match if known.ordinal == member.ordinal and known not in needed]:
            del self._match[other]
