"""A broker and its clients in one process without a network, in a time that stands still until it is moved.

    with still_broker(folder) as still:
        peer = still.peer()                      # a connection to the broker, as frames
        peer.replay([frame, frame])              # each is what one wake-up of the loop reads
        peer.answers()                           # decoded, since the last call

Everything but the sockets and the threads is the product's: the broker as `assemble` builds it, its connections, the
real disk below `folder`, the real client and the real name server.  The loops are those of the simulation.  No timer
fires unless `pass_s` moves the time, so the same calls run the same instructions: what measures by counting needs that.
What is written to a connection waits in its end until `carry` hands it over, so the work of either side can be counted
alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.settings.ports import Addresses, Reserved
from gantry.broker.settings.sections import NetworkConfig
from gantry.leaves import frames
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.store.background import InlineBackground
from gantry.store.disk import RealDisk
from gantry.transport.addresses import pack_host
from simulation.simloop import SimLoop
from simulation.world import World
from testkit.brokerplay import configuration

T = TypeVar("T")
Protocol = asyncio.BufferedProtocol | asyncio.Protocol

HOST, PORT, _NAMESERVER_PORT = "127.0.0.1", 10911, 9876
NAMESERVER = f"{HOST}:{_NAMESERVER_PORT}"
_START_MS = 1_700_000_000_000
_TURNS_MAX = 100_000
_SIZES = {
    "store__segment_bytes": 64 << 20,  # what is measured fills none of them
    "store__index_slots": 20_000,
    "store__index_entries": 80_000,
    "store__warm_bytes": 1 << 20,
}


class _Clock:
    """The clocks of every process: they show the world's time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return _START_MS + int(self._world.now * 1000)

    def monotonic(self) -> float:
        return self._world.now


class _Reserved:
    port = PORT

    def release(self) -> None:
        """Nothing was bound."""


class _Socket:
    """What a connection asks of its socket."""

    def setsockopt(self, *_: object) -> None:
        """No option matters here."""

    def fileno(self) -> int:
        return -1

    def getsockname(self) -> tuple[str, int]:
        return HOST, PORT


