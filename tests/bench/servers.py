"""The processes that a benchmark starts: the broker under test and the live yardsticks.

Each is started on 127.0.0.1 with free ports, bound to its own folder, and ended by anyone who started it: only
the process groups made here are ever signalled.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Server:
    """A running server: its pid, the port that takes the load, and the one of /metrics where there is one."""

    pid: int
    port: int
    started_s: float
    http_port: int = 0
    nameserver_port: int = 0


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(command: list[str], env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process in its own group, ended (then killed) when the block ends."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        if process.stdout:
            process.stdout.close()


@contextmanager
def gantry(
    folder: Path, *, flush: str = "ASYNC_FLUSH", env: dict[str, str] | None = None, port: int = 0
) -> Iterator[Server]:
    """`gantry standalone` on a folder, without its proxy; ready means that it printed its ready line."""
    command = [str(Path(sys.executable).with_name("gantry")), "standalone", "--data", str(folder)]
    command += ["--bind", "127.0.0.1", "--nameserver-port", "0", "--broker-port", str(port), "--http-port", "0"]
    command += ["--grpc-port", "-1", "--queues-port", "-1"]
    begin = time.monotonic()
    with running(command, {"GANTRY_STORE_FLUSH": flush, **(env or {})}) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit(f"gantry standalone did not start: {line!r}")
        fields = dict(part.split("=", 1) for part in line.split()[1:])
        broker, http, names = (int(fields[name].rpartition(":")[2]) for name in ("broker", "http", "nameserver"))
        yield Server(process.pid, broker, time.monotonic() - begin, http, names)


@contextmanager
def redis(folder: Path, *, fsync: str) -> Iterator[Server | None]:
    """Debian's redis-server with an append-only file, or None where it is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
        return
    port = free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", fsync, "--daemonize", "no"]
    begin = time.monotonic()
    with running(command) as process:
        wait_for_port(port)
        yield Server(process.pid, port, time.monotonic() - begin)


@contextmanager
def fixed_reply() -> Iterator[Server]:
    """The uvloop server that answers every frame with the same bytes."""
    begin = time.monotonic()
    with running([sys.executable, str(Path(__file__).with_name("fixed_reply.py"))]) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        yield Server(process.pid, port, time.monotonic() - begin)


@contextmanager
def c_server(tools: Path, folder: Path) -> Iterator[Server]:
    """The compiled server of `epoll_server.c`; it writes into the folder."""
    begin = time.monotonic()
    with running([str(tools / "epoll_server"), str(folder)]) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        yield Server(process.pid, port, time.monotonic() - begin)


def wait_for_port(port: int) -> None:
    """Return when 127.0.0.1:port accepts a connection; give up after a minute."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
