"""The dashboards of brokers.

    overview        the whole cluster: messages in and out, waiting requests, disks, brokers that refuse
    replication     masters, in-sync sets, lag, for how long a master may serve
    topics          topics and consumer groups: rates, lag, retries, dead letters, delays
    transactions    open halves and their age, checks and their answers, halves that were given up
    pop             popped messages and their leases (`popboard`)

Only metrics that a broker exposes are used here (a test compares), and each panel says what to do about it.
"""

from __future__ import annotations

from gantry_operator.monitoring import popboard
from gantry_operator.monitoring.panels import Dashboard, Query, Row, Variable
from gantry_operator.monitoring.queries import OF_BROKERS as _VARIABLES
from gantry_operator.monitoring.queries import lines as _lines
from gantry_operator.monitoring.queries import of as _of
from gantry_operator.monitoring.queries import quantile as _quantile
from gantry_operator.monitoring.queries import rate as _rate
from gantry_operator.monitoring.queries import stat as _stat

_OF_TOPICS = (
    *_VARIABLES,
    Variable("topic", 'label_values(gantry_topic_messages_total{instance=~"$instance"}, topic)', "Topic"),
    Variable("group", 'label_values(gantry_group_lag_messages{instance=~"$instance"}, consumer_group)', "Group"),
)
_WRITTEN, _CONFIRMED = 'mark="written"', 'mark="confirmed"'
_NO_SLAVE, _GIVEN_UP = 'reason!="a slave"', 'kind="given_up"'
_TOPIC, _GROUP = 'topic=~"$topic"', 'consumer_group=~"$group"'


OVERVIEW = Dashboard(
    "gantrymq-overview",
    "GantryMQ: overview",
    (
        Row(
            "Now",
            (
                _stat("Brokers", f"count({_of('gantry_broker_info')})", "Brokers that answer Prometheus."),
                _stat(
                    "Messages in",
                    f"sum(rate({_of('gantry_messages_appended_total')}[$__rate_interval]))",
                    "Messages a second into the logs of masters.",
                    "cps",
                ),
                _stat(
                    "Messages out",
                    f"sum(rate({_of('gantry_messages_delivered_total')}[$__rate_interval]))",
                    "Messages a second in replies to consumers.",
                    "cps",
                ),
                _stat(
                    "Masters that refuse",
                    f"count({_of('gantry_write_gate_shut', _NO_SLAVE)}) or vector(0)",
                    "Reasons for which brokers take no messages; they stand in the panel of refusals.",
                    bad_from=1,
                ),
                _stat(
                    "Fullest disk",
                    f"max({_of('gantry_disk_used_ratio')})",
                    "From 0.90 on a broker refuses messages: add room, or shorten the retention.",
                    "percentunit",
                    0.85,
                ),
            ),
        ),
        Row(
            "Messages",
            (
                _lines(
                    "In and acknowledged",
                    "Both lines are one while producers are told SEND_OK.",
                    Query(_rate("gantry_messages_appended_total"), "in {{instance}}"),
                    Query(_rate("gantry_messages_acked_total"), "acknowledged {{instance}}"),
                    unit="cps",
                ),
                _lines(
                    "Outcome unknown, and refused",
                    "Late: the disk or the slaves are slow. Refused: by response code; 14 says why in its remark.",
                    Query(_rate("gantry_messages_ack_late_total"), "late {{instance}}"),
                    Query(_rate("gantry_messages_refused_total", by="instance, code"), "refused {{code}} {{instance}}"),
                    unit="cps",
                ),
                _lines(
                    "Why writing is shut",
                    "One line for each reason; a slave always refuses to write.",
                    Query(_of("gantry_write_gate_shut"), "{{reason}} {{instance}}"),
                ),
            ),
        ),
        Row(
            "Waiting",
            (
                _lines(
                    "Producers wait for the promise to be kept",
                    "From the append to SEND_OK: the disk under SYNC_FLUSH, the slaves under SYNC_MASTER.",
                    Query(_quantile(0.5, "gantry_ack_wait_seconds"), "p50 {{instance}}"),
                    Query(_quantile(0.99, "gantry_ack_wait_seconds"), "p99 {{instance}}"),
                    unit="s",
                ),
                _lines(
                    "Waiting for the event loop",
                    "Over 5 ms on a machine that is not overloaded something takes turns that are too long.",
                    Query(_quantile(0.99, "gantry_loop_lag_seconds"), "p99 {{instance}}"),
                    unit="s",
                ),
                _lines(
                    "Consumers wait",
                    "Held pulls wait for messages; each costs nothing until one comes.",
                    Query(_of("gantry_pulls_held"), "held {{instance}}"),
                ),
            ),
        ),
        Row(
            "Disk and process",
            (
                _lines(
                    "Disk",
                    "Retention deletes above store.disk_used_max, forcibly above store.disk_used_clean.",
                    Query(_of("gantry_disk_used_ratio")),
                    unit="percentunit",
                ),
                _lines(
                    "Bytes not confirmed yet",
                    "Written and not confirmed: grows while slaves or the disk are behind.",
                    Query(
                        f"{_of('gantry_log_offset', _WRITTEN)} - ignoring(mark) "
                        f"{_of('gantry_log_offset', _CONFIRMED)}"
                    ),
                    unit="bytes",
                ),
                _lines(
                    "Memory",
                    "Resident; open transactions, delayed messages and held pulls make it grow, traffic does not.",
                    Query(_of("process_resident_memory_bytes")),
                    unit="bytes",
                ),
                _lines(
                    "Connections",
                    "Refused ones are above network.connections_max or half of the open files.",
                    Query(_of("gantry_connections")),
                    Query(_rate("gantry_connections_refused_total"), "refused {{instance}}"),
                ),
            ),
        ),
    ),
    _VARIABLES,
)

