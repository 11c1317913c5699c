"""The slave's end of the link: connects, cuts received bytes into frames, carries out the actions of `slave`.

Received bytes are in one buffer; a chunk goes from there to the log by pwrite, as a view, without a copy.  After all
frames of one wake-up at most one acknowledgement is sent.

When a link has ended, the next one is tried after a second.  When an operator has to act, the reason is logged, and the
next link is tried after a longer pause.  In a group with a register a new master listens soon after it is named, so the
first pauses are short there, and a pending connection to the former master is given up.

A link that was welcomed and ended soon, without a byte in our log, has failed: the next one will probably fail for the
same reason, such as a full disk.  Pauses after such links grow to `_AGAIN_FINAL_S`, and are drawn from the upper half,
so that several slaves do not reconnect at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import cast

from gantry.clock import Clock
from gantry.errors import DiskFullError, StoreError
from gantry.replication import slave
from gantry.replication.haproof import Keys
from gantry.replication.link_ends import LinkWaits, SlaveEnd
from gantry.replication.slave import Following
from gantry.transport.addresses import split_address
from gantry.transport.lookups import connect
from gantry.wire import ha

log = logging.getLogger("gantry.replication")

_BUFFER_BYTES = 2 << 20
_FREE_BYTES_MIN = 64 << 10
_CONNECT_S = 5.0
_BEAT_OF_SILENCE = 0.2  # several may get lost before the master ends the link
_AGAIN_FINAL_S = 5.0
_WORKS_S = 3.0  # a link that lasted as long works, also while nothing is written


class SlaveLink(asyncio.BufferedProtocol):
    """One connection to the master."""

    def __init__(self, machine: Following, sink: SlaveEnd, clock: Clock, silence_s: float) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reason = "the connection was lost"
        self.is_final = False
        self.machine = machine
        self._sink = sink
        self._clock = clock
        self._silence_s = silence_s
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._needed = ha.HEAD.size
        self._transport: asyncio.Transport | None = None
        self._opened_s = self._heard_s = self._said_s = clock.monotonic()

    @property
    def has_failed(self) -> bool:
        """Whether the link was welcomed, and ended soon without a byte in our log."""
        is_of_use = self.machine.replica.written > self.machine.began or self._heard_s - self._opened_s >= _WORKS_S
        return self.machine.epoch > 0 and not is_of_use

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by inheritance.
        transport = self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(self.machine.preamble())

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer, with room for the rest of the frame that has begun."""
        if len(self._buffer) - self._end < max(_FREE_BYTES_MIN, self._needed - (self._end - self._start)):
            self._make_room()
        return self._view[self._end :]

    def _make_room(self) -> None:
        rest = self._view[self._start : self._end]
        count = len(rest)
        if max(self._needed, count) + _FREE_BYTES_MIN > len(self._buffer):
            # A new buffer: the old one cannot be resized while views of it exist.
            buffer = bytearray(max(self._needed, count) + _FREE_BYTES_MIN)
            buffer[:count] = rest
            self._buffer, self._view = buffer, memoryview(buffer)
        else:
            self._buffer[:count] = bytes(rest)
        self._start, self._end = 0, count

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._heard_s = self._clock.monotonic()
        try:
            self._take_frames()
        except (ValueError, StoreError) as error:
            self.end(str(error))
        self.say()

    def _take_frames(self) -> None:
        while self._transport is not None:
            have = self._end - self._start
            if have < ha.HEAD.size:
                self._needed = ha.HEAD.size
                break
            self._needed = size = ha.size_of(self._view[self._start : self._end], self._frame_bytes_max)
            if have < size:
                break
            kind = ha.kind_of(self._buffer[self._start + ha.SIZE_BYTES])
            body = self._view[self._start + ha.HEAD.size : self._start + size]
            self._start += size
            self._carry_out(self.machine.frame(kind, body))
        if self._start == self._end:
            self._start = self._end = 0

    @property
    def _frame_bytes_max(self) -> int:
        return ha.FRAME_BYTES_MAX if self.machine.is_following else ha.TALK_BYTES_MAX

    def _carry_out(self, actions: list[slave.Action]) -> None:
        machine, sink = self.machine, self._sink
        for action in actions:
            if isinstance(action, slave.Append):
                try:
                    end = sink.append(action.offset, action.records)
                except DiskFullError:
                    # The start of the master's log: older segments may be removed here too, which makes room.
                    self._carry_out([other for other in actions if isinstance(other, slave.MasterMarks)])
                    raise
                machine.appended(action.offset, end)
                self._hold()
            elif isinstance(action, slave.MasterMarks):
                sink.marks(machine.replica.confirmed, action.log_start, action.written)
            elif isinstance(action, slave.Apply):
                sink.apply(action.number, action.changes)
            elif isinstance(action, slave.SendToMaster):
                self._write(action.data)
            elif isinstance(action, slave.PromiseRequest):
                sink.promise(action.epoch, partial(self._promised, action.epoch))
            elif isinstance(action, slave.Adopt):
                sink.adopt(action.welcome, self._adopted)
            elif isinstance(action, slave.Reshape):
                self.end(f"the log has to be changed first: {action.welcome.step.value} at {action.welcome.at}")
                sink.reshape(action.welcome)
            else:
                self.end(action.reason, action.is_final)

    def _promised(self, epoch: int, error: StoreError | None) -> None:
        if error is None:
            self.end_for(epoch)
        else:
            self.end(str(error))

    def end_for(self, epoch: int) -> None:
        """Tell the master that this epoch, above its own, is promised, and close the connection."""
        told = self.machine.promised(epoch)
        if told:
            self._write(told)
        self.end(f"epoch {epoch} was promised")

    def _adopted(self, error: StoreError | None) -> None:
        if error is not None:
            self.end(str(error))
        elif self._transport is not None:
            self.machine.ready()
            self._hold()  # bytes that were flushed since the hello count, and there may be no later occasion
            self.say()

    def _hold(self) -> None:
        replica = self.machine.replica
        replica.hold(min(self._sink.held(), replica.written))

    def say(self) -> None:
        """Send an acknowledgement, if it contains anything new."""
        data = self.machine.ack()
        if data:
            self._write(data)

    def tick(self, now_s: float) -> None:
        """Send a beat after a pause; end the link when the master has been silent for too long."""
        if now_s - self._heard_s > self._silence_s:
            self.end(f"the master is silent for {self._silence_s:g} s")
        elif now_s - self._said_s >= self._silence_s * _BEAT_OF_SILENCE:
            data = self.machine.beat()
            if data:
                self._write(data)

    def leave(self) -> None:
        """Tell the master that this slave stops, so that it leaves the set without a wait."""
        if self.machine.is_following:
            self._write(ha.frame(ha.FrameType.LEAVE))

    def commit(self, body: bytes) -> bool:
        """Send consumer offsets that were committed here to the master. Return False when there is no link."""
        if self._transport is None or not self.machine.is_following:
            return False
        self._write(ha.frame(ha.FrameType.COMMITS, body))
        return True

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._said_s = self._clock.monotonic()

    def end(self, reason: str, is_final: bool = False) -> None:
        """Close the connection. After `_CONNECT_S` it is aborted, in case the peer cannot be reached."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self.reason, self.is_final = reason, is_final
            transport.close()
            asyncio.get_running_loop().call_later(_CONNECT_S, transport.abort)
            if not self.ended.done():
                self.ended.set_result(None)


class Connector:
    """Keeps a link to the master. run() is a task of the broker."""

    def __init__(
        self,
        keys: Keys,
        sink: SlaveEnd,
        clock: Clock,
        nonce: Callable[[], bytes],
        say: Callable[[str, str], object],
        waits: LinkWaits,
    ) -> None:
        self.link: SlaveLink | None = None
        self.pause_s = 0.0  # before the next one
        self.refused = ""  # why the master will not have this member as it is; only a clone, or a person, helps
        self._tried = ""
        self._has_failed = False  # whether the last link has failed, see the module
        self._keys = keys
        self._sink = sink
        self.clock = clock
        self._nonce = nonce
        self._say = say
        self.waits = waits
        self._is_hurried = asyncio.Event()

    @property
    def is_following(self) -> bool:
        """Whether the master sends us its log."""
        return self.link is not None and self.link.machine.is_following

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        while True:
            self._is_hurried.clear()
            is_final = await self._once()
            longest_s = _AGAIN_FINAL_S if self._has_failed else self.waits.again_s
            self.pause_s = min(2 * self.pause_s or self.waits.first_s, longest_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_FINAL_S if is_final else self._drawn_s()):
                    await self._is_hurried.wait()

    def _drawn_s(self) -> float:
        return self.pause_s * (1 - self._nonce()[0] / 512) if self._has_failed else self.pause_s

    def hurry(self) -> None:
        """Try again at once: the master may be another one, or listen by now. No effect while a link works."""
        if self.is_following or self._sink.master() == self._tried:
            return
        self.pause_s = 0.0
        self._is_hurried.set()
        if self.link is not None:
            self.link.end("another master is named")

    async def _once(self) -> bool:
        address = self._tried = self._sink.master()
        if not address:
            self._say("no master", "no master is known yet; set haMasterAddress, or let both register at a name server")
            return False
        hello, held = self._sink.hello()
        machine = Following(self._keys, self._nonce(), hello, held)
        try:
            link = await self._connect(address, machine)
        except (OSError, TimeoutError) as error:
            self._has_failed = False  # the last link ended because of the master, which may soon be back
            self._say("unreachable", f"the master at {address} cannot be reached: {str(error) or 'no answer'}")
            return False
        if link is None:
            return False
        self.link = link
        try:
            await link.ended
        finally:
            self.refused = link.reason if link.is_final else ""
            link.end("this broker stops")
            self.link = None
        self._has_failed = link.has_failed
        self._tried = address if self._has_failed else ""
        if machine.is_following and not self._has_failed:
            self.pause_s = 0.0
        self._sink.ended()
        self._say(link.reason, f"the link to the master at {address} ended: {link.reason}")
        return link.is_final

    async def _connect(self, address: str, machine: Following) -> SlaveLink | None:
        """Return a link; None when another master was named before this one answered."""
        host, port = split_address(address)
        silence_s = self.waits.silence_s
        connecting = asyncio.ensure_future(
            connect(lambda: SlaveLink(machine, self._sink, self.clock, silence_s), host, port)
        )
        hurried = asyncio.ensure_future(self._is_hurried.wait())
        try:
            await asyncio.wait({connecting, hurried}, timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                return connecting.result()
            if hurried.done():
                return None
            raise TimeoutError
        finally:
            hurried.cancel()
            connecting.cancel()

    def tick(self) -> None:
        """Apply the link's time limits; called ten times a second."""
        if self.link is not None:
            self.link.tick(self.clock.monotonic())

    def held(self, offset: int) -> None:
        """Note that our own disk has the log below `offset`."""
        if self.link is not None and self.link.machine.is_following:
            replica = self.link.machine.replica
            replica.hold(min(offset, replica.written))
            if offset <= replica.written:
                self.link.say()

    def freed(self, number: int) -> None:
        """Note that records behind changes of metadata up to `number` may be acknowledged."""
        if self.link is not None:
            self.link.machine.replica.free(number)
            self.link.say()

    def kept(self, number: int) -> None:
        """Note that changes of metadata up to `number` are on the disk."""
        if self.link is not None:
            self.link.machine.replica.keep(min(number, self.link.machine.replica.applied))
            self.link.say()
