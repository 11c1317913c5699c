"""The dashboard and the alerts of the operator itself: whether one works, receives events, and is behind.

Without a working operator brokers go on.  But no master that is lost is replaced, and no change of an object is
applied; so a missing operator is worth a critical alert.
"""

from __future__ import annotations

from gantry_operator.monitoring.alerts import Alert
from gantry_operator.monitoring.panels import Dashboard, Panel, PanelType, Query, Row, Variable

_HERE = '{instance=~"$instance"}'
_PASS_S = f"gantrymq_operator_pass_seconds_bucket{_HERE}"


def _stat(title: str, text: str, help_: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    return Panel(title, help_, (Query(text, title.lower()),), unit, PanelType.STAT, bad_from)


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{_HERE}[$__rate_interval]))"


def _quantile(share: float) -> str:
    return f"histogram_quantile({share}, sum by (le, kind) (rate({_PASS_S}[$__rate_interval])))"


BOARD = Dashboard(
    "gantrymq-operator",
    "GantryMQ: operator",
    (
        Row(
            "Now",
            (
                _stat("At work", f"sum(gantrymq_operator_leader{_HERE})", "One leads; the others watch and wait."),
                _stat("Operators", f"count(gantrymq_operator_leader{_HERE})", "Replicas that answer Prometheus."),
                _stat(
                    "Clusters due",
                    f"sum(gantrymq_operator_queue_keys{_HERE} * on (instance) gantrymq_operator_leader{_HERE})",
                    "Objects whose pass is due, at the one that works.",
                ),
                _stat(
                    "Oldest of them",
                    f"max(gantrymq_operator_queue_age_seconds{_HERE} * on (instance) gantrymq_operator_leader{_HERE})",
                    "Minutes mean that the API server or a member is slow; the log says what a pass waits for.",
                    "s",
                    120,
                ),
                _stat(
                    "Quietest watch",
                    f"max(gantrymq_operator_watch_age_seconds{_HERE})",
                    "A watch says something each minute; after three the operator is started again.",
                    "s",
                    150,
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Passes",
                    "A pass reads one object and all that belongs to it; failed ones come again after a pause.",
                    (Query(_rate("gantrymq_operator_passes_total", "kind, outcome"), "{{kind}} {{outcome}}"),),
                    "cps",
                ),
                Panel(
                    "Duration of a pass",
                    "30 s at most; what is left over is done by the next one.",
                    (Query(_quantile(0.5), "p50 {{kind}}"), Query(_quantile(0.99), "p99 {{kind}}")),
                    "s",
                ),
                Panel(
                    "Errors",
                    "transient: the API server was away or busy; forbidden: a role lacks a right, the log names it; "
                    "bug: a fault of the operator.",
                    (Query(_rate("gantrymq_operator_errors_total", "class"), "{{class}}"),),
                    "cps",
                ),
            ),
        ),
        Row(
            "The API server",
            (
                Panel(
                    "Writes",
                    "None while nothing changes, but for the Lease.",
                    (Query(_rate("gantrymq_operator_api_writes_total", "verb, resource"), "{{verb}} {{resource}}"),),
                    "cps",
                ),
                Panel(
                    "Age of watches",
                    "Since each kind was last heard of.",
                    (Query(f"max by (resource) (gantrymq_operator_watch_age_seconds{_HERE})", "{{resource}}"),),
                    "s",
                ),
            ),
        ),
        Row(
            "Failover, and the process",
            (
                Panel(
                    "Failovers",
                    "seal: a mastership was ended; promote: another one began.",
                    (Query(f"sum by (step) (increase(gantrymq_operator_failovers_total{_HERE}[5m]))", "{{step}}"),),
                ),
                Panel(
                    "Memory",
                    "Some 90 MB with 20 clusters; other people's pods do not count.",
                    (Query(f"process_resident_memory_bytes and on (instance) gantrymq_operator_leader{_HERE}"),),
                    "bytes",
                ),
            ),
        ),
    ),
    (Variable("instance", "label_values(gantrymq_operator_leader, instance)", "Operator"),),
)
ALERTS = (
    Alert(
        "GantryOperatorNobodyWorks",
        "(sum(gantrymq_operator_leader) or vector(0)) < 1",
        "2m",
        "critical",
        "No operator works: no lost master is replaced, and no change is applied",
        "Does its Deployment run, and does Prometheus reach it? Its log and the Lease in its namespace say who leads.",
    ),
    Alert(
        "GantryOperatorGroupsUnwatched",
        "gantrymq_operator_groups_unwatched > 0 and on (instance) gantrymq_operator_leader == 1",
        "2m",
        "critical",
        "{{ $value }} groups have no failover loop: if their master is lost, it is not replaced",
        "The condition FailoverPossible of their BrokerCluster is False with the reason NotWatched and says why "
        "(kubectl get brokerclusters -A -o yaml); where its status cannot be written, the operator's log does.",
    ),
    Alert(
        "GantryOperatorBehind",
        "gantrymq_operator_queue_age_seconds > 120 and on (instance) gantrymq_operator_leader == 1",
        "5m",
        "warning",
        "{{ $labels.instance }} has let a cluster wait for {{ $value | humanizeDuration }}",
        "The API server or members answer slowly, or a pass fails again and again: look at its log.",
    ),
    Alert(
        "GantryOperatorHearsNothing",
        "gantrymq_operator_watch_age_seconds > 150",
        "0m",
        "warning",
        "{{ $labels.instance }} has heard nothing of {{ $labels.resource }} for {{ $value | humanizeDuration }}",
        "The API server is away, or the watch is dead: then the operator is started again after three minutes.",
    ),
    Alert(
        "GantryOperatorPassesFail",
        "sum by (instance, class) "
        '(increase(gantrymq_operator_errors_total{class=~"forbidden|invalid|timeout|other|bug"}[10m])) > 3',
        "10m",
        "warning",
        "Passes of {{ $labels.instance }} fail: {{ $labels.class }}",
        "Its log names the object and the reason; forbidden means that a role lacks a right, invalid that an object "
        "is none that it knows, bug a fault of the operator (its log has the traceback: please report it).",
    ),
    Alert(
        "GantryOperatorManyFailovers",
        'sum(increase(gantrymq_operator_failovers_total{step="promote"}[15m])) > 4',
        "0m",
        "warning",
        "{{ $value | humanize }} failovers within a quarter of an hour",
        "Masters lose their groups again and again: look for long pauses, slow disks, nodes that come and go.",
    ),
)
GROUP = ("gantrymq-operator", ALERTS)
