"""How many messages of some kind there are, and how many of them live, by the second of their birth.

`living` counts what was born in or after the second of a given time, so it is right to a second.  Asked with a time
that goes on it costs as much as seconds passed since.

Memory is some 0.1 KB for each second with messages, for at most SECONDS_MAX of them; beyond that neighbours are counted
together, and the answer is right to so many seconds.
"""

from __future__ import annotations

SECONDS_MAX = 1 << 18  # three days of messages in every second: some 25 MB


class Population:
    """A multiset of births."""

    __slots__ = ("_by_bucket", "_cut", "_dead", "_width_s", "total")

    def __init__(self) -> None:
        self.total = 0
        self._width_s = 1
        self._by_bucket: dict[int, int] = {}
        self._cut = 0  # the first bucket that lives
        self._dead = 0  # messages in buckets before it

    def add(self, born_s: int, count: int = 1) -> None:
        """Add messages that were born in this second; take some away with a negative count, at most those there are."""
        bucket = born_s // self._width_s
        known = self._by_bucket.get(bucket, 0)
        after = max(0, known + count)
        if after:
            self._by_bucket[bucket] = after
        else:
            self._by_bucket.pop(bucket, None)
        self.total += after - known
        if bucket < self._cut:
            self._dead += after - known
        if len(self._by_bucket) > SECONDS_MAX:
            self._widen()

    def living(self, from_ms: int | None) -> int:
        """Return how many were born in the second of this time or later; None: all."""
        if from_ms is None:
            return self.total
        cut = max(0, from_ms // 1000 // self._width_s)
        if 0 <= cut - self._cut <= len(self._by_bucket):
            self._dead += sum([self._by_bucket.get(bucket, 0) for bucket in range(self._cut, cut)])
        else:
            self._dead = sum([count for bucket, count in self._by_bucket.items() if bucket < cut])
        self._cut = cut
        return self.total - self._dead

    def _widen(self) -> None:
        self._width_s *= 2
        wider: dict[int, int] = {}
        for bucket, count in self._by_bucket.items():
            wider[bucket // 2] = wider.get(bucket // 2, 0) + count
        self._by_bucket = wider
        self._cut //= 2
        self._dead = sum([count for bucket, count in wider.items() if bucket < self._cut])
