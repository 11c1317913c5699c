"""The slave's end of the link: connects, cuts what comes into frames, carries out what the machine of `slave` says.

A thin shell.  Received bytes stand in one buffer; a chunk goes from there to the log by pwrite, as a view, and is
copied nowhere.  After everything that one wake-up brought, one acknowledgement leaves, if there is news for it.

A link that ended is followed by the next after a second: with the master, its name or our folder changed meanwhile,
that one may go well.  Where a person has to do something it is said so, and tried again all the same, but slowly.  In
a group with a register a master that has just been named listens in a moment, so the first pauses are short there;
and whatever still waits for its predecessor, which may stand still and never answer, is given up.

A link that was welcomed and ended soon, without a byte in our log, has failed: the next one will most likely fail in
the same way, because our disk has no room or what the master sends cannot be taken.  Pauses after such links grow to
`_AGAIN_FINAL_S`, and are drawn from the upper half, so that slaves of one cause do not come back together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from gantry.clock import Clock
from gantry.errors import DiskFullError, StoreError
from gantry.replication import slave
from gantry.replication.handshake import Hello, Welcome
from gantry.replication.haproof import Keys
from gantry.replication.pace import LINK_S
from gantry.replication.slave import Following
from gantry.transport.addresses import split_address
from gantry.wire import ha

log = logging.getLogger("gantry.replication")

_BUFFER_BYTES = 2 << 20
_FREE_BYTES_MIN = 64 << 10
_CONNECT_S = 5.0
_BEAT_OF_SILENCE = 0.2  # several may get lost before the master ends the link
_AGAIN_S = 1.0
_AGAIN_FINAL_S = 5.0
_WORKS_S = 3.0  # a link that lasted as long works, also while nothing is written


class Sink(Protocol):
    """What the link brings to the broker; all on the loop."""

    def hello(self) -> tuple[Hello, int]:
        """What this slave says about itself now, and up to where it holds its log by its flush policy."""
        ...

    def master(self) -> str:
        """Where the master listens for us; empty while nobody knows."""
        ...

    def adopt(self, welcome: Welcome, done: Callable[[StoreError | None], None]) -> None:
        """Put what the welcome says on the disk, then call done."""
        ...

    def promise(self, epoch: int, done: Callable[[StoreError | None], None]) -> None:
        """Put the promise of an epoch on the disk, then call done."""
        ...

    def reshape(self, welcome: Welcome) -> None:
        """The log has to be cut or begun elsewhere, which needs a closed store."""
        ...

    def append(self, start: int, records: memoryview) -> int:
        """Write records; the log's new end."""
        ...

    def held(self) -> int:
        """Up to where it holds its log by its flush policy."""
        ...

    def beaten(self, now_s: float) -> None:
        """A beat of the master's came."""
        ...

    def apply(self, number: int, changes: list[object]) -> None:
        """Take changes of metadata over; ValueError when they cannot be."""
        ...

    def marks(self, confirmed: int, log_start: int, written: int) -> None:
        """What is confirmed of what we have; where the master's log begins and ends."""
        ...


