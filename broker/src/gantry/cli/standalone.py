"""`gantry standalone --data DIR`: name server and broker in one process, on one folder.

For first steps, for tests and for programs that start their own broker.  It listens on this machine only unless --bind
is given, because this version has no authentication.  Files are small (64 MiB segments); a folder keeps the sizes that
it was made with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.cli.serve import reachable, serve
from gantry.cli.serverflags import (
    MEMBERSHIP,
    NAMESERVER_PORT,
    NETWORK,
    PROFILE,
    STORE,
    add_server_flags,
    load_config,
    port_flags,
    warn_when_pure,
)
from gantry.errors import ConfigError
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings

_MIB = 1 << 20
# A quarter of a broker's own defaults in the log, a fiftieth in the index: a folder of 100 MB, not of 1.5 GB.
_SMALL = {
    "network.bind": "127.0.0.1",
    "store.segment_bytes": 64 * _MIB,
    "store.index_slots": 100_000,
    "store.index_entries": 400_000,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for folder, addresses, configuration and logs."""
    names = {flag: MEMBERSHIP[flag] for flag in ("--name", "--cluster")}
    add_server_flags(parser, STORE, PROFILE, NETWORK, NAMESERVER_PORT, names)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    config = load_config(arguments, _SMALL, _require_alone, is_standalone=True)
    warn_when_pure()
    ports = port_flags(config)

    def make(end: Callable[[], None]) -> Standalone:
        return Standalone(config, end)

    return serve(make, Standalone.ready, lambda server: server.broker.failure if server.broker else None, ports)


def _require_alone(config: BrokerConfig) -> None:
    if config.name_servers:
        raise ConfigError("name_servers: standalone brings its own name server; use gantry broker to join another")
    if config.role is Role.SLAVE:
        raise ConfigError(
            "role SLAVE: standalone has a name server of its own, at which no slave finds its master; "
            "start a slave with gantry broker --namesrv HOST:PORT"
        )


class Standalone:
    """A name server and a broker; the name server starts first and stops last."""

    def __init__(self, config: BrokerConfig, end: Callable[[], None], machine: Machine | None = None) -> None:
        self.broker: Broker | None = None
        self._config = config
        self._machine = machine
        self._end = end
        settings = NameServerSettings(host=config.network.bind, port=config.standalone.nameserver_port, http_port=None)
        self._name_server = NameServer(settings)

    async def start(self) -> None:
        """Start the name server, then the broker, which registers there."""
        await self._name_server.start()
        own = reachable(self._config.network.bind, self._name_server.port)
        self.broker = Broker(replace(self._config, name_servers=(own,)), self._end, self._machine)
        await self.broker.start()

    async def stop(self) -> None:
        """Stop the broker, which unregisters, then the name server."""
        if self.broker is not None:
            await self.broker.stop()
        await self._name_server.stop()

    def ready(self) -> str:
        """Return all addresses, as clients on this machine reach them."""
        assert self.broker is not None and self.broker.addresses is not None
        bind = self._config.network.bind
        parts = {
            "nameserver": reachable(bind, self._name_server.port),
            "broker": reachable(bind, self.broker.addresses.port),
        }
        if self.broker.http_port is not None:
            parts["http"] = reachable(bind, self.broker.http_port)
        return " ".join(f"{name}={address}" for name, address in parts.items())
