"""A real Redis in a process of its own, without a file: started, asked, killed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import redis

from testkit.patience import HANG_S
from testkit.ports import free_port

_LOOK_S = 0.05


class RedisServer:
    """`url` is where it serves."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.url = f"redis://127.0.0.1:{port}/0"
        self._process = process

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait(HANG_S)


@contextlib.contextmanager
def running_redis() -> Iterator[RedisServer]:
    """A server for the length of the block; skips without the Debian package."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("missing redis-server; install the Debian package of that name")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    server = RedisServer(port, process)
    try:
        _await(server.url, process)
        yield server
    finally:
        server.kill()


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    with redis.Redis.from_url(url) as client:
        for _ in range(int(HANG_S / _LOOK_S)):
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"redis-server ended with {process.wait(_LOOK_S)}")
    raise AssertionError("redis-server does not serve")
