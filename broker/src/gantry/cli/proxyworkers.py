"""`gantry proxy --workers N`: processes that share a port, and one door for their health and metrics.

The kernel shares connections out.  Each worker has an HTTP server of its own on the loopback address; this process asks
them and answers for all (`workersdoor`).  When one of them ends, all do, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gantry.cli.doorchild import SHARED, DoorChild
from gantry.cli.serve import reachable
from gantry.errors import ConfigError
from gantry.transport.addresses import split_address
from gantry.transport.tasks import cancelled

if TYPE_CHECKING:
    from gantry.cli.workersdoor import WorkersDoor

log = logging.getLogger("gantry")

LOOPBACK = "127.0.0.1"


class Workers:
    """Processes that share a port; a server for `serve`."""

    def __init__(self, arguments: argparse.Namespace, end: Callable[[], None]) -> None:
        self.failure: str | None = None
        self._arguments = arguments
        self._end = end
        self._children: list[DoorChild] = []
        self._answers: list[str] = []
        self._watching: list[asyncio.Task[None]] = []
        self._port: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._door: WorkersDoor | None = None

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
        for _ in range(self._arguments.workers):
            self._children.append(DoorChild("proxy", self._flags(port, key_file), SHARED))
        self._answers = list(await asyncio.gather(*(child.start() for child in self._children)))
        self._watching = [asyncio.create_task(self._watch(child)) for child in self._children]
        if self._arguments.http_port >= 0:
            from gantry.cli.workersdoor import WorkersDoor

            doors = [split_address(answer.split()[1].partition("=")[2]) for answer in self._answers]
            self._door = WorkersDoor(doors, self._arguments.bind, self._arguments.http_port)
            await self._door.start()

    async def stop(self) -> None:
        """Stop all workers."""
        await cancelled(self._watching)
        if self._door is not None:
            await self._door.close()
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
        """Return the address that all share, and that of their metrics."""
        grpc = self._answers[0].split()[0]
        return grpc if self._door is None else f"{grpc} http={reachable(self._arguments.bind, self._door.port)}"

    async def _watch(self, child: DoorChild) -> None:
        code = await child.wait()
        self.failure = f"a worker ended with {code}"
        log.error("%s: the others end too", self.failure)
        self._end()

    def _flags(self, port: int, key_file: Path) -> list[str]:
        arguments = self._arguments
        flags = [
            "--namesrv", arguments.namesrv, "--bind", arguments.bind, "--grpc-port", str(port),
            "--http-port", "-1" if arguments.http_port < 0 else "0", "--advertise", arguments.advertise,
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