REPLICATION = Dashboard(
    "gantrymq-replication",
    "GantryMQ: replication",
    (
        Row(
            "Now",
            (
                _stat("Masters", f"sum({_of('gantry_group_leads')})", "One for each group; fewer: it fails over."),
                _stat(
                    "Groups below their minimum",
                    f"count({_of('gantry_in_sync_members')} < {_of('gantry_in_sync_members_needed')}) or vector(0)",
                    "They refuse to write: start a slave, or find out why it does not follow.",
                    bad_from=1,
                ),
                _stat(
                    "Shortest serving lease",
                    f"min({_of('gantry_permit_seconds')} and {_of('gantry_group_leads')} == 1)",
                    "How long a master may serve if neither register nor slaves answer it any more.",
                    "s",
                ),
                _stat("Newest epoch", f"max({_of('gantry_group_epoch')})", "Rises with each change of a master."),
            ),
        ),
        Row(
            "Who leads",
            (
                _lines(
                    "Leads",
                    "1 on the member that leads its group.",
                    Query(_of("gantry_group_leads")),
                ),
                _lines(
                    "Epoch",
                    "A step is a failover, a handover or a restarted master; many steps are a group that flaps.",
                    Query(_of("gantry_group_epoch")),
                ),
                _lines(
                    "Serving lease",
                    "Saw teeth below 1.7 renewals (default timers: 4.25 s); 0: nothing is served.",
                    Query(_of("gantry_permit_seconds")),
                    unit="s",
                ),
            ),
        ),
        Row(
            "In sync",
            (
                _lines(
                    "Members in sync",
                    "The master too. Below the line that is needed nothing is confirmed and writes are refused.",
                    Query(_of("gantry_in_sync_members"), "in sync {{instance}}"),
                    Query(_of("gantry_in_sync_members_needed"), "needed {{instance}}"),
                ),
                _lines(
                    "Joined or left",
                    "A slave that goes in and out has a bad link or a slow disk.",
                    Query(_rate("gantry_in_sync_changes_total")),
                ),
                _lines(
                    "Links",
                    "Of a master to each slave (by brokerId), of a slave to its master (0).",
                    Query(_of("gantry_replication_connected"), "{{instance}} to {{broker_id}}"),
                ),
                _lines(
                    "Behind",
                    "What a slave does not hold of the master's log.",
                    Query(_of("gantry_replication_lag_bytes"), "{{instance}} to {{broker_id}}"),
                    unit="bytes",
                ),
            ),
        ),
    ),
    _VARIABLES,
)

