"""What a broker runs on, as one seam: time, disk, threads, ports and chance.

Together with the running event loop, which brings the network, this is everything outside of the process that a broker
touches.  A simulation gives its own of each and runs the same parts, wired by the same `assemble`.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gantry.broker.registers import open_register
from gantry.broker.settings.ports import Addresses, Reserved, reserve
from gantry.broker.settings.sections import NetworkConfig, ReplicationConfig
from gantry.clock import Clock, SystemClock
from gantry.replication.haproof import Keys
from gantry.replication.register import Register
from gantry.store.background import Background, ThreadBackground
from gantry.store.disk import Disk, FileLock, RealDisk
from gantry.store.store import Store

Reserve = Callable[[NetworkConfig, list[Reserved]], Awaitable[Addresses]]


def threads(disk: Disk) -> Background:
    """The three threads of a process, which tell their outcomes on the running loop."""
    loop = asyncio.get_running_loop()
    # The compiled flusher wants descriptors, which only files of the operating system have.
    poller = loop if type(disk) is RealDisk else None
    return ThreadBackground(loop.call_soon_threadsafe, poller)


def boot_id() -> str:
    """Linux's name for this boot; processes of one boot share the page cache."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip()
    except (OSError, ValueError):
        return ""


def wanted_s() -> float:
    """For how many seconds in all this thread ran, or waited for a core; where only the former can be told, that."""
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
    """What one life of a broker leaves to the next one in the same process: at most one open store, and the keys."""

    def __init__(self) -> None:
        self.keys: Keys | None = None  # of a member of a group
        self._left: Carried | None = None

    @property
    def is_full(self) -> bool:
        """Whether a store was left and not taken yet."""
        return self._left is not None

    def leave(self, carried: Carried) -> None:
        """Leave a store to anyone who takes it next."""
        assert self._left is None, "the last one was not taken"
        self._left = carried

    def take(self) -> Carried | None:
        """Take what was left; anyone who takes it has to close it."""
        left, self._left = self._left, None
        return left


@dataclass(frozen=True, slots=True)
class Machine:
    """The real one, unless told otherwise.

    background: makes what blocks elsewhere than on the running loop.  reserve: takes the ports, see `ports`.
    chance: where ids that must not repeat between processes, and jitter, come from.  boot_id: which boot of the machine
    this is, empty when that cannot be told.  process: another one in each process; brokers that start again in the same
    one keep it.  register: opens the register that a configuration names.  wanted_s: of the loop's thread, below.
    carrying: lets such brokers leave an open store to each other; None: each of them closes its own.
    """

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=RealDisk)
    background: Callable[[Disk], Background] = threads
    reserve: Reserve = reserve
    chance: random.Random = field(default_factory=random.SystemRandom)
    boot_id: Callable[[], str] = boot_id
    process: str = field(default_factory=lambda: secrets.token_hex(8))
    register: Callable[[ReplicationConfig, Disk], Register] = open_register
    wanted_s: Callable[[], float] = wanted_s
    carrying: Carrying | None = None
