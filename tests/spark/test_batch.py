"""Batch reads: what a producer sent is what a query sees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from gantry.client.blocking import BlockingProducer, Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_batch_read_sees_every_message_that_was_sent(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        sent = [
            producer.send(Message(topic, f"body {number}".encode(), tags="a", keys=(f"k{number}",)))
            for number in range(40)
        ]
    read = (
        spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).option("subscribe", topic).load().collect()
    )
    assert {(row.brokerName, row.queueId, row.queueOffset, row.msgId) for row in read} == {
        (one.queue.broker_name, one.queue.queue_id, one.queue_offset, one.message_id) for one in sent
    }
    first = next(row for row in read if row.msgId == sent[0].message_id)
    assert (bytes(first.body), first.tags, first["keys"], first.topic) == (b"body 0", "a", "k0", topic)
    assert first.properties["KEYS"] == "k0"


def read(spark: SparkSession, nameserver: str, **options: str) -> DataFrame:
    return spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).options(**options).load()


def test_a_batch_begins_and_ends_where_it_is_told_to(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        first = producer.send(Message(topic, b"0", tags="a")).queue
        sent = [producer.send(Message(topic, b"%d" % at, tags="ab"[at % 2]), queue=first) for at in range(1, 20)]
    broker = first.broker_name
    exact = {
        f"{end}Offsets": json.dumps({topic: {broker: {str(first.queue_id): at}}})
        for end, at in [("starting", 5), ("ending", 9)]
    }
    assigned = json.dumps({topic: {broker: [first.queue_id]}})
    bodies = read(spark, nameserver, assign=assigned, minPartitions="2", **exact).select("body")
    assert sorted(int(row.body) for row in bodies.collect()) == [5, 6, 7, 8]
    assert read(spark, nameserver, subscribePattern=f"{topic[:-1]}.", tags="b").count() == 10
    assert read(spark, nameserver, subscribe=topic, sqlFilter="TAGS = 'a'").count() == 10
    tuned = {"pullBatchSize": "3", "pullsInFlight": "2", "checkCrc": "false", "fetchOffset.numRetries": "0"}
    assert sorted(int(row.body) for row in read(spark, nameserver, subscribe=topic, **tuned).collect()) == [*range(20)]
    later = read(spark, nameserver, subscribe=topic, startingTimestamp=str(10**14))
    assert later.count() == 0
    assert len(sent) == 19


def test_a_batch_reads_the_columns_of_its_schema(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        producer.send(Message(topic, b"x", tags="a"))
    reader = spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).option("subscribe", topic)
    assert [tuple(row) for row in reader.schema("tags string, body binary").load().collect()] == [("a", b"x")]
    with pytest.raises(PySparkException, match="column body is string; it has to be binary"):
        reader.schema("body string").load().collect()


def test_messages_with_other_tags_of_the_same_hash_do_not_come(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        for tag in ("Aa", "BB", "Aa", "C", ""):
            producer.send(Message(topic, tag.encode() or b"-", tags=tag))
    for tags, bodies in [("Aa", ["Aa", "Aa"]), ("BB || C", ["BB", "C"])]:
        found = read(spark, nameserver, subscribe=topic, tags=tags).select("body").collect()
        assert sorted(row.body.decode() for row in found) == bodies
    without = spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).options(subscribe=topic, tags="BB")
    assert [bytes(row.body) for row in without.schema("body binary").load().collect()] == [b"BB"]


def test_properties_are_a_map_or_text_or_left_out(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        sent = producer.send(Message(topic, b"x", tags="a", properties={"größe": "三"}))
    (row,) = read(spark, nameserver, subscribe=topic).select("properties").collect()
    raw = read(spark, nameserver, subscribe=topic, propertiesFormat="raw")
    (text,) = raw.selectExpr("str_to_map(properties, '\\u0002', '\\u0001') as properties", "tags").collect()
    assert {name: value for name, value in text.properties.items() if name} == row.properties
    assert (text.tags, row.properties["größe"], row.properties["UNIQ_KEY"]) == ("a", "三", sent.message_id)
    assert "properties" not in read(spark, nameserver, subscribe=topic, propertiesFormat="none").columns


def test_a_batch_of_assigned_queues_is_not_half_of_them(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingProducer("batch", nameserver=nameserver) as producer:
        (first,) = {producer.send(Message(topic, b"x"), key="one queue").queue for _ in range(3)}
    halves = {first.broker_name: [first.queue_id], "broker-x": [0]}
    options = {"assign": json.dumps({topic: halves}), "fetchOffset.numRetries": "0"}
    with pytest.raises(PySparkException, match=f"broker-x is away: not in the route of topic {topic}"):
        read(spark, nameserver, **options).count()
    assert read(spark, nameserver, **options, failOnDataLoss="false").count() == 3


def test_a_misspelt_option_is_an_error_before_anything_is_read(spark: SparkSession, nameserver: str) -> None:
    with pytest.raises(PySparkException, match="unknown option startingoffset; did you mean startingOffsets"):
        read(spark, nameserver, subscribe="t", startingOffset="latest").collect()
