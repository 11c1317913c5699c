"""One read buffer for all connections of a loop, and the budget of what they may keep.

A loop handles what one wake-up brought, of one connection or of all that are read together (`gathered`),
before it reads again.  So all connections read into the same memory, and what a burst of 10 000 clients
costs is one buffer, not 10 000.  Only the beginning of a frame that has not arrived whole outlives the
wake-up: its bytes are the connection's own and are counted here.  When all connections together would
keep more than the budget, others are closed until there is room: first those for which nothing has come
for a while, the longest first; then the one that keeps most, of the host that keeps most.  A connection
that would be that itself is refused.  So peers that never finish their frames make room for those that
go on sending, and however many connections one host has, they take nothing from the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from gantry.transport.addresses import host_of

READ_BUFFER_BYTES = 1 << 20  # one wake-up reads at most this much; 64 KiB costs 20 % more calls at full speed
_STALLED_S = 2.0  # a peer that goes on sending is heard of more often
PARTIAL_BYTES_MAX = 256 << 20  # sixteen frames of the largest size, all of them unfinished


class PartialFrameOwner(Protocol):
    """A connection that keeps the beginning of an unfinished frame."""

    peer: str  # "ip:port" of the other side
    last_active: float  # loop time at which something was read last, in seconds

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
        while count > before and self.partial_bytes - before + count > self._partial_bytes_max:
            other, why = self._first_to_go(holder, count)
            if other is None:
                return False
            kept = self._kept[other]
            other.give_way(f"{kept} bytes of an unfinished frame, {why}, and all together are over their budget")
            assert other not in self._kept, "gave way and keeps something"
        self.partial_bytes += count - before
        if count:
            self._kept[holder] = count
        else:
            self._kept.pop(holder, None)
        return True

    def _first_to_go(self, holder: PartialFrameOwner, count: int) -> tuple[PartialFrameOwner | None, str]:
        """Return whom to close so that `holder` may keep `count` bytes, and why; None: nobody but itself."""
        others = [one for one in self._kept if one is not holder]
        stalled = min(others, key=lambda one: one.last_active, default=None)
        if stalled is None:
            return None, ""
        if holder.last_active - stalled.last_active > _STALLED_S:
            return stalled, "for which nothing has come for a while"
        own = host_of(holder.peer)
        of_host = Counter({own: count})
        for one in others:
            of_host[host_of(one.peer)] += self._kept[one]
        host, _ = of_host.most_common(1)[0]
        of_it = [one for one in others if host_of(one.peer) == host]
        largest = max(of_it, key=self._kept.__getitem__, default=None)
        if largest is None or (host == own and self._kept[largest] < count):
            return None, ""
        return largest, "the most of all"
