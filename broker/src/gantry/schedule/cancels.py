"""What is not to be delivered: by due time, the names of messages that were taken back.

A cancel is found beside what it cancels because both are due at the same millisecond (RocketMQ: the same slot).  So
what is remembered is bounded by what is pending, and a start finds every cancel that still matters among what is
pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.schedule import disguise

if TYPE_CHECKING:
    from gantry.schedule.disguise import Address


class Cancels:
    """Loop thread only."""

    def __init__(self) -> None:
        self._names: dict[int, set[bytes]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    def add(self, due_ms: int, name: bytes) -> None:
        """The message of this name that is due then is not to be delivered."""
        if name:
            self._names.setdefault(due_ms, set()).add(name)

    def has(self, due_ms: int, address: Address) -> bool:
        """Whether this message was taken back."""
        found = self._names.get(due_ms)
        if found is None or not address.unique_key:
            return False
        # RocketMQ: before 5.3 a cancel named the unique key alone.
        return disguise.cancel_key(address.topic, address.unique_key) in found or address.unique_key in found

    def forget_before(self, due_ms: int) -> None:
        """Nothing that is due before is pending."""
        if self._names:
            self._names = {due: found for due, found in self._names.items() if due >= due_ms}
