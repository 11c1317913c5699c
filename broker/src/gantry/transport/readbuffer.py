"""One read buffer for all connections of a loop, and the budget of what they may keep.

A loop handles what one wake-up brought, of one connection or of all that are read together (`gathered`),
before it reads again.  So all connections read into the same memory, and what a burst of 10 000 clients
costs is one buffer, not 10 000.  Only the beginning of a frame that has not arrived whole outlives the
wake-up: its bytes are the connection's own and are counted here.  When all connections together would
keep more than the budget, others are closed until there is room: first those for which nothing has come
for a while though we read, the longest first; then the one that keeps most, of the host that keeps most.  A connection
that would be that itself is refused.  So peers that never finish their frames make room for those that
go on sending, and however many connections one host has, they take nothing from the others.
"""

from __future__ import annotations

from typing import Protocol

from gantry.transport.addresses import host_of
from gantry.transport.making_room import largest_first

READ_BUFFER_BYTES = 1 << 20  # one wake-up reads at most this much; 64 KiB costs 20 % more calls at full speed
_STALLED_S = 2.0  # a peer that goes on sending is heard of more often
PARTIAL_BYTES_MAX = 256 << 20  # sixteen frames of the largest size, all of them unfinished


class PartialFrameOwner(Protocol):
    """A connection that keeps the beginning of an unfinished frame."""

    peer: str  # "ip:port" of the other side
    last_active: float  # loop time at which something was read last, in seconds

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read for a reason that is not the peer's: then its silence means nothing."""
        ...

    def give_way(self, reason: str) -> None:
        """Close the connection; when this returns, it keeps no bytes any more."""
        ...


class ReadBuffer:
    """Memory into which every connection of one loop reads, with the count of unfinished frames' bytes."""

    def __init__(self, size: int = READ_BUFFER_BYTES, partial_bytes_max: int = PARTIAL_BYTES_MAX) -> None:
        self.memory = bytearray(size)
        self.view = memoryview(self.memory)
        self.partial_bytes = 0
        self._partial_bytes_max = partial_bytes_max
        self._kept: dict[PartialFrameOwner, int] = {}  # in the order in which they began

    def keep(self, holder: PartialFrameOwner, count: int) -> bool:
        """Record that the holder keeps `count` bytes from now on; this replaces its former count.

        Over the budget, others are closed (see the module).  Return False when this holder is the one that would
        have to go; its former count stays.
        """
        before = self._kept.get(holder, 0)
        if count > before and not self._has_room(count - before) and not self._make_room(holder, count, before):
            return False
        self.partial_bytes += count - before
        if count:
            self._kept[holder] = count
        else:
            self._kept.pop(holder, None)
        return True

    def _has_room(self, more: int) -> bool:
        return self.partial_bytes + more <= self._partial_bytes_max

    def _make_room(self, holder: PartialFrameOwner, count: int, before: int) -> bool:
        """Close others so that `holder` may keep `count` bytes. Return False when it would have to go itself."""
        others = {one: kept for one, kept in self._kept.items() if one is not holder}
        heard_s = holder.last_active - _STALLED_S
        stalled = [one for one in others if one.last_active < heard_s and not one.is_held_up]
        for one in sorted(stalled, key=lambda one: one.last_active):
            self._close(one, "for which nothing has come for a while")
            del others[one]
            if self._has_room(count - before):
                return True
        own = host_of(holder.peer)
        for one in largest_first(others, (own, count)):
            if others[one] < count and host_of(one.peer) == own:
                return False
            self._close(one, "the most of all")
            if self._has_room(count - before):
                return True
        return False

    def _close(self, other: PartialFrameOwner, why: str) -> None:
        kept = self._kept.get(other, 0)
        other.give_way(f"{kept} bytes of an unfinished frame, {why}, and all together are over their budget")
        assert other not in self._kept, "gave way and keeps something"
