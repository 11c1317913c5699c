"""`gantry nameserver`: a name server.

It needs only addresses: its table is rebuilt by the registrations of the brokers.  Only key-values, which few users
need, are kept in a file (`--kv`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gantry.cli.logs import add_logs, start_logging
from gantry.cli.ports import port_number
from gantry.cli.serve import reachable, serve
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings

_AWAIT_BROKERS = "GANTRY_NAMESERVER_AWAIT_BROKERS"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for addresses, the key-value file and logs."""
    parser.add_argument("--bind", metavar="ADDR", default="0.0.0.0", help="listen on this address only (all)")
    port = parser.add_argument("--nameserver-port", metavar="PORT", type=port_number, default=9876)
    port.help = "9876; 0: any free one"
    parser.add_argument(
        "--http-port",
        metavar="PORT",
        type=partial(port_number, low=-1),
        default=9404,
        help="/metrics, /healthz and /readyz (9404; 0: any free one; -1: none)",
    )
    parser.add_argument(
        "--await-brokers",
        action="store_true",
        default=os.environ.get(_AWAIT_BROKERS, "").lower() in ("1", "true"),
        help=f"there are brokers: /readyz says no until one has registered ({_AWAIT_BROKERS}=true says the same)",
    )
    parser.add_argument("--kv", metavar="FILE", type=Path, help="keep key-values in this file")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    start_logging(arguments)
    settings = NameServerSettings(
        host=arguments.bind,
        port=arguments.nameserver_port,
        http_host=arguments.bind,
        http_port=arguments.http_port if arguments.http_port >= 0 else None,
        kv_path=arguments.kv,
        awaits_brokers=arguments.await_brokers,
    )

    def make(end: Callable[[], None]) -> NameServer:
        return NameServer(settings)

    def ready(server: NameServer) -> str:
        http = f" http={reachable(arguments.bind, server.http_port)}" if server.http_port is not None else ""
        return f"nameserver={reachable(arguments.bind, server.port)}{http}"

    ports = {"--nameserver-port": settings.port, "--http-port": arguments.http_port}
    return serve(make, ready, ports=ports)
