"""Who does not hear whom in a local cluster: whole members, and ways in one direction.

    whole members     neither send to anybody nor hear anybody, the register too
    a way A>B         what A sends to B is lost; what B sends to A arrives.  A connection needs both, so no new one is
                      made between the two, and on those that there are one side speaks into the void
    outside           everything that is no member: clients, name server, coordinator, and the register, which is a
                      service that answers; who cannot ask it, or cannot hear it, does not reach it

Values only; `namespaces` and `wires` carry them out, `local.json` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantry.model import documents

OUTSIDE = "outside"


class Way(NamedTuple):
    """From one to another, by name."""

    start: str
    end: str

    def __str__(self) -> str:
        return f"{self.start}>{self.end}"

    @property
    def back(self) -> Way:
        """The other direction."""
        return Way(self.end, self.start)


@dataclass(frozen=True, slots=True)
class Cuts:
    """All that is cut at one time."""

    members: frozenset[str] = frozenset()
    ways: frozenset[Way] = frozenset()

    def cut_off(self, names: Iterable[str]) -> Cuts:
        """These members from everybody, besides."""
        return replace(self, members=self.members | set(names))

    def cut(self, starts: Iterable[str], ends: Iterable[str]) -> Cuts:
        """The ways from each of these to each of those, besides."""
        to = tuple(ends)
        return replace(self, ways=self.ways | {Way(start, end) for start in starts for end in to if start != end})

    def healed(self, names: Iterable[str]) -> Cuts:
        """Nothing is cut any more at these members."""
        whole = frozenset(names)
        return Cuts(self.members - whole, frozenset(way for way in self.ways if whole.isdisjoint(way)))

    def opened(self, starts: Iterable[str], ends: Iterable[str]) -> Cuts:
        """The ways from each of these to each of those are whole."""
        to = tuple(ends)
        return replace(self, ways=self.ways - {Way(start, end) for start in starts for end in to})

    def is_cut(self, way: Way) -> bool:
        """Whether what goes this way is lost."""
        return way in self.ways or not self.members.isdisjoint(way)

    def is_apart(self, one: str, other: str) -> bool:
        """Whether no connection can be made between the two."""
        return self.is_cut(Way(one, other)) or self.is_cut(Way(other, one))

    @property
    def names(self) -> frozenset[str]:
        """Every member that something is cut at."""
        return self.members | {name for way in self.ways for name in way if name != OUTSIDE}

    def to_document(self) -> dict[str, object]:
        """As JSON."""
        return {"members": sorted(self.members), "ways": sorted([way.start, way.end] for way in self.ways)}


def read_cuts(source: documents.Document) -> Cuts:
    """What `to_document` made; ValueError for anything else."""
    ways = set()
    for each in documents.array(source, "ways"):
        if not isinstance(each, list) or len(each) != 2:
            raise ValueError(f"{each!r} is no way from one to another")
        ways.add(Way(str(each[0]), str(each[1])))
    return Cuts(frozenset(str(each) for each in documents.array(source, "members")), frozenset(ways))
