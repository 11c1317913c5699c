"""Heartbeats that say what the last one said are not read again.

A client repeats itself every thirty seconds, word for word, and reading JSON is most of what a heartbeat costs (100 us
with one topic).  So what a connection said last is kept as it was understood, beside a digest of the words.  What
follows from a heartbeat is done every time all the same: in the meantime another member may have said something else.

Bounded: connections by the server's limit, and what is kept of each by the length of the words.
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
_DIGEST_BYTES = 16


class Heartbeats:
    """What every connection said last; loop thread only."""

    def __init__(self) -> None:
        self._last: dict[Connection, tuple[bytes, Heartbeat]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def read(self, connection: Connection, body: bytes | bytearray | memoryview) -> Heartbeat:
        """The heartbeat in a body; MalformedBodyError names what is wrong."""
        digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
        last = self._last.get(connection)
        if last is not None and last[0] == digest:
            return last[1]
        found = heartbeat.read(body)
        if len(body) > _KEPT_BYTES_MAX or connection.closed:
            return found
        if last is None:
            connection.closed_listeners.append(self._forget)
        self._last[connection] = digest, found
        return found

    def _forget(self, connection: Connection) -> None:
        self._last.pop(connection, None)
