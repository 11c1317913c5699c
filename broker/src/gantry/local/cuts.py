"""Simulated network failures of a local cluster: members that are cut off, and single directions that are cut.

    whole members     send nothing and receive nothing, the register included
    a way A>B         bytes from A to B are lost, bytes from B to A arrive.  A new connection needs both directions, so
                      none can be made between the two; open connections work in one direction only
    outside           everything that is not a member: clients, name server, coordinator, and the register.  Access to
                      the register needs both directions

These are values; `namespaces` and `wires` apply them, `local.json` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantry.model import documents

OUTSIDE = "outside"


class Way(NamedTuple):
    """One direction between two members, by name."""

    start: str
    end: str

    def __str__(self) -> str:
        return f"{self.start}>{self.end}"

    @property
    def back(self) -> Way:
        """The same two members in the other direction."""
        return Way(self.end, self.start)


@dataclass(frozen=True, slots=True)
class Cuts:
    """All cuts that are in effect at one time."""

    members: frozenset[str] = frozenset()
    ways: frozenset[Way] = frozenset()

    def cut_off(self, names: Iterable[str]) -> Cuts:
        """Return these cuts, and these members cut off."""
        return replace(self, members=self.members | set(names))

    def cut(self, starts: Iterable[str], ends: Iterable[str]) -> Cuts:
        """Return these cuts, and each way from a member of `starts` to one of `ends` cut."""
        to = tuple(ends)
        return replace(self, ways=self.ways | {Way(start, end) for start in starts for end in to if start != end})

    def healed(self, names: Iterable[str]) -> Cuts:
        """Return the cuts without any at these members."""
        whole = frozenset(names)
        return Cuts(self.members - whole, frozenset(way for way in self.ways if whole.isdisjoint(way)))

    def opened(self, starts: Iterable[str], ends: Iterable[str]) -> Cuts:
        """Return the cuts without the ways from a member of `starts` to one of `ends`."""
        to = tuple(ends)
        return replace(self, ways=self.ways - {Way(start, end) for start in starts for end in to})

    def is_cut(self, way: Way) -> bool:
        """Return whether bytes in this direction are lost."""
        return way in self.ways or not self.members.isdisjoint(way)

    def is_apart(self, one: str, other: str) -> bool:
        """Return whether no connection can be made between the two."""
        return self.is_cut(Way(one, other)) or self.is_cut(Way(other, one))

    @property
    def names(self) -> frozenset[str]:
        """The names of all members with a cut."""
        return self.members | {name for way in self.ways for name in way if name != OUTSIDE}

    def to_document(self) -> dict[str, object]:
        """Return the JSON object that `read_cuts` reads."""
        return {"members": sorted(self.members), "ways": sorted([way.start, way.end] for way in self.ways)}


def read_cuts(source: documents.Document) -> Cuts:
    """Return the cuts of a document; ValueError when it is invalid."""
    ways = set()
    for each in documents.array(source, "ways"):
        if not isinstance(each, list) or len(each) != 2:
            raise ValueError(f"{each!r} is no way from one to another")
        ways.add(Way(str(each[0]), str(each[1])))
    return Cuts(frozenset(str(each) for each in documents.array(source, "members")), frozenset(ways))
