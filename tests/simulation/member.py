"""One broker and the machine that it runs on: started, killed, paused, without power, on a disk that fails or is full.

The broker is the real one, wired by `assemble`; only its `Machine` is the world's.  A broker that ends by itself,
because its store failed, is started again after a while, as anyone who supervises it would.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.settings.ports import Addresses, Reserved
from gantry.broker.settings.sections import NetworkConfig
from gantry.errors import GantryError
from gantry.transport.addresses import pack_host
from simulation.network import Network
from simulation.simloop import SimLoop
from simulation.threads import SimBackground
from simulation.world import World
from testkit.brokerplay import configuration
from testkit.simdisk import Faults, SimDisk

PORT = 10911
_START_MS = 1_700_000_000_000
_RESTART_S = (0.5, 3.0)
_TROUBLE_S = 10.0  # for so long a disk may refuse or delay saves after something happened to it
# How often, and for how often, a power cut looks whether there is something to be lost: within the shortest absence.
_LOOK_S, _LOOKS = 0.0005, 150
# How long ASYNC_FLUSH may leave a message unflushed: its interval, and a sync that takes long.
_UNFLUSHED_S = 2.0


class HostClock:
    """The clocks of one host: the wall clock may jump, the other one is the world's."""

    def __init__(self, world: World) -> None:
        self.ahead_ms = 0
        self._world = world

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this host believes."""
        return _START_MS + self.ahead_ms + int(self._world.now * 1000)

    def monotonic(self) -> float:
        """Asking takes a microsecond, so that work in slices ends."""
        self._world.now += 0.000001
        return self._world.now


class _Reserved:
    def __init__(self, port: int) -> None:
        self.port = port

    def release(self) -> None:
        """Nobody else wants it."""


class Member:
    """A host with one broker process."""

    def __init__(self, world: World, network: Network, host: str, **changes: object) -> None:
        self.host = host
        self.disk = SimDisk(world.chance.getrandbits(32))
        self.clock = HostClock(world)
        self.disk.now_ms = self.clock.now_ms
        self.broker: Broker | None = None
        self.is_serving = False
        self.lives = 0
        self.on_power_cut: list[Callable[[float], None]] = []  # told since when things may be unflushed
        self._world = world
        self._network = network
        self._config = configuration(
            Path(f"/{host}"), network__bind=host, network__port=PORT, network__vip_port=-2, **changes
        )
        self._is_hung = False  # its disk is
        self._later_s = 0.0, 0.0  # what its syncs and its other jobs take besides
        self._has_served = False  # this life
        self.died_s: list[float] = []  # when a process of it ended that had not saved everything first
        self._troubled_s: list[float] = []  # when something happened that may refuse or delay what is to be saved
        self._died_at = 0.0  # the last life that served; one that did not has flushed nothing
        self._loop: SimLoop | None = None
        self._background: SimBackground | None = None
        self._troubles: list[tuple[float, float]] = []  # from when to when the flusher could not do its work in time
        self._dead: list[object] = []  # kept, so that nothing of them runs when Python lets go of them

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{self.host}:{PORT}"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self._loop is not None

    @property
    def loop(self) -> SimLoop | None:
        """The loop of its process."""
        return self._loop

    @property
    def confirmed(self) -> int:
        """Up to where its log is confirmed; -1 without a broker."""
        parts = self.broker.parts if self.broker is not None else None
        return parts.store.confirmed.offset if parts is not None else -1

    def log(self) -> dict[str, bytes]:
        """The segments of its log, as far as they are confirmed."""
        found: dict[str, bytes] = {}
        for path, content in self.disk.files().items():
            folder, _, name = path.rpartition("/")
            if folder.endswith("/commitlog") and name.isdecimal():
                found[name] = content[: max(0, self.confirmed - int(name))]
        return {name: content for name, content in found.items() if content}

    # -- life

    def start(self) -> None:
        """A new process."""
        if self._loop is not None:
            return
        self.lives += 1
        loop = self._loop = SimLoop(self._world, self._network, self.host)
        background = self._new_background(loop)
        machine = Machine(self.clock, self.disk, background, self._reserve, self._world.chance)
        broker = self.broker = Broker(self._config, on_failed=lambda: self._failed(loop), machine=machine)
        self._world.say(f"{self.host}: starts, life {self.lives}")
        loop.call_soon(lambda: self._run(loop, broker))

    def kill(self) -> None:
        """SIGKILL: the page cache stays."""
        if self._end("killed"):
            self.disk.restart()

    def cut_power(self) -> None:
        """Of what was not synced, any part stays."""
        since = self._unflushed_since()
        if not self._end("power cut", has_power=False):
            self._world.say(f"{self.host}: power cut, without a process")
        self.disk = self.disk.crash(self._world.chance)
        for told in self.on_power_cut:
            told(since)
        self._world.after(0.05, lambda: self._network.has_power(self.host))

    def cut_power_in_a_write(self, looks: int = _LOOKS) -> None:
        """When something is in the log that its disk does not have yet, which tells most; else a little later."""
        parts = self.broker.parts if self.broker is not None else None
        if looks and parts is not None and parts.store.flushed.offset >= parts.store.written.offset:
            self._world.after(_LOOK_S, lambda: self.cut_power_in_a_write(looks - 1))
        else:
            self.cut_power()

    def stop(self) -> None:
        """SIGTERM: the broker ends in order, and then the process; a new one follows."""
        loop, broker = self._loop, self.broker
        if loop is None or broker is None or not self.is_serving:
            return
        self._world.say(f"{self.host}: asked to stop")
        self.is_serving = False
        loop.call_soon(lambda: self._dead.append(loop.begin(self._stop(loop, broker))))

    async def _stop(self, loop: SimLoop, broker: Broker) -> None:
        await broker.stop()
        if self._loop is loop:
            self.kill()
            self._world.after(self._world.chance.uniform(*_RESTART_S), self.start)

    def pause(self, seconds: float) -> None:
        """SIGSTOP, or a machine that stands still."""
        if self._loop is not None:
            self._world.say(f"{self.host}: paused for {seconds:.2f} s")
            self._loop.paused_until = self._world.now + seconds
            self._troubled_s.append(self._world.now)
            self._troubles.append((self._world.now, self._loop.paused_until))

    # -- the disk

    def fail_next(self, kind: str) -> None:
        """The next operation of this kind fails with EIO."""
        self._world.say(f"{self.host}: next {kind} fails")
        self._troubled_s.append(self._world.now)
        self.disk.faults = Faults(fail_at=1, fail_errno=errno.EIO, fail_kind=kind)

    def calm(self) -> None:
        """No fault waits any more, and nobody stands still."""
        self.disk.faults = Faults()
        self._is_hung = False
        self.delay_disk(0.0, 0.0)
        if self._background is not None:
            self._background.pace.go_on()
        if self._loop is not None:
            self._loop.paused_until = 0.0

    def fill_disk(self, room: int) -> None:
        """Only this much is left."""
        self._troubled_s.append(self._world.now)
        total, free = self.disk.usage("")
        self.disk.quota_bytes = total - free + room
        self._world.say(f"{self.host}: {room} bytes left on the disk")

    def make_room(self) -> None:
        """The disk is large again."""
        self.disk.quota_bytes = 1 << 50

    def slow_disk(self, slowness: float) -> None:
        """Everything takes so much longer."""
        self._troubled_s.append(self._world.now)
        if self._background is not None:
            self._background.pace.slowness = slowness
            self._troubles.append((self._world.now, self._world.now))

    def delay_disk(self, sync_s: float, job_s: float) -> None:
        """Each sync of the log and each other job takes so much longer from now on, in this life and later ones."""
        self._later_s = sync_s, job_s
        if sync_s:
            self._troubles.append((self._world.now, float("inf")))
        if self._background is not None:
            self._background.pace.later_s, self._background.pace.jobs_later_s = sync_s, job_s

    def hang_disk(self) -> None:
        """No sync and no other job of the disk that begins from now on ends, in this life and later ones."""
        self._is_hung = True
        self._troubled_s.append(self._world.now)
        self._troubles.append((self._world.now, float("inf")))
        if self._background is not None:
            self._background.pace.hang()

    def had_trouble(self, start_s: float, end_s: float) -> bool:
        """Whether saves between these moments may have been refused or delayed."""
        return any(start_s - _TROUBLE_S <= at_s <= end_s for at_s in self._troubled_s)

    # -- within

    def _new_background(self, loop: SimLoop) -> SimBackground:
        background = self._background = SimBackground(self._world, loop)
        background.pace.later_s, background.pace.jobs_later_s = self._later_s
        if self._is_hung:
            background.pace.hang()
        return background

    def _unflushed_since(self) -> float:
        """What was written later may not have been flushed under ASYNC_FLUSH: its interval, and whatever kept it up."""
        since = (self._world.now if self._has_served else self._died_at) - _UNFLUSHED_S
        for start, end in reversed(self._troubles):
            if end > since:
                since = min(since, start - _UNFLUSHED_S)
        return since

    async def _reserve(self, config: NetworkConfig, reservations: list[Reserved]) -> Addresses:
        reservations.append(_Reserved(config.port))
        return Addresses(self.host, config.port, None, self.address, pack_host(self.host, config.port))

    def _run(self, loop: SimLoop, broker: Broker) -> None:
        async def start() -> None:
            try:
                await broker.start()
            except GantryError as error:
                self._world.say(f"{self.host}: could not start: {error}")
                self._failed(loop)
                return
            self.is_serving = self._has_served = True
            self._troubles.append((self._died_at, self._world.now))
            self._world.say(f"{self.host}: serves")

        self._dead.append(loop.begin(start()))

    def _failed(self, loop: SimLoop) -> None:
        broker = self.broker
        if broker is not None and broker.starts_again:
            self._world.say(f"{self.host}: the broker starts again")
            self.is_serving = False
            self._dead.append(loop.begin(self._stop(loop, broker)))
            return
        self._world.say(f"{self.host}: the broker ends by itself")

        def end() -> None:
            if self._loop is loop:
                self.kill()
                self._world.after(self._world.chance.uniform(*_RESTART_S), self.start)

        self._world.after(0.01, end)

    def _end(self, how: str, has_power: bool = True) -> bool:
        loop = self._loop
        if loop is None:
            return False
        self._world.say(f"{self.host}: {how}")
        loop.die()
        self.died_s.append(self._world.now)
        if self._has_served:
            self._died_at = self._world.now
        self._has_served = False
        self._network.process_died(loop, has_power)
        self._dead += [loop, self.broker]
        self._loop = self._background = self.broker = None
        self.is_serving = False
        return True
