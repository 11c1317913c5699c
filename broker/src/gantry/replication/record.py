"""The contents of a group's register: one value, replaced as a whole by compare-and-set.

    epoch            rises with every seal and every change of holder
    holder           member and process that lead; None unless the phase is Active
    in_sync          the members that have every acknowledged message; only they are electable
    set_version      rises with each change of in_sync
    stores           which disk an ordinal has, and its number (`term_promise`); no number is given twice, so the
                     number of a removed store is kept
    confirm_floor    the log was certainly confirmed up to this offset: a disk that holds less has lost messages
    renewed_ms       wall clock of the last writer, in ms; for people, no decision depends on it
    leader_terms     what the master said with its last renewal (`terms`); None: unknown

    Bootstrapping    never had a master      Active      the holder leads
    Sealed           in_sync is frozen       Recovering  sealed, and the former in_sync is unknown

It is stored as names and texts, like the annotations of a Kubernetes object; `from_fields` checks every value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gantry.replication.members import (
    DISKS_MAX,
    MEMBERS_MAX,
    NUMBER_MAX,
    Member,
    SyncSet,
    disk_of,
    format_set,
    parse_member,
    parse_set,
)
from gantry.replication.terms import LeaderTerms, parse_leader_terms

OFFSET_MAX = (1 << 63) - 1
_PROCESS = re.compile(r"[0-9A-Za-z-]{1,64}")
_STORE = re.compile(r"(\d{1,2})=([0-9A-Za-z-]{0,64}):(\d{1,7})", re.ASCII)
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


class Phase(Enum):
    """The phase of a group."""

    BOOTSTRAPPING = "Bootstrapping"
    ACTIVE = "Active"
    SEALED = "Sealed"
    RECOVERING = "Recovering"


class Holder(NamedTuple):
    """The member and process that lead; a restarted process is another holder."""

    member: Member
    process: str

    def __str__(self) -> str:
        return f"{self.member}/{self.process}"


class MemberDisk(NamedTuple):
    """The disk of an ordinal; an empty uid: the disk was removed."""

    uid: str
    disk: int


@dataclass(frozen=True, slots=True)
class RegisterRecord:
    """The register's contents. The constructor raises ValueError for values that do not fit together."""

    cluster_uid: str
    epoch: int
    phase: Phase
    holder: Holder | None = None
    in_sync: SyncSet = frozenset()
    set_version: int = 0
    stores: tuple[tuple[int, MemberDisk], ...] = ()  # by ordinal
    confirm_floor: int = 0
    lease_duration_s: int = 15
    renewed_ms: int = 0
    leader_terms: LeaderTerms | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.epoch <= NUMBER_MAX and 0 <= self.confirm_floor <= OFFSET_MAX and self.set_version >= 0):
            raise ValueError(f"epoch {self.epoch}, floor {self.confirm_floor}, set version {self.set_version}")
        if not (1 <= self.lease_duration_s <= 3600 and self.renewed_ms >= 0 and _PROCESS.fullmatch(self.cluster_uid)):
            raise ValueError(f"lease of {self.lease_duration_s} s, cluster {self.cluster_uid!r}")
        if (self.phase is Phase.ACTIVE) != (self.holder is not None):
            raise ValueError(f"phase {self.phase.value} with the holder {self.holder}")
        if self.holder is not None and self.holder.member not in self.in_sync:
            raise ValueError(f"the holder {self.holder} is not in {format_set(self.in_sync)}")

    def store(self, ordinal: int) -> MemberDisk | None:
        """Return the disk of an ordinal; None when it has none."""
        return next((store for other, store in self.stores if other == ordinal and store.uid), None)

    def disk_number(self, ordinal: int, store_uid: str) -> int | None:
        """Return the number of the ordinal's disk; None when the ordinal has another disk, or none."""
        store = self.store(ordinal)
        return store.disk if store is not None and store.uid == store_uid else None

    def has_disk(self, member: Member) -> bool:
        """Return whether this incarnation is on the disk that was admitted for its ordinal."""
        store = self.store(member.ordinal)
        return store is not None and store.disk == disk_of(member.incarnation)

    @property
    def last_led(self) -> LeaderTerms | None:
        """The terms of the master, or of the one that was sealed; None when they are not known."""
        led = self.epoch - (self.phase is Phase.SEALED)
        return self.leader_terms if self.leader_terms is not None and self.leader_terms.epoch == led else None


def to_fields(record: RegisterRecord) -> dict[str, str]:
    """Return the record as names and texts."""
    return {
        "cluster-uid": record.cluster_uid,
        "epoch": str(record.epoch),
        "phase": record.phase.value,
        "holder": str(record.holder) if record.holder is not None else "",
        "sync-set": format_set(record.in_sync),
        "sync-set-version": str(record.set_version),
        "stores": ",".join(f"{ordinal}={store.uid}:{store.disk}" for ordinal, store in record.stores),
        "confirm-floor": str(record.confirm_floor),
        "lease-duration": str(record.lease_duration_s),
        "renewed": str(record.renewed_ms),
        "leader-terms": "" if record.leader_terms is None else str(record.leader_terms),
    }


def from_fields(fields: Mapping[str, object]) -> RegisterRecord:
    """Return the record in these texts; unknown names are ignored. ValueError for a missing or invalid value."""
    return RegisterRecord(
        cluster_uid=_text(fields, "cluster-uid"),
        epoch=_number(fields, "epoch"),
        phase=Phase(_text(fields, "phase")),
        holder=parse_holder(_text(fields, "holder")),
        in_sync=parse_set(_text(fields, "sync-set")),
        set_version=_number(fields, "sync-set-version"),
        stores=parse_stores(_text(fields, "stores")),
        confirm_floor=_number(fields, "confirm-floor"),
        lease_duration_s=_number(fields, "lease-duration"),
        renewed_ms=_number(fields, "renewed"),
        # Members of the previous version do not write it.
        leader_terms=parse_leader_terms(_text(fields, "leader-terms") if "leader-terms" in fields else ""),
    )


def parse_holder(text: str) -> Holder | None:
    """Return the holder of a text like `0.3/2c41`, None for an empty text; ValueError for anything else."""
    if not text:
        return None
    member, _, process = text.partition("/")
    if not _PROCESS.fullmatch(process):
        raise ValueError(f"{text!r} is no holder, expected ORDINAL.INCARNATION/PROCESS")
    return Holder(parse_member(member), process)


def parse_stores(text: str) -> tuple[tuple[int, MemberDisk], ...]:
    """Return the stores of a text like `0=8f1c:0,1=77aa:2`, ordered by ordinal; ValueError for anything else."""
    found = []
    for each in text.split(",") if text else []:
        match = _STORE.fullmatch(each)
        if match is None or int(match[1]) >= MEMBERS_MAX or int(match[3]) >= DISKS_MAX:
            raise ValueError(f"{each!r} is no store, expected ORDINAL=UID:DISK")
        found.append((int(match[1]), MemberDisk(match[2], int(match[3]))))
    if len({ordinal for ordinal, _ in found}) != len(found):
        raise ValueError(f"{text!r} names an ordinal twice")
    return tuple(sorted(found))


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is missing in the register")
    return value


def _number(fields: Mapping[str, object], name: str) -> int:
    text = _text(fields, name)
    if not _NUMBER.fullmatch(text) or int(text) > OFFSET_MAX:
        raise ValueError(f"{name} is {text!r}, expected a number")
    return int(text)
