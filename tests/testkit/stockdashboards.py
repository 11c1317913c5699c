"""What dashboards and alerts that others made for RocketMQ ask Prometheus: names, labels and arithmetic, no layout.

    OVERVIEW   Apache's rocketmq_exporter_overview.json (grafana.com 10477)
    LONG       its rocketmq_exporter.json; its labels Cluster and Env come from the scrape configuration
    ALERTS     its example.rules
    CONSOLE    what the console of RocketMQ 5 asks of its brokers' own metrics

Each is a list of queries.  SILENT says which may have no series while all is well, or never have one here, and why.
"""

from __future__ import annotations

_OLD = "rocketmq_brokeruntime_"
_WAITED = (
    *("0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s"),
    *("1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore"),
)
_SLOW = _WAITED[_WAITED.index("200to500ms") :]
_POOLS = ("pull", "query", "send")
_CLIENT = ("consume_fail_msg_count", "consume_fail_msg_tps", "consume_ok_msg_tps", "consume_rt")
_PULLING = ("consumer_pull_rt", "consumer_pull_tps")
_TOTALS = ("msg_gettotal_yesterdaymorning", "msg_puttotal_yesterdaymorning", "msg_gettotal_todaymorning")

OVERVIEW = [
    *(f"rocketmq_{name}" for name in ("broker_tps", "broker_qps", "producer_tps", "consumer_tps")),
    *(f"rocketmq_{name}" for name in ("consumer_offset", "consumer_message_size", "producer_offset")),
    *("rocketmq_producer_message_size", "rocketmq_group_get_latency_by_storetime"),
    "sum(rocketmq_producer_offset) by (topic) - on(topic) group_right sum(rocketmq_consumer_offset) by (group, topic)",
    *(f"{_OLD}pmdt_{bucket}" for bucket in _WAITED),
    *(f"{_OLD}{pool}_threadpoolqueue_headwait_timemills" for pool in _POOLS),
    *(f"rocketmq_client_{name}" for name in (*_CLIENT, *_PULLING)),
    *(f"{_OLD}{name}_tps10" for name in ("getfound", "gettotal", "gettransfered", "getmiss", "put")),
    *(f"{_OLD}{name}" for name in ("commitlog_disk_ratio", "consumequeue_disk_ratio", "commitlogdir_capacity_free")),
    *(f"{_OLD}{name}" for name in ("commitlogdir_capacity_total", "commitlog_maxoffset", "commitlog_minoffset")),
    *(f"{_OLD}{name}" for name in ("msg_put_total_today_now", "msg_gettotal_today_now", "dispatch_behind_bytes")),
    *(f"{_OLD}{name}" for name in ("put_message_size_total", "put_message_average_size", *_TOTALS)),
    f"{_OLD}msg_puttotal_todaymorning",
]

_PLACE = 'Cluster="local",Env="test"'
_BROKER = f'{_PLACE},broker=~".+"'
_TOPIC = f'{_BROKER},topic=~".+"'
_BOTH = f'{_TOPIC},group=~".+"'
_GROUP = f'{_PLACE},group=~".+"'
_READER = f'{_PLACE},group=~".+",topic=~".+"'
_BEHIND = f"sum(rocketmq_group_diff{{{_READER}}}) by (group, topic)"

