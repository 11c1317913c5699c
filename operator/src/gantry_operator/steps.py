"""Steps of a plan, as values; `plan` says when each is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry_operator.podseen import Pod
from gantry_operator.snapshot import GroupSeen, Order


class Configure(NamedTuple):
    """Set these values of the configuration on a running member."""

    group: GroupSeen
    ordinal: int
    keys: Mapping[str, str]

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("configure", self.ordinal, ", ".join(f"{key}={value}" for key, value in self.keys.items()))


class Reclone(NamedTuple):
    """Have this member remove its log and copy it again; `refused`: only report why not."""

    group: GroupSeen
    ordinal: int
    refused: str = ""


class Resize(NamedTuple):
    """Set the number of replicas of the group's StatefulSet."""

    group: GroupSeen
    replicas: int


class HandOver(NamedTuple):
    """Have the master hand over to the member `target`."""

    group: GroupSeen
    target: int

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("hand over", self.target)


class Forget(NamedTuple):
    """Remove an ordinal's disk from the register, and delete its volume."""

    group: GroupSeen
    ordinal: int

    @property
    def order(self) -> Order:
        """To tell it from others, and to know it again."""
        return Order("forget", self.ordinal)


class Replace(NamedTuple):
    """Delete this pod; the StatefulSet makes it again."""

    pod: Pod


class Hold(NamedTuple):
    """Something has to be done, but must wait; with the reason."""

    reason: str


Step = Configure | Reclone | Resize | HandOver | Forget | Replace | Hold
