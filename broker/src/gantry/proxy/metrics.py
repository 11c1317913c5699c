"""What /metrics of a proxy says, in Prometheus's text format; `rocketmq_proxy_up` is RocketMQ's, the others ours."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping

from gantry.gateway import exposition

_UP = ("rocketmq_proxy_up", "gauge", "Whether the proxy serves.")
_UP_LABELS = ("node_type", "proxy_mode", "cluster", "node_id")
_REQUESTS = ("gantry_proxy_requests_total", "counter", "Answered calls by RPC and code.")
KINDS = {
    "ready": ("gantry_proxy_ready", "gauge", "1 while a broker can be reached, as /readyz says."),
    "connections": ("gantry_proxy_connections", "gauge", "Connections of clients."),
    "connections_refused": (
        "gantry_proxy_connections_refused_total",
        "counter",
        "Connections that were refused because too many were open.",
    ),
    "clients": ("gantry_proxy_clients", "gauge", "Clients that called lately."),
    "streams": ("gantry_proxy_telemetry_streams", "gauge", "Open telemetry streams."),
    "held": ("gantry_proxy_receives_held", "gauge", "Calls for messages under way, waiting ones included."),
    "checks_dropped": (
        "gantry_proxy_checks_dropped_total",
        "counter",
        "Checks of transactions that no producer took; brokers repeat them.",
    ),
}


class ProxyMetrics:
    """Makes the text; `answered` counts calls by RPC and code, `gauges` returns the numbers of `KINDS`, `cluster` the
    name of the brokers' cluster.  RocketMQ: `node_id` is the name of the host.
    """

    def __init__(
        self,
        answered: Counter[tuple[str, str]],
        gauges: Callable[[], Mapping[str, int]],
        cluster: Callable[[], str],
    ) -> None:
        self._answered = answered
        self._gauges = gauges
        self._cluster = cluster
        self._node = socket.gethostname()

    def text(self) -> bytes:
        """Return all metrics as they are now."""
        up = {("proxy", "cluster", self._cluster(), self._node): 1}
        lines = exposition.counted(_UP, _UP_LABELS, up)
        lines += exposition.numbers(KINDS, self._gauges())
        lines += exposition.counted(_REQUESTS, ("rpc", "code"), self._answered)
        return exposition.page(lines)
