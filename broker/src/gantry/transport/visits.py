"""HTTP connections of one door, from their acceptance to their end; HTTP itself is the library's.

    accepted -> hearing -> heard -> answering -> gone
             head within HEAD_S    gone within LIFE_S

A visit that has not sent the whole head of a request in time is closed, and so is one that lasts too long: because its
body never ends, or because it does not read the answer.  When there are too many, one of the host that has most is
closed for the new one: the oldest without a whole head, else the oldest whose answer waits to be read, else the oldest.
Only those that have proven who they are stay (`/ha/v1`, where an order may take minutes).  So a client that sends its
request and reads its answer at once is served, however many connections others keep open, and whatever they have sent.

The library comes into it when the head is complete.  Until then the bytes are kept here, up to a bound, so that the
library may also be loaded only then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import cast

from gantry.transport.descriptors import share
from gantry.transport.listening import listen

HEAD_S = 10.0
HEAD_BYTES_MAX = 16 << 10  # what probes, scrapers and coordinators send is a few hundred
_HEAD_END = b"\r\n\r\n"
VISITS_MAX = 64  # a scraper, the probes of an orchestrator, coordinators: some ten
# A socket that was accepted when listening ended becomes a connection, and is gone, so many turns of the loop later.
_CLOSING_TURNS = 4


class Visits:
    """The connections of one listener; `on_heard` gets each as soon as the head of its request is complete."""

    def __init__(self, on_heard: Callable[[Visit], None], life_s: float, head_s: float = HEAD_S) -> None:
        self.open: dict[Visit, None] = {}  # in the order in which they came
        self._is_closing = False
        self.on_heard = on_heard
        self.most = share(VISITS_MAX)
        self.head_s = head_s
        self.life_s = life_s

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Accept visits; OSError when that cannot be."""
        return await listen(lambda: Visit(self), host, port, backlog=share(VISITS_MAX))

    async def close(self) -> None:
        """Close all of them, and those whose acceptance is under way; the listener is the caller's to close first."""
        self._is_closing = True
        for visit in list(self.open):
            visit.abort()
        for _ in range(_CLOSING_TURNS):
            await asyncio.sleep(0)

    def admit(self, visit: Visit) -> bool:
        """Count a new one, in place of another when there are too many; False: close it."""
        if self._is_closing:
            return False
        if len(self.open) >= self.most:
            other = self._least_needed()
            if other is None:
                return False
            other.abort()
            del self.open[other]
        self.open[visit] = None
        return True

    def keep(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the visit over this transport has proven who it is: it is not closed for another one."""
        for visit in self.open:
            if visit.is_over(transport):
                visit.is_proven = True

    def _least_needed(self) -> Visit | None:
        unproven = [one for one in self.open if not one.is_proven]
        if not unproven:
            return None
        host, _ = Counter(one.host for one in unproven).most_common(1)[0]
        oldest_first = [one for one in unproven if one.host == host]
        silent = next((one for one in oldest_first if not one.is_heard), None)
        return silent or next((one for one in oldest_first if one.has_output), oldest_first[0])


class Visit(asyncio.Protocol):
    """One connection.  Everything that happens to it is passed on to the library's protocol once there is one."""

    def __init__(self, visits: Visits) -> None:
        self.host = ""  # of the peer
        self.is_heard = False  # the whole head is here
        self.is_proven = False
        self._visits = visits
        self._received = bytearray()
        self._protocol: asyncio.Protocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def has_output(self) -> bool:
        """Whether the peer leaves a part of the answer unread."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def is_over(self, transport: asyncio.BaseTransport | None) -> bool:
        """Return whether this visit's connection is this transport."""
        return transport is not None and self._transport is transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time for the head."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of it
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._visits.admit(self):
            self._transport.abort()
            return
        self._time(self._visits.head_s)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes until the head of the request is complete; afterwards pass them to the protocol."""
        if self._protocol is not None:
            self._protocol.data_received(data)
            return
        searched = max(0, len(self._received) - len(_HEAD_END))
        self._received += data
        if not self.is_heard and self._received.find(_HEAD_END, searched, HEAD_BYTES_MAX) >= 0:
            self.is_heard = True
            self._time(self._visits.life_s)
            self._visits.on_heard(self)
        elif len(self._received) > HEAD_BYTES_MAX:
            self.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Hand the connection over to the library's protocol, with all that was received so far."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._protocol = protocol
        protocol.connection_made(transport)
        received, self._received = self._received, bytearray()
        protocol.data_received(bytes(received))

    def abort(self) -> None:
        """Close the connection at once, without waiting for its output."""
        if self._transport is not None:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        """Pass the peer's end of input to the protocol; without a protocol the connection is closed."""
        return None if self._protocol is None else self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Tell the protocol that its output is not being read."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol that it may write again."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection from the count, and tell the protocol."""
        self._visits.open.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _time(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)
