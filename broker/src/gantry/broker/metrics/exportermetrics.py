"""Metrics with the names of Apache's rocketmq-exporter: families for the table in `families`.

Its two Grafana dashboards and its sample alerts need these.  The exporter is a separate process that queries the master
of every group as `mqadmin` does, and shows the answers as gauges.  Here the master shows the same values itself, so no
exporter is needed.  Slaves do not show them.

Labels are the exporter's, `brokerIP` with the port.  There is no `rocketmq_client_*`: only the consumer has these
numbers, and a scrape does not wait for thousands of clients.  Sizes of thread pools are missing too; the waiting time
of their queues is 0, as in the runtime information, because requests do not queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gantry.broker.meters.census import GroupBacklog
from gantry.broker.meters.puttimes import BUCKETS
from gantry.broker.metrics.family import GAUGE, Family, Sample, per_topic
from gantry.broker.metrics.nativemetrics import leads
from gantry.broker.requests.admin import VERSION_TEXT
from gantry.leaves.frames import VERSION
from gantry.model import names

if TYPE_CHECKING:
    from gantry.broker.parts import Parts

_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_BROKER = ("cluster", "brokerIP", "broker")
_TOPIC = ("cluster", "broker", "topic")
_GROUP = ("cluster", "broker", "topic", "group")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")

Figure = Callable[["Parts"], float]


def _each(parts: Parts) -> bool:
    return leads(parts) and per_topic(parts)


def _here(parts: Parts) -> tuple[str, str]:
    config = parts.live.current
    return config.cluster, config.name


def _runtime(name: str, text: str, figure: Figure) -> Family:
    def read(parts: Parts) -> Iterator[Sample]:
        cluster, _ = _here(parts)
        since_ms = str(parts.serving.since_ms)
        yield (cluster, parts.statistics.address, "", VERSION_TEXT, since_ms, str(VERSION)), figure(parts)

    return Family(GAUGE, f"rocketmq_brokeruntime_{name}", f"rocketmq-exporter: {text}", _RUNTIME, read, leads)


def _broker(name: str, text: str, statistic: str) -> Family:
    def read(parts: Parts) -> Iterator[Sample]:
        cluster, broker = _here(parts)
        yield (cluster, parts.statistics.address, broker), parts.statistics.per_second(statistic, cluster)

    return Family(GAUGE, name, f"rocketmq-exporter: {text}", _BROKER, read, leads)


def _by_topic(name: str, text: str, value: Callable[[Parts, str], float]) -> Family:
    def read(parts: Parts) -> Iterator[Sample]:
        for topic in parts.census.ends:
            if parts.topics.get(topic) is not None and names.group_of(topic) is None:
                yield (*_here(parts), topic), value(parts, topic)

    return Family(GAUGE, name, f"rocketmq-exporter: {text}", _TOPIC, read, leads)


def _by_group(name: str, text: str, value: Callable[[Parts, GroupBacklog], float]) -> Family:
    def read(parts: Parts) -> Iterator[Sample]:
        for one in parts.census.standings:
            if not one.is_dead:
                yield (*_here(parts), one.topic, one.group), value(parts, one)

    return Family(GAUGE, name, f"rocketmq-exporter: {text}", _GROUP, read, leads)


def _difference(name: str, text: str, is_meant: Callable[[GroupBacklog], bool]) -> Family:
    def read(parts: Parts) -> Iterator[Sample]:
        for one in parts.census.standings:
            if is_meant(one):
                # RocketMQ: MessageModel's ordinals.
                yield (one.group, one.topic, str(one.members), "0" if one.is_broadcasting else "1"), one.behind

    return Family(GAUGE, name, f"rocketmq-exporter: {text}", _DIFF, read, leads)


def _retry_ends(parts: Parts) -> Iterator[Sample]:
    for topic, end in parts.census.ends.items():
        if names.is_retry_topic(topic):
            yield (*_here(parts), topic), end


def _dead_ends(parts: Parts) -> Iterator[Sample]:
    for topic, end in parts.census.ends.items():
        if names.is_dlq_topic(topic):
            yield (*_here(parts), names.group_of(topic) or ""), end


def _dead_difference(parts: Parts) -> Iterator[Sample]:
    """Yield the number of stored dead letters; no consumer reads them."""
    for topic, end in parts.census.ends.items():
        if names.is_dlq_topic(topic):
            yield (names.group_of(topic) or "", topic, "0", "1"), end


def _waited_ms(parts: Parts) -> Iterator[Sample]:
    for one in parts.census.standings:
        if not (one.is_dead or one.is_broadcasting):
            yield (*_here(parts), one.topic, one.group), round(one.waited_s * 1000)


def _per_second(statistic: str) -> Callable[[Parts, str], float]:
    return lambda parts, topic: parts.statistics.per_second(statistic, topic)


def _group_per_second(statistic: str) -> Callable[[Parts, GroupBacklog], float]:
    return lambda parts, one: parts.statistics.per_second(statistic, f"{one.topic}@{one.group}")


def _took(bucket: str) -> Figure:
    return lambda parts: parts.rates.in_last_minute(bucket)


def _average_bytes(parts: Parts) -> float:
    return parts.appender.bytes / max(1, parts.appender.messages)


_RUNTIME_FAMILIES = (
    *(
        _runtime(f"pmdt_{suffix}", f"messages of the last minute whose producer waited {name}.", _took(name))
        for _, name, suffix in BUCKETS
    ),
    _runtime("put_tps10", "messages into the log per second, over 10 s.", lambda p: p.rates.rate("put")),
    _runtime("getfound_tps10", "pulls that found messages per second.", lambda p: p.rates.rate("found")),
    _runtime("getmiss_tps10", "pulls that found none per second.", lambda p: p.rates.rate("missed")),
    _runtime("gettotal_tps10", "pulls per second.", lambda p: p.rates.rate("found", "missed")),
    _runtime("gettransfered_tps10", "messages to consumers per second.", lambda p: p.rates.rate("got")),
    _runtime("msg_put_total_today_now", "messages into the log since the start.", lambda p: p.rates.total("put")),
    _runtime("msg_gettotal_today_now", "messages to consumers since the start.", lambda p: p.rates.total("got")),
    _runtime("msg_puttotal_todaymorning", "the former at midnight.", lambda p: p.rates.today_morning["put"]),
    _runtime("msg_gettotal_todaymorning", "the latter at midnight.", lambda p: p.rates.today_morning["got"]),
    _runtime("msg_puttotal_yesterdaymorning", "and the midnight before.", lambda p: p.rates.yesterday_morning["put"]),
    _runtime("msg_gettotal_yesterdaymorning", "and the midnight before.", lambda p: p.rates.yesterday_morning["got"]),
    _runtime("put_message_size_total", "bytes into the log since the start.", lambda p: p.appender.bytes),
    _runtime("put_message_average_size", "bytes of a record.", _average_bytes),
    _runtime("commitlog_minoffset", "where the log begins.", lambda p: p.census.stats.log_start),
    _runtime("commitlog_maxoffset", "where the log ends.", lambda p: p.store.written.offset),
    _runtime(
        "dispatch_behind_bytes",
        "bytes that are confirmed and not yet in queues.",
        lambda p: p.store.confirmed.offset - p.store.dispatched.offset,
    ),
    _runtime(
        "remain_howmanydata_toflush",
        "bytes that are written and not yet on the disk.",
        lambda p: p.store.written.offset - p.store.flushed.offset,
    ),
    _runtime("earliest_message_timestamp", "store time of the oldest message.", lambda p: p.store.reader.oldest_ms()),
    _runtime("commitlog_disk_ratio", "share of the disk in use.", lambda p: p.census.stats.disk_used),
    _runtime("consumequeue_disk_ratio", "the same disk.", lambda p: p.census.stats.disk_used),
    _runtime("commitlogdir_capacity_total", "bytes of the disk.", lambda p: p.census.stats.disk_total_bytes),
    _runtime("commitlogdir_capacity_free", "bytes free on it.", lambda p: p.census.stats.disk_free_bytes),
    *(
        _runtime(f"{pool}_threadpoolqueue_headwait_timemills", "requests do not queue: always 0.", lambda p: 0)
        for pool in ("send", "pull", "query")
    ),
)

FAMILIES: tuple[Family, ...] = (
    _broker("rocketmq_broker_tps", "messages into the log per second, over a minute.", "BROKER_PUT_NUMS"),
    _broker("rocketmq_broker_qps", "messages to consumers per second, over a minute.", "BROKER_GET_NUMS"),
    _by_topic("rocketmq_producer_tps", "messages into a topic per second.", _per_second("TOPIC_PUT_NUMS")),
    _by_topic("rocketmq_producer_message_size", "bytes of them per second.", _per_second("TOPIC_PUT_SIZE")),
    _by_topic("rocketmq_producer_offset", "sum of its queues' ends.", lambda p, topic: p.census.ends[topic]),
    _by_group("rocketmq_consumer_tps", "messages to a group per second.", _group_per_second("GROUP_GET_NUMS")),
    _by_group("rocketmq_consumer_message_size", "bytes of them per second.", _group_per_second("GROUP_GET_SIZE")),
    _by_group("rocketmq_consumer_offset", "sum of its committed offsets.", lambda p, one: one.finished),
    _by_group("rocketmq_message_accumulation", "messages behind them.", lambda p, one: one.behind),
    _by_group("rocketmq_send_back_nums", "messages sent back per second.", _group_per_second("SNDBCK_PUT_NUMS")),
    Family(
        GAUGE,
        "rocketmq_group_get_latency_by_storetime",
        "rocketmq-exporter: how many ms the first message behind them waits.",
        _GROUP,
        _waited_ms,
        _each,
    ),
    _difference("rocketmq_group_diff", "messages behind.", lambda one: not (one.is_retry or one.is_dead)),
    _difference("rocketmq_group_retrydiff", "redeliveries behind.", lambda one: one.is_retry),
    Family(GAUGE, "rocketmq_group_dlqdiff", "rocketmq-exporter: dead letters.", _DIFF, _dead_difference, leads),
    Family(
        GAUGE, "rocketmq_topic_retry_offset", "rocketmq-exporter: ends of retry topics.", _TOPIC, _retry_ends, leads
    ),
    Family(
        GAUGE,
        "rocketmq_topic_dlq_offset",
        "rocketmq-exporter: ends of dead-letter topics.",
        ("cluster", "broker", "group"),
        _dead_ends,
        leads,
    ),
    *_RUNTIME_FAMILIES,
)