VARIABLES = [
    f"count by (Env) (rocketmq_broker_tps{{{_PLACE}}})",
    f"count by (Cluster) (rocketmq_broker_tps{{{_PLACE}}})",
    f"count by (broker) (rocketmq_broker_tps{{{_PLACE}}})",
    f"count by (topic) (rocketmq_producer_tps{{{_PLACE}}})",
    f"count by (group) (rocketmq_consumer_tps{{{_PLACE}}})",
]
LONG = [
    f"rocketmq_broker_tps{{{_BROKER}}}",
    f"rocketmq_broker_qps{{{_BROKER}}}",
    f"{_OLD}commitlog_disk_ratio{{{_PLACE}}} * 100",
    *(f"sum({_OLD}pmdt_{bucket}{{{_PLACE}}})" for bucket in _WAITED),
    " + ".join(f"sum({_OLD}pmdt_{bucket}{{{_PLACE}}}) by (brokerIP)" for bucket in _SLOW),
    *(f"{_OLD}{pool}_threadpoolqueue_headwait_timemills{{{_PLACE}}}" for pool in _POOLS),
    f"{_OLD}dispatch_behind_bytes{{{_PLACE}}}",
    f"max(rocketmq_group_get_latency_by_storetime{{{_BOTH}}}) by (group, topic, broker)",
    f"{_OLD}msg_puttotal_todaymorning{{{_PLACE}}} - {_OLD}msg_puttotal_yesterdaymorning{{{_PLACE}}}",
    f"{_OLD}msg_put_total_today_now{{{_PLACE}}} - {_OLD}msg_puttotal_todaymorning{{{_PLACE}}}",
    f"{_OLD}msg_gettotal_todaymorning{{{_PLACE}}} - {_OLD}msg_gettotal_yesterdaymorning{{{_PLACE}}}",
    f"{_OLD}msg_gettotal_today_now{{{_PLACE}}} - {_OLD}msg_gettotal_todaymorning{{{_PLACE}}}",
    f"{_OLD}earliest_message_timestamp{{{_PLACE}}}",
    f"sum by (topic) (rocketmq_producer_tps{{{_TOPIC}}})",
    f"sum by (group) (rocketmq_consumer_tps{{{_BOTH}}})",
    f"sum(rocketmq_producer_message_size{{{_TOPIC}}}) by (broker)",
    f"sum(rocketmq_producer_message_size{{{_TOPIC}}}) by (topic)",
    f"sum(rocketmq_consumer_message_size{{{_BOTH}}}) by (broker)",
    f"sum(rocketmq_consumer_message_size{{{_BOTH}}}) by (topic, group)",
    f"{_BEHIND} >= 0 and {_BEHIND} <= 100000",
    f"{_BEHIND} < 0",
    f"{_BEHIND} > 100000",
    f"sum(rocketmq_group_retrydiff{{{_GROUP}}}) by (group)",
    *(f"rocketmq_client_{name}{{{_READER}}}" for name in (*_CLIENT, *_PULLING)),
    f"{_OLD}commitlog_maxoffset{{{_PLACE}}} - {_OLD}commitlog_minoffset{{{_PLACE}}}",
    f"rocketmq_producer_offset{{{_TOPIC}}}",
    f"rocketmq_topic_retry_offset{{{_BROKER}}}",
    f"rocketmq_topic_dlq_offset{{{_BROKER}}}",
    f"rocketmq_consumer_offset{{{_TOPIC}}}",
]
ALERTS = [
    *(f"sum(rocketmq_{side}_tps) by (cluster) >= 0" for side in ("producer", "consumer")),
    "(sum(rocketmq_producer_offset) by (topic) - on(topic) group_right sum(rocketmq_consumer_offset) by (group, topic))"
    " - ignoring(group) group_left sum(avg_over_time(rocketmq_producer_tps[5m])) by (topic) * 5 * 60",
    "rocketmq_group_get_latency_by_storetime >= 0",
]
_RATES = ("messages_in", "messages_out", "throughput_in", "throughput_out")
_STATES = ("consumer_lag_messages", "consumer_lag_latency_milliseconds", "topic_number", "consumer_group_number")
CONSOLE = [
    *(f"sum(rate(rocketmq_{name}_total[20s])) by (cluster, topic)" for name in _RATES),
    *(f"max(rocketmq_{name}) by (cluster, node_id)" for name in _STATES),
    'up{job=~".*rocketmq.*"}',
]
ALL = [*OVERVIEW, *VARIABLES, *LONG, *ALERTS, *CONSOLE]


def silent(query: str) -> str | None:
    """Why this query has no series here while all is well; None when it has to have one."""
    if query.startswith("rocketmq_client_"):
        return "only consumers know it, and a scrape does not ask each of them"
    if query.endswith((" < 0", " > 100000")):
        return "a filter for trouble: more consumed than there is, or a large backlog"
    return None
