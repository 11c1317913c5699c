"""The master's end of the links: listens, authenticates slaves with `master`, and sends them the log.

Received bytes are cut into frames, the actions of `master` are carried out, and `wake` sends new records.  Records are
sent as views of the mapped files.  When the transport's buffer is full, nothing more is read from the log for that
slave.  Records outside the warm window are read by the cold reader first.

A slave that is far behind, and that no write waits for, is sent what producers leave of the time (`catch_up_pacing`).
The rest follows with the next write or tick that leaves time.

A write to the log wakes all links once per turn of the loop, however many records were appended.  When there is nothing
to send, marks are sent with a beat: ten times a second when they moved, else once a second.  So both ends notice a dead
peer after a few seconds of silence.

Bounds: the number of connections (the oldest one that has not authenticated is closed), the time until a connection has
authenticated, the bytes of a frame, the window of each slave, the transport's buffer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import cast

from gantry.clock import Clock
from gantry.errors import ConfigError, StoreError
from gantry.replication import master
from gantry.replication.catch_up_pacing import CatchUpPacing, Ration
from gantry.replication.handshake import Hello
from gantry.replication.haproof import Keys
from gantry.replication.in_sync_tracker import NEAR_BYTES
from gantry.replication.link_ends import LinkRules, MasterEnd
from gantry.replication.master import Feeding, preamble_fault
from gantry.transport.listening import listen
from gantry.wire import ha

log = logging.getLogger("gantry.replication")

LINKS_MAX = 64
HANDSHAKE_S = 5.0
CHUNK_BYTES = 256 << 10
# Several chunks are read at a time: a request to the cold reader costs more than reading one chunk that is in memory.
_AHEAD_BYTES = 2 << 20
_OUTPUT_BYTES_HIGH = 1 << 20
_BATCHES_AT_ONCE = 2  # of metadata, a millisecond each; in the first turn of a pass, and then one a turn


class SlaveLinks:
    """All links of one epoch of a master; loop thread only."""

    def __init__(
        self,
        keys: Keys,
        epoch: int,
        source: MasterEnd,
        clock: Clock,
        nonce: Callable[[], bytes],
        pacing: CatchUpPacing,
        rules: LinkRules,
    ) -> None:
        self.catch_up_pacing = pacing
        self.rules = rules
        self._keys = keys
        self.epoch = epoch
        self.source = source
        self.clock = clock
        self._nonce = nonce
        self._links: dict[Link, None] = {}  # oldest first
        self._by_place: dict[int, Link] = {}
        self._listener: asyncio.Server | None = None
        self.ending: dict[asyncio.Transport, None] = {}  # being closed
        self._is_due = self._is_closing = False

    async def start(self, host: str, port: int) -> None:
        """Listen; ConfigError when the address cannot be used."""
        try:
            self._listener = await listen(self._make, host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    def end_links(self, why: str) -> None:
        """End all links, and refuse new ones."""
        self._is_closing = True
        for link in list(self._links):
            link.end(why)

    async def close(self) -> None:
        """Stop listening and close all links."""
        if self._listener is not None:
            self._listener.close()
        self.end_links("the master stops")
        await asyncio.sleep(0)
        for transport in list(self.ending):
            transport.abort()  # the peer does not read
        if self._listener is not None:
            await self._listener.wait_closed()

    def ask_promise(self, place: int, epoch: int) -> bool:
        """Ask a slave to promise an epoch. Return False when it is not connected."""
        link = self._by_place.get(place)
        if link is not None:
            link.ask_promise(epoch)
        return link is not None

    def _make(self) -> Link:
        return Link(self, Feeding(self._keys, self._nonce(), self.source.judge))

    def wake(self, _: int = 0) -> None:
        """Send new records at the end of this turn of the loop."""
        if self._by_place and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        self._is_due = False
        for link in list(self._by_place.values()):
            link.feed()

    def tick(self) -> None:
        """Send beats and apply time limits; called ten times a second."""
        for link in list(self._links):
            link.tick(self.clock.monotonic())

    def opened(self, link: Link) -> bool:
        """Register a new connection. Return whether it may stay."""
        known = set(self._by_place.values())
        if len(self._links) >= LINKS_MAX and (silent := [link for link in self._links if link not in known]):
            silent[0].end("too many connections, and this one has not authenticated")
        if self._is_closing or len(self._links) >= LINKS_MAX:
            return False
        self._links[link] = None
        return True

    def welcomed(self, link: Link, hello: Hello) -> str:
        """Register an authenticated slave. Return why it may not stay; empty: it may."""
        why = self.source.came(hello, link.peer)
        if not why:
            older = self._by_place.pop(hello.place, None)
            self._by_place[hello.place] = link
            if older is not None:
                older.end("its slave has opened a new link")
            log.info("slave %d at %s follows from %d on", hello.place, link.peer, hello.end)
        return why

    def closed(self, link: Link, hello: Hello | None, is_leaving: bool) -> None:
        """Remove a connection that has ended."""
        self._links.pop(link, None)
        if hello is not None and self._by_place.get(hello.place) is link:
            del self._by_place[hello.place]
            self.source.went(hello.place, is_leaving)


class Link(asyncio.Protocol):
    """One connection of a slave."""

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
        self._is_coming = False  # the cold reader is reading for it
        self._ration = Ration(slave_links.catch_up_pacing)
        self._is_held = False  # producers leave no time for it now
        self._brought = (-1, -1)  # start and end of the stretch that was read last
        self._opened_s = self._heard_s = self._beaten_s = slave_links.clock.monotonic()
        self._marks = (0, 0, 0)
        self._changes: Iterator[tuple[int, list[object]]] | None = None  # of metadata: the pass that is under way
        self._pass_end = 0  # where the log ended when that pass began
        self._covered_end = -1  # records before it need no change that was not sent; -1: no pass has ended yet
        self._next_turn: asyncio.Handle | None = None  # in which the pass goes on

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses of it
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)
        if not self._slave_links.opened(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_OUTPUT_BYTES_HIGH)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        if self._closing is not None:
            self._slave_links.ending.pop(self._closing, None)
        self._transport = None
        self._slave_links.closed(self, self._machine.hello, self._is_leaving)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.feed()

    def data_received(self, data: bytes) -> None:
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
            self.end(f"it sent an invalid frame: {error}")

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
            if isinstance(action, master.SendToSlave):
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
        """Send the records that may be sent now."""
        machine, source = self._machine, self._slave_links.source
        while machine.has_room and not self._is_paused and not self._is_coming and self._transport is not None:
            written, confirmed, log_start = marks = source.marks
            if self._next_turn is None:
                self._tell_changes(written)
            start, end = machine.position, self._sendable_end(written)
            if start >= end:
                return
            if start < log_start:
                self._carry_out(machine.refuse(f"the slave is at {start}, and the log now begins at {log_start}"))
                return
            self._is_held = self._gives_way(start, written)
            if self._is_held:
                return
            if self._waits_for_reader(start):
                return
            try:
                records, following = source.chunk(start, min(CHUNK_BYTES, end - start))
            except StoreError as error:
                self.end(str(error))
                return
            self._write(ha.chunk_head(self._slave_links.epoch, start, confirmed, log_start, len(records)))
            self._write(records)
            self._marks = marks
            machine.sent(start, following)
            self._ration.took(len(records))

    def _tell_changes(self, written: int) -> None:
        """Send the changes of metadata, a few batches in each turn: a pass over them may take many turns.

        A pass that took several turns is followed by another one, for what has changed meanwhile.
        """
        machine, room = self._machine, _BATCHES_AT_ONCE if self._changes is None else 1
        is_first_turn = self._changes is None
        if self._changes is None:
            self._changes, self._pass_end = iter(self._slave_links.source.changes(machine.metadata)), written
        for number, changes in self._changes:
            self._write(ha.metadata(number, changes))
            machine.told(number)
            room -= 1
            if not room:
                break
        else:
            self._changes, self._covered_end = None, self._pass_end
        if self._changes is not None or not is_first_turn:
            self._next_turn = asyncio.get_running_loop().call_soon(self._go_on)

    def _sendable_end(self, written: int) -> int:
        """Return the offset before which records may be sent.

        Nothing goes before the first pass has ended.  Later only the changes that records need go before them: offsets
        change all the time, and a pass over those of many queues never ends.
        """
        is_told = self._machine.metadata >= self._slave_links.source.needed
        return written if is_told and self._covered_end >= 0 else self._covered_end

    def _go_on(self) -> None:
        self._next_turn = None
        self.feed()

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
        self._is_coming, self._brought = True, (start, start)  # `_is_in` may be called before bring_in returns
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
        """Send a beat when one is due; end the link when the peer is silent."""
        if not self._machine.is_known:
            if now_s - self._opened_s > HANDSHAKE_S:
                self.end("it did not authenticate in time")
            return
        if now_s - self._heard_s > self._slave_links.rules.silence_s:
            self.end(f"silent for {self._slave_links.rules.silence_s:g} s")
            return
        if self._is_held:
            self.feed()
        marks = self._slave_links.source.marks
        is_due = now_s - self._beaten_s >= self._slave_links.rules.beat_s
        if self._machine.is_fed and (is_due or marks[1:] != self._marks[1:]):
            # A chunk does not replace a beat: only the answer to a beat extends the serving lease.
            self.feed()
            self._marks, self._beaten_s = marks, now_s
            self._write(ha.beat(*marks, round(now_s * 1e9) if self._slave_links.rules.asks_answer() else 0))

    def ask_promise(self, epoch: int) -> None:
        self._write(ha.promise(ha.FrameType.PROMISE, epoch))

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self, reason: str) -> None:
        """Close the connection. Written bytes are sent first, if the peer takes them within `HANDSHAKE_S`."""
        transport, self._transport = self._transport, None
        if transport is None:
            return
        log.warning("link of %s ended: %s", self.peer, reason)
        # Removed at once: closing the connection of a silent peer may take long.
        self._slave_links.closed(self, self._machine.hello, self._is_leaving)
        self._slave_links.ending[transport] = None
        self._closing = transport
        transport.close()
        asyncio.get_running_loop().call_later(HANDSHAKE_S, transport.abort)
