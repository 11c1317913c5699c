"""A member's report about itself: the JSON of `GET /ha/v1/state`, and of the answer to a seal.

    role        master, slave, or none
    epoch       the last one in which it led or followed; a promise alone does not count
    promise     the highest promised epoch, already on its disk
    lastEpoch   of the last record in its log
    writable    a master that takes writes, or refuses them only because its disk is full or its set too small
    short       a master that refuses writes because too few slaves are connected, or was sealed while it did
    diskFull    there is no room for further messages; of any member
    terms       what its configuration says about the group (`terms`); missing: a member of the previous version
    diskLate    a master whose disk makes acknowledgements late, while enough of its slaves are in time
    linksLate   a master whose links to its slaves make acknowledgements late, so that fewer than minInSync are in time

Both sides of the interface take the names from here.  Received numbers are checked against their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gantry.model import documents
from gantry.replication.members import MEMBERS_MAX, NUMBER_MAX, Member
from gantry.replication.record import Holder, parse_holder
from gantry.replication.terms import Terms, read_terms


class MemberRole(Enum):
    """What a member does at the moment."""

    MASTER = "master"
    SLAVE = "slave"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MemberState:
    """The fields of the state document."""

    cluster_uid: str
    group: str
    store_uid: str
    me: Holder
    role: MemberRole
    epoch: int
    promise: int
    last_epoch: int
    log_start: int
    log_end: int
    confirmed: int
    is_writable: bool
    is_short: bool = False
    is_disk_full: bool = False
    terms: Terms | None = None
    is_disk_late: bool = False
    are_links_late: bool = False

    @property
    def member(self) -> Member:
        """Ordinal and incarnation."""
        return self.me.member

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written or promised on this disk."""
        return self.log_end == 0 and self.promise == 0 and self.epoch == 0

    @property
    def is_unused(self) -> bool:
        """Whether the log is empty and the disk never led or followed; it may have promised an epoch."""
        return self.log_end == 0 and self.epoch == 0

    @property
    def advance(self) -> tuple[int, int]:
        """Epoch and end of the log. Two logs of a group with equal values are equal; the greater value is further."""
        return self.last_epoch, self.log_end

    def to_document(self) -> dict[str, object]:
        """Return the JSON object that `read_state` reads."""
        return {
            "clusterUID": self.cluster_uid,
            "group": self.group,
            "storeUID": self.store_uid,
            "member": str(self.me),
            "role": self.role.value,
            "epoch": self.epoch,
            "promise": self.promise,
            "lastEpoch": self.last_epoch,
            "minOffset": self.log_start,
            "maxOffset": self.log_end,
            "confirmOffset": self.confirmed,
            "writable": self.is_writable,
            "short": self.is_short,
            "diskFull": self.is_disk_full,
            **({} if self.terms is None else {"terms": self.terms.to_document()}),
            "diskLate": self.is_disk_late,
            "linksLate": self.are_links_late,
        }


def read_state(source: documents.Document) -> MemberState:
    """Return the state in a document; ValueError when it is invalid."""
    me = parse_holder(documents.text(source, "member"))
    if me is None or me.member.ordinal >= MEMBERS_MAX:
        raise ValueError("member is missing")
    state = MemberState(
        documents.text(source, "clusterUID"),
        documents.text(source, "group"),
        documents.text(source, "storeUID"),
        me,
        MemberRole(documents.text(source, "role")),
        documents.integer(source, "epoch"),
        documents.integer(source, "promise"),
        documents.integer(source, "lastEpoch"),
        documents.integer(source, "minOffset"),
        documents.integer(source, "maxOffset"),
        documents.integer(source, "confirmOffset"),
        documents.boolean(source, "writable"),
        documents.boolean(source, "short"),
        documents.boolean(source, "diskFull"),
        read_terms(source),
        is_disk_late=documents.boolean(source, "diskLate"),
        are_links_late=documents.boolean(source, "linksLate"),
    )
    if not all(0 <= number <= NUMBER_MAX for number in (state.epoch, state.promise, state.last_epoch)):
        raise ValueError(f"epoch {state.epoch}, promise {state.promise}, lastEpoch {state.last_epoch}")
    if not 0 <= state.log_start <= state.log_end or not 0 <= state.confirmed <= state.log_end:
        raise ValueError(f"log from {state.log_start} to {state.log_end}, confirmed {state.confirmed}")
    return state
