"""The dashboard and the alerts of the servers of HTTP queues.

Servers have no state: a missing one costs capacity, and its clients go to another one.  Without any of them no client
of HTTP queues is served, so that is worth a critical alert.
"""

from __future__ import annotations

from gantry_operator.monitoring.alerts import Alert
from gantry_operator.monitoring.panels import Dashboard, Query, Row, Variable
from gantry_operator.monitoring.queries import lines, of, rate, stat

_TROUBLE = 'status=~"5.."'

BOARD = Dashboard(
    "gantrymq-queues",
    "GantryMQ: HTTP queues",
    (
        Row(
            "Now",
            (
                stat("Servers", f"count({of('gantry_queues_ready')})", "Servers that answer."),
                stat(
                    "Servers not ready",
                    f"count({of('gantry_queues_ready')} == 0) or vector(0)",
                    "Servers that reach no broker; /readyz says why.",
                    bad_from=1,
                ),
                stat("HTTP connections", f"sum({of('gantry_queues_connections')})", "Connections of clients."),
                stat(
                    "Waiting receives",
                    f"sum({of('gantry_queues_receives_held')})",
                    "Receives under way; from 20 000 of one server on it refuses more.",
                ),
                stat("Users", f"max({of('gantry_queues_users')})", "Access ids of the server that has most."),
            ),
        ),
        Row(
            "Calls of HTTP queues",
            (
                lines(
                    "Calls by kind",
                    "Answered calls: method, and what it is about.",
                    Query(rate("gantry_queues_requests_total", by="call"), "{{call}}"),
                    unit="cps",
                ),
                lines(
                    "Errors by code",
                    "MessageNotExist: a receive that got nothing, or a handle that is void. SignatureDoesNotMatch: "
                    "a wrong secret. TimeExpired: a client's clock.",
                    Query(rate("gantry_queues_requests_total", 'code!=""', by="status, code"), "{{status}} {{code}}"),
                    unit="cps",
                ),
                lines(
                    "Answers of the server's fault",
                    "Brokers that cannot be reached, and what is refused because too much is under way.",
                    Query(rate("gantry_queues_requests_total", _TROUBLE, by="instance, code"), "{{code}} {{instance}}"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Clients of HTTP queues",
            (
                lines("Connections by server", "Uneven: clients keep theirs.", Query(of("gantry_queues_connections"))),
                lines(
                    "HTTP connections refused",
                    "More than 20 000 at one server: add replicas.",
                    Query(rate("gantry_queues_connections_refused_total")),
                    unit="cps",
                ),
                lines(
                    "Slow connections closed",
                    "Requests that did not come to their end in time: a bad network, or an attack.",
                    Query(rate("gantry_queues_connections_slow_total")),
                    unit="cps",
                ),
            ),
        ),
    ),
    (Variable("instance", "label_values(gantry_queues_ready, instance)", "Server"),),
)
ALERTS = (
    Alert(
        "GantryQueuesGone",
        "count by (job) (max_over_time(gantry_queues_ready[1h])) unless on (job) count by (job) (gantry_queues_ready)",
        "2m",
        "critical",
        "No server of HTTP queues answers any more: their clients are not served",
        "Do its pods run (kubectl get pods -l gantrymq.io/component=queues)? Their log says why they end. If the "
        "servers were removed on purpose, the alert ends within an hour.",
    ),
    Alert(
        "GantryQueuesReachNoBroker",
        "gantry_queues_ready == 0",
        "1m",
        "critical",
        "{{ $labels.instance }}: HTTP queues reach no broker and are not ready",
        "Its log and /readyz say what it tried. Do brokers and name servers run, and may the servers connect to them "
        "(NetworkPolicies)? It is ready again by itself.",
    ),
    Alert(
        "GantryQueuesTrouble",
        f"sum by (instance, code) (rate(gantry_queues_requests_total{{{_TROUBLE}}}[5m])) > 0.1",
        "5m",
        "warning",
        "{{ $labels.instance }}: HTTP queues answer calls with {{ $labels.code }}",
        "InternalError: brokers cannot be reached or are slow, its log names them by the request's id. "
        "ServiceUnavailable: too much is under way, add servers.",
    ),
    Alert(
        "GantryQueuesRefuseConnections",
        "increase(gantry_queues_connections_refused_total[10m]) > 0",
        "0m",
        "warning",
        "{{ $labels.instance }}: HTTP queues refuse connections, too many are open",
        "A server takes 20 000. Raise spec.queues.replicas; clients that connect again are spread over all servers.",
    ),
)
GROUP = ("gantrymq-queues", ALERTS)
