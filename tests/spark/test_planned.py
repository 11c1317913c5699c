"""Options that say how much a batch has and which tasks read it, seen at a real query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_gantrymq import stream as streams
from pyspark_gantrymq.options import parse
from pyspark_gantrymq.stream import StreamReader
from testkit.sparkstream import eventually, make_topic, send, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, nameserver: str, **options: str) -> DataFrame:
    return spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).options(**options).load()


def test_queues_are_split_over_tasks_or_share_them(spark: SparkSession, nameserver: str, topic: str) -> None:
    make_topic(nameserver, topic, 3)
    sent = send(nameserver, topic, 90)  # 30 in each queue

    def tasks(**options: str) -> int:
        found = read(spark, nameserver, subscribe=topic, **options)
        assert sorted(row.msgId for row in found.select("msgId").collect()) == sorted(sent)
        return found.rdd.getNumPartitions()

    assert tasks() == 1
    assert tasks(minPartitions="6") == 6
    assert tasks(targetRowsPerPartition="30") == 3
    assert tasks(targetRowsPerPartition="30", maxPartitions="2") == 2
    assert tasks(maxRecordsPerPartition="10") == 9


def test_a_batch_ends_before_the_first_message_of_its_ending_timestamp(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    make_topic(nameserver, topic, 2)
    send(nameserver, topic, 20)
    columns = ("msgId", "storeTimestamp")
    stored = {
        row.msgId: round(row.storeTimestamp.timestamp() * 1000)
        for row in read(spark, nameserver, subscribe=topic).select(*columns).collect()
    }
    for at_ms in sorted(set(stored.values()))[::3]:
        found = read(spark, nameserver, subscribe=topic, endingTimestamp=str(at_ms)).select("msgId").collect()
        assert {row.msgId for row in found} == {message_id for message_id, each in stored.items() if each < at_ms}


def test_a_batch_of_too_few_messages_waits_for_more_or_for_its_delay(
    nameserver: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(nameserver, topic, 2)
    passed_s = 0.0
    real = time.monotonic
    monkeypatch.setattr(streams.time, "monotonic", lambda: real() + passed_s)
    given = {"gantrymq.namesrv": nameserver, "subscribe": topic, "startingOffsets": "earliest"}
    given |= {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    reader = StreamReader(parse(given, is_stream=True), ["body"])

    def following(start: streams.Offset) -> streams.Offset:
        return reader.latestOffset(start, ReadAllAvailable())

    def count(offset: streams.Offset) -> int:
        return sum(streams.offsets.positions(offset).values())

    send(nameserver, topic, 3)
    at = following(reader.initialOffset())
    assert count(at) == 3, "the first batch says where the query begins, whatever is there"
    send(nameserver, topic, 9)
    assert following(at) == at
    send(nameserver, topic, 1)
    at = following(at)
    assert count(at) == 13
    send(nameserver, topic, 2)
    assert following(at) == at
    passed_s += 3601.0
    at = following(at)
    assert count(at) == 15
    send(nameserver, topic, 2)
    assert following(at) == at, "the delay begins again with each batch"


@pytest.fixture
def idle_triggers_are_told(spark: SparkSession) -> Iterator[None]:
    """Progress also of triggers without a batch."""
    name = "spark.sql.streaming.noDataProgressEventInterval"
    before = spark.conf.get(name)
    spark.conf.set(name, "50")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("idle_triggers_are_told")
def test_a_stream_makes_no_batch_of_too_few_messages(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    make_topic(nameserver, topic, 2)
    batches: dict[int, int] = {}  # by number: one that was stopped before its commit comes again
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "60"}

    def start(delay: str) -> object:
        found = stream(spark, nameserver, **options, maxTriggerDelay=delay)
        writer = found.writeStream.foreachBatch(lambda batch, number: batches.update({number: batch.count()}))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    send(nameserver, topic, 50)
    query = start("1h")
    try:
        eventually(lambda: batches == {0: 50}, "the first batch")
        send(nameserver, topic, 30)
        sent_at = datetime.now(UTC).isoformat()
        eventually(
            lambda: any(each["timestamp"] > sent_at and not each["numInputRows"] for each in query.recentProgress),
            "a trigger behind the messages",
        )
        send(nameserver, topic, 40)
        eventually(lambda: len(batches) > 1, "a batch of enough")
    finally:
        query.stop()
    first, second = batches.values()
    assert first == 50
    assert second >= 60, "the batch began with too few; it may begin before the last of the forty is stored"
    send(nameserver, topic, 5)
    query = start("1s")
    try:
        eventually(lambda: sum(batches.values()) == 125, "a batch of too few, whose delay is over")
    finally:
        query.stop()
    assert len(batches) == 3
