"""`gantry proxy`: RocketMQ 5's gRPC protocol in front of a cluster.

It has no state: start as many as needed, on any machine.  All of a cluster have the same keys for handles
(`--handle-key-file`), else a client cannot acknowledge at one proxy what it received from another.

`--workers N` starts N processes that listen on the same port; the kernel shares connections out.  Metrics of worker k
(from 0) are on the HTTP port plus k.  When one of them ends, all do, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.cli.logs import add_logs, start_logging
from gantry.cli.numbers import Whole
from gantry.cli.ports import port_number
from gantry.cli.proxychild import CHILD, SHARED, ProxyChild
from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError
from gantry.transport.addresses import split_address, split_addresses
from gantry.transport.tasks import cancelled

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
        if CHILD in os.environ:
            _end_with_parent(end)
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
    )


def _end_with_parent(end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 1):
            loop.remove_reader(sys.stdin.fileno())
            end()

    loop.add_reader(sys.stdin.fileno(), readable)


class Workers:
    """Processes that share a port; a server for `serve`."""

    def __init__(self, arguments: argparse.Namespace, end: Callable[[], None]) -> None:
        self.failure: str | None = None
        self._arguments = arguments
        self._end = end
        self._children: list[ProxyChild] = []
        self._answers: list[str] = []
        self._watching: list[asyncio.Task[None]] = []
        self._port: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """Start all workers; ConfigError when one of them does not get ready."""
        self._port = _reserved(self._arguments.bind, self._arguments.grpc_port)
        port = self._port.getsockname()[1]
        key_file = self._arguments.handle_key_file
        if key_file is None:
            self._folder = tempfile.TemporaryDirectory(prefix="gantry-proxy-")
            key_file = Path(self._folder.name) / "keys"
            log.warning("no --handle-key-file: receipt handles are good at these workers only, until they end")
        await asyncio.to_thread(self._make_certificate)
        for number in range(self._arguments.workers):
            self._children.append(ProxyChild(self._flags(number, port, key_file), SHARED))
        self._answers = list(await asyncio.gather(*(child.start() for child in self._children)))
        self._watching = [asyncio.create_task(self._watch(child)) for child in self._children]

    async def stop(self) -> None:
        """Stop all workers."""
        await cancelled(self._watching)
        await asyncio.gather(*(child.stop() for child in self._children))
        if self._port is not None:
            self._port.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _make_certificate(self) -> None:
        """Make it here, once: workers that make it at the same time mix one's certificate with another's key."""
        from gantry.proxy import tls

        if self._arguments.tls_cert is None and self._arguments.tls_self_signed is not None:
            tls.self_signed(self._arguments.tls_self_signed)

    def ready(self) -> str:
        """Return the shared address, and those of the workers' metrics."""
        words = [answer.split() for answer in self._answers]
        return " ".join([words[0][0], *(word for answer in words for word in answer[1:])])

    async def _watch(self, child: ProxyChild) -> None:
        code = await child.wait()
        self.failure = f"a worker ended with {code}"
        log.error("%s: the others end too", self.failure)
        self._end()

    def _flags(self, number: int, port: int, key_file: Path) -> list[str]:
        arguments = self._arguments
        http = arguments.http_port
        flags = [
            "--namesrv", arguments.namesrv, "--bind", arguments.bind, "--grpc-port", str(port),
            "--http-port", str(http + number if http > 0 else http), "--advertise", arguments.advertise,
            "--handle-key-file", str(key_file), "--log-format", arguments.log_format,
            "--log-level", arguments.log_level,
        ]  # fmt: skip
        for flag in ("tls_cert", "tls_key", "tls_self_signed"):
            if getattr(arguments, flag) is not None:
                flags += [f"--{flag.replace('_', '-')}", str(getattr(arguments, flag))]
        return flags


def _reserved(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port and does not listen: so all workers get the same free port."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return found
