"""Cancelled messages: their names by due time; they are not delivered.

A cancel is due at the same millisecond as the message that it cancels (RocketMQ: the same slot).  So the table is
bounded by the number of pending messages, and a start finds every cancel that still matters among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gantry.schedule import disguise

if TYPE_CHECKING:
    from gantry.schedule.disguise import Address


class Cancels:
    """The names of cancelled messages by due time.  Loop thread only."""

    def __init__(self) -> None:
        self._names: dict[int, set[bytes]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def add(self, due_ms: int, name: bytes) -> bool:
        """Cancel the message of this name that is due at this time; return whether that is new.  An empty name is
        ignored.
        """
        if not name:
            return False
        found = self._names.setdefault(due_ms, set())
        is_new = name not in found
        found.add(name)
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
        return disguise.cancel_key(address.topic, address.unique_key) in found or address.unique_key in found

    def forget_before(self, due_ms: int) -> None:
        """Forget cancels that are due before this time: nothing that is due before is pending."""
        if self._names:
            self._names = {due: found for due, found in self._names.items() if due >= due_ms}
