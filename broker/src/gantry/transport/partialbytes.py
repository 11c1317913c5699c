"""The budget of what connections keep of requests that have not come whole.

When all connections together would keep more than the budget, others are closed until there is room: first those for
which nothing has come for a while though we read, the longest first; then the one that keeps most, of the host that
keeps most.  A connection that would be that itself is refused.  So peers that never finish their requests make room for
those that go on sending, and however many connections one host has, they take nothing from the others.

While there is room, a connection costs one entry of a table.  Who would have to go is worked out when room gets short,
and kept up to date until half of the budget is free again: O(log n) each time, however many connections keep something.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from gantry.transport.addresses import host_of
from gantry.transport.making_room import Heaviest

_STALLED_S = 2.0  # a peer that goes on sending is heard of more often
_LOOKS_MAX = 1_000  # connections that turn out to have sent something, in one search for a silent one


class PartialFrameOwner(Protocol):
    """A connection that keeps the beginning of an unfinished request."""

    peer: str  # "ip:port" of the other side
    last_active: float  # loop time at which something was read last, in seconds

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read for a reason that is not the peer's: then its silence means nothing."""
        ...

    def give_way(self, reason: str) -> None:
        """Close the connection; when this returns, it keeps no bytes any more."""
        ...


class PartialBytes:
    """Counts the bytes of unfinished requests; `total` is never more than `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._kept: dict[PartialFrameOwner, int] = {}  # in the order in which they began
        self._order: _Order | None = None  # while room is short
        self._is_making_room = False

    def keep(self, holder: PartialFrameOwner, count: int) -> bool:
        """Record that the holder keeps `count` bytes from now on; this replaces its former count.

        Over the budget, others are closed (see the module).  Return False when this holder is the one that would
        have to go; its former count stays.
        """
        before = self._kept.get(holder, 0)
        if count > before and not self._has_room(count - before) and not self._make_room(holder, count, before):
            return False
        self.total += count - before
        if count:
            self._kept[holder] = count
        else:
            self._kept.pop(holder, None)
        if self._order is not None:
            self._order.change(holder, count)
            if self.total <= self.most // 2 and not self._is_making_room:
                self._order = None
        return True

    def _has_room(self, more: int) -> bool:
        return self.total + more <= self.most

    def _make_room(self, holder: PartialFrameOwner, count: int, before: int) -> bool:
        """Close others so that `holder` may keep `count` bytes. Return False when it would have to go itself."""
        if self._order is None:
            self._order = _Order(self._kept)
        order, host = self._order, host_of(holder.peer)
        self._is_making_room = True
        order.change(holder, 0)  # it is asking: only its host is compared
        order.add_to_host(host, count)
        has_room = False
        try:
            while not has_room and (one := order.longest_silent(holder.last_active)) is not None:
                self._close(one, "for which nothing has come for a while")
                has_room = self._has_room(count - before)
            while not has_room and (one := order.largest()) is not None:
                if self._kept[one] < count and host_of(one.peer) == host:
                    break
                self._close(one, "the most of all")
                has_room = self._has_room(count - before)
        finally:
            order.add_to_host(host, -count)
            order.change(holder, before)
            self._is_making_room = False
        return has_room

    def _close(self, other: PartialFrameOwner, why: str) -> None:
        kept = self._kept.get(other, 0)
        other.give_way(f"{kept} bytes of an unfinished frame, {why}, and all together are over their budget")
        assert other not in self._kept, "gave way and keeps something"


class _Order:
    """Who would have to make room, as it changes."""

    def __init__(self, kept: Mapping[PartialFrameOwner, int]) -> None:
        of_host: defaultdict[str, list[tuple[PartialFrameOwner, int]]] = defaultdict(list)
        for owner, count in kept.items():
            of_host[host_of(owner.peer)].append((owner, count))
        self._hosts = Heaviest((host, sum(count for _, count in owners)) for host, owners in of_host.items())
        self._of_host = {host: Heaviest[PartialFrameOwner](owners) for host, owners in of_host.items()}
        # By when something came: as it was when the connection was looked at last.
        self._silent = Heaviest[PartialFrameOwner]((owner, -owner.last_active) for owner in kept)

    def change(self, owner: PartialFrameOwner, count: int) -> None:
        """Note that a connection keeps so many bytes now."""
        host = host_of(owner.peer)
        owners = self._of_host.setdefault(host, Heaviest())
        before = int(owners.weight(owner))
        if count:
            owners.change(owner, count)
            if not before:
                self._silent.change(owner, -owner.last_active)
        else:
            owners.remove(owner)
            self._silent.remove(owner)
        self.add_to_host(host, count - before)
        if not owners:
            del self._of_host[host]

    def add_to_host(self, host: str, count: int) -> None:
        """Count so many bytes more for a host."""
        total = self._hosts.weight(host) + count
        if total:
            self._hosts.change(host, total)
        else:
            self._hosts.remove(host)

    def largest(self) -> PartialFrameOwner | None:
        """Return the connection that keeps most, of the host that keeps most; None when that host has no other."""
        host = self._hosts.first()
        owners = None if host is None else self._of_host.get(host)
        return None if owners is None else owners.first()

    def longest_silent(self, now: float) -> PartialFrameOwner | None:
        """Return the connection that has been silent for longest; None when all have sent something lately."""
        for _ in range(_LOOKS_MAX):
            one = self._silent.first()
            if one is None or -self._silent.weight(one) >= now - _STALLED_S:
                return None
            if one.is_held_up:
                self._silent.change(one, -now)  # looked at again when it has had the time to send
            elif one.last_active > -self._silent.weight(one):
                self._silent.change(one, -one.last_active)
            else:
                return one
        return None
