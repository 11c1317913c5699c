"""The alerts: states that need an action of an operator, each with the action.

Each stands in a group by its theme and fires for one broker, so that a silence is for one broker.  `for` is as long as
the thing may take by itself: a failover, a restart, a slave that catches up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.  `text`: PromQL that has series while it fires.  `do`: what to do about it."""

    name: str
    text: str
    lasting: str
    severity: str  # critical: messages are refused or at risk; warning: they will be
    summary: str
    do: str

    def to_rule(self) -> dict[str, object]:
        """Return the alerting rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.text,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.do},
        }


_BROKERS = (
    Alert(
        "GantryBrokerRefusesWrites",
        'gantry_write_gate_shut{reason!="a slave"} > 0',
        "1m",
        "critical",
        "{{ $labels.instance }} takes no messages: {{ $labels.reason }}",
        "Producers use other groups, if there are any. 'disk full': add room or shorten store.reserved_hours; "
        "'too few in-sync replicas': see GantryTooFewInSync.",
    ),
    Alert(
        "GantryDiskFillsUp",
        "gantry_disk_used_ratio > 0.85",
        "10m",
        "warning",
        "The disk of {{ $labels.instance }} is {{ $value | humanizePercentage }} full",
        "From 90 % on messages are refused. Add room, shorten store.reserved_hours, or let segments go with "
        "store.clean_forcibly.",
    ),
    Alert(
        "GantryOutcomesUnknown",
        "rate(gantry_messages_ack_late_total[5m]) > 0",
        "5m",
        "warning",
        "{{ $labels.instance }} tells producers that the outcome of their sends is unknown",
        "The disk does not flush in time, or a slave does not acknowledge in time; look at gantry_ack_wait_seconds and "
        "gantry_replication_lag_bytes.",
    ),
    Alert(
        "GantrySegmentStuck",
        "gantry_owed_stuck > 0",
        "15m",
        "warning",
        "{{ $labels.instance }} keeps a segment because of {{ $labels.kind }} that cannot be copied",
        "Open transactions or delayed messages hold it and cannot be copied; the broker's log names each, and why.",
    ),
    Alert(
        "GantryLoopLags",
        "histogram_quantile(0.99, sum by (le, instance) (rate(gantry_loop_lag_seconds_bucket[5m]))) > 0.1",
        "10m",
        "warning",
        "Requests to {{ $labels.instance }} wait {{ $value | humanizeDuration }} for its event loop",
        "The machine is overloaded, or a job takes turns that are too long: gantry_job_longest_slice_seconds.",
    ),
    Alert(
        "GantryNotRegistered",
        "gantry_registered == 0",
        "2m",
        "warning",
        "Name server {{ $labels.name_server }} does not take the registration of {{ $labels.instance }}",
        "Clients that ask that name server do not find this broker. Is it reachable from there?",
    ),
)
_REPLICATION = (
    Alert(
        "GantryTooFewInSync",
        "gantry_in_sync_members < gantry_in_sync_members_needed",
        "1m",
        "critical",
        "Only {{ $value }} members are in sync with {{ $labels.instance }}; it refuses to write",
        "Start the missing slave. If it runs, its log says why it does not follow.",
    ),
    Alert(
        "GantryAtMinimumInSync",
        "gantry_in_sync_members == gantry_in_sync_members_needed",
        "15m",
        "warning",
        "One more loss stops writes of {{ $labels.instance }}",
        "A slave is missing or behind: gantry_replication_connected, gantry_replication_lag_bytes.",
    ),
    Alert(
        "GantryPermitRunsOut",
        "gantry_permit_seconds == 0 and gantry_group_leads == 1",
        "30s",
        "warning",
        "The master {{ $labels.instance }} has no serving lease and refuses all requests",
        "Neither its register nor all of its slaves answer it: look at the network, the API server, the file.",
    ),
    Alert(
        "GantryMastershipFlaps",
        "changes(gantry_group_epoch[15m]) > 4",
        "0m",
        "warning",
        "{{ $labels.instance }} saw {{ $value }} changes of its master within a quarter of an hour",
        "A master that is healthy again and again is replaced: look for long pauses, slow disks, a full machine.",
    ),
    Alert(
        "GantryMessagesLost",
        "increase(gantry_replication_lost_messages_total[1h]) > 0",
        "0m",
        "critical",
        "{{ $labels.instance }} cut {{ $value | humanize }} acknowledged messages from its log after a failover",
        "ASYNC_MASTER acknowledges before a slave has a message. The broker's log names the place. Where that is too "
        "much, use SYNC_MASTER (profile replicated or durable).",
    ),
)
_CONSUMPTION = (
    Alert(
        "GantryDeadLetters",
        "increase(gantry_dead_letters_total[10m]) > 0",
        "0m",
        "warning",
        "Group {{ $labels.consumer_group }} gave up messages of {{ $labels.topic }}",
        "gantry dlq show {{ $labels.consumer_group }} tells which; repair the consumer, then gantry dlq replay.",
    ),
    Alert(
        "GantryLagGrows",
        "sum by (instance, consumer_group, topic) (gantry_group_lag_messages) > 10000 "
        "and sum by (instance, consumer_group, topic) (deriv(gantry_group_lag_messages[10m])) > 0",
        "15m",
        "warning",
        "Group {{ $labels.consumer_group }} falls behind on {{ $labels.topic }}: {{ $value }} messages",
        "Its consumers are slower than the producers, or gone: gantry group progress {{ $labels.consumer_group }}.",
    ),
    Alert(
        "GantryGroupDisagrees",
        "gantry_subscription_disagreements > 1",
        "5m",
        "warning",
        "Members of {{ $labels.group }} subscribe to {{ $labels.topic }} differently: messages are skipped",
        "Give all members of a group the same subscription; a rolling deployment does this for a moment.",
    ),
    Alert(
        "GantryReviveLate",
        "max by (instance) (rocketmq_pop_revive_latency_milliseconds) > 30000",
        "1m",
        "warning",
        "{{ $labels.instance }} is {{ $value | humanize }} ms late with messages whose lease ended",
        "They come again only when it has caught up. Its log says what ended leases wait for: a full disk, a topic "
        "that cannot be made. Else look at gantry_loop_lag_seconds and the disk.",
    ),
    Alert(
        "GantryLeasesNearLimit",
        "gantry_pop_open_messages > 0.8 * gantry_pop_open_messages_limit",
        "10m",
        "warning",
        "{{ $value }} popped messages of {{ $labels.instance }} are not acknowledged",
        "At pop.leases_total_max pops find nothing. gantry_group_open_messages says whose they are: consumers that "
        "hang, or take more than they handle.",
    ),
)
_TRANSACTIONS = (
    Alert(
        "GantryTransactionsGivenUp",
        'increase(gantry_transactions_moved_total{kind="given_up"}[10m]) > 0',
        "0m",
        "critical",
        "{{ $labels.instance }} gave up transactions without a decision of their producers",
        "Their producers answered no check. gantry tx ls --state given-up lists them, gantry tx rearm has them asked "
        "about again.",
    ),
    Alert(
        "GantryTransactionOld",
        "gantry_transaction_oldest_age_seconds > 3600",
        "5m",
        "warning",
        "A transaction on {{ $labels.instance }} has been open for {{ $value | humanizeDuration }}",
        "gantry tx ls names it and its producer group: does one of its producers run, and does its checker answer?",
    ),
    Alert(
        "GantrySinkUndecided",
        "gantry_sink_undecided_oldest_age_seconds > 7200",
        "5m",
        "warning",
        "A batch of a sink on {{ $labels.instance }} has waited for its decision for {{ $value | humanizeDuration }}",
        "Its query does not run or its batches take hours. gantry tx resolve lists the sinks with open halves; start "
        "the query again, or decide by hand.",
    ),
    Alert(
        "GantrySinksNearLimit",
        "gantry_sinks > 0.8 * gantry_sinks_limit",
        "10m",
        "warning",
        "{{ $labels.instance }} knows {{ $value }} sinks; a full table refuses batches of new ones",
        "gantry tx resolve lists them. Forget unused ones (--sink ID --forget), and give queries stable "
        "names.",
    ),
)
GROUPS: tuple[tuple[str, tuple[Alert, ...]], ...] = (
    ("gantrymq-brokers", _BROKERS),
    ("gantrymq-replication", _REPLICATION),
    ("gantrymq-consumption", _CONSUMPTION),
    ("gantrymq-transactions", _TRANSACTIONS),
)


def to_document(*more: tuple[str, tuple[Alert, ...]]) -> dict[str, object]:
    """The rule file, with more groups."""
    groups = (*GROUPS, *more)
    return {"groups": [{"name": name, "rules": [alert.to_rule() for alert in alerts]} for name, alerts in groups]}
