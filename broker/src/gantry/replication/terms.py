"""The terms of a group: what its members' configurations have to agree on, as each member says it.

Each member reports its `Terms` in its state.  A coordinator has none of its own: it goes by the weakest of all answers
(`failover.agreement`).

Whether a former master may still acknowledge is a question about that master alone.  So a master writes `LeaderTerms`
with each renewal: the write that gives it a serving lease says in the same moment for how long the lease lasts, and
whether the master acknowledges without its slaves.  An election reads them with the record that it decides on.  Terms
of another epoch say nothing: a member of the previous version led since, or nobody has renewed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gantry.model import documents

_LED = re.compile(r"(\d{1,10})/(sync|async)/(\d{1,2})/(\d{1,4})", re.ASCII)
_SYNC, _ASYNC = "SYNC_MASTER", "ASYNC_MASTER"


@dataclass(frozen=True, slots=True)
class Terms:
    """What one member's configuration says about its group."""

    is_sync: bool
    min_in_sync: int
    renew_every_s: float
    segment_bytes: int
    members: int  # of the group, as far as this one knows

    def to_document(self) -> dict[str, object]:
        """Return the JSON object that `read_terms` reads."""
        return {
            "role": _SYNC if self.is_sync else _ASYNC,
            "minInSync": self.min_in_sync,
            "renewEveryMs": round(self.renew_every_s * 1000),
            "segmentBytes": self.segment_bytes,
            "members": self.members,
        }


def read_terms(source: documents.Document) -> Terms | None:
    """Return the terms in the state of a member; None for a member of a version that does not say them.

    ValueError when they are invalid.
    """
    if "terms" not in source:
        return None
    said = documents.mapping(source, "terms")
    numbers = [documents.integer(said, name) for name in ("minInSync", "renewEveryMs", "segmentBytes", "members")]
    least, renew_ms, segment_bytes, members = numbers
    if min(numbers) < 1:
        raise ValueError(f"terms {said}, expected positive numbers")
    return Terms(documents.text(said, "role") == _SYNC, least, renew_ms / 1000, segment_bytes, members)


@dataclass(frozen=True, slots=True)
class LeaderTerms:
    """What the master of `epoch` said with its last renewal; `7/sync/2/15` as text."""

    epoch: int
    is_sync: bool
    min_in_sync: int
    lease_s: int  # of that renewal; the register may have another one for the next renewal

    @property
    def needs_slaves(self) -> bool:
        """Whether nothing is acknowledged without another member, so that one member's promise stops this master."""
        return self.is_sync and self.min_in_sync >= 2

    def __str__(self) -> str:
        return f"{self.epoch}/{'sync' if self.is_sync else 'async'}/{self.min_in_sync}/{self.lease_s}"


def parse_leader_terms(text: str) -> LeaderTerms | None:
    """Return the terms of a text; None for any other text, so that what a later version writes counts as unknown."""
    found = _LED.fullmatch(text)
    if found is None:
        return None
    return LeaderTerms(int(found[1]), found[2] == "sync", int(found[3]), int(found[4]))
