"""A group whose master may change, in one process: real brokers, a register file, a coordinator asking over HTTP.

A member that starts again does so as its process would: a new broker on the same folder, ports and name of the process.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.machine import Carrying, Machine
from gantry.broker.role.master_role import MasterRole
from gantry.broker.settings.config import BrokerConfig
from gantry.clock import SystemClock
from gantry.failover.asking import AskedMembers
from gantry.failover.coordinator import Coordinator, Group
from gantry.failover.decide import Decision, Policy
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.replication.haproof import Keys
from gantry.replication.in_sync_tracker import InSyncTracker
from gantry.replication.record import RegisterRecord
from gantry.replication.registerfile import FileRegister
from gantry.store.disk import RealDisk
from testkit.brokerplay import configuration
from testkit.ports import free_port
from testkit.turning import until

SECRET = b"a secret for tests"
NAME = "broker-a"
# A busy machine takes a second to start a broker again; who is about to lead must not be suspected meanwhile.
SUSPECT_S, RENEW_S = 5.0, 1.5  # how long members wait for each other follows from the second one


class Process:
    """One member's process: a broker, and the one after it when it starts again."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.broker: Broker | None = None
        self.lives = 0
        self.process = secrets.token_hex(4)
        self._carrying = Carrying()
        self._task: asyncio.Task[None] | None = None
        self._is_asked_to_stop = asyncio.Event()

    def start(self) -> None:
        """A new process on the folder."""
        self.process = secrets.token_hex(4)
        self._carrying = Carrying()
        self._is_asked_to_stop.clear()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        machine = Machine(process=self.process, carrying=self._carrying)
        while True:
            ended = asyncio.Event()
            broker = Broker(self.config, on_failed=ended.set, machine=machine)
            self.lives += 1
            try:
                await broker.start()
                self.broker = broker
                waits = [asyncio.ensure_future(each.wait()) for each in (ended, self._is_asked_to_stop)]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in waits:
                    one.cancel()
            finally:
                self.broker = None
                await broker.stop()
            assert broker.failure is None, broker.failure
            if self._is_asked_to_stop.is_set() and not self._carrying.is_full:
                return

    async def stop(self) -> None:
        """SIGTERM, and waiting for it."""
        self._is_asked_to_stop.set()
        if self._task is not None:
            await self._task

    @property
    def is_master(self) -> bool:
        """Whether it leads and is not sealed."""
        group = self.broker.parts.group if self.broker is not None and self.broker.parts is not None else None
        return isinstance(group, MasterRole) and not group.is_sealed


class FailoverPlay:
    """Three members by ordinal, their register and their coordinator."""

    def __init__(
        self, folder: Path, names: NameServer, role: str, size: int, handover_s: float, **changes: object
    ) -> None:
        self.names = names
        self.told: list[Decision] = []
        (folder / "secret").write_bytes(SECRET)
        self.register = FileRegister(str(folder / "register"), RealDisk())
        ports = [(free_port(), free_port(), free_port()) for _ in range(size)]
        self.processes = [
            Process(
                configuration(
                    folder / f"member-{ordinal}",
                    name=NAME,
                    role=role,
                    name_servers=[f"127.0.0.1:{names.port}"],
                    network__port=port,
                    network__ha_port=ha_port,
                    network__ha_api_port=ha_api_port,
                    network__vip_port=-2,
                    replication__secret_file=str(folder / "secret"),
                    replication__register=f"file:{folder / 'register'}",
                    replication__ordinal=ordinal,
                    replication__members=[f"127.0.0.1:{ha}" for _, ha, _ in ports],
                    replication__renew_every_s=RENEW_S,
                    replication__handover_s=handover_s,
                    replication__ack_timeout_s=20.0,  # a member that went is waited for, for a moment
                    **changes,
                )
            )
            for ordinal, (port, ha_port, ha_api_port) in enumerate(ports)
        ]
        addresses = {ordinal: f"127.0.0.1:{ha_api}" for ordinal, (_, _, ha_api) in enumerate(ports)}
        self.members = AskedMembers("c1", NAME, lambda ordinal: addresses[ordinal], Keys(SECRET), SystemClock())
        policy = Policy(size, 2 if role == "SYNC_MASTER" else 1, role == "SYNC_MASTER", SUSPECT_S)
        group = Group("c1", NAME, tuple(range(size)), policy, lease_duration_s=15)
        self.coordinator = Coordinator(group, self.register, self.members, SystemClock(), self.told.append)
        self._watching: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """The coordinator begins."""
        self._watching = asyncio.ensure_future(self.coordinator.run(0.1))

    async def stop_watching(self) -> None:
        """The coordinator is gone."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None

    async def record(self) -> RegisterRecord:
        """What the register says."""
        seen = await self.register.read()
        assert seen is not None, self.told
        return seen.record

    @property
    def master(self) -> int:
        """The ordinal that leads; -1: none, or more than one."""
        leading = [ordinal for ordinal, process in enumerate(self.processes) if process.is_master]
        return leading[0] if len(leading) == 1 else -1

    @property
    def tracker(self) -> InSyncTracker:
        """The master's."""
        parts = self.broker(self.master).parts
        assert parts is not None and isinstance(parts.group, MasterRole)
        return parts.group.tracker

    def broker(self, ordinal: int) -> Broker:
        """A member's broker of now."""
        broker = self.processes[ordinal].broker
        assert broker is not None
        return broker

    def takes_writes(self) -> bool:
        """Whether there is a master that takes messages, and has the serving lease to answer."""
        if self.master < 0:
            return False
        broker = self.broker(self.master)
        parts = broker.parts
        is_active = parts is not None and not parts.gate.reasons and parts.activity.is_on
        return is_active and not broker.member_lifecycle.why_not_ready()

    async def begin(self) -> None:
        """Everybody starts, and a master takes messages."""
        for process in self.processes:
            process.start()
        self.watch()
        await until(self.takes_writes)

    async def end(self) -> None:
        """Nothing runs any more."""
        await self.stop_watching()
        await asyncio.gather(*(process.stop() for process in self.processes))
        await self.members.close()


@asynccontextmanager
async def failing(
    folder: Path, role: str, size: int, handover_s: float, **changes: object
) -> AsyncIterator[FailoverPlay]:
    """A group in a folder, over one name server."""
    names = NameServer(NameServerSettings("127.0.0.1", 0, http_port=None))
    await names.start()
    play = FailoverPlay(folder, names, role, size, handover_s, **changes)
    try:
        yield play
    finally:
        await play.end()
        await names.stop()


@asynccontextmanager
async def playing(
    folder: Path, role: str = "SYNC_MASTER", size: int = 3, handover_s: float = 30.0, **changes: object
) -> AsyncIterator[FailoverPlay]:
    """Start a group; `changes` go into the configuration of its members."""
    async with failing(folder, role, size, handover_s, **changes) as group:
        await group.begin()
        yield group


