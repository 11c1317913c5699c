"""The proxy: gRPC's server behind its acceptor, and the parts behind it.

    start   connections to brokers are made when they are needed; the port opens last
    stop    the port closes, health says NOT_SERVING, streams and waiting calls are answered, then GOAWAY: calls under
            way get a moment.  Leases stay as they are, and handles are good at any other proxy

Bounds: frames, metadata, streams of one connection, calls under way in all; `telemetry`, `receiving` and `clients`
bound what lasts longer.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from gantry.clock import SystemClock
from gantry.gateway.brokers import Brokers
from gantry.gateway.reach import Reach
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy import routes
from gantry.proxy.acceptor import Acceptor, listening_socket
from gantry.proxy.clients import KnownClients
from gantry.proxy.handles import Handles
from gantry.proxy.metrics import ProxyMetrics
from gantry.proxy.presence import OwnerReports
from gantry.proxy.receiving import ReceiveCalls
from gantry.proxy.sending import SendCalls
from gantry.proxy.service import SERVICE, Service
from gantry.proxy.settling import LeaseCalls
from gantry.proxy.telemetry import Telemetry
from gantry.proxy.transactions import Transactions
from gantry.transport.http import HealthServer

log = logging.getLogger(__name__)

_FRAME_BYTES_MAX = 32 << 20  # of a request: room for a batch of bodies that is refused with a code of the protocol
_METADATA_BYTES_MAX = 16 << 10
_STREAMS_OF_CONNECTION_MAX = 4096
_CALLS_MAX = 50_000
# Calls that came and were not begun: consumers whose calls have waited together come again together.  gRPC's own
# limits are 1000 and 3000, and it cancels the calls beyond them.
_QUEUED_SOME_CANCELLED, _QUEUED_MAX = 20_000, 30_000
_DRAIN_S = 3.0
_OPTIONS = (
    ("grpc.max_receive_message_length", _FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", _STREAMS_OF_CONNECTION_MAX),
    ("grpc.server.max_pending_requests", _QUEUED_SOME_CANCELLED),
    ("grpc.server.max_pending_requests_hard_limit", _QUEUED_MAX),
    # A connection without a sign of life for 80 s is gone; clients may ping as often as theirs are set to.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Where a proxy listens and whom it asks; `keys` sign handles, the first one signs new ones."""

    nameservers: Sequence[str]
    keys: Sequence[bytes]
    host: str = "0.0.0.0"
    port: int = 8081
    is_shared: bool = False  # other processes listen on the same port
    tls: ssl.SSLContext | None = None  # None: plain text only
    http_port: int | None = None  # of health and metrics; None: no HTTP server
    advertised: Sequence[tuple[str, int]] = field(default_factory=tuple)
    http_host: str = "0.0.0.0"


class Proxy:
    """One process of the proxy; start() and stop() once each."""

    def __init__(self, settings: ProxySettings, end: Callable[[], None] = lambda: None) -> None:
        """end: called when this process has to end; `failure` says why."""
        self.failure: str | None = None
        self._end = end
        self.port = settings.port
        self.http_port = settings.http_port
        self._settings = settings
        clock = SystemClock()
        handles = Handles(settings.keys)
        self.clients = KnownClients()
        self.transactions = Transactions(self.clients, handles)
        self.brokers = Brokers(
            settings.nameservers, clock, self.transactions.on_request, self.clients.transactional
        )
        self.telemetry = Telemetry(self.brokers, self.clients)
        self.receiving = ReceiveCalls(self.brokers, self.clients, handles, clock.now_ms)
        self._presence = OwnerReports(self.brokers, self.clients, self.receiving)
        self.reach = Reach(self.brokers.masters, self.brokers.knock)
        self.service = Service(
            self.brokers,
            self.clients,
            self.telemetry,
            SendCalls(self.brokers, handles, clock.now_ms),
            self.transactions,
            (self.receiving, LeaseCalls(self.brokers, handles), self._presence),
            _advertised(settings.advertised),
        )
        self.metrics = ProxyMetrics(self.service.answered, self._gauges, lambda: self.brokers.cluster_name)
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._http: HealthServer | None = None
        self._folder: Path | None = None  # of the Unix socket between acceptor and server

    async def start(self) -> None:
        """Listen; ConfigError when that is not possible."""
        settings = self._settings
        listener = listening_socket(settings.host, settings.port, settings.is_shared)
        self.port = listener.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="gantry-proxy-"))  # only this user may connect
        target = str(self._folder / "grpc.sock")
        self._acceptor = Acceptor(listener, target, settings.tls)
        self._server = self._made(target)
        self.brokers.start(self._fail)
        self._presence.start(self._fail)
        self.reach.start()
        await self._server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if settings.http_port is not None:
            verdicts = self._is_alive, self._is_ready
            self._http = HealthServer(settings.http_host, settings.http_port, lambda: self.metrics.text, *verdicts)
            self.http_port = await self._http.start()
        self._acceptor.start(self._fail)
        log.info("gRPC on port %d, %s", self.port, "plain text and TLS" if settings.tls else "plain text")

    async def stop(self) -> None:
        """Take no more calls, answer those that wait, and close."""
        server, self._server = self._server, None
        if self._acceptor is not None:
            self._acceptor.stop()
        if server is not None:
            await self._health.enter_graceful_shutdown()
            self.telemetry.drain()
            stopping = asyncio.ensure_future(server.stop(_DRAIN_S))
            await self.receiving.drain(_DRAIN_S)
            await stopping
        if self._acceptor is not None:
            await self._acceptor.close()
        if self._http is not None:
            await self._http.close()
        await self.reach.close()
        await self._presence.close()
        await self.brokers.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _made(self, target: str) -> grpc.aio.Server:
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX)
        server.add_generic_rpc_handlers((self.service.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server, _pool())
        server.add_insecure_port(f"unix:{target}")
        return server

    def _gauges(self) -> dict[str, int]:
        acceptor = self._acceptor
        return {
            "ready": int(self._is_ready()[0]),
            "connections": 0 if acceptor is None else len(acceptor.open),
            "connections_refused": 0 if acceptor is None else acceptor.refused,
            "clients": len(self.clients),
            "streams": self.clients.streams,
            "held": self.receiving.held,
            "checks_dropped": self.transactions.checks_dropped,
        }

    def _fail(self, reason: str) -> None:
        log.error("the proxy ends: %s", reason)
        self.failure = reason
        self._end()

    def _is_alive(self) -> tuple[bool, str]:
        if self.failure is not None:
            return False, self.failure
        return self._server is not None, f"{len(self.clients)} clients"

    def _is_ready(self) -> tuple[bool, str]:
        return self.reach.verdict() if self._server is not None else (False, "the proxy ends")


def _advertised(addresses: Sequence[tuple[str, int]]) -> pb.Endpoints | None:
    return routes.endpoints_of(addresses) if addresses else None


def _pool() -> DescriptorPool:
    """Return the descriptors for reflection: ours, and those of health and reflection themselves."""
    pool = pb.DESCRIPTOR.pool
    for module in (health_pb2, reflection_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool
