"""Heartbeats that say what the last one said are not read again.

A client repeats itself every thirty seconds, word for word, and reading JSON is most of what a heartbeat costs (100 us
with one topic).  So what a connection said last is kept as it was understood, beside a digest of the words.  What
follows from a heartbeat is done every time all the same: in the meantime another member may have said something else.

Bounded by the length of the words, for each connection and for all; what does not fit is read each time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from gantry.wire import heartbeat
from gantry.wire.heartbeat import Heartbeat

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# A client of twenty groups with a topic each; who says more is read each time.
_KEPT_BYTES_MAX = 8 << 10
_ALL_BYTES_MAX = 16 << 20  # what is understood takes some ten times as much
_DIGEST_BYTES = 16


class Heartbeats:
    """What every connection said last; loop thread only."""

    def __init__(self) -> None:
        self._last: dict[Connection, tuple[bytes, Heartbeat, int]] = {}
        self._bytes = 0  # of all the words

    def __len__(self) -> int:
        return len(self._last)

    def read(self, connection: Connection, body: bytes | bytearray | memoryview) -> Heartbeat:
        """The heartbeat in a body; MalformedBodyError names what is wrong."""
        digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
        last = self._last.get(connection)
        if last is not None and last[0] == digest:
            return last[1]
        found = heartbeat.read(body)
        before = 0 if last is None else last[2]
        is_too_much = self._bytes - before + len(body) > _ALL_BYTES_MAX
        if len(body) > _KEPT_BYTES_MAX or is_too_much or connection.closed:
            return found
        if last is None:
            connection.closed_listeners.append(self._forget)
        self._bytes += len(body) - before
        self._last[connection] = digest, found, len(body)
        return found

    def _forget(self, connection: Connection) -> None:
        last = self._last.pop(connection, None)
        self._bytes -= 0 if last is None else last[2]
