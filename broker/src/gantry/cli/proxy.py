"""`gantry proxy`: RocketMQ 5's gRPC protocol in front of a cluster.

It has no state: start as many as needed, on any machine.  All of a cluster have the same keys for handles
(`--handle-key-file`), else a client cannot acknowledge at one proxy what it received from another.

`--workers N` starts N processes that listen on the same port (`proxyworkers`).
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.cli.doorchild import CHILD, SHARED, end_with_parent
from gantry.cli.logs import add_logs, start_logging
from gantry.cli.numbers import Whole
from gantry.cli.ports import port_number
from gantry.cli.proxyworkers import LOOPBACK, Workers
from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError
from gantry.transport.addresses import split_address, split_addresses

if TYPE_CHECKING:
    import ssl

    from gantry.proxy.server import Proxy, ProxySettings

log = logging.getLogger("gantry")

INSTALL = "install it: pip install 'gantrymq[proxy]'"
_WORKERS_MAX = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags for addresses, TLS, keys and logs."""
    any_port = partial(port_number, low=-1)
    add = parser.add_argument
    add("--namesrv", metavar="HOST:PORT;...", required=True, help="the name servers of the cluster")
    add("--bind", metavar="ADDR", default="0.0.0.0", help="listen on this address only (all)")
    add("--grpc-port", metavar="PORT", type=port_number, default=8081, help="gRPC (8081; 0: any free one)")
    add("--http-port", metavar="PORT", type=any_port, default=9404, help="/metrics, /healthz, /readyz (9404; -1: none)")
    add("--advertise", metavar="HOST:PORT;...", default="", help="what clients connect to (what they were given)")
    add("--handle-key-file", metavar="FILE", type=Path, help="keys that sign handles, the same for all proxies")
    add("--tls-cert", metavar="FILE", type=Path, help="certificate, PEM: clients may use TLS on the same port")
    add("--tls-key", metavar="FILE", type=Path, help="its private key, PEM")
    add("--tls-self-signed", metavar="DIR", type=Path, help="make a certificate in this folder, once, and use it")
    add("--workers", metavar="N", type=Whole(1, _WORKERS_MAX), default=1, help="processes that share the port (1)")
    add_logs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to stop. Return the exit code."""
    start_logging(arguments)
    try:
        from gantry.proxy.server import Proxy
    except ModuleNotFoundError as error:
        raise ConfigError(f"gantry proxy needs the package {error.name}; {INSTALL}") from error
    ports = {"--grpc-port": arguments.grpc_port, "--http-port": arguments.http_port}
    if arguments.workers > 1:
        return serve(partial(Workers, arguments), Workers.ready, lambda workers: workers.failure, ports)
    settings = _settings(arguments)

    def make(end: Callable[[], None]) -> Proxy:
        end_with_parent(end)
        return Proxy(settings, end)

    def ready(proxy: Proxy) -> str:
        http = f" http={reachable(arguments.bind, proxy.http_port)}" if proxy.http_port is not None else ""
        return f"grpc={reachable(arguments.bind, proxy.port)}{http}"

    return serve(make, ready, lambda proxy: proxy.failure, ports)


def _settings(arguments: argparse.Namespace) -> ProxySettings:
    from gantry.gateway import keys
    from gantry.proxy import tls
    from gantry.proxy.server import ProxySettings

    if arguments.handle_key_file is not None:
        read = keys.read_or_make if CHILD in os.environ else keys.read
        signing = read(arguments.handle_key_file)
    else:
        log.warning("no --handle-key-file: receipt handles are good at this proxy only, until it ends")
        signing = [secrets.token_hex(32).encode()]
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key: give both, or none")
    if arguments.tls_cert is not None:
        context: ssl.SSLContext | None = tls.context(arguments.tls_cert, arguments.tls_key)
    else:
        context = tls.self_signed(arguments.tls_self_signed) if arguments.tls_self_signed is not None else None
    return ProxySettings(
        split_addresses(arguments.namesrv),
        signing,
        arguments.bind,
        arguments.grpc_port,
        os.environ.get(CHILD) == SHARED,
        context,
        arguments.http_port if arguments.http_port >= 0 else None,
        [split_address(one) for one in split_addresses(arguments.advertise)],
        LOOPBACK if os.environ.get(CHILD) == SHARED else arguments.bind,
    )
