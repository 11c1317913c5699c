"""All connections of a server read and written together, in compiled code, once a turn of the loop.

The loop watches one descriptor, an epoll of all sockets (`leaves/_fast/sockets`).  When it is readable, one pass reads
every socket that is ready, decodes, and hands over; sends that came whole from several connections go to `on_sends` as
one list.  Then the turn ends (`turns`: the sends are appended), and then all replies leave, one system call for each
connection.  So a message of a connection that sends one at a time costs no call of the loop and few of Python.

`connection` does not know the difference: a channel is a transport, and every rule that it keeps holds here too.
Accepting is done here, since asyncio gives no accepted socket away.  As asyncio does it, accepting pauses for a second
when the system has no descriptor or memory left; here also after any other error that would come again.

Needs Linux, the compiled leaves, and a loop that watches descriptors; elsewhere, and where a configuration asks for it,
the loop's own transports are used.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gantry.leaves import COMPILED, frames
from gantry.transport.connection import Connection
from gantry.transport.readbuffer import ReadBuffer
from gantry.transport.turns import Turns
from gantry.wire.command import Request

if TYPE_CHECKING:
    from gantry.leaves._fast.sockets import Channel

log = logging.getLogger(__name__)

OnSends = Callable[[list[tuple[Connection, list[frames.Send]]]], bool]
"""Takes sends of several connections; False: they have to be handed over one connection after the other."""

_NOTHING = (errno.EAGAIN, errno.EINTR)
# Errors of the connection that was to be accepted (accept(2)); any other comes again, like those of a process or system
# that has no descriptor or memory left.
_ITS_OWN = (
    errno.ECONNABORTED,
    errno.EPERM,
    errno.EPROTO,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
)
_ACCEPT_AGAIN_S = 1.0  # asyncio's own


def can_gather(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether sockets can be gathered on this loop."""
    watches = isinstance(loop, asyncio.SelectorEventLoop) or type(loop).__module__.partition(".")[0] == "uvloop"
    return COMPILED and sys.platform == "linux" and watches


class GatheredSockets:
    """The sockets of one server on one loop, from the first `accept` to `close`."""

    def __init__(self, buffer: ReadBuffer, turns: Turns, on_sends: OnSends | None) -> None:
        from gantry.leaves._fast.sockets import Poll  # not there on other systems

        self._loop = asyncio.get_running_loop()
        self._buffer = buffer
        self._turns = turns
        self._on_sends = on_sends
        self._poll = Poll(self)
        self._is_flush_due = False
        self._loop.add_reader(self._poll.fileno(), self._turn)

    def accept(self, sockets: list[socket.socket], backlog: int, make: Callable[[], Connection]) -> Listener:
        """Accept connections from listening sockets, at most `backlog` at a time."""
        return Listener(sockets, backlog, lambda accepted, peer: self._add(make(), accepted, peer))

    def close(self) -> None:
        """Stop; every connection is gone by now."""
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()

    # What the compiled part tells

    def lost_soon(self, channel: Channel, error: Exception | None) -> None:
        """A socket is to be closed, and its connection told; not at once, for its caller may be in the middle."""
        self._loop.call_soon(self._lost, channel, error)

    def flush_soon(self) -> None:
        """Something was written outside of a turn."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def complain(self, channel: Channel, error: Exception) -> None:
        """A connection raised; it ends, as with asyncio's transports, and an OSError of the system is no bug."""
        if not isinstance(error, OSError):
            message = f"the connection of {channel.protocol.peer} failed"
            self._loop.call_exception_handler({"message": message, "exception": error})
        channel.fail(error)

    def _turn(self) -> None:
        poll = self._poll
        poll.in_turn = True
        self._turns.begin()
        try:
            runs = poll.receive(self._buffer.memory, self._loop.time())
            if runs:
                self._hand_over_all(runs)
        finally:
            try:
                self._turns.end()
            finally:
                poll.in_turn = False
                poll.flush()

    def _hand_over_all(self, runs: list[tuple[Connection, list[frames.Send]]]) -> None:
        try:
            if self._on_sends is not None and self._on_sends(runs):
                return
        except Exception as error:  # noqa: BLE001  a bug: it is not known whose sends were taken
            self._failed([connection for connection, _ in runs], error)
            return
        for connection, sends in runs:
            try:
                self._hand_over(connection, sends)
            except Exception as error:  # noqa: BLE001  as in a pass: the other connections go on
                self._failed([connection], error)

    def _failed(self, connections: list[Connection], error: Exception) -> None:
        message = f"the sends of {len(connections)} connections failed, first of {connections[0].peer}"
        self._loop.call_exception_handler({"message": message, "exception": error})
        for connection in connections:
            connection.abort("its sends failed")

    def _hand_over(self, connection: Connection, sends: list[frames.Send]) -> None:
        if not connection.closed:
            end = connection.batch_bytes
            connection.received(list[Request](sends), 0, end, end, connection.last_active)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._poll.flush()

    def _add(self, connection: Connection, accepted: socket.socket, peer: object) -> None:
        extra = {"socket": accepted, "peername": peer, "sockname": accepted.getsockname()}
        channel = self._poll.add(accepted.fileno(), connection, extra)
        try:
            connection.connection_made(cast(asyncio.Transport, channel))
        except Exception as error:  # noqa: BLE001  the channel closes its socket: its descriptor must not outlive it
            self.complain(channel, error)

    def _lost(self, channel: Channel, error: Exception | None) -> None:
        try:
            channel.protocol.connection_lost(error)
        finally:
            channel.get_extra_info("socket").close()


class Listener:
    """One address that is listened on: what a server of ours uses of `asyncio.Server`."""

    def __init__(
        self, sockets: list[socket.socket], backlog: int, accepted: Callable[[socket.socket, object], None]
    ) -> None:
        self.sockets = sockets
        self._backlog = backlog
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        for one in sockets:
            self._watch(one)

    def close(self) -> None:
        """Stop listening."""
        sockets, self.sockets = self.sockets, []
        for one in sockets:
            timer = self._paused.pop(one, None)
            if timer is None:
                self._loop.remove_reader(one)
            else:
                timer.cancel()
            one.close()

    async def wait_closed(self) -> None:
        """Nothing remains to be waited for."""

    def _watch(self, one: socket.socket) -> None:
        self._paused.pop(one, None)
        self._loop.add_reader(one, self._accept, one)

    def _accept(self, one: socket.socket) -> None:
        for _ in range(self._backlog):
            if one not in self.sockets:
                return  # closed by what a connection caused
            try:
                accepted, peer = one.accept()
            except OSError as error:
                if error.errno in _NOTHING:
                    return
                if error.errno not in _ITS_OWN:
                    message = f"no connection can be accepted: {error.strerror}; again in {_ACCEPT_AGAIN_S:g} s"
                    self._loop.call_exception_handler({"message": message, "exception": error})
                    self._loop.remove_reader(one)
                    self._paused[one] = self._loop.call_later(_ACCEPT_AGAIN_S, self._watch, one)
                    return
                continue  # this connection was broken before it was accepted
            accepted.setblocking(False)
            try:
                self._accepted(accepted, peer)
            except OSError as error:  # reset before its addresses could be asked for, or no memory to watch it
                log.warning("a connection was closed at once: %s", error.strerror or error)
                accepted.close()
