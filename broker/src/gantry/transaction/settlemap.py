"""The settle map: the outcome of each transaction, by its root.

Two bits per half-queue offset from `base` on, in one byte array: 0.25 MB per million halves.  Roots below `base`
(settled long ago, or put back before this start) are few and are kept in a table of their own, as long as it has
room.  `get` returns None for those that are in neither, and the caller looks them up in the key index, where every
op message is found under its roots.

COMMITTED and ROLLED_BACK are final.  A transaction that was given up may still be settled (its producer came back with
the answer) or be armed again.
"""

from __future__ import annotations

from gantry.transaction.oplog import TransactionState

_OUTCOMES = tuple(TransactionState)
_FINAL = (int(TransactionState.COMMITTED), int(TransactionState.ROLLED_BACK))
_EARLY_MAX = 100_000
_KEEP_MAX = 64 << 20  # halves: 16 MB; older ones are in the index


class SettleMap:
    """The outcomes of transactions by root; two bits for each half-queue offset from `base` to `end`."""

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.end = base
        self.bits = bytearray()  # read and written by `leaves.openhalves` too
        self._early: dict[int, TransactionState] = {}

    @property
    def bytes(self) -> int:
        """Memory held by the bits."""
        return len(self.bits)

    def grow(self, end: int) -> None:
        """Extend the map to half-queue offsets below `end`, as OPEN."""
        if end > self.end:
            self.end = end
            needed = (end - self.base + 3) >> 2
            if needed > len(self.bits):
                self.bits.extend(bytes(max(needed - len(self.bits), 64)))
            if end - self.base > 2 * _KEEP_MAX:
                self._forget(end - _KEEP_MAX)

    def get(self, root: int) -> TransactionState | None:
        """Return the outcome; None for a root below the base that is not in the table."""
        if root < self.base:
            return self._early.get(root)
        if root >= self.end:
            return None
        at = root - self.base
        return _OUTCOMES[self.bits[at >> 2] >> ((at & 3) << 1) & 3]

    def put(self, root: int, outcome: TransactionState) -> bool:
        """Store an outcome; return False when the transaction has a final one already."""
        if root >= self.end:
            self.grow(root + 1)
        if root < self.base:
            if self._early.get(root) in _FINAL:
                return False
            if len(self._early) >= _EARLY_MAX:
                self._early.pop(next(iter(self._early)))
            self._early[root] = outcome
            return True
        at = root - self.base
        shift = (at & 3) << 1
        bits = self.bits[at >> 2]
        if bits >> shift & 3 in _FINAL:
            return False
        self.bits[at >> 2] = bits & ~(3 << shift) | outcome << shift
        return True

    def _forget(self, base: int) -> None:
        base -= (base - self.base) % 4
        del self.bits[: (base - self.base) >> 2]
        self.base = base
