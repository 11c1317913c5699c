"""The running name server: sockets, the expiry scan, the key-value file, and HTTP for health and metrics.

It has no state of its own: `table` is rebuilt by registrations, and only the key-values are written to a file, if one
is configured.  The file is small and changes rarely, so it is written at once, to a new file that is then renamed.

stop() may be called at any point, also after a start that failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError
from gantry.nameserver.handlers import NameServerHandlers
from gantry.nameserver.keyvalues import KeyValues
from gantry.nameserver.largeregistrations import LargeRegistrations
from gantry.nameserver.readiness import Readiness
from gantry.nameserver.settings import NameServerSettings
from gantry.nameserver.table import RouteTable
from gantry.transport.connection import Connection
from gantry.transport.http import HealthServer
from gantry.transport.server import RemotingServer, Together
from gantry.wire.command import Request

log = logging.getLogger(__name__)

_EXPIRY_SCAN_S = 5.0  # RocketMQ's scanNotActiveBrokerInterval


class NameServer:
    """Call start() once, then `port` and `http_port` are known; call stop() once."""

    def __init__(self, settings: NameServerSettings, clock: Clock | None = None) -> None:
        self.table = RouteTable()
        self.port = settings.port
        self.http_port = settings.http_port
        self._settings = settings
        self._key_values = KeyValues()
        self._written_changes = 0
        self._readiness = Readiness(self.table, settings.awaits_brokers)
        self._clock = clock or SystemClock()
        self._handlers = NameServerHandlers(
            self.table, self._key_values, self._clock, settings.switches, self._readiness
        )
        self._large = LargeRegistrations(self._handlers, self._serve)
        self._server: RemotingServer | None = None
        self._http: HealthServer | None = None
        self._scan: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Read the key-values, listen, begin the expiry scan, start the HTTP server. ConfigError when one of them
        fails.
        """
        self._load_key_values()
        self._server = RemotingServer(
            self._serve, on_close=self._connection_closed, together=Together(clock=self._clock.monotonic)
        )
        self.port = await self._server.start(self._settings.host, self._settings.port)
        self._scan = asyncio.get_running_loop().call_later(_EXPIRY_SCAN_S, self._expire)
        if self._settings.http_port is not None:
            host, port = self._settings.http_host, self._settings.http_port
            self._http = HealthServer(host, port, lambda: self.metrics, self._healthy, self._ready)
            self.http_port = await self._http.start()
        log.info("name server on port %d", self.port)

    async def stop(self) -> None:
        """Stop the HTTP server, the expiry scan, the listener and all connections."""
        if self._http is not None:
            await self._http.close()
        if self._scan is not None:
            self._scan.cancel()
        self._large.stop()
        if self._server is not None:
            await self._server.close()

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        connections = 0 if self._server is None else len(self._server.connections)
        refused = 0 if self._server is None else self._server.refused
        lines = [
            "# TYPE gantry_nameserver_brokers gauge",
            f"gantry_nameserver_brokers {self.table.live_count}",
            "# TYPE gantry_nameserver_ready gauge",
            f"gantry_nameserver_ready {int(self._ready()[0])}",
            "# TYPE gantry_nameserver_topics gauge",
            f"gantry_nameserver_topics {len(self.table.topics)}",
            "# TYPE gantry_nameserver_connections gauge",
            f"gantry_nameserver_connections {connections}",
            "# TYPE gantry_nameserver_connections_refused_total counter",
            f"gantry_nameserver_connections_refused_total {refused}",
            "# TYPE gantry_nameserver_requests_total counter",
        ]
        for code, count in sorted(self._handlers.answered.items()):
            label = "other" if code < 0 else str(int(code))
            lines.append(f'gantry_nameserver_requests_total{{code="{label}"}} {count}')
        return ("\n".join(lines) + "\n").encode()

    def _healthy(self) -> tuple[bool, str]:
        return True, f"{self.table.live_count} brokers"

    def _ready(self) -> tuple[bool, str]:
        return self._readiness.verdict(self._handlers.now_ms())

    def _serve(self, connection: Connection, requests: list[Request]) -> None:
        first = self._large.first_in(requests)
        self._handlers.serve(connection, requests[:first])
        if first < len(requests) and not connection.closed:
            self._large.take(connection, requests[first:])
        if self._key_values.changes != self._written_changes:
            self._save_key_values()

    def _connection_closed(self, connection: Connection) -> None:
        for address in self.table.connection_closed(connection):
            log.warning("broker %s unregistered: its connection is gone (%s)", address, connection.close_reason)

    def _expire(self) -> None:
        for link in self.table.expire(self._handlers.now_ms()):
            assert isinstance(link, Connection), "the table holds what _serve gave it"
            log.warning("broker on %s unregistered: silent for too long", link.peer)
            link.close("broker silent for too long")
        self._scan = asyncio.get_running_loop().call_later(_EXPIRY_SCAN_S, self._expire)

    def _load_key_values(self) -> None:
        path = self._settings.kv_path
        if path is None:
            return
        try:
            if path.exists():
                self._key_values.load_json(path.read_bytes())
            else:
                # A file that cannot be written is reported now, and not when the first key-value would be lost.
                self._write_key_values(path)
        except OSError as error:
            raise ConfigError(
                f"{path}: key-values cannot be kept there: {error.strerror}; make its folder, or name another file"
            ) from error

    def _save_key_values(self) -> None:
        self._written_changes = self._key_values.changes
        path = self._settings.kv_path
        if path is None:
            return
        try:
            self._write_key_values(path)
        except OSError as error:
            log.error("%s: key-values not written, they live until this process ends: %s", path, error)

    def _write_key_values(self, path: Path) -> None:
        fresh = path.with_name(path.name + ".tmp")
        with fresh.open("wb") as file:
            file.write(self._key_values.to_json())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