TOPICS = Dashboard(
    "gantrymq-topics",
    "GantryMQ: topics and groups",
    (
        Row(
            "Topics",
            (
                _lines(
                    "Messages in",
                    "By topic.",
                    Query(_rate("gantry_topic_messages_total", _TOPIC, by="topic"), "{{topic}}"),
                    unit="cps",
                ),
                _lines(
                    "Messages out",
                    "By consumer group and topic.",
                    Query(
                        _rate("gantry_group_messages_delivered_total", _TOPIC, _GROUP, by="consumer_group, topic"),
                        "{{consumer_group}} {{topic}}",
                    ),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Groups",
            (
                _lines(
                    "Lag",
                    "Messages behind the committed offset; grows while consumers are slower than producers, or gone.",
                    Query(
                        f"sum by (consumer_group, topic) ({_of('gantry_group_lag_messages', _TOPIC, _GROUP)})",
                        "{{consumer_group}} {{topic}}",
                    ),
                ),
                _lines(
                    "Come again",
                    "Sent back by consumers that could not handle them.",
                    Query(_rate("gantry_send_backs_total", _GROUP, by="consumer_group"), "{{consumer_group}}"),
                    unit="cps",
                ),
                _lines(
                    "Dead letters",
                    "gantry dlq show GROUP tells which, gantry dlq replay brings them back.",
                    Query(
                        f"sum by (consumer_group) ({_of('gantry_dead_letter_messages', _GROUP)})", "{{consumer_group}}"
                    ),
                ),
                _lines(
                    "Members that disagree",
                    "Members of one group subscribe differently: some messages are skipped.",
                    Query(_of("gantry_subscription_disagreements"), "{{group}} {{topic}}"),
                ),
            ),
        ),
        Row(
            "Delayed",
            (
                _lines(
                    "Pending",
                    "By delay level, or with a time of their own.",
                    Query(f"sum by (level) ({_of('gantry_delay_pending')})", "{{level}}"),
                ),
                _lines(
                    "Late",
                    "From when a message was due to its delivery; never early.",
                    Query(_quantile(0.99, "gantry_delay_lateness_seconds"), "p99 {{instance}}"),
                    unit="s",
                ),
            ),
        ),
    ),
    _OF_TOPICS,
)

TRANSACTIONS = Dashboard(
    "gantrymq-transactions",
    "GantryMQ: transactions",
    (
        Row(
            "Now",
            (
                _stat("Open", f"sum({_of('gantry_transactions_open')})", "Halves without a commit or rollback."),
                _stat(
                    "Oldest",
                    f"max({_of('gantry_transaction_oldest_age_seconds')})",
                    "gantry tx ls names it and its producer group; a group that is gone is asked in vain.",
                    "s",
                    3600,
                ),
                _stat(
                    "Given up",
                    f"sum(increase({_of('gantry_transactions_moved_total', _GIVEN_UP)}[1h])) or vector(0)",
                    "Within an hour; gantry tx rearm has one asked about again.",
                    bad_from=1,
                ),
            ),
        ),
        Row(
            "Ends",
            (
                _lines(
                    "Committed and rolled back",
                    "By topic.",
                    Query(_rate("gantry_transactions_committed_total", by="topic"), "committed {{topic}}"),
                    Query(_rate("gantry_transactions_rolled_back_total", by="topic"), "rolled back {{topic}}"),
                    unit="cps",
                ),
                _lines(
                    "From half to commit",
                    "Minutes here are checks that had to be answered.",
                    Query(_quantile(0.5, "gantry_transaction_finish_seconds"), "p50 {{instance}}"),
                    Query(_quantile(0.99, "gantry_transaction_finish_seconds"), "p99 {{instance}}"),
                    unit="s",
                ),
                _lines(
                    "Refused ends",
                    "Conflicting, forged or too late; by reason.",
                    Query(_rate("gantry_transaction_ends_refused_total", by="reason"), "{{reason}}"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Checks",
            (
                _lines(
                    "Asked and answered",
                    "Alone: no producer of the group is connected.",
                    Query(_rate("gantry_transaction_checks_total", by="result"), "{{result}}"),
                    unit="cps",
                ),
                _lines(
                    "Open",
                    "By topic; grows while producers die before they decide.",
                    Query(f"sum by (topic) ({_of('gantry_transactions_open')})", "{{topic}}"),
                ),
            ),
        ),
    ),
    _VARIABLES,
)

ALL = (OVERVIEW, REPLICATION, TOPICS, TRANSACTIONS, popboard.BOARD)
