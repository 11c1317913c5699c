"""Taking a deleted segment's bytes out of the hands of those who do not read them.

A pull is answered with the mapped log itself, so a consumer that stops reading in the middle of a reply holds on to the
whole segment, and the disk does not get its room back.  Anyone who had output waiting when a segment was dropped, and
still has when it hangs (two minutes later), is cut off; a client that is well connects again and goes on where it was.
A consumer that keeps up with its replies has nothing waiting at one of the two moments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet

from gantry.transport.connection import Connection

log = logging.getLogger("gantry.broker")

_SEGMENTS_MAX = 64


class Server(Protocol):
    """What is asked of the remoting server."""

    @property
    def connections(self) -> Iterable[Connection]:
        """Those that are open."""
        ...


class Releasing:
    """Loop thread only."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._suspects: dict[int, WeakSet[Connection]] = {}

    def lingers(self, start: int) -> None:
        """The segment that begins at `start` is dropped and still referred to."""
        self._suspects[start] = WeakSet(one for one in self._server.connections if one.has_output)
        while len(self._suspects) > _SEGMENTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    def hangs(self, start: int) -> None:
        """It still is, after all the time that readers are given."""
        for connection in [one for one in self._suspects.get(start, ()) if one.has_output]:
            log.warning("%s does not read its replies and holds on to the deleted segment %d", connection.peer, start)
            connection.abort("holds on to a segment that was deleted")
        # Told again in two minutes if that was not enough: then everybody who has output now is one of them.
        self.lingers(start)
