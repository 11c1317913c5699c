"""The master's end of the links: listens, lets the machines of `master` judge, feeds anyone who may be fed.

A thin shell: bytes come in and are cut into frames, actions go out, and `wake` sends what is written.  The log leaves
as views of its mapped files; what the socket does not take at once waits in the transport, which says so, and then
nothing more is read from the log for that slave.  What lies outside the warm window is brought in by the cold reader
first.

A slave that is far behind, and that nobody waits for, is fed from what producers leave (`catch_up_pacing`); what it was
not sent for that reason goes out with the next write or tick that leaves something.

One write to the log wakes all links once per turn of the loop, however many runs were appended.  When there is nothing
to send, marks travel with a beat: ten times a second when they moved, else once a second, so that both ends know of the
other's death after a few seconds of silence.

Bounds: how many connections there are (the oldest that has not said who it is gives way), the time until one has said
that, the bytes of a frame, the window of each slave, the transport's buffer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from gantry.clock import Clock
from gantry.errors import ConfigError, StoreError
from gantry.replication import master
from gantry.replication.catch_up_pacing import CatchUpPacing, Ration
from gantry.replication.handshake import Hello, No, Welcome
from gantry.replication.haproof import Keys
from gantry.replication.in_sync_tracker import NEAR_BYTES
from gantry.replication.master import Feeding, preamble_fault
from gantry.replication.pace import LINK_S
from gantry.transport.listening import listen
from gantry.wire import ha
from gantry.wire.ha import Ack

log = logging.getLogger("gantry.replication")

LINKS_MAX = 64
HANDSHAKE_S, BEAT_S = 5.0, 1.0
CHUNK_BYTES = 256 << 10
# Brought in at once, several chunks: a hand-over to the cold reader costs more than reading one that is in memory.
_AHEAD_BYTES = 2 << 20
_OUTPUT_BYTES_HIGH = 1 << 20


class Source(Protocol):
    """What the links take from the broker, and tell it; all on the loop."""

    @property
    def marks(self) -> tuple[int, int, int]:
        """Written, confirmed, and where the log begins."""
        ...

    def judge(self, hello: Hello) -> Welcome | No:
        """What to answer a slave."""
        ...

    def chunk(self, start: int, bytes_max: int) -> tuple[memoryview, int]:
        """Whole records, and where the next ones begin."""
        ...

    def bring_in(self, start: int, bytes_max: int, done: Callable[[], None]) -> int:
        """Have a stretch that is cold read, then call done; how long it is, 0 when it is warm."""
        ...

    def changes(self, after: int) -> Sequence[tuple[int, list[object]]]:
        """Numbered changes of metadata behind this one; behind 0: everything."""
        ...

    def came(self, hello: Hello, address: str) -> str:
        """A slave begins to follow; why it may not, if so."""
        ...

    def is_waited_for(self, place: int) -> bool:
        """Whether anything is confirmed only with this slave, or taken only when it is there."""
        ...

    def acked(self, place: int, ack: Ack) -> None:
        """It has so much."""
        ...

    def commits(self, body: bytes) -> None:
        """Offsets that were committed there; ValueError when they are none."""
        ...

    def promised(self, place: int, epoch: int) -> None:
        """It has the promise of this epoch on its disk, and is fed no more."""
        ...

    def went(self, place: int, is_leaving: bool) -> None:
        """Its link ended."""
        ...


class SlaveLinks:
    """Loop thread only."""

    def __init__(
        self, keys: Keys, epoch: int, source: Source, clock: Clock, nonce: Callable[[], bytes], pacing: CatchUpPacing
    ) -> None:
        self.refused = 0
        self.catch_up_pacing = pacing
        self.beat_s, self.silence_s = BEAT_S, LINK_S  # between two beats; without a word, then a link ends
        self.is_granted: Callable[[], bool] = lambda: True  # whether beats ask slaves to promise no other epoch
        self._keys = keys
        self.epoch = epoch
        self.source = source
        self.clock = clock
        self._nonce = nonce
        self._links: dict[Link, None] = {}  # in the order in which they came
        self._by_place: dict[int, Link] = {}
        self._listener: asyncio.Server | None = None
        self.ending: dict[asyncio.Transport, None] = {}  # closed by us, and not gone yet
        self._is_due = self._is_closing = False

    async def start(self, host: str, port: int) -> None:
        """Listen."""
        try:
            self._listener = await listen(self._make, host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def end_links(self, why: str) -> None:
        """Nobody follows us any more, and nobody may come."""
        self._is_closing = True
        for link in list(self._links):
            link.end(why)

    async def close(self) -> None:
        """No link any more."""
        if self._listener is not None:
            self._listener.close()
        self.end_links("the master stops")
        await asyncio.sleep(0)
        for transport in list(self.ending):
            transport.abort()  # its peer takes nothing
        if self._listener is not None:
            await self._listener.wait_closed()

    def ask_promise(self, place: int, epoch: int) -> bool:
        """Ask a slave to promise an epoch; False when it is not here."""
        link = self._by_place.get(place)
        if link is not None:
            link.ask_promise(epoch)
        return link is not None

    def _make(self) -> Link:
        return Link(self, Feeding(self._keys, self._nonce(), self.source.judge))

    def wake(self, _: int = 0) -> None:
        """Send what was written when this turn of the loop is over."""
        if self._by_place and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        self._is_due = False
        for link in list(self._by_place.values()):
            link.feed()

    def tick(self) -> None:
        """Beats and time-outs; ten times a second."""
        for link in list(self._links):
            link.tick(self.clock.monotonic())

    def opened(self, link: Link) -> bool:
        """A connection came; whether it may stay."""
        known = set(self._by_place.values())
        if len(self._links) >= LINKS_MAX and (silent := [link for link in self._links if link not in known]):
            silent[0].end("too many connections, and it has not said who it is")
        if self._is_closing or len(self._links) >= LINKS_MAX:
            self.refused += 1
            return False
        self._links[link] = None
        return True

    def welcomed(self, link: Link, hello: Hello) -> str:
        """A slave is known by now; why it may not stay after all, if so."""
        why = self.source.came(hello, link.peer)
        if not why:
            older = self._by_place.pop(hello.place, None)
            self._by_place[hello.place] = link
            if older is not None:
                older.end("its slave came again")
            log.info("slave %d at %s follows from %d on", hello.place, link.peer, hello.end)
        return why

    def closed(self, link: Link, hello: Hello | None, is_leaving: bool) -> None:
        """A connection is gone."""
        self._links.pop(link, None)
        if hello is not None and self._by_place.get(hello.place) is link:
            del self._by_place[hello.place]
            self.source.went(hello.place, is_leaving)


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, slave_links: SlaveLinks, machine: Feeding) -> None:
        self.peer = "?"
        self._slave_links = slave_links
        self._machine = machine
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.Transport | None = None
        self._has_begun = False
        self._is_leaving = False
        self._is_paused = False
        self._is_coming = False  # the cold reader is at it
        self._ration = Ration(slave_links.catch_up_pacing)
        self._is_held = False  # there is no room beside the producers
        self._brought = (-1, -1)  # where it was last, and up to where
        self._opened_s = self._heard_s = self._beaten_s = slave_links.clock.monotonic()
        self._marks = (0, 0, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer, nobody knows which."""
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of it
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
        if not self._slave_links.opened(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_OUTPUT_BYTES_HIGH)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone, anyone who wanted that."""
        if self._closing is not None:
            self._slave_links.ending.pop(self._closing, None)
        self._transport = None
        self._slave_links.closed(self, self._machine.hello, self._is_leaving)

    def pause_writing(self) -> None:
        """The peer does not take more for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._is_paused = False
        self.feed()

    def data_received(self, data: bytes) -> None:
        """Bytes, cut into frames."""
        self._heard_s = self._slave_links.clock.monotonic()
        received = self._received
        received += data
        try:
            if not self._has_begun and not self._begin():
                return
            while self._transport is not None and len(received) > ha.SIZE_BYTES:
                size = ha.size_of(received, ha.TALK_BYTES_MAX)
                if len(received) < size:
                    break
                kind = ha.kind_of(received[ha.SIZE_BYTES])
                body = bytes(received[ha.HEAD.size : size])
                del received[:size]
                self._carry_out(self._machine.frame(kind, memoryview(body)))
        except ha.MalformedHaError as error:
            self.end(f"it sent what cannot be: {error}")

    def _begin(self) -> bool:
        first = bytes(self._received[: ha.PREAMBLE_BYTES])
        if len(first) < ha.PREAMBLE_BYTES and not preamble_fault(first):
            return False
        del self._received[: len(first)]
        self._has_begun = True
        self._carry_out(self._machine.preamble(first))
        return True

    def _carry_out(self, actions: list[master.Action]) -> None:
        for action in actions:
            if isinstance(action, master.Send):
                self._write(action.data)
            elif isinstance(action, master.Acked):
                assert self._machine.hello is not None
                self._slave_links.source.acked(self._machine.hello.place, action.ack)
                self.feed()
            elif isinstance(action, master.Welcomed):
                why = self._slave_links.welcomed(self, action.hello)
                if why:
                    self._carry_out(self._machine.refuse(why))
            elif isinstance(action, master.Left):
                self._is_leaving = True
            elif isinstance(action, master.Promised):
                assert self._machine.hello is not None
                self._slave_links.source.promised(self._machine.hello.place, action.epoch)
            elif isinstance(action, master.Commits):
                self._slave_links.source.commits(action.body)
            else:
                self.end(action.reason)

    def feed(self) -> None:
        """Send what there is and may be sent."""
        machine, source = self._machine, self._slave_links.source
        while machine.has_room and not self._is_paused and not self._is_coming and self._transport is not None:
            written, confirmed, log_start = marks = source.marks
            for number, changes in source.changes(machine.metadata):
                self._write(ha.metadata(number, changes))
                machine.told(number)
            start = machine.position
            if start >= written:
                return
            if start < log_start:
                self._carry_out(machine.refuse(f"the slave is at {start}, and the log begins at {log_start} by now"))
                return
            self._is_held = self._gives_way(start, written)
            if self._is_held:
                return
            if self._waits_for_reader(start):
                return
            try:
                records, following = source.chunk(start, CHUNK_BYTES)
            except StoreError as error:
                self.end(str(error))
                return
            self._write(ha.chunk_head(self._slave_links.epoch, start, confirmed, log_start, len(records)))
            self._write(records)
            self._marks = marks
            machine.sent(start, following)
            self._ration.took(len(records))

    def _gives_way(self, start: int, written: int) -> bool:
        slave_links, hello = self._slave_links, self._machine.hello
        if written - start <= NEAR_BYTES or hello is None:
            return False
        now_s = slave_links.clock.monotonic()
        slave_links.catch_up_pacing.look(now_s, written)
        return self._ration.is_used_up(now_s, written) and not slave_links.source.is_waited_for(hello.place)

    def _waits_for_reader(self, start: int) -> bool:
        begun, end = self._brought
        if begun == start or start + CHUNK_BYTES <= end:
            return False
        self._is_coming, self._brought = True, (start, start)  # it may be in at once
        coming = self._slave_links.source.bring_in(start, _AHEAD_BYTES, self._is_in)
        if not coming:
            self._is_coming = False
        elif self._brought[0] == start:
            self._brought = start, start + coming
        return coming > 0

    def _is_in(self) -> None:
        self._is_coming = False
        self.feed()

    def tick(self, now_s: float) -> None:
        """A beat when one is due; the end when the peer is silent."""
        if not self._machine.is_known:
            if now_s - self._opened_s > HANDSHAKE_S:
                self.end("it does not say who it is")
            return
        if now_s - self._heard_s > self._slave_links.silence_s:
            self.end(f"silent for {self._slave_links.silence_s:g} s")
            return
        if self._is_held:
            self.feed()
        marks = self._slave_links.source.marks
        is_due = now_s - self._beaten_s >= self._slave_links.beat_s
        if self._machine.is_fed and (is_due or marks[1:] != self._marks[1:]):
            # Chunks put none off: only the answer to a beat is a slave's word.
            self.feed()
            self._marks, self._beaten_s = marks, now_s
            self._write(ha.beat(*marks, round(now_s * 1e9) if self._slave_links.is_granted() else 0))

    def ask_promise(self, epoch: int) -> None:
        """Ask the slave to promise an epoch."""
        self._write(ha.promise(ha.FrameType.PROMISE, epoch))

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self, reason: str) -> None:
        """Close; what was written goes out first, if the peer takes it within the time of a handshake."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        log.warning("link of %s ended: %s", self.peer, reason)
        # At once: what is still in the buffers of a peer that is silent may take long to be given up.
        self._slave_links.closed(self, self._machine.hello, self._is_leaving)
        self._slave_links.ending[transport] = None
        self._closing = transport
        transport.close()
        asyncio.get_running_loop().call_later(HANDSHAKE_S, transport.abort)
