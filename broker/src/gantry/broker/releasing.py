"""Closes connections that keep a deleted segment in use.

A pull is answered with the mapped log itself.  So a consumer that stops reading in the middle of a reply keeps the
whole segment mapped, and its disk space is not freed.  A connection that had unsent output when a segment was deleted,
and still has two minutes later, is closed; a working client reconnects and continues.  A consumer that reads its
replies has no unsent output at one of the two moments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from gantry.transport.connection import Connection

log = logging.getLogger("gantry.broker")

_SEGMENTS_MAX = 64


class OpenConnections(Protocol):
    """The used part of the remoting server."""

    @property
    def connections(self) -> Iterable[Connection]:
        """The open connections."""
        ...


class Releasing:
    """Finds and closes the connections that keep a deleted segment mapped; loop thread only."""

    def __init__(self, server: OpenConnections) -> None:
        self._server = server
        self._suspects: dict[int, WeakSet[Connection]] = {}

    def lingers(self, start: int) -> None:
        """Note that the segment that begins at `start` was deleted and is still referenced."""
        self._suspects[start] = WeakSet(one for one in self._server.connections if one.has_output)
        while len(self._suspects) > _SEGMENTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    def hangs(self, start: int) -> None:
        """Close the connections that still reference the segment after the time for readers."""
        for connection in [one for one in self._suspects.get(start, ()) if one.has_output]:
            log.warning("%s does not read its replies and keeps the deleted segment %d in use", connection.peer, start)
            connection.abort("keeps a deleted segment in use")
        # Called again in two minutes if that was not enough; then connections with output now are suspects too.
        self.lingers(start)
