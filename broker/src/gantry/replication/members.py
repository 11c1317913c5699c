"""The identity of a group's members: a place in the group, and which contents of a disk.

    ordinal       the member's place, 0, 1, 2 ...; it stays when the machine or the disk is replaced
    incarnation   grows each time the disk under that place may have lost what it acknowledged

An acknowledgement counts only for the incarnation that gave it: a member that lost its unflushed tail and copied it
again is another incarnation.  So sets and tables of a group never hold ordinals alone, and a set holds an ordinal once.

In a group with a register an incarnation is disk * 4096 + losses.  The register numbers the disks of an ordinal and
never gives a number twice; the member counts the losses of its disk (`term_promise`).

As text, in the register and on the wire: `1.4` for incarnation 4 of ordinal 1, a set as `0.3,1.4,2.2` in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MEMBERS_MAX = 64  # of one group; each of them acknowledges every message
NUMBER_MAX = (1 << 31) - 1  # of incarnations and epochs: the register keeps them as signed 32-bit numbers
LOSSES_MAX = 4095
DISKS_MAX = NUMBER_MAX // (LOSSES_MAX + 1)
_MEMBER = re.compile(r"(\d{1,10})\.(\d{1,10})", re.ASCII)


class Member(NamedTuple):
    """One incarnation of one place of the group."""

    ordinal: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.ordinal}.{self.incarnation}"


SyncSet = frozenset[Member]


def incarnation_of(disk: int, losses: int) -> int:
    """Return the incarnation of a disk after so many losses."""
    return disk * (LOSSES_MAX + 1) + losses


def disk_of(incarnation: int) -> int:
    """Return the number of the disk that an incarnation belongs to."""
    return incarnation // (LOSSES_MAX + 1)


def parse_member(text: str) -> Member:
    """Return the member of a text like `1.4`; ValueError for anything else."""
    found = _MEMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no member, expected ORDINAL.INCARNATION")
    member = Member(int(found[1]), int(found[2]))
    if member.ordinal >= MEMBERS_MAX or member.incarnation > NUMBER_MAX:
        raise ValueError(f"{text!r} is no member, ordinals end at {MEMBERS_MAX - 1}, incarnations at {NUMBER_MAX}")
    return member


def parse_set(text: str) -> SyncSet:
    """Return the set of a text like `0.3,1.4`, empty for an empty text. ValueError for anything else, or a repeated
    ordinal.
    """
    members = [parse_member(each) for each in text.split(",")] if text else []
    if len({member.ordinal for member in members}) != len(members):
        raise ValueError(f"{text!r} names an ordinal twice")
    return frozenset(members)


def format_set(members: Iterable[Member]) -> str:
    """Return the set's text in order; equal sets have equal texts."""
    return ",".join(str(member) for member in sorted(members))