class End(asyncio.Transport):
    """One end of a connection; what is written waits in `output`."""

    def __init__(self, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": own, "socket": _Socket()})
        self.output: list[bytes] = []
        self.other: End | None = None
        self.protocol: Protocol | None = None
        self._is_closing = False

    def use(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(Protocol, protocol)
        protocol.connection_made(self)

    def take(self, data: bytes) -> None:
        """Hand over what one read of the socket brings; the loop of this end has to be the running one."""
        assert isinstance(self.protocol, asyncio.BufferedProtocol)
        view = cast(memoryview, self.protocol.get_buffer(-1))
        count = len(data)
        assert count <= len(view), f"one read of {count} bytes, the buffer has {len(view)}"
        view[:count] = data
        self.protocol.buffer_updated(count)

    def write(self, data: Any) -> None:
        self.output.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.output.append(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The other end always reads."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        raise AssertionError("reading stops: the replay is larger than the limits of a connection")

    def resume_reading(self) -> None:
        """It was not stopped."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if self.protocol is not None:
                asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class _Listener:
    def __init__(self, wire: Wire, loop: SimLoop, factory: Any, port: int) -> None:
        self.sockets = [_Socket()]
        self.loop = loop
        self.factory = factory
        self._wire = wire
        self._port = port

    async def start_serving(self) -> None:
        self._wire.listeners[self._port] = self

    def close(self) -> None:
        self._wire.listeners.pop(self._port, None)

    async def wait_closed(self) -> None:
        """At once."""


class Wire:
    """Who listens, and every connection; in the place of the simulation's network."""

    def __init__(self) -> None:
        self.listeners: dict[int, _Listener] = {}
        self.ends: list[tuple[SimLoop, End]] = []
        self._ports = 40_000

    def listener(self, loop: SimLoop, factory: Any, host: str, port: int) -> _Listener:
        return _Listener(self, loop, factory, port)

    async def connect(self, loop: SimLoop, host: str, port: int) -> End:
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self._ports += 1
        near, far = End((HOST, self._ports), (HOST, port)), End((HOST, port), (HOST, self._ports))
        near.other, far.other = far, near
        accepted = loop.create_future()

        def accept() -> None:
            far.use(listener.factory())
            loop.call_soon(accepted.set_result, None)

        listener.loop.call_soon(accept)
        self.ends += [(loop, near), (listener.loop, far)]
        await accepted
        return near


class Still:
    """The broker, the name server, and the loop of their clients."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.world = World(0)
        self.wire = Wire()
        self.clock = _Clock(self.world)
        self.serving, self.client = self._loop(), self._loop()
        machine = Machine(
            self.clock,
            RealDisk(),
            lambda disk: InlineBackground(at_once=True),
            self._reserve,
            random.Random(0),
            lambda: "boot",
            "0",
        )
        config = configuration(
            folder, network__port=PORT, network__vip_port=-2, name_servers=NAMESERVER, **_SIZES | changes
        )
        self.broker = Broker(config, machine=machine)
        self.names = NameServer(NameServerSettings(HOST, _NAMESERVER_PORT, http_port=None), self.clock)

    def _loop(self) -> SimLoop:
        return SimLoop(self.world, cast(Any, self.wire), HOST)

    async def _reserve(self, config: NetworkConfig, reservations: list[Reserved]) -> Addresses:
        reservations.append(_Reserved())
        return Addresses(HOST, PORT, None, f"{HOST}:{PORT}", pack_host(HOST, PORT))

    def peer(self) -> Peer:
        """Connect to the broker."""
        near = self.run(self.client, self.wire.connect(self.client, HOST, PORT))
        assert near.other is not None
        return Peer(self.serving, near.other)

    def run(self, loop: SimLoop, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, all sides and the time included."""
        task = loop.create_task(work)
        for _ in range(_TURNS_MAX):
            if task.done():
                return task.result()
            if not self.settle():
                self.world.now = min(self.serving.moment, self.client.moment)
        raise AssertionError(f"not done after {_TURNS_MAX} turns")

    def settle(self) -> bool:
        """Let both sides do what is due now, until nothing moves any more; whether anything did."""
        moved = False
        while self.turn(self.serving) | self.turn(self.client) | self.carry(self.serving) | self.carry(self.client):
            moved = True
        return moved

    def turn(self, loop: SimLoop) -> bool:
        """Let one side do what is due now, and nothing of the other side; whether anything was."""
        turned = False
        while loop.moment <= self.world.now:
            loop.turn()
            turned = True
        return turned

    def receive(self, loop: SimLoop) -> bool:
        """Let one side read what was written to it, and do all that follows; whether there was anything to read."""
        received = self.carry(loop)
        self.turn(loop)
        return received

    def within(self, loop: SimLoop, call: Callable[[], T]) -> T:
        """Call as a job of this side."""
        asyncio._set_running_loop(loop)
        try:
            return call()
        finally:
            asyncio._set_running_loop(None)

    def carry(self, loop: SimLoop) -> bool:
        """Hand over what was written to the connections of this side, one read for each; whether there was any."""
        carried = False
        asyncio._set_running_loop(loop)
        try:
            for owner, end in self.wire.ends:
                if owner is loop and end.other is not None and end.other.output:
                    data, end.other.output = b"".join(end.other.output), []
                    end.take(data)
                    carried = True
        finally:
            asyncio._set_running_loop(None)
        return carried

    def pass_s(self, seconds: float) -> None:
        """Move the time, with every periodic job in it."""
        end = self.world.now + seconds
        self.settle()
        while (due := min(self.serving.moment, self.client.moment)) <= end:
            self.world.now = max(self.world.now, due)
            self.settle()
        self.world.now = end


class Peer:
    """One connection to the broker, from outside."""

    def __init__(self, loop: SimLoop, end: End) -> None:
        self._loop = loop
        self._end = end

    def replay(self, reads: Sequence[bytes]) -> None:
        """Let the broker read each of these in a turn of its own."""
        loop, take = self._loop, self._end.take
        for data in reads:
            asyncio._set_running_loop(loop)
            take(data)
            loop.turn()

    def answers(self) -> list[frames.Command]:
        """What was answered since the last call."""
        data, self._end.output = b"".join(self._end.output), []
        used, found = frames.decode(data, 0, len(data))
        assert used == len(data), "an answer is not whole"
        return [one for one in found if isinstance(one, frames.Command)]


@contextmanager
def still_broker(folder: Path, **changes: object) -> Iterator[Still]:
    """A broker that serves, with its name server; both are stopped in order."""
    still = Still(folder, **changes)
    still.run(still.serving, still.names.start())
    try:
        still.run(still.serving, still.broker.start())
        yield still
    finally:
        still.run(still.serving, still.broker.stop())
        still.run(still.serving, still.names.stop())
        still.world.end()
