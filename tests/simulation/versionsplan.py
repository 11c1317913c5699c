"""One run of a group whose members are of different versions while everything goes wrong as in `groupplan`.

All begin with the previous version.  Then an operator rolls another one out (`rollplan`): this one, the next one, or
the previous one again.  Whatever a member of another version says must end no link and lose nothing, and what it does
not say must keep nobody from leading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation import revisions
from simulation.plan import Outcome
from simulation.revisions import Revision
from simulation.rollplan import RollRun

if TYPE_CHECKING:
    from simulation.groupmember import GroupMember


class VersionsRun(RollRun[Revision]):
    """One seed."""

    def play(self) -> Outcome:
        """See `GroupRun`."""
        for member in self.group.members:
            member.revision = Revision.PREVIOUS
        with revisions.spoken():
            return super().play()

    def _as_begun(self, member: GroupMember) -> Revision:
        return member.revision

    def _choices(self) -> list[Revision]:
        return list(Revision)

    def _make(self, member: GroupMember, wanted: Revision) -> None:
        member.revision = wanted
