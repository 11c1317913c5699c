"""What /metrics of the HTTP queues says, in Prometheus's text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from gantry.gateway import exposition

_REQUESTS = ("gantry_queues_requests_total", "counter", "Answered calls by call, status and code.")
KINDS = {
    "ready": ("gantry_queues_ready", "gauge", "1 while a broker can be reached, as /readyz says."),
    "connections": ("gantry_queues_connections", "gauge", "Connections of clients."),
    "connections_refused": (
        "gantry_queues_connections_refused_total",
        "counter",
        "Connections that were refused because too many were open.",
    ),
    "connections_slow": (
        "gantry_queues_connections_slow_total",
        "counter",
        "Connections that were closed because a request did not come to its end in time.",
    ),
    "held": ("gantry_queues_receives_held", "gauge", "Receives under way, waiting ones included."),
    "topic_workers": ("gantry_queues_topic_workers", "gauge", "Tasks that forward published messages."),
    "topic_delivered": ("gantry_queues_topic_delivered_total", "counter", "Messages that a subscriber has got."),
    "topic_retried": ("gantry_queues_topic_retried_total", "counter", "Attempts that are repeated later."),
    "topic_given_up": (
        "gantry_queues_topic_given_up_total",
        "counter",
        "Messages that a subscriber did not get with all retries.",
    ),
    "users": ("gantry_queues_users", "gauge", "Access ids that may call; 0: everybody on this machine."),
}


class QueueMetrics:
    """Makes the text; `answered` counts calls by call, status and code, `gauges` returns the numbers of `KINDS`."""

    def __init__(self, answered: Counter[tuple[str, int, str]], gauges: Callable[[], Mapping[str, int]]) -> None:
        self._answered = answered
        self._gauges = gauges

    def text(self) -> bytes:
        """Return all metrics as they are now."""
        lines = exposition.numbers(KINDS, self._gauges())
        lines += exposition.counted(_REQUESTS, ("call", "status", "code"), self._answered)
        return exposition.page(lines)
