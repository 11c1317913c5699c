"""The flags of the server commands, and the configuration from flags, file and environment.

Most flags set one key of the configuration; `--set KEY=VALUE` sets any key.  Flags override GANTRY_* variables, these
the file, and the file the command's own defaults (`gantry.broker.settings.loading`).
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gantry.cli.logs import add_logs, start_logging
from gantry.errors import ConfigError

if TYPE_CHECKING:
    from gantry.broker.settings.config import BrokerConfig

log = logging.getLogger("gantry")

# flag -> (key of the configuration, name of its value in the help, help text)
NETWORK = {
    "--bind": ("network.bind", "ADDR", "listen on this address only"),
    "--advertise": ("network.advertise", "ADDR", "the address that clients are told"),
    "--broker-port": ("network.port", "PORT", "port of the broker (10911; 0: any free one)"),
    "--vip-port": ("network.vip_port", "PORT", "second port of the broker (two below the first; -2: none)"),
    "--http-port": ("network.http_port", "PORT", "port of /metrics and /healthz (9404; 0: any free one; -1: none)"),
}
NAMESERVER_PORT = {
    "--nameserver-port": ("standalone.nameserver_port", "PORT", "port of the name server (9876; 0: any free one)"),
}
GRPC = {
    "--grpc-port": ("standalone.grpc_port", "PORT", "gRPC, with the extra `proxy` (8081; 0: any free one; -1: none)"),
}
QUEUES = {
    "--queues-port": ("standalone.queues_port", "PORT", "HTTP queues (9407; 0: any free one; -1: none)"),
    "--queues-users": ("standalone.queues_users", "FILE", "access ids of HTTP queues and their secrets, one a line"),
}
STORE = {
    "--data": ("store.root", "DIR", "the folder that holds everything (~/store)"),
    "--flush": ("store.flush", "WHEN", "acknowledge when the disk has it: SYNC_FLUSH; or before: ASYNC_FLUSH"),
}
MEMBERSHIP = {
    "--name": ("name", "NAME", "name of the broker's group (broker-a)"),
    "--cluster": ("cluster", "NAME", "name of the cluster (DefaultCluster)"),
    "--namesrv": ("name_servers", "HOST:PORT;...", "name servers to register with"),
}

PROFILE = {
    "--profile": ("profile", "NAME", "durable, replicated or fast: when a message is acknowledged"),
}

Flags = Mapping[str, tuple[str, str, str]]


def add_server_flags(parser: argparse.ArgumentParser, *groups: Flags) -> None:
    """Add the flags of these groups, --config, --set and the flags for logs."""
    parser.add_argument("--config", metavar="FILE", help="configuration: YAML, or a broker.conf of RocketMQ")
    for group in groups:
        for flag, (key, value, text) in group.items():
            parser.add_argument(flag, dest=key, metavar=value, help=text)
    any_key = "any key of the configuration, such as pull.count_max=64"
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=any_key)
    add_logs(parser)


def load_config(
    arguments: argparse.Namespace,
    base: Mapping[str, object],
    first: Callable[[BrokerConfig], None] | None = None,
    is_standalone: bool = False,
) -> BrokerConfig:
    """Start logging and return the configuration; settings of a broker.conf that have no effect are logged once."""
    from gantry.broker.settings import loading

    start_logging(arguments)
    flags = {key: value for key, value in vars(arguments).items() if "." in key or key in _TOP_KEYS}
    assigned = _assignments(arguments.set)
    flags.update(assigned)
    spoken = {key: f"--set {key}" for key in assigned}
    loaded, notices = loading.load(arguments.config, os.environ, flags, base, first, _SPOKEN | spoken, is_standalone)
    for notice in notices:
        log.warning("%s", notice)
    return loaded


def port_flags(config: BrokerConfig) -> dict[str, int]:
    """Return the port that each flag chooses now, for the error text when a port is taken."""
    from gantry.broker.settings.ports import wanted

    own = config.standalone
    ports = wanted(config) | {
        "standalone.nameserver_port": own.nameserver_port,
        "standalone.grpc_port": own.grpc_port,
        "standalone.queues_port": own.queues_port,
    }
    return {_SPOKEN.get(key, f"--set {key}=PORT"): port for key, port in ports.items()}


def warn_when_pure() -> None:
    """Log a warning when the compiled modules are missing, which makes a broker several times slower."""
    from gantry import leaves

    if not leaves.COMPILED:
        log.warning("the compiled core is not in use: %s; all works, several times slower", leaves.why_pure)


_TOP_KEYS = frozenset(key for key, _, _ in (MEMBERSHIP | PROFILE).values())
_ALL = NETWORK | NAMESERVER_PORT | GRPC | QUEUES | STORE | PROFILE | MEMBERSHIP
_SPOKEN = {key: flag for flag, (key, _, _) in _ALL.items()}


def _assignments(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r}: expected KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
