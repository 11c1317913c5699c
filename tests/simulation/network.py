"""The network between simulated processes: connections that are slow, cut, one-way, in pieces, or reset.

Bytes of one connection arrive in order, late by a delay that is drawn for each piece, and cut into reads that are drawn
too.  While the way from one host to another is cut, what is sent on it is kept and arrives after the way is open again,
as TCP sends it again; anyone who does not want to wait closes.  A process that is killed leaves ends that its host
resets; a host without power says nothing, and resets when it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from simulation.simloop import SimLoop
    from simulation.world import World

_DELAY_S = (0.00005, 0.002)
_READ_MAX = 1 << 16
_Protocol = asyncio.BufferedProtocol | asyncio.Protocol


class _Socket:
    """What the code under test does to a socket changes nothing here."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def setsockopt(self, *_: object) -> None:
        """Fine."""

    def fileno(self) -> int:
        """It takes no descriptor."""
        return -1

    def getsockname(self) -> tuple[str, int]:
        """Where it is bound."""
        return self._address


class SimListener:
    """A listening port."""

    def __init__(
        self, network: Network, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], address: tuple[str, int]
    ) -> None:
        self.loop = loop
        self.factory = factory
        self.address = address
        self.sockets = [_Socket(address)]
        self._network = network

    async def start_serving(self) -> None:
        """Be found."""
        if self.address in self._network.listeners and not self._network.listeners[self.address].loop.is_dead:
            raise OSError(98, "Address already in use")
        self._network.listeners[self.address] = self

    def close(self) -> None:
        """Be found no more."""
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]

    async def wait_closed(self) -> None:
        """At once."""


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, loop: SimLoop, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": own, "socket": _Socket(own)})
        self.loop = loop
        self.other: SimTransport | None = None
        self.is_gone = False  # connection_lost was or will be told
        self.is_lost = False  # with what is on its way from it
        self._network = network
        self._protocol: _Protocol | None = None
        self._hosts = own[0], peer[0]
        self._inbox: deque[bytes] = deque()
        self._is_ended = False  # the other side sends nothing more
        self._is_closing = False
        self._is_reading = True
        self._waiting = 0  # bytes on their way
        self._high = 1 << 16
        self._is_full = False
        self._arrives_at = 0.0  # the last piece on its way

    # -- asyncio's interface

    def use(self, protocol: asyncio.BaseProtocol) -> None:
        """Serve this protocol from now on; on its own loop."""
        self._protocol = cast(_Protocol, protocol)
        protocol.connection_made(self)
        if self.is_gone:  # lost before its process came to accept it
            self.loop.call_soon(protocol.connection_lost, ConnectionResetError("reset by the peer"))
        elif self._inbox or self._is_ended:
            self.loop.call_soon(self._feed)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else self._high

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if self._is_closing or self.is_gone or not len(data):
            return
        self._waiting += len(data)
        self._network.send(self, bytes(data))
        if self._waiting > self._high and not self._is_full and self._protocol is not None:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.loop.call_soon(self._feed)

    def is_reading(self) -> bool:
        return self._is_reading

    def close(self) -> None:
        """Output first, then the end."""
        if not self._is_closing and not self.is_gone:
            self._is_closing = True
            self._network.send(self, b"")
            if not self._waiting:
                self.lose(None)

    def abort(self) -> None:
        self._is_closing = True
        if not self.is_gone:
            self.lose(None)
            self._network.reset(self)

    # -- for the network

    def lose(self, error: Exception | None) -> None:
        """This end is over; its protocol hears it in a turn of its own."""
        if not self.is_gone:
            self.is_gone = True
            if self._protocol is not None:
                self.loop.call_soon(self._protocol.connection_lost, error)

    def taken(self, count: int) -> None:
        """The other side's host has these bytes."""
        self._waiting -= count
        if self._is_full and self._waiting <= self._high // 4 and not self.is_gone and self._protocol is not None:
            self._is_full = False
            self.loop.call_soon(self._protocol.resume_writing)
        if self._is_closing and not self._waiting:
            self.lose(None)

    def arrive(self, data: bytes) -> None:
        """Bytes have come, or with none the end."""
        if self.is_gone or self.loop.is_dead:
            return
        if data:
            self._inbox.append(data)
        else:
            self._is_ended = True
        self.loop.call_soon(self._feed)

    def moment_of_arrival(self, delay_s: float, now: float) -> float:
        """When the next piece arrives: none overtakes another."""
        self._arrives_at = max(self._arrives_at, now + delay_s)
        return self._arrives_at

    @property
    def way(self) -> tuple[str, str]:
        """From which host to which."""
        return self._hosts

    def _feed(self) -> None:
        protocol = self._protocol
        while self._inbox and self._is_reading and not self.is_gone and protocol is not None:
            data = self._inbox.popleft()
            while len(self._inbox) and len(data) < _READ_MAX and self._network.chance.random() < 0.5:
                data += self._inbox.popleft()
            count = len(data)
            if count > 1 and self._network.chance.random() < 0.1:
                count = self._network.chance.randrange(1, count)
            count = _hand_over(protocol, data[:count])
            if count < len(data):
                self._inbox.appendleft(data[count:])
        if self._is_ended and not self._inbox and not self.is_gone:
            self._is_closing = True
            self.lose(None)


