"""Rows with a sharding key wait until the one before is stored: of each key one request is under way at a time.

A refused or lost request is sent again, and later rows of its key must not be stored before it.  So the rows of a key
wait in a *lane*.  Its first rows are sent when nothing of the lane is under way; all rows that wait then are one
request, where requests may hold several rows.  Lanes do not wait for each other.

The owner bounds what is held: `is_full` says when to wait for answers before more is added.  A lane exists only while
it has a request under way or rows.
"""

from __future__ import annotations

from collections import deque

from pyspark_gantrymq.sinkcolumns import Row

HELD_ROWS_MAX = 1024
HELD_BYTES_MAX = 8 << 20
Lane = tuple[str, str]  # topic, key


class Lanes:
    """All lanes of a task; `rows_max` and `bytes_max` are limits of one request."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._held: dict[Lane, deque[Row]] = {}
        self._free: deque[Lane] = deque()  # with rows, and nothing under way
        self._singly: dict[Lane, int] = {}  # how many rows at the front have to leave one by one
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many keys have a request under way or rows."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Return whether answers have to be awaited before another row is added."""
        return self._rows > HELD_ROWS_MAX or self._bytes > HELD_BYTES_MAX

    def add(self, row: Row) -> None:
        """Hold a row, behind those of its key."""
        lane = row.topic, row.key
        held = self._held.get(lane)
        if held is None:
            self._held[lane] = deque([row])
            self._free.append(lane)
        else:
            held.append(row)
        self._count(row, 1)

    def take(self) -> list[Row]:
        """Return the rows of the next request; empty when every lane has one under way."""
        if not self._free:
            return []
        lane = self._free.popleft()
        held, singly = self._held[lane], self._singly.pop(lane, 0)
        rows = [held.popleft()]
        size = _size(rows[0])
        if singly > 1:
            self._singly[lane] = singly - 1
        if not singly and not _is_alone(rows[0]):
            while held and len(rows) < self._rows_max and not _is_alone(held[0]):
                size += _size(held[0])
                if size > self._bytes_max:
                    break
                rows.append(held.popleft())
        for row in rows:
            self._count(row, -1)
        return rows

    def done(self, row: Row) -> None:
        """End the request of this row's key: it is stored, or given up."""
        lane = row.topic, row.key
        if self._held[lane]:
            self._free.append(lane)
        else:
            del self._held[lane]

    def back(self, rows: list[Row]) -> None:
        """Put back rows that were refused together; they are sent one by one before any others of their key."""
        lane = rows[0].topic, rows[0].key
        self._held[lane].extendleft(reversed(rows))
        self._singly[lane] = len(rows)
        self._free.append(lane)
        for row in rows:
            self._count(row, 1)

    def _count(self, row: Row, sign: int) -> None:
        self._rows += sign
        self._bytes += sign * _size(row)


def _size(row: Row) -> int:
    return len(row.body) + len(row.packed)


def _is_alone(row: Row) -> bool:
    """Return whether the row needs a request of its own."""
    return row.is_delayed or row.queue_id >= 0 or bool(row.broker)
