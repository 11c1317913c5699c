"""Cancelled messages: their names by due time; they are not delivered.

A cancel is due at the same millisecond as the message that it cancels (RocketMQ: the same slot).  So the table is
bounded by the number of pending messages, and a start finds every cancel that still matters among them.  It holds a
digest of each name, however long that is: some 250 bytes for each cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gantry.schedule import disguise

if TYPE_CHECKING:
    from gantry.schedule.disguise import Address


_DIGEST_BYTES = 16
_FORGOTTEN_AT_ONCE = 1000


class Cancels:
    """The names of cancelled messages by due time.  Loop thread only."""

    def __init__(self) -> None:
        self._names: dict[int, bytes | set[bytes]] = {}  # a digest, or several
        self._dues: list[int] = []  # a heap of the keys above

    def __len__(self) -> int:
        return sum(1 if isinstance(found, bytes) else len(found) for found in self._names.values())

    def add(self, due_ms: int, name: bytes) -> bool:
        """Cancel the message of this name that is due at this time; return whether that is new.  An empty name is
        ignored.
        """
        if not name:
            return False
        digest, found = _digest(name), self._names.get(due_ms)
        if found is None:
            heappush(self._dues, due_ms)
            self._names[due_ms] = digest
            return True
        if isinstance(found, bytes):
            found = self._names[due_ms] = {found}  # rare
        is_new = digest not in found
        found.add(digest)
        return is_new

    def touches(self, dues_ms: Iterable[int]) -> bool:
        """Return whether any message that is due at one of these times was cancelled."""
        return bool(self._names) and not self._names.keys().isdisjoint(dues_ms)

    def has(self, due_ms: int, address: Address) -> bool:
        """Return whether this message was cancelled."""
        found = self._names.get(due_ms)
        if found is None or not address.unique_key:
            return False
        # RocketMQ: before 5.3 a cancel named the unique key alone.
        names = disguise.cancel_key(address.topic, address.unique_key), address.unique_key
        digests = [_digest(name) for name in names]
        return found in digests if isinstance(found, bytes) else not found.isdisjoint(digests)

    def forget_before(self, due_ms: int) -> Iterator[None]:
        """Forget cancels that are due before this time, in slices: nothing that is due before is pending."""
        count = 0
        while self._dues and self._dues[0] < due_ms:
            del self._names[heappop(self._dues)]
            count += 1
            if count % _FORGOTTEN_AT_ONCE == 0:
                yield


def _digest(name: bytes) -> bytes:
    return blake2b(name, digest_size=_DIGEST_BYTES).digest()
