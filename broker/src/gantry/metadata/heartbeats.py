"""A cache of decoded heartbeats: one that repeats the last one of its connection is not decoded again.

A client sends the same heartbeat every thirty seconds, and reading JSON is most of what a heartbeat costs (100 us
with one topic).  So the last one of each connection is kept decoded, with a digest of its bytes.  It is still applied
every time: in the meantime another member may have sent other subscriptions.

Bounded by the bytes of the bodies, for each connection and for all; a heartbeat that does not fit is decoded each time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from gantry.wire import heartbeat
from gantry.wire.heartbeat import Heartbeat

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

# A client of twenty groups with a topic each; longer heartbeats are decoded each time.
_KEPT_BYTES_MAX = 8 << 10
_ALL_BYTES_MAX = 16 << 20  # decoded values take some ten times as much
_DIGEST_BYTES = 16


class Heartbeats:
    """The last heartbeat of every connection, decoded.  Loop thread only."""

    def __init__(self) -> None:
        self._last: dict[Connection, tuple[bytes, Heartbeat, int]] = {}
        self._bytes = 0  # of all bodies that are kept decoded

    def __len__(self) -> int:
        return len(self._last)

    def read(self, connection: Connection, body: bytes | bytearray | memoryview) -> Heartbeat:
        """Return the heartbeat in a body, decoded or from the cache; MalformedBodyError names what is wrong."""
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
