"""How much of its master's log a slave has, and how much of that it may acknowledge.

    written     the bytes are in its log
    held        by its flush policy: flushed under SYNC_FLUSH, else written
    confirmed   every in-sync member has it, according to the master; here never beyond written

An acknowledgement covers the metadata that the records need: a change of topics or groups that came before a chunk is
on the slave's disk before that chunk is acknowledged.  So each change that is not on the disk yet is a barrier at the
log offset where it came, and no acknowledgement goes beyond the first barrier.  Offsets of groups, which take longer to
save, are acknowledged when they are on the disk too (`keep`), and hold up no records (`free`).

Marks only grow.  When a log is cut or replaced, a new object is made.
"""

from __future__ import annotations

from collections import deque

from gantry.wire.ha import Ack


class Replica:
    """One slave's marks during one link."""

    def __init__(self, end: int, held: int, confirmed: int) -> None:
        assert 0 <= held <= end and 0 <= confirmed <= end, f"held {held}, confirmed {confirmed} of {end}"
        self.written = end
        self.confirmed = confirmed
        self.applied = 0  # the last change of metadata that came
        self.echo = 0  # the master's clock, as of its last beat
        self._held = held
        self._durable = 0  # the last change of metadata on the disk
        self._master_confirmed = confirmed
        self._barriers: deque[tuple[int, int]] = deque()  # (change, where the log ended when it came)

    def append(self, start: int, end: int) -> None:
        """Note that these bytes are in the log."""
        assert start == self.written and end > start, f"[{start}, {end}) behind {self.written}"
        self.written = end
        self._settle()

    def hold(self, offset: int) -> None:
        """Note that the log is held up to `offset`, which is not beyond `written`."""
        assert offset <= self.written, f"held {offset} of {self.written}"
        self._held = max(self._held, offset)

    def change(self, number: int) -> bool:
        """Note a change of metadata. Return False when it came before."""
        if number <= self.applied:
            return False
        self.applied = number
        self._barriers.append((number, self.written))
        return True

    def keep(self, number: int) -> None:
        """Note that changes up to this one are on the disk."""
        assert number <= self.applied, f"change {number} of {self.applied}"
        self._durable = max(self._durable, number)
        self.free(number)

    def free(self, number: int) -> None:
        """Note that what records need of the changes up to this one is on the disk."""
        while self._barriers and self._barriers[0][0] <= number:
            self._barriers.popleft()

    def confirm(self, offset: int) -> None:
        """Note the master's confirmed offset; bytes that are not here yet are confirmed when they come."""
        self._master_confirmed = max(self._master_confirmed, offset)
        self._settle()

    @property
    def ack(self) -> Ack:
        """What may be acknowledged now."""
        limit = self._barriers[0][1] if self._barriers else self.written
        return Ack(self.written, min(self._held, limit), self._durable, self.echo)

    def _settle(self) -> None:
        self.confirmed = max(self.confirmed, min(self._master_confirmed, self.written))
