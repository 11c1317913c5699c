"""Batches of a sink: halves that a stream processor writes in parts, and that one decision ends together.

A *sink* writes batch after batch.  Many writers write a batch at the same time, some of them twice, because a failed
one is repeated; each try is a *part*, with a unique name.  A property of its halves says to what they belong:

    SPARK_TXN    sink/batch/part/home    `home`: the broker group that decides about this sink

The sink's coordinator decides which parts make up the batch (`decisions`); those are committed, and all other parts of
the batch are rolled back.  A half with an ill-formed property is refused when it comes in: otherwise it would be
checked for ever without an answer.

`OpenParts` is the index of what is open by sink, batch and part; it belongs to the book.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

PROPERTY = "SPARK_TXN"
BATCH_MAX = (1 << 63) - 1

_SINK = r"[A-Za-z0-9_.:-]{1,128}"
_PART = r"[A-Za-z0-9_-]{1,64}"
_HOME = r"[^/\s\x00-\x1f]{1,127}"
_KEY = re.compile(rf"({_SINK})/(\d{{1,19}})/({_PART})/({_HOME})")
_SINK_ALONE, _PART_ALONE, _HOME_ALONE = re.compile(_SINK), re.compile(_PART), re.compile(_HOME)


class BatchKey(NamedTuple):
    """Sink, batch and part to which a half belongs, and the sink's home group."""

    sink: str
    batch: int
    part: str
    home: str


class OpenPart(NamedTuple):
    """One part of a batch with open halves; `since_ms` is when its first half was stored."""

    key: BatchKey
    roots: tuple[int, ...]
    since_ms: int


class _Halves:
    __slots__ = ("key", "roots", "since_ms")

    def __init__(self, key: BatchKey, since_ms: int) -> None:
        self.key = key
        self.roots: dict[int, None] = {}
        self.since_ms = since_ms


class OpenParts:
    """Roots of open halves of sinks; memory some 80 bytes for each, besides the half's own."""

    def __init__(self) -> None:
        self._sinks: dict[str, dict[tuple[int, str], _Halves]] = {}
        self.halves = 0

    def add(self, key: BatchKey, root: int, since_ms: int) -> BatchKey:
        """Add an open half; return the key to keep, one object for all halves of a part."""
        parts = self._sinks.setdefault(key.sink, {})
        place = (key.batch, key.part)
        if place not in parts:
            parts[place] = _Halves(key, since_ms)
        halves = parts[place]
        halves.since_ms = min(halves.since_ms, since_ms)
        if root not in halves.roots:
            halves.roots[root] = None
            self.halves += 1
        return halves.key

    def remove(self, key: BatchKey, root: int) -> None:
        """Remove a half that has ended, or that has moved and is added again."""
        parts = self._sinks[key.sink]
        place = (key.batch, key.part)
        roots = parts[place].roots
        del roots[root]
        self.halves -= 1
        if not roots:
            del parts[place]
            if not parts:
                del self._sinks[key.sink]

    def sinks(self) -> list[str]:
        """Return the names of the sinks with open halves."""
        return list(self._sinks)

    def parts(self, sink: str) -> Iterator[OpenPart]:
        """Yield the parts of a sink that have open halves."""
        for halves in list(self._sinks.get(sink, {}).values()):
            yield OpenPart(halves.key, tuple(halves.roots), halves.since_ms)

    def counts(self) -> Iterator[tuple[BatchKey, int, int]]:
        """Yield every part with the number of its open halves, and since when the oldest is open (epoch ms)."""
        for parts in self._sinks.values():
            for halves in parts.values():
                yield halves.key, len(halves.roots), halves.since_ms


def read_key(text: str) -> BatchKey | None:
    """Parse the property SPARK_TXN; None when it is ill-formed."""
    match = _KEY.fullmatch(text)
    if match is None or int(match[2]) > BATCH_MAX:
        return None
    return BatchKey(match[1], int(match[2]), match[3], match[4])


def is_sink(text: str) -> bool:
    """Return whether this text is valid as the name of a sink."""
    return _SINK_ALONE.fullmatch(text) is not None


def is_part(text: str) -> bool:
    """Return whether this text is valid as the name of a part."""
    return _PART_ALONE.fullmatch(text) is not None


def is_home(text: str) -> bool:
    """Return whether this may be the name of a broker group that decides about a sink."""
    return _HOME_ALONE.fullmatch(text) is not None
