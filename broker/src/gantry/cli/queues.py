"""`gantry queues`: queues over HTTP in the manner of MNS, in front of a cluster.

It has no state: start as many as needed, on any machine.  All of a cluster have the same keys for handles
(`--handle-key-file`), else a client cannot delete at one server what it received from another.

Without `--queues-users` requests need no signature, so it listens on the loopback address only.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.cli.doorchild import CHILD, end_with_parent
from gantry.cli.logs import add_logs, start_logging
from gantry.cli.ports import port_number
from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError
from gantry.transport.addresses import split_addresses

if TYPE_CHECKING:
    from gantry.queues.server import QueueServer, QueueServerSettings

log = logging.getLogger("gantry")

INSTALL = "install it: pip install 'gantrymq[server]'"
_ALL, _LOOPBACK = "0.0.0.0", "127.0.0.1"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for addresses, users, keys and logs."""
    any_port = partial(port_number, low=-1)
    add = parser.add_argument
    add("--namesrv", metavar="HOST:PORT;...", required=True, help="the name servers of the cluster")
    add("--bind", metavar="ADDR", default="", help="listen on this address only (all with users, else loopback)")
    add("--queues-port", metavar="PORT", type=port_number, default=9407, help="HTTP queues (9407; 0: any free one)")
    add("--queues-users", metavar="FILE", type=Path, help="who may call: ID SECRET a line; read again when it changes")
    add("--http-port", metavar="PORT", type=any_port, default=9404, help="/metrics, /healthz, /readyz (9404; -1: none)")
    add("--handle-key-file", metavar="FILE", type=Path, help="keys that sign handles, the same for all servers")
    add("--topic-push", action="store_true", help="let topics push to HTTP endpoints; the server calls any URL then")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    start_logging(arguments)
    try:
        from gantry.queues.server import QueueServer
    except ModuleNotFoundError as error:
        raise ConfigError(f"gantry queues needs the package {error.name}; {INSTALL}") from error
    settings = _settings(arguments)

    def make(end: Callable[[], None]) -> QueueServer:
        end_with_parent(end)
        return QueueServer(settings, end)

    def ready(server: QueueServer) -> str:
        http = f" http={reachable(settings.host, server.http_port)}" if server.http_port is not None else ""
        return f"queues={reachable(settings.host, server.port)}{http}"

    ports = {"--queues-port": arguments.queues_port, "--http-port": arguments.http_port}
    return serve(make, ready, lambda server: server.failure, ports)


def _settings(arguments: argparse.Namespace) -> QueueServerSettings:
    from gantry.gateway import keys
    from gantry.queues.server import QueueServerSettings

    if arguments.handle_key_file is not None:
        read = keys.read_or_make if CHILD in os.environ else keys.read
        signing = read(arguments.handle_key_file)
    else:
        log.warning("no --handle-key-file: receipt handles are good at this server only, until it ends")
        signing = [secrets.token_hex(32).encode()]
    return QueueServerSettings(
        split_addresses(arguments.namesrv),
        signing,
        _host(arguments.bind, arguments.queues_users),
        arguments.queues_port,
        arguments.http_port if arguments.http_port >= 0 else None,
        arguments.queues_users,
        arguments.topic_push,
    )


def _host(bind: str, users: Path | None) -> str:
    """Return the address to listen on; ConfigError for one that others reach while requests need no signature."""
    if users is not None:
        return bind or _ALL
    log.warning("no --queues-users: calls are not signed, and only this machine is served")
    if bind and not _is_loopback(bind):
        raise ConfigError(f"--bind {bind}: others reach it, and requests need no signature; give --queues-users FILE")
    return bind or _LOOPBACK


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
