"""Batch reads: what a producer sent is what a query sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry.client.blocking import BlockingProducer, Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
