"""A name server and broker groups in this process, for clients that find their way themselves.

async with running_cluster(folder) as cluster:
    async with Producer("p", nameserver=cluster.nameserver) as producer: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from testkit.brokerplay import configuration
from testkit.ports import VIP, free_port
from testkit.turning import until


class Cluster:
    """One name server, and brokers by name that can be stopped and started again on their old ports."""

    def __init__(self, folder: Path, server: NameServer, changes: dict[str, object]) -> None:
        self.nameserver = f"127.0.0.1:{server.port}"
        self.server = server
        self.brokers: dict[str, Broker] = {}
        self._folder = folder
        self._changes = changes
        self._ports: dict[str, int] = {}

    async def start(self, name: str) -> None:
        """Start a broker and wait until it is registered."""
        if name not in self._ports:
            self._ports[name] = free_port(VIP)  # held: others would take one that was only seen to be free
        changes = {
            "name": name,
            "name_servers": [self.nameserver],
            "network__port": self._ports[name],
            "network__vip_port": -2,
            **self._changes,
        }
        self.brokers[name] = broker = Broker(configuration(self._folder / name, **changes))
        await broker.start()
        await until(lambda: name in self.server.table.brokers())

    async def stop(self, name: str) -> None:
        """Stop a broker; its folder and its port stay its own."""
        await self.brokers.pop(name).stop()


@asynccontextmanager
async def running_cluster(folder: Path, groups: int = 1, **changes: object) -> AsyncIterator[Cluster]:
    """So many groups of one master each, registered; stopped in order at the end."""
    server = NameServer(NameServerSettings("127.0.0.1", 0, http_port=None))
    await server.start()
    cluster = Cluster(folder, server, changes)
    try:
        for letter in "abcdefgh"[:groups]:
            await cluster.start(f"broker-{letter}")
        yield cluster
    finally:
        for name in list(cluster.brokers):
            await cluster.stop(name)
        await server.stop()
