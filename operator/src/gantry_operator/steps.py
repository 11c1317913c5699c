"""Steps of a plan, as values: what may be done next about a cluster.  What each is for stands in `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry_operator.podseen import Pod
from gantry_operator.snapshot import GroupSeen, Order


class Configure(NamedTuple):
    """Tell this member these values."""

    group: GroupSeen
    ordinal: int
    keys: Mapping[str, str]

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("configure", self.ordinal, ", ".join(f"{key}={value}" for key, value in self.keys.items()))


class Reclone(NamedTuple):
    """Have this member throw its log away; `refused`: say why not instead."""

    group: GroupSeen
    ordinal: int
    refused: str = ""


class Resize(NamedTuple):
    """Tell the set how many members it has."""

    group: GroupSeen
    replicas: int


class HandOver(NamedTuple):
    """Have `target` lead."""

    group: GroupSeen
    target: int

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("hand over", self.target)


class Forget(NamedTuple):
    """This ordinal has no disk any more, and no volume."""

    group: GroupSeen
    ordinal: int

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("forget", self.ordinal)


class Replace(NamedTuple):
    """Delete this pod; the set makes it again."""

    pod: Pod


class Hold(NamedTuple):
    """There is something to do, and not now."""

    reason: str


Step = Configure | Reclone | Resize | HandOver | Forget | Replace | Hold
