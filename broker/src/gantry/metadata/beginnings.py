"""Since when each group reads a topic: the log offset and the wall clock at the group's first commit in the topic.

Without this "no offset in the queue" has two meanings that a broker cannot tell apart.  A group that is new begins as
its clients are configured to.  A group that reads the topic already, and has no offset in a queue because the queue
appeared later, begins at the queue's first message (`starts`).  The log offset decides on this broker; the time is for
other brokers of the topic, whose logs have other offsets.

A group with offsets and without an entry here comes from an older version, or from RocketMQ: it counts as reading the
topic from the begin of the log.  So such a group rather reads messages again than skips some.

Saved in the document of the offsets, and sent to slaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gantry.model import documents
from gantry.store.lineblocks import LineBlocks


class Began(NamedTuple):
    """The end of the log, and the wall clock in ms, when a group began to read a topic."""

    log_offset: int
    at_ms: int


ALWAYS = Began(0, 0)
"""Of a group whose begin is not known: it counts as reading the topic from the begin of the log."""


class Beginnings:
    """Begins by `topic@group`; only `Offsets` changes them."""

    def __init__(self, table: dict[str, Began]) -> None:
        self._table = table
        self.lines = LineBlocks(self.value)
        self.lines.fill(table)
        self.touched: set[str] | None = None  # changed keys, for replication; None without

    def __bool__(self) -> bool:
        return bool(self._table)

    def put(self, key: str, began: Began) -> None:
        """Note a group's begin in a topic; a begin that is known stays."""
        if key not in self._table:
            self._table[key] = began
            self._touch(key)

    def get(self, key: str) -> Began:
        """Return the begin of a group that reads the topic."""
        return self._table.get(key, ALWAYS)

    def remove(self, keys: Iterable[str]) -> None:
        """Forget these begins."""
        for key in keys:
            if self._table.pop(key, None) is not None:
                self._touch(key)

    def bound(self, log_end: int) -> bool:
        """Set begins behind the log's end back to it; return whether there were any.

        A crash or a change of the master made the log shorter.  Else a queue whose first message comes next would count
        as one that was there before.
        """
        ahead = [key for key, began in self._table.items() if began.log_offset > log_end]
        for key in ahead:
            self._table[key] = self._table[key]._replace(log_offset=log_end)
            self._touch(key)
        return bool(ahead)

    def keys(self) -> list[str]:
        """Return every key."""
        return list(self._table)

    def value(self, key: str) -> list[int] | None:
        """Return a begin as it is sent to a slave; None when there is none."""
        began = self._table.get(key)
        return None if began is None else list(began)

    def follow(self, key: str, value: object) -> bool:
        """Take over the master's begin of a key, None removes it; return whether it differs.  ValueError: neither."""
        wanted = None if value is None else _began(key, value)
        if self._table.get(key) == wanted:
            return False
        if wanted is None:
            del self._table[key]
        else:
            self._table[key] = wanted
        self.lines.changed.add(key)
        return True

    def _touch(self, key: str) -> None:
        self.lines.changed.add(key)
        if self.touched is not None:
            self.touched.add(key)


def read(source: documents.Document, name: str) -> Beginnings:
    """Return the begins of a saved document; ValueError for an invalid one."""
    return Beginnings({key: _began(key, value) for key, value in documents.mapping(source, name).items()})


def _began(key: str, value: object) -> Began:
    match value:
        case [int(log_offset), int(at_ms)]:
            return Began(log_offset, at_ms)
        case _:
            raise ValueError(f"{str(value)[:80]} is no begin of {key}")