def _hand_over(protocol: _Protocol, data: bytes) -> int:
    """One read; how much of it was taken."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        protocol.data_received(data)
        return len(data)
    buffer = memoryview(cast(Any, protocol.get_buffer(-1)))
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    protocol.buffer_updated(count)
    return count


class Network:
    """Who listens where, who is connected to whom, and which ways are cut."""

    def __init__(self, world: World) -> None:
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.chance = world.chance
        self.slowness = 1.0  # every delay times this
        self.loss = 0.0  # of what `carry` takes, this share
        self.keeps_sent = True  # what is on its way from a host arrives after it lost its power
        self._world = world
        self._ends: list[SimTransport] = []
        self._late: dict[tuple[str, str], float] = {}  # seconds more, by way
        self._cut: set[tuple[str, str]] = set()
        self._silent: set[str] = set()  # hosts without power
        self._held: dict[tuple[str, str], list[tuple[SimTransport, bytes]]] = {}
        self._ports = 40_000

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from one host to the other, in this direction."""
        self._cut.add((source, target))

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Everything from one host to the other takes so much longer, in this direction, until all ways are healed."""
        self._late[source, target] = seconds

    def heal(self) -> None:
        """All ways are open and quick; what was kept is sent again."""
        self._late.clear()
        self._cut.clear()
        held, self._held = self._held, {}
        for pieces in held.values():
            for end, data in pieces:
                self._put_on_the_way(end, data)

    def process_died(self, loop: SimLoop, has_power: bool) -> None:
        """All its ends are gone; a host with power says so, after what ends that were closed in order had to say."""
        for end in [end for end in self._ends if end.loop is loop]:
            self._ends.remove(end)
            end.is_gone = True
            end.is_lost = not has_power and not self.keeps_sent
            if has_power and not end.is_closing():
                self.reset(end)
        if not has_power:
            self._silent.add(loop.host)

    def has_power(self, host: str) -> None:
        """The host is back: it knows no connection of its earlier life and says so."""
        self._silent.discard(host)
        for way in [way for way in self._held if host in way and way not in self._cut]:
            for end, data in self._held.pop(way):
                self._put_on_the_way(end, data)
        for end in list(self._ends):
            other = end.other
            if end.way[1] == host and (other is None or other.is_gone):
                reset = ConnectionResetError("reset by the host")
                self._world.after(self._delay(end.way), lambda end=end, reset=reset: end.lose(reset))  # type: ignore[misc]

    # -- for the loops and the ends

    def carry(self, source: str, target: str, event: Callable[[], None]) -> None:
        """A question or an answer with no connection of its own to keep it: lost where the way is cut, or by chance."""
        if self.chance.random() >= self.loss and not self._is_cut(source, target):
            seconds = self._delay((source, target))
            self._world.after(seconds, lambda: None if self._is_cut(source, target) else event())

    def listener(self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimListener:
        """A port of a process, not open yet."""
        return SimListener(self, loop, factory, (host, port))

    async def connect(self, loop: SimLoop, host: str, port: int) -> SimTransport:
        """An end at the caller; the other one waits for its process to accept."""
        found: asyncio.Future[SimTransport] = loop.create_future()
        seconds = self._delay((loop.host, host)) + self._late.get((host, loop.host), 0.0)
        self._world.after(seconds, lambda: self._knock(loop, (host, port), found))
        return await found

    def _knock(self, loop: SimLoop, address: tuple[str, int], found: asyncio.Future[SimTransport]) -> None:
        if loop.is_dead or found.done():
            return
        if self._is_cut(loop.host, address[0]) or self._is_cut(address[0], loop.host):
            self._world.after(1.0, lambda: self._knock(loop, address, found))
            return
        listener = self.listeners.get(address)
        if listener is None or listener.loop.is_dead:
            loop.call_soon(_fail, found, ConnectionRefusedError(111, "Connection refused"))
            return
        self._ports += 1
        self._ends = [end for end in self._ends if not end.is_gone]
        own = (loop.host, self._ports)
        near, far = SimTransport(self, loop, own, address), SimTransport(self, listener.loop, address, own)
        near.other, far.other = far, near
        self._ends += [near, far]
        listener.loop.call_soon(lambda: far.use(listener.factory()))
        loop.call_soon(_succeed, found, near)

    def send(self, end: SimTransport, data: bytes) -> None:
        """Put bytes, or the end (none), on the way to the other side."""
        if self._is_cut(*end.way):
            self._held.setdefault(end.way, []).append((end, data))
        else:
            self._put_on_the_way(end, data)

    def _put_on_the_way(self, end: SimTransport, data: bytes) -> None:
        moment = end.moment_of_arrival(self._delay(end.way), self._world.now)
        self._world.at(moment, lambda: self._arrive(end, data))

    def _arrive(self, end: SimTransport, data: bytes) -> None:
        if end.is_lost:
            return
        if self._is_cut(*end.way):
            self._held.setdefault(end.way, []).append((end, data))
            return
        other = end.other
        assert other is not None, "both ends are made together"
        if not end.loop.is_dead:
            end.taken(len(data))
        if other.is_gone and data and not end.is_gone:
            end.lose(ConnectionResetError("reset by the peer"))
        other.arrive(data)

    def reset(self, end: SimTransport) -> None:
        """The other side finds this end gone, when the news gets there."""

        def told() -> None:
            if self._is_cut(*end.way):
                self._world.after(1.0, told)
            elif end.other is not None and not end.other.loop.is_dead:
                end.other.lose(ConnectionResetError("reset by the peer"))

        self._world.at(end.moment_of_arrival(self._delay(end.way), self._world.now), told)

    def _is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or source in self._silent or target in self._silent

    def _delay(self, way: tuple[str, str]) -> float:
        return self.chance.uniform(*_DELAY_S) * self.slowness + self._late.get(way, 0.0)


def _succeed(found: asyncio.Future[SimTransport], end: SimTransport) -> None:
    if not found.done():
        found.set_result(end)
    else:
        end.abort()


def _fail(found: asyncio.Future[SimTransport], error: Exception) -> None:
    if not found.done():
        found.set_exception(error)
