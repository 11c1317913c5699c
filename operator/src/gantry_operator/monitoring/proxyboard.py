"""The dashboard and the alerts of the gRPC proxies.

Proxies have no state: a missing one costs capacity, and its clients go to another one.  Without any proxy no client of
RocketMQ 5 that speaks gRPC is served, so that is worth a critical alert.
"""

from __future__ import annotations

from gantry_operator.monitoring.alerts import Alert
from gantry_operator.monitoring.panels import Dashboard, Query, Row, Variable
from gantry_operator.monitoring.queries import lines, of, rate, stat

# Answers that are no fault of the client.
_TROUBLE = (
    'code=~"TOO_MANY_REQUESTS|INTERNAL.*|PROXY_TIMEOUT|MASTER_PERSISTENCE_TIMEOUT|HA_NOT_AVAILABLE|'
    'SLAVE_PERSISTENCE_TIMEOUT|CODE_UNSPECIFIED"'
)

BOARD = Dashboard(
    "gantrymq-proxy",
    "GantryMQ: proxies",
    (
        Row(
            "Now",
            (
                stat("Processes", f"sum({of('rocketmq_proxy_up')})", "Proxies, each worker counted, that serve."),
                stat(
                    "Not ready",
                    f"count({of('gantry_proxy_ready')} == 0) or vector(0)",
                    "Processes that reach no broker; /readyz says why.",
                    bad_from=1,
                ),
                stat("Clients", f"sum({of('gantry_proxy_clients')})", "Clients that called lately."),
                stat("Connections", f"sum({of('gantry_proxy_connections')})", "Connections of clients."),
                stat(
                    "Waiting calls",
                    f"sum({of('gantry_proxy_receives_held')})",
                    "Calls for messages under way; from 20 000 of one process on it refuses more.",
                ),
            ),
        ),
        Row(
            "Calls",
            (
                lines(
                    "Calls",
                    "Answered calls by RPC.",
                    Query(rate("gantry_proxy_requests_total", by="rpc"), "{{rpc}}"),
                    unit="cps",
                ),
                lines(
                    "Answers that are not OK",
                    "By code. MESSAGE_NOT_FOUND is a call that waited and got nothing.",
                    Query(rate("gantry_proxy_requests_total", 'code!="OK"', by="code"), "{{code}}"),
                    unit="cps",
                ),
                lines(
                    "Trouble",
                    "Brokers that cannot be reached, timeouts, and what is refused because too much is under way.",
                    Query(rate("gantry_proxy_requests_total", _TROUBLE, by="instance, code"), "{{code}} {{instance}}"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Clients",
            (
                lines("Connections by process", "Uneven: clients keep theirs.", Query(of("gantry_proxy_connections"))),
                lines(
                    "Connections refused",
                    "More than 20 000 at one process: add replicas.",
                    Query(rate("gantry_proxy_connections_refused_total")),
                    unit="cps",
                ),
                lines(
                    "Telemetry streams",
                    "Over them go settings and checks of transactions.",
                    Query(of("gantry_proxy_telemetry_streams")),
                ),
                lines(
                    "Checks of transactions dropped",
                    "No connected producer publishes the topic; brokers repeat them.",
                    Query(rate("gantry_proxy_checks_dropped_total")),
                    unit="cps",
                ),
            ),
        ),
    ),
    (Variable("instance", "label_values(rocketmq_proxy_up, instance)", "Proxy"),),
)
ALERTS = (
    Alert(
        "GantryProxiesGone",
        "count by (job) (max_over_time(rocketmq_proxy_up[1h])) unless on (job) count by (job) (rocketmq_proxy_up)",
        "2m",
        "critical",
        "No proxy answers any more: clients that speak gRPC are not served",
        "Do its pods run (kubectl get pods -l gantrymq.io/component=proxy)? Their log says why they end. If proxies "
        "were removed on purpose, the alert ends within an hour.",
    ),
    Alert(
        "GantryProxyReachesNoBroker",
        "gantry_proxy_ready == 0",
        "1m",
        "critical",
        "{{ $labels.instance }} reaches no broker and is not ready",
        "Its log and /readyz say what it tried. Do brokers and name servers run, and may proxies connect to them "
        "(NetworkPolicies)? It is ready again by itself.",
    ),
    Alert(
        "GantryProxyTrouble",
        f"sum by (instance, code) (rate(gantry_proxy_requests_total{{{_TROUBLE}}}[5m])) > 0.1",
        "5m",
        "warning",
        "{{ $labels.instance }} answers calls with {{ $labels.code }}",
        "INTERNAL_SERVER_ERROR and timeouts: brokers cannot be reached or are slow, its log names them. "
        "TOO_MANY_REQUESTS: too much is under way, add proxies.",
    ),
    Alert(
        "GantryProxyRefusesConnections",
        "increase(gantry_proxy_connections_refused_total[10m]) > 0",
        "0m",
        "warning",
        "{{ $labels.instance }} refuses connections: too many are open",
        "A process takes 20 000. Raise spec.proxy.replicas; clients that connect again are spread over all proxies.",
    ),
)
GROUP = ("gantrymq-proxies", ALERTS)
