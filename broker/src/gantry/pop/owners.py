"""Leases that the broker renews for their owners: clients that handle messages for longer than one lease lasts.

A pop may name its client as owner (`gantryOwner`).  While the owner is alive, a lease that ends is stored again with a
later end, so its handles stay valid and nothing is delivered twice.  An owner is alive

    for 30 s after it said so for this group (KEEP_POP_OWNERS, every ten seconds),
    for 30 s after this broker became the master: it could not hear owners before.

A lease is renewed for at most 3 h after its pop: a handler that hangs must not keep messages for ever.  RocketMQ: the
proxy renews, as long (`ReceiptHandleManager`, renewMaxTimeMillis); a proxy that dies there lets go of everything.

The table is bounded; who does not fit is refused.  Owners that went silent leave it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantry.pop.book import OpenLease

SILENCE_S_MAX = 30.0
"""An owner that was silent for longer does not live any more; clients say it every ten seconds."""
RENEWED_MS = 30_000
"""How much longer a renewed lease lasts: one record in the log for each lease and half minute."""
RENEWAL_MS_MAX = 3 * 3_600_000
"""How long after its pop a lease may be renewed."""
OWNERS_MAX = 100_000
GROUPS_MAX = 1_000
"""Groups of one owner."""


class _Owner:
    """A client that said that it lives: when, and in which groups."""

    __slots__ = ("groups", "seen_at")

    def __init__(self, groups: frozenset[str], seen_at: float) -> None:
        self.groups = groups
        self.seen_at = seen_at


class Owners:
    """The owners that are alive.  Times are monotonic seconds, but those of leases.  Loop thread only."""

    def __init__(self, owners_max: int = OWNERS_MAX, groups_max: int = GROUPS_MAX) -> None:
        self.renewed = 0  # leases, since the start
        self._owners_max = owners_max
        self._groups_max = groups_max
        self._grace_until = 0.0
        self._owners: dict[str, _Owner] = {}  # the one that was silent longest first

    def __len__(self) -> int:
        return len(self._owners)

    def begin(self, now: float) -> None:
        """This broker became the master: every owner counts as alive until it had the time to say so."""
        self._grace_until = now + SILENCE_S_MAX

    def keep(self, client_id: str, groups: Iterable[str], now: float) -> str | None:
        """Note that an owner lives, and in exactly these groups; return why that is refused, else None."""
        named = frozenset(groups)
        if len(named) > self._groups_max:
            return f"the owner names {len(named)} groups, {self._groups_max} are allowed"
        self.expire(now)
        if client_id not in self._owners and len(self._owners) >= self._owners_max:
            return f"{len(self._owners)} owners of popped messages are known, which is as many as may be"
        self._owners.pop(client_id, None)
        self._owners[client_id] = _Owner(named, now)
        return None

    def end(self, client_id: str, group: str = "") -> None:
        """Note that an owner ended in a group, or everywhere."""
        owner = self._owners.get(client_id)
        if owner is None:
            return
        owner.groups = owner.groups - {group} if group else frozenset()
        if not owner.groups:
            del self._owners[client_id]

    def is_alive(self, client_id: str, group: str, now: float) -> bool:
        """Return whether the owner's leases in this group are to be renewed."""
        if now < self._grace_until:
            return True
        owner = self._owners.get(client_id)
        return owner is not None and group in owner.groups and now - owner.seen_at <= SILENCE_S_MAX

    def expire(self, now: float) -> None:
        """Forget owners that went silent."""
        while self._owners:
            client_id, owner = next(iter(self._owners.items()))
            if now - owner.seen_at <= SILENCE_S_MAX:
                return
            del self._owners[client_id]

    def renewed_until(self, lease: OpenLease, now: float, now_ms: int) -> int | None:
        """Return when a lease that is due ends instead, in ms since 1970; None: it ends now."""
        if not self.keeps(lease.owner, lease.key.group, lease.key.pop_ms, now, now_ms):
            return None
        self.renewed += 1
        return min(now_ms + RENEWED_MS, lease.key.pop_ms + RENEWAL_MS_MAX)

    def keeps(self, client_id: str, group: str, pop_ms: int, now: float, now_ms: int) -> bool:
        """Return whether an owner (empty: there is none) keeps what it popped at this time, in ms since 1970."""
        return client_id != "" and now_ms < pop_ms + RENEWAL_MS_MAX and self.is_alive(client_id, group, now)
