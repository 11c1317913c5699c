"""One TCP connection that carries frames, at either end.

Per wake-up: one read into the loop's buffer, one decode of all whole frames, one call of `on_requests`, one write.  The
socket is the loop's transport, or one of those that are read and written together (`gathered`, which also decodes).
Whatever the handler writes meanwhile is corked and leaves in one piece afterwards.  What is written at another time (a
reply released by a mark) goes out at once, or with the next call of the loop where sockets are written together.

Both sides may ask.  Requests come to `on_requests`; answers to our own `invoke` are taken out before.  The numbers that
tie them together (`opaque`) are our own; a flag tells answers from requests, so both directions may use the same one.

Everything is bounded.  Unread input: a server stops reading while too much output waits.  A client reads on, for its
requests wait instead, and two ends that both stop would wait for each other.  Output: a peer that does not read is cut
off at a hard limit, or when all peers together leave too much (`output`).  Work: a handler asks `must_wait` between two
requests of a wake-up, and postpones the rest when other connections have their turn (`turns`), or until the peer has
read.  Nothing is read meanwhile, so order is kept.  Unfinished frames: see `readbuffer`.  Silence: the owner's sweep
closes who sends and takes nothing for `idle_s`.  Bytes that are no frames close this connection and touch no other.

Life: made -> open -> closing (`closed` is True, output still drains) -> lost (listeners are told, once).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from gantry.errors import RemoteProtocolError, UnreachableError
from gantry.leaves import frames
from gantry.transport.addresses import pack_host
from gantry.transport.limits import ConnectionLimits
from gantry.transport.output import NOTED_BYTES_MIN, ServerShares
from gantry.transport.readbuffer import ReadBuffer
from gantry.transport.unanswered import Unanswered
from gantry.transport.unfinished import UnfinishedFrame
from gantry.wire.command import Request

Chunk = bytes | bytearray | memoryview

_REQUEST_BYTES = 512  # of a postponed request, besides its bytes on the wire
_JOIN_BYTES_MAX = 2 << 10  # pieces that are shorter on average are copied into one: cheaper than handing many over


class Connection(asyncio.BufferedProtocol):
    """Frames over one socket; belongs to the loop it was made in."""

    def __init__(
        self,
        buffer: ReadBuffer,
        limits: ConnectionLimits,
        on_requests: Callable[[Connection, list[Request]], None],
        on_connect: Callable[[Connection], None] | None = None,
        reads_on: bool = False,
        shared: ServerShares | None = None,
    ) -> None:
        """shared: with the other connections of a server; None: requests never wait, and no output is counted."""
        self.peer = "?"  # "ip:port" of the other side
        self.born_host = bytes(8)  # the same, packed as records carry it
        self.local_host = bytes(8)  # our side, packed
        self.descriptor = -1  # number of the socket, which is looked at only to be counted
        self.closed = False  # close() was called or the peer is gone
        self.close_reason = ""  # why, for the log
        self.closed_listeners: list[Callable[[Connection], None]] = []  # called once, when the socket is gone
        self.batch_bytes = 0  # what the requests that are being handed over took on the wire, about
        self.is_gantry = False  # the peer's answers show that it is GantryMQ; noted by its owner
        self.last_active = 0.0  # loop time of the last read, or when the peer was seen to take output
        self._limits = limits
        self._on_requests = on_requests
        self._on_connect = on_connect
        self._reads_on = reads_on
        self._shared = shared
        self._noted_min = min(NOTED_BYTES_MIN, limits.output_bytes_max)
        self._postponed: list[Request] = []
        self._is_full = False  # too much output waits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # set from connection_made on
        self._unfinished = UnfinishedFrame(buffer, self)
        self._corked: list[Chunk] | None = None  # output of the running batch; None outside one
        self._corked_bytes = 0
        self._pauses: set[str] = set()  # the reasons why nothing is read; empty means reading
        self._pending = Unanswered(self._loop)
        self._oneways = 0
        self._drained: asyncio.Event | None = None  # set when the peer takes output again, or is gone

    # The loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store both addresses and call `on_connect`."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.output_bytes_high)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
            self.born_host = pack_host(peer[0], peer[1])
            self.local_host = pack_host(local[0], local[1])
            sock = transport.get_extra_info("socket")
            self.descriptor = sock.fileno()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last_active = self._loop.time()
        if self._on_connect is not None:
            self._on_connect(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: behind the beginning of their frame."""
        return self._unfinished.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Cut and decode what is whole, keep the rest, hand over, write."""
        self.last_active = self._loop.time()
        try:
            taken, requests = self._unfinished.take(nbytes)
        except RemoteProtocolError as error:
            self.bad_bytes(error)
            return
        self._received(taken, requests)

    def received(self, requests: list[Request], start: int, used: int, end: int, now: float) -> None:
        """Hand over what `gathered` decoded of [start, end) of the read buffer, and keep the rest, from `used` on."""
        self.last_active = now
        try:
            self._unfinished.begin(used, end)
        except RemoteProtocolError as error:
            self.bad_bytes(error)
            return
        self._received(end - start, requests)

    @property
    def has_unfinished(self) -> bool:
        """Whether the next bytes have to be read to where `get_buffer` says."""
        return self._unfinished.is_begun

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read for a reason that is not the peer's."""
        return bool(self._pauses) and not self._is_full

    def bad_bytes(self, error: RemoteProtocolError) -> None:
        """Close because the peer sent what is no frame."""
        self.close(f"protocol error of the peer: {error}")

    def give_way(self, reason: str) -> None:
        """Close because the budget for unfinished frames is used up and this connection has to make room."""
        self.close(reason)
        self._unfinished.forget()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Fail the requests that wait for an answer and call the listeners; nothing else happens afterwards."""
        self.closed = True
        self.close_reason = self.close_reason or (f"lost: {exc}" if exc else "closed by the peer")
        self._unfinished.forget()
        self._corked = None
        self._postponed = []
        if self._shared is not None:
            self._shared.output.forget(self)
        if self._drained is not None:
            self._drained.set()
        self._pending.lost()
        listeners, self.closed_listeners = self.closed_listeners, []
        for listener in listeners:
            listener(self)

    def pause_writing(self) -> None:
        """Stop reading: a peer that does not take its answers may not send more requests."""
        self._is_full = True
        if not self._reads_on:
            self.pause_reading("output")

    def resume_writing(self) -> None:
        """Read again, and wake up the callers of `wait_writable`: the output has drained."""
        self.last_active = self._loop.time()
        self._is_full = False
        self.resume_reading("output")
        if self._drained is not None:
            self._drained.set()
        if self._postponed:
            self._loop.call_soon(self._go_on)

    # Output

    @property
    def is_writable(self) -> bool:
        """Whether the peer keeps up with what we write; RocketMQ drops pull replies to those that do not."""
        return not self.closed and not self._is_full

    @property
    def has_output(self) -> bool:
        """Return whether output waits for the peer to read it."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    async def wait_writable(self) -> None:
        """Return when the peer keeps up with what we write, or is gone."""
        while not self.is_writable and not self.closed:
            if self._drained is None or self._drained.is_set():
                self._drained = asyncio.Event()
            await self._drained.wait()

    def write(self, data: Chunk) -> None:
        """Send `data`, at the end of the running batch if there is one; nothing happens when closed."""
        transport = self._transport
        if self._corked is not None or self.closed or transport is None:
            self.writelines([data])
            return
        try:  # the rule, so in one step: see `_send`
            transport.write(data)
        except BaseException:
            self.abort("writing was interrupted, maybe within a frame")
            raise
        if (waiting := transport.get_write_buffer_size()) > self._noted_min:
            self._note(waiting)

    def writelines(self, chunks: list[Chunk]) -> None:
        """Send several pieces in order; they may refer to mapped memory and are not copied when large."""
        if self._corked is not None:
            self._corked.extend(chunks)
            self._corked_bytes += sum(map(len, chunks))
            if self._corked_bytes > self._limits.output_bytes_high:  # else nobody knows that the peer does not read
                corked, self._corked, self._corked_bytes = self._corked, [], 0
                self._send(*corked)
        elif not self.closed and self._transport is not None:
            self._send(*chunks)

    def cork(self) -> bool:
        """Gather what is written until `uncork`; False when it is gathered already, or the connection is closed."""
        if self.closed or self._corked is not None:
            return False
        self._corked, self._corked_bytes = [], 0
        return True

    def uncork(self) -> None:
        """Send what was gathered in one piece; only for the caller to which `cork` returned True."""
        corked, self._corked = self._corked, None
        if corked and not self.closed:
            self._send(*corked)

    def close(self, reason: str) -> None:
        """Stop reading, let the output drain for a moment, end; a second call changes nothing."""
        if self.closed:
            return
        corked, self._corked = self._corked, None
        if corked:
            self._send(*corked)
        self._end(reason)

    def abort(self, reason: str) -> None:
        """End at once and forget the output."""
        if self._transport is None:
            return
        self.closed = True
        self.close_reason = self.close_reason or reason
        self._corked = None
        self._postponed = []
        self._transport.abort()

    def pause_reading(self, who: str) -> None:
        """Read nothing until `resume_reading` was called for `who` and for every other pause."""
        if not self._pauses and not self.closed and self._transport is not None:
            self._transport.pause_reading()
        self._pauses.add(who)

    def resume_reading(self, who: str) -> None:
        """Take back `pause_reading(who)`; reading goes on when no other pause is left."""
        if who not in self._pauses:
            return
        self._pauses.discard(who)
        if not self._pauses and not self.closed and self._transport is not None:
            self.last_active = self._loop.time()  # the peer could send nothing until now
            self._transport.resume_reading()

    # Requests that wait

    def must_wait(self) -> bool:
        """Return whether further requests have to be postponed: others have their turn, or the peer has to read."""
        return self.closed or self._is_full or (self._shared is not None and self._shared.time.is_over())

    @property
    def has_postponed(self) -> bool:
        """Whether requests wait, behind which later ones have to wait too."""
        return bool(self._postponed)

    def postpone(self, requests: list[Request]) -> None:
        """Hand these requests over again in a later turn, when the peer reads; until then nothing is read."""
        if not self._postponed:
            self.pause_reading("postponed")
            if not self._is_full:
                self._loop.call_soon(self._go_on)
        self._postponed += requests
        if self._shared is not None and (kept := self.kept_bytes) > NOTED_BYTES_MIN:
            self._shared.output.note(self, kept)

    @property
    def kept_bytes(self) -> int:
        """Bytes of output that the peer has not read, and of requests that wait for that, about."""
        if self._transport is None or self.closed:
            return 0
        postponed = self.batch_bytes + _REQUEST_BYTES * len(self._postponed) if self._postponed else 0
        return self._transport.get_write_buffer_size() + postponed

    # Requests of our own

    def invoke(self, command: frames.Command, timeout_s: float) -> asyncio.Future[frames.Command]:
        """Ask the peer; the future gets its answer.

        It fails with UnreachableError when nothing was sent, with OutcomeUnknownError when the answer did not come.
        """
        future: asyncio.Future[frames.Command] = self._loop.create_future()
        if self.closed or self._transport is None:
            future.set_exception(UnreachableError(f"{self.peer}: connection closed ({self.close_reason})"))
            return future
        if len(self._pending) >= self._limits.pending_max:
            future.set_exception(UnreachableError(f"{self.peer}: {len(self._pending)} requests wait for an answer"))
            return future
        command.opaque = self._pending.next_opaque()
        self._pending.add(command.opaque, future, timeout_s, self._oneways, self.peer)
        self.write(frames.encode(command))
        return future

    def send_oneway(self, command: frames.Command) -> None:
        """Send a one-way request."""
        command.opaque = self._pending.next_opaque()
        command.flag |= 2
        self._oneways += 1
        self.write(frames.encode(command))

    @property
    def oneways_in_doubt(self) -> int:
        """Return how many one-way requests were sent after the last request that the peer has answered."""
        return self._oneways - self._pending.oneways_read

    def disown(self) -> None:
        """In a forked child: write nothing on the parent's socket and call no listener; the parent goes on with it."""
        self.closed = True
        self.close_reason = "the process was forked"
        self._transport = None

    # Input, behind buffer_updated

    def _received(self, taken: int, requests: list[Request]) -> None:
        self.batch_bytes = taken
        if requests:
            self._hand_over(requests)
        if self._unfinished.no_room:
            self.close(self._unfinished.no_room)

    def _go_on(self) -> None:
        if self.closed or self._is_full:  # then resume_writing goes on
            return
        requests, self._postponed = self._postponed, []
        if requests:
            try:
                self._hand_over(requests)
            except BaseException:  # as the loop does where a read handed them over; else nothing is read any more
                self.abort("handing over its requests failed")
                raise
        if not self._postponed:
            self.resume_reading("postponed")

    def _hand_over(self, requests: list[Request]) -> None:
        # Batches of nothing but sends and pulls are the rule; only others can hold an answer to us.
        if type(requests[0]) is frames.Command or (len(requests) > 1 and frames.Command in set(map(type, requests))):
            requests = [request for request in requests if not self._pending.take(request)]
            if not requests:
                return
        self._corked, self._corked_bytes = [], 0
        try:
            self._on_requests(self, requests)
        finally:
            self.uncork()

    def _end(self, reason: str) -> None:
        transport = self._transport
        if self.closed or transport is None:  # the last output exceeded output_bytes_max
            return
        self.closed = True
        self.close_reason = reason
        transport.close()
        if transport.get_write_buffer_size():
            self._loop.call_later(self._limits.linger_s, transport.abort)

    def _send(self, *chunks: Chunk) -> None:
        transport = self._transport
        assert transport is not None, "written before the connection was made"
        try:
            if len(chunks) == 1:
                transport.write(chunks[0])
            elif sum(map(len, chunks)) <= _JOIN_BYTES_MAX * len(chunks):
                transport.write(b"".join(chunks))
            else:
                transport.writelines(chunks)
        except BaseException:
            self.abort("writing was interrupted, maybe within a frame")
            raise
        if (waiting := transport.get_write_buffer_size()) > self._noted_min:
            self._note(waiting)

    def _note(self, waiting: int) -> None:
        if waiting > self._limits.output_bytes_max:
            self.abort(f"the peer does not read: {waiting} bytes of output wait")
        elif self._shared is not None:
            self._shared.output.note(self, waiting)
