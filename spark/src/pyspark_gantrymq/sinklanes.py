"""Rows with a sharding key, held back until the one before is stored: of each key one request is under way at a time.

A refused or lost request is sent again, and whatever of its key had left in the meantime would be stored before it.  So
the rows of a key stand in a *lane*.  Its front leaves when nothing of the lane is under way; what has gathered behind
it leaves together, as one request, where requests may hold several rows.  Lanes do not wait for each other.

What is held is for the owner to bound: `is_full` says when to wait for answers before more is added.  A lane is kept
only while it has something under way or held.
"""

from __future__ import annotations

from collections import deque

from pyspark_gantrymq.sinkcolumns import Row

HELD_ROWS_MAX = 1024
HELD_BYTES_MAX = 8 << 20
Lane = tuple[str, str]  # topic, key


class Lanes:
    """`rows_max` and `bytes_max` are of one request."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._held: dict[Lane, deque[Row]] = {}
        self._free: deque[Lane] = deque()  # with rows, and nothing under way
        self._singly: dict[Lane, int] = {}  # how many rows at the front have to leave one by one
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        """How many keys have something under way or held."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether answers have to come before more is held."""
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
        """What leaves next, as one request; empty when every lane has one under way."""
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
        """What was under way of this row's key is stored, or given up."""
        lane = row.topic, row.key
        if self._held[lane]:
            self._free.append(lane)
        else:
            del self._held[lane]

    def back(self, rows: list[Row]) -> None:
        """These were refused together, and leave one by one before any other of their key."""
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
    """Whether it cannot share a request."""
    return row.is_delayed or row.queue_id >= 0 or bool(row.broker)
