"""`gantry standalone --data DIR`: name server and broker in one process, on one folder.

HTTP queues are served on port 9407, and RocketMQ 5's clients (gRPC) on port 8081 where the extra `proxy` of the
distribution is installed: each by a process of its own, so that the broker's speed and memory stay what they are.  One
that ends is started again, and the broker goes on.

For first steps, for tests and for programs that start their own broker.  It listens on this machine only unless --bind
is given, because this version has no authentication.  Files are small (64 MiB segments); a folder keeps the sizes that
it was made with.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.broker.settings.standalonekeys import NO_PORT
from gantry.cli.doorchild import KeptDoor
from gantry.cli.serve import reachable, serve
from gantry.cli.serverflags import (
    GRPC,
    MEMBERSHIP,
    NAMESERVER_PORT,
    NETWORK,
    PROFILE,
    QUEUES,
    STORE,
    add_server_flags,
    load_config,
    port_flags,
    warn_when_pure,
)
from gantry.errors import ConfigError
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings

log = logging.getLogger("gantry")

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
    add_server_flags(parser, STORE, PROFILE, NETWORK, NAMESERVER_PORT, GRPC, QUEUES, names)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    config = load_config(arguments, _SMALL, _require_alone, is_standalone=True)
    warn_when_pure()
    ports = port_flags(config)

    def make(end: Callable[[], None]) -> Standalone:
        return Standalone(config, end)

    return serve(make, Standalone.ready, Standalone.failure, ports)


def _require_alone(config: BrokerConfig) -> None:
    if config.name_servers:
        raise ConfigError("name_servers: standalone brings its own name server; use gantry broker to join another")
    if config.role is Role.SLAVE:
        raise ConfigError(
            "role SLAVE: standalone has a name server of its own, at which no slave finds its master; "
            "start a slave with gantry broker --namesrv HOST:PORT"
        )


class Standalone:
    """A name server, a broker, and the processes of its other doors; the name server starts first and stops last."""

    def __init__(self, config: BrokerConfig, end: Callable[[], None], machine: Machine | None = None) -> None:
        self.broker: Broker | None = None
        self._config = config
        self._machine = machine
        self._end = end
        settings = NameServerSettings(host=config.network.bind, port=config.standalone.nameserver_port, http_port=None)
        self._name_server = NameServer(settings)
        self._doors: list[KeptDoor] = []
        self._doors_say = ""  # what their lines `ready` name

    async def start(self) -> None:
        """Start the name server, then the broker, which registers there, and the other doors."""
        await self._name_server.start()
        own = reachable(self._config.network.bind, self._name_server.port)
        self.broker = Broker(replace(self._config, name_servers=(own,)), self._end, self._machine)
        self._doors = _doors(self._config, own, self._end)
        # All at the same time: each takes about as long as the others.
        starting = [asyncio.ensure_future(door.start()) for door in self._doors]
        try:
            await self.broker.start()
            self._doors_say = " ".join([await one for one in starting])
        finally:
            for one in starting:
                one.cancel()

    async def stop(self) -> None:
        """Stop the other doors, then the broker, which unregisters, then the name server."""
        await asyncio.gather(*(door.stop() for door in self._doors))
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
        named = [f"{name}={address}" for name, address in parts.items()]
        return " ".join([*named, *self._doors_say.split()])

    def failure(self) -> str | None:
        """Return why it had to end; None when it was asked to."""
        failures = [door.failure for door in self._doors if door.failure]
        return failures[0] if failures else self.broker.failure if self.broker else None


def _doors(config: BrokerConfig, nameserver: str, end: Callable[[], None]) -> list[KeptDoor]:
    """Return the processes of the other doors."""
    keys = config.standalone
    found: list[KeptDoor] = []
    if keys.grpc_port != NO_PORT and _has_proxy():
        found.append(KeptDoor("proxy", partial(_proxy_flags, config, nameserver), keys.grpc_port, end))
    if keys.queues_port != NO_PORT and importlib.util.find_spec("aiohttp"):
        found.append(KeptDoor("queues", partial(_queues_flags, config, nameserver), keys.queues_port, end))
    return found


def _has_proxy() -> bool:
    """Return whether the packages of the extra `proxy` are installed."""
    return all(importlib.util.find_spec(name) for name in ("grpc", "grpc_health", "grpc_reflection"))


def _proxy_flags(config: BrokerConfig, nameserver: str, port: int) -> list[str]:
    folder = Path(config.store.root).expanduser() / "config"
    keys = config.standalone
    flags = [
        "--namesrv", nameserver, "--bind", config.network.bind, "--grpc-port", str(port), "--http-port", "-1",
        "--handle-key-file", str(folder / "proxyHandleKeys"), "--log-level", _log_level(),
    ]  # fmt: skip
    if config.network.advertise:
        flags += ["--advertise", reachable(config.network.advertise, port)] if port else []
    if keys.tls_cert:
        return [*flags, "--tls-cert", keys.tls_cert, "--tls-key", keys.tls_key]
    return [*flags, "--tls-self-signed", str(folder)]


def _queues_flags(config: BrokerConfig, nameserver: str, port: int) -> list[str]:
    keys = config.standalone
    flags = ["--namesrv", nameserver, "--queues-port", str(port), "--http-port", "-1"]
    flags += ["--handle-key-file", str(Path(config.store.root).expanduser() / "config" / "queuesHandleKeys")]
    if keys.queues_users:
        flags += ["--queues-users", keys.queues_users, "--bind", config.network.bind]
    return [*flags, "--log-level", _log_level()]


def _log_level() -> str:
    """Return the level of this process's log, for those of its children."""
    return logging.getLevelName(logging.getLogger().getEffectiveLevel()).lower()
