"""The environment of a broker as one object: time, disk, threads, ports and randomness.

Together with the running event loop, which provides the network, this is everything outside of the process that a
broker uses.  A simulation passes its own of each, and runs the same parts, connected by the same `assemble`.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gantry.broker.registers import open_register
from gantry.broker.settings.ports import Addresses, Reserved, reserve
from gantry.broker.settings.sections import NetworkConfig, ReplicationConfig
from gantry.clock import Clock, SteadyClock, SystemClock
from gantry.model.ids import UniqueIds
from gantry.replication.haproof import Keys
from gantry.replication.register import Register
from gantry.store.background import Background, ThreadBackground
from gantry.store.disk import Disk, FileLock, RealDisk
from gantry.store.store import Store

Reserve = Callable[[NetworkConfig, list[Reserved]], Awaitable[Addresses]]


def threads(disk: Disk) -> Background:
    """Return the three threads of a process; results are delivered on the running loop."""
    loop = asyncio.get_running_loop()
    # The compiled flusher needs file descriptors, which a simulated disk does not have.
    poller = loop if type(disk) is RealDisk else None
    return ThreadBackground(loop.call_soon_threadsafe, poller)


def boot_id() -> str:
    """Return Linux's id of this boot, empty when it is unknown; processes of one boot share the page cache."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


def wanted_s() -> float:
    """Return for how many seconds in total this thread ran or waited for a core; only the former where the latter is
    unknown.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            ran, waited, _ = file.read(80).split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(ran) + int(waited)) / 1e9


class Carried(NamedTuple):
    """An open store, the threads that work for it, and the lock of its folder."""

    store: Store
    background: Background
    lock: FileLock | None


class Carrying:
    """What a broker leaves to the next one in the same process: at most one open store, and the keys."""

    def __init__(self) -> None:
        self.keys: Keys | None = None  # of a member of a group
        self._left: Carried | None = None

    @property
    def is_full(self) -> bool:
        """Whether a store was left and not taken yet."""
        return self._left is not None

    def leave(self, carried: Carried) -> None:
        """Leave a store to the next broker."""
        assert self._left is None, "the last one was not taken"
        self._left = carried

    def take(self) -> Carried | None:
        """Return the store that was left, if there is one; the caller has to close it."""
        left, self._left = self._left, None
        return left


@dataclass(frozen=True, slots=True)
class Machine:
    """The environment of one broker; the defaults are the real ones.

    steady       made of `clock`; the same for brokers that start again in the process
    background   makes the threads for blocking calls
    reserve      reserves the ports, see `ports`
    chance       source of ids that must not repeat between processes, and of jitter
    boot_id      id of this boot of the machine, empty when it is unknown
    process      id of the process; the same for brokers that start again in it
    register     opens the register that a configuration names
    wanted_s     seconds that the loop's thread ran or waited for a core
    carrying     passes an open store from one broker to the next in the process; None: each closes its own
    """

    clock: Clock = field(default_factory=SystemClock)
    steady: SteadyClock = field(init=False)
    disk: Disk = field(default_factory=RealDisk)
    background: Callable[[Disk], Background] = threads
    reserve: Reserve = reserve
    chance: random.Random = field(default_factory=random.SystemRandom)
    boot_id: Callable[[], str] = boot_id
    process: str = field(default_factory=lambda: secrets.token_hex(8))
    register: Callable[[ReplicationConfig, Disk], Register] = open_register
    wanted_s: Callable[[], float] = wanted_s
    carrying: Carrying | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steady", SteadyClock(self.clock))

    def unique_ids(self, address: bytes) -> UniqueIds:
        """Return a maker of ids that no other process makes; address: this machine's, packed."""
        return UniqueIds(address, os.getpid(), self.chance.getrandbits(32), self.clock)
