"""The budget of what connections keep for clients that do not read.

Each connection has its limit of output; those of twenty thousand connections together do not fit into memory.  So what
waits in connections with more than NOTED_BYTES_MIN is counted: output that is not read, and requests that are put off
until it is.  When the total is too large, the connection that keeps most is closed, of the host that keeps most: a
client cannot take the others' room by opening many connections.

Counts are noted when output is written, and not when it leaves.  So before anybody is closed all are asked again, and
not before the running turn of the loop has sent what it has made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from gantry.transport.making_room import largest_first
from gantry.transport.turns import TurnTime

NOTED_BYTES_MIN = 64 << 10  # less is not counted: usual answers cost nothing here
_CLOSED_AT_ONCE = 256


class OutputOwner(Protocol):
    """A connection."""

    peer: str  # "ip:port" of the other side

    @property
    def kept_bytes(self) -> int:
        """Bytes of output and of requests that wait for the peer now."""
        ...

    def abort(self, reason: str) -> None:
        """End the connection at once and keep nothing."""
        ...


class OutputBudget:
    """The sum over all connections of a server; `soon` calls a function when this turn's output was sent."""

    def __init__(self, bytes_max: int, soon: Callable[[Callable[[], None]], object]) -> None:
        self.noted = 0  # bytes; as many are kept, or fewer
        self.closed = 0  # connections, to make room
        self._bytes_max = bytes_max
        self._soon = soon
        self._is_due = False
        self._of: dict[OutputOwner, int] = {}

    def note(self, owner: OutputOwner, count: int) -> None:
        """Count `count` bytes for this connection, in place of what was noted before."""
        self.noted += count - self._of.get(owner, 0)
        self._of[owner] = count
        if self.noted > self._bytes_max and not self._is_due:
            self._is_due = True
            self._soon(self._make_room)

    def forget(self, owner: OutputOwner) -> None:
        """Count nothing for this connection."""
        self.noted -= self._of.pop(owner, 0)

    def _make_room(self) -> None:
        self._is_due = False
        self._of = {owner: count for owner in self._of if (count := owner.kept_bytes) > NOTED_BYTES_MIN}
        self.noted = sum(self._of.values())
        if self.noted <= self._bytes_max:
            return
        for owner in islice(largest_first(self._of), _CLOSED_AT_ONCE):
            count = self._of[owner]
            self.forget(owner)
            self.closed += 1
            owner.abort(f"{count} bytes wait for this peer to read, the most of all over their budget")
            if self.noted <= self._bytes_max:
                return
        self._is_due = True  # the rest in the next turn
        self._soon(self._make_room)


@dataclass(frozen=True, slots=True)
class ServerShares:
    """What the connections of one server share, so that none of them takes all of it."""

    output: OutputBudget
    time: TurnTime