class SlaveLink(asyncio.BufferedProtocol):
    """One connection to the master."""

    def __init__(self, machine: Following, sink: Sink, clock: Clock, silence_s: float = LINK_S) -> None:
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
        self._echo = 0

    @property
    def has_failed(self) -> bool:
        """Whether it was welcomed, and ended soon without a byte in our log."""
        is_of_use = self.machine.replica.written > self.machine.began or self._heard_s - self._opened_s >= _WORKS_S
        return self.machine.epoch > 0 and not is_of_use

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transports are not asyncio's by inheritance.
        transport = self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.write(self.machine.preamble())

    def connection_lost(self, error: Exception | None) -> None:
        """The end, anyone who wanted it."""
        self._transport = None
        if not self.ended.done():
            self.ended.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: behind those that are there, with room for the frame that has begun."""
        if len(self._buffer) - self._end < max(_FREE_BYTES_MIN, self._needed - (self._end - self._start)):
            self._make_room()
        return self._view[self._end :]

    def _make_room(self) -> None:
        rest = self._view[self._start : self._end]
        count = len(rest)
        if max(self._needed, count) + _FREE_BYTES_MIN > len(self._buffer):
            # A new one: views of the old one may be around, and it cannot be resized under them.
            buffer = bytearray(max(self._needed, count) + _FREE_BYTES_MIN)
            buffer[:count] = rest
            self._buffer, self._view = buffer, memoryview(buffer)
        else:
            self._buffer[:count] = bytes(rest)
        self._start, self._end = 0, count

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
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
                    # Where the master's log begins: what lies before that may go here, which makes room.
                    self._carry_out([other for other in actions if isinstance(other, slave.Marks)])
                    raise
                machine.appended(action.offset, end)
                self._hold()
            elif isinstance(action, slave.Marks):
                if machine.replica.echo not in (0, self._echo):
                    self._echo = machine.replica.echo
                    sink.beaten(self._heard_s)
                sink.marks(machine.replica.confirmed, action.log_start, action.written)
            elif isinstance(action, slave.Apply):
                sink.apply(action.number, action.changes)
            elif isinstance(action, slave.Send):
                self._write(action.data)
            elif isinstance(action, slave.Promise):
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
            self._write(self.machine.promised(epoch))
            self.end(f"epoch {epoch} was promised")
        else:
            self.end(str(error))

    def _adopted(self, error: StoreError | None) -> None:
        if error is not None:
            self.end(str(error))
        elif self._transport is not None:
            self.machine.ready()
            self._hold()  # what was flushed since the hello counts, and nothing might come that says so again
            self.say()

    def _hold(self) -> None:
        replica = self.machine.replica
        replica.hold(min(self._sink.held(), replica.written))

    def say(self) -> None:
        """Acknowledge, if there is news."""
        data = self.machine.ack()
        if data:
            self._write(data)

    def tick(self, now_s: float) -> None:
        """A sign of life when nothing was said for a while; the end when the master is silent."""
        if now_s - self._heard_s > self._silence_s:
            self.end(f"the master is silent for {self._silence_s:g} s")
        elif now_s - self._said_s >= self._silence_s * _BEAT_OF_SILENCE:
            data = self.machine.beat()
            if data:
                self._write(data)

    def leave(self) -> None:
        """Say goodbye: nobody waits for us any more."""
        if self.machine.is_following:
            self._write(ha.frame(ha.FrameType.LEAVE))

    def commit(self, body: bytes) -> bool:
        """Hand consumer offsets that were committed here to the master; False when there is none."""
        if self._transport is None or not self.machine.is_following:
            return False
        self._write(ha.frame(ha.FrameType.COMMITS, body))
        return True

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._said_s = self._clock.monotonic()

    def end(self, reason: str, is_final: bool = False) -> None:
        """Close.  Over a way that is cut what was said last is under way for long: the next master does not wait."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self.reason, self.is_final = reason, is_final
            transport.close()
            asyncio.get_running_loop().call_later(_CONNECT_S, transport.abort)
            if not self.ended.done():
                self.ended.set_result(None)


class Connector:
    """Keeps a link to the master; run() is a task of the broker."""

    def __init__(
        self,
        keys: Keys,
        sink: Sink,
        clock: Clock,
        nonce: Callable[[], bytes],
        say: Callable[[str, str], object],
    ) -> None:
        self.link: SlaveLink | None = None
        self.first_s = self.again_s = _AGAIN_S  # pauses double from the first one on
        self.pause_s = 0.0  # before the next one
        self.silence_s = LINK_S  # of the master, then a link ends
        self.refused = ""  # why the master will not have this member as it is; only a clone, or a person, helps
        self._tried = ""
        self._has_failed = False  # the last link did
        self._keys = keys
        self._sink = sink
        self.clock = clock
        self._nonce = nonce
        self._say = say
        self.on_end: Callable[[], None] = lambda: None  # a link ended
        self._is_hurried = asyncio.Event()

    @property
    def is_following(self) -> bool:
        """Whether the master feeds us."""
        return self.link is not None and self.link.machine.is_following

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        while True:
            self._is_hurried.clear()
            is_final = await self._once()
            self.pause_s = min(2 * self.pause_s or self.first_s, _AGAIN_FINAL_S if self._has_failed else self.again_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_FINAL_S if is_final else self._drawn_s()):
                    await self._is_hurried.wait()

    def _drawn_s(self) -> float:
        return self.pause_s * (1 - self._nonce()[0] / 512) if self._has_failed else self.pause_s

    def hurry(self) -> None:
        """The master may be another one, or be there by now: try at once, unless we follow, or failed with this one."""
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
            self._has_failed = False  # the last link ended because of the master: it may be back in a moment
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
        self.on_end()
        self._say(link.reason, f"the link to the master at {address} ended: {link.reason}")
        return link.is_final

    async def _connect(self, address: str, machine: Following) -> SlaveLink | None:
        """A link; None when another master was named before this one answered."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        connecting = asyncio.ensure_future(
            loop.create_connection(lambda: SlaveLink(machine, self._sink, self.clock, self.silence_s), host, port)
        )
        hurried = asyncio.ensure_future(self._is_hurried.wait())
        try:
            await asyncio.wait({connecting, hurried}, timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                return connecting.result()[1]
            if hurried.done():
                return None
            raise TimeoutError
        finally:
            hurried.cancel()
            connecting.cancel()

    def tick(self) -> None:
        """What goes by the clock, ten times a second."""
        if self.link is not None:
            self.link.tick(self.clock.monotonic())

    def held(self, offset: int) -> None:
        """Our own mark moved."""
        if self.link is not None and self.link.machine.is_following:
            replica = self.link.machine.replica
            replica.hold(min(offset, replica.written))
            if offset <= replica.written:
                self.link.say()

    def kept(self, number: int) -> None:
        """Changes of metadata up to this one are on the disk."""
        if self.link is not None:
            self.link.machine.replica.keep(min(number, self.link.machine.replica.applied))
            self.link.say()
