"""The source against Apache's own broker, RocketMQ 5 from Maven Central."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantry.client.blocking import BlockingProducer, BlockingPuller
from gantry.model.message import Message
from interop import servers
from pyspark_gantrymq import GantryMQOffsetListener
from testkit.sparkstream import eventually, ids, work_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def send(server: servers.Apache, topic: str, count: int, tags: str = "") -> list[str]:
    with BlockingProducer("shop", nameserver=server.name_server) as producer:
        return [producer.send(Message(topic, b"%d" % number * 50, tags=tags)).message_id for number in range(count)]


def read(spark: SparkSession, server: servers.Apache, **options: str) -> DataFrame:
    return spark.read.format("gantrymq").option("gantrymq.namesrv", server.name_server).options(**options).load()


def test_a_batch_read_sees_every_message_and_filters_as_the_broker_does(
    spark: SparkSession, apache: servers.Apache, topic: str
) -> None:
    servers.create_topic(apache, topic)
    sent = send(apache, topic, 500, "a") + send(apache, topic, 100, "b")
    rows = read(spark, apache, subscribe=topic).select("msgId", "storeTimestamp", "body").collect()
    assert sorted(row.msgId for row in rows) == sorted(sent)
    assert read(spark, apache, subscribe=topic, tags="b").count() == 100
    assert read(spark, apache, subscribePattern=f"{topic[:-1]}.", minPartitions="4").count() == 600
    send(apache, topic, 10, "Aa")
    send(apache, topic, 20, "BB")  # of the same hash, which is all that a broker looks at
    assert read(spark, apache, subscribe=topic, tags="Aa").count() == 10
    rows = read(spark, apache, subscribe=topic).select("msgId", "storeTimestamp", "body").collect()
    last_ms = max(int(row.storeTimestamp.timestamp() * 1000) for row in rows)
    later = sum(int(row.storeTimestamp.timestamp() * 1000) >= last_ms for row in rows)
    assert read(spark, apache, subscribe=topic, startingTimestamp=str(last_ms)).count() == later


def test_a_stream_brings_every_message_once_over_a_restart_of_the_broker_and_tells_its_group(
    spark: SparkSession, apache: servers.Apache, topic: str, tmp_path: Path
) -> None:
    servers.create_topic(apache, topic)
    listener = GantryMQOffsetListener(apache.name_server, f"{topic}-group")
    spark.streams.addListener(listener)
    try:
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
        sent = send(apache, topic, 300)
        assert sum(work_off(spark, apache.name_server, tmp_path, **options)) == 300
        apache.stop()
        apache.start()
        servers.wait_until_routed(apache.name_server, topic)
        sent += send(apache, topic, 100)
        limit = {"maxBytesPerTrigger": "20000"}
        batches = work_off(spark, apache.name_server, tmp_path, **options, **limit)
        assert sum(batches) == 100 and len(batches) > 1
    finally:
        spark.streams.removeListener(listener)
    assert ids(spark, tmp_path) == sorted(sent)
    newest = max(int(one.name) for one in (tmp_path / "ckpt/offsets").iterdir() if one.name.isdigit())
    offset = json.loads((tmp_path / "ckpt/offsets" / str(newest)).read_text().splitlines()[2])
    assert set(offset) <= {"from", "q", "v"}  # Apache's broker says neither cluster nor generation

    def lag() -> int:
        with BlockingPuller(f"{topic}-group", nameserver=apache.name_server) as puller:
            return sum(puller.max_offset(one) - (puller.committed(one) or 0) for one in puller.queues(topic))

    eventually(lambda: lag() == 0, "the group is told the last batch")
