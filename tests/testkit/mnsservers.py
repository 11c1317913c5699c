"""A broker and a server of HTTP queues, each a process of its own on ports that stay, killed and started again.

with QueueServers(folder) as servers:
    servers.kill("server"); servers.start("server")      # or "broker"
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pytest

from testkit.commandline import PARSERS
from testkit.ports import free_port
from testkit.process import GantryProcess

PROCESSES = ("server", "broker")


class QueueServers:
    """See the module."""

    def __init__(self, folder: Path, config: Mapping[str, str] | None = None) -> None:
        if "queues" not in PARSERS:
            pytest.skip("missing the command gantry queues")
        self._folder = folder
        self._ports = {name: free_port() for name in ("broker", "nameserver", "queues")}
        self._config = {
            "network.port": str(self._ports["broker"]),
            "standalone.nameserver_port": str(self._ports["nameserver"]),
            "standalone.queues_port": "-1",
            "store.flush": "SYNC_FLUSH",
            **(config or {}),
        }
        self._keys = folder / "keys"
        self._running: dict[str, GantryProcess] = {}

    @property
    def endpoint(self) -> str:
        """Where the queues are."""
        return f"http://127.0.0.1:{self._ports['queues']}"

    def start(self, name: str) -> None:
        """Start one of PROCESSES, and wait until it is ready."""
        if name == "broker":
            self._running[name] = GantryProcess(self._folder / "store", self._config)
            return
        command = [
            sys.executable, "-m", "gantry.cli.main", "queues", "--http-port", "-1", "--handle-key-file",
            str(self._keys), "--namesrv", f"127.0.0.1:{self._ports['nameserver']}", "--queues-port",
            str(self._ports["queues"]),
        ]  # fmt: skip
        self._running[name] = GantryProcess(self._folder / "queues", command=command)

    def kill(self, name: str) -> None:
        """kill -9 one of them."""
        self._running.pop(name).__exit__(None, None, None)

    def kill_and_start(self, name: str) -> None:
        """kill -9 one of them, and start it again on what it has left."""
        self.kill(name)
        self.start(name)

    def story(self) -> str:
        """The ends of their logs."""
        return "\n".join(f"--- {name}\n{process.stderr()[-3000:]}" for name, process in self._running.items())

    def __enter__(self) -> QueueServers:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keys.write_text(secrets.token_hex(32) + "\n", encoding="ascii")
        try:
            self.start("broker")
            self.start("server")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._running):
            self.kill(name)
