"""Pulls that wait until the cold reader has read their messages from the disk.

A connection has reads of at most `bytes_max` under way, and one pull more.  Its other pulls wait here, in order, and
are handled again from the beginning when it is their turn: by then the peer may have stopped reading, or the messages
may be warm.  Connections take turns, so a connection with a thousand such pulls does not delay the others.

Bounded: reads under way, over all connections, by what the cold reader queues; pulls that wait, by number, for each
connection and for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gantry.store.coldrange import ColdRange

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.transport.connection import Connection

# The cold reader queues 1024 jobs, and others read by it too.
_READS_MAX = 512
# When a peer stops reading, all of these are answered at once: some milliseconds.
_WAITING_PER_CONNECTION_MAX = 1024

Places = Sequence[tuple[int, int]] | ColdRange


class _Line:
    """The waiting pulls of one connection, and the bytes that are being read for it."""

    __slots__ = ("bytes", "waiting")

    def __init__(self) -> None:
        self.bytes = 0  # of the reads under way
        self.waiting: deque[Pull] = deque()


class ColdPulls:
    """Pulls by connection; loop thread only.  `again` answers a pull that waited, and may call `read` for it."""

    def __init__(
        self,
        bring_in: Callable[[Places, Callable[[], None]], None],
        again: Callable[[Connection, Pull], None],
        bytes_max: int,
        waiting_max: int,
    ) -> None:
        self.waiting = 0  # pulls that wait for their turn, over all connections
        self._waiting_max = waiting_max
        self._bring_in = bring_in
        self._again = again
        self._bytes_max = bytes_max
        self._reads = 0
        self._lines: dict[Connection, _Line] = {}
        self._due: dict[Connection, None] = {}  # may go on, in the order of their turns
        self._is_taking = False

    def __len__(self) -> int:
        return len(self._lines)

    def bytes_of(self, connection: Connection) -> int:
        """How many bytes are being read for this connection."""
        line = self._lines.get(connection)
        return 0 if line is None else line.bytes

    def may_read(self, connection: Connection) -> bool:
        """Whether a read for this connection may begin now."""
        return self._reads < _READS_MAX and self.bytes_of(connection) < self._bytes_max

    def read(self, connection: Connection, places: Places, is_in: Callable[[], None]) -> None:
        """Read these (log offset, size), or queue entries, then call `is_in`; the caller has asked `may_read`."""
        line = self._lines.setdefault(connection, _Line())
        if isinstance(places, ColdRange):
            count = places.end - places.start
        else:
            count = sum([size for _, size in places])
        line.bytes += count
        self._reads += 1

        def done() -> None:
            line.bytes -= count
            self._reads -= 1
            try:
                is_in()
            finally:
                self._due[connection] = None
                self._take_turns()

        self._bring_in(places, done)

    def wait(self, connection: Connection, pull: Pull) -> bool:
        """Keep a pull until its connection may read again; False when too many wait."""
        line = self._lines.setdefault(connection, _Line())
        if self.waiting >= self._waiting_max or len(line.waiting) >= _WAITING_PER_CONNECTION_MAX:
            self._due[connection] = None
            return False
        line.waiting.append(pull)
        self.waiting += 1
        if line.bytes < self._bytes_max:
            self._due[connection] = None
        return True

    def _take_turns(self) -> None:
        if self._is_taking:
            return
        self._is_taking = True
        try:
            while self._due and self._reads < _READS_MAX:
                connection = next(iter(self._due))
                del self._due[connection]
                line = self._lines.get(connection)
                if line is not None:
                    self._go_on(connection, line)
        finally:
            self._is_taking = False

    def _go_on(self, connection: Connection, line: _Line) -> None:
        """Answer waiting pulls until reads are under way again; those of a closed connection are dropped."""
        if connection.closed:
            self.waiting -= len(line.waiting)
            line.waiting.clear()
        try:
            while line.waiting and self.may_read(connection):
                self.waiting -= 1
                self._again(connection, line.waiting.popleft())
        finally:
            if line.waiting and not line.bytes:
                self._due[connection] = None  # the cold reader has enough to do
            elif not line.waiting and not line.bytes:
                self._lines.pop(connection, None)
