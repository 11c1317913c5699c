"""Messages of every kind arrive as they were sent, and topics in every state are read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingProducer, Message
from testkit.process import GantryProcess
from testkit.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = {"a name": "a value", "größe": "三", "q": '"\\ \t\n', "long": "x" * 3000}


def read(spark: SparkSession, nameserver: str, topic: str) -> DataFrame:
    reader = spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver)
    return reader.option("subscribe", topic).load()


def make(nameserver: str, topic: str, queues: int) -> None:
    async def ask() -> None:
        async with Admin(nameserver=nameserver) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(ask())


def test_large_compressed_batched_and_odd_messages_arrive_as_they_were_sent(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    large, compressible = b"".join([b"%08d" % at for at in range(1 << 18)]), b"y" * 100_000
    with BlockingProducer("kinds", nameserver=nameserver) as producer:
        sent = [(body, producer.send(Message(topic, body, properties=ODD))) for body in (large, compressible)]
        bodies = {result.message_id: body for body, result in sent}
        batch = [Message(topic, b"%d" % at, tags="b") for at in range(5)]
        bodies |= dict(zip(producer.send_batch(batch).message_ids, [b"%d" % at for at in range(5)], strict=True))
    found = {row.msgId: row for row in read(spark, nameserver, topic).collect()}
    assert {message_id: bytes(row.body) for message_id, row in found.items()} == bodies
    assert all(found[one].properties.items() >= ODD.items() for one in list(bodies)[:2])


def test_a_topic_without_messages_is_an_empty_table(spark: SparkSession, nameserver: str, topic: str) -> None:
    make(nameserver, topic, 2)
    assert read(spark, nameserver, topic).count() == 0


@pytest.mark.slow
def test_a_run_finds_queues_that_a_topic_got_meanwhile_and_none_against_a_dead_broker(
    spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    with GantryProcess(tmp_path / "data", python=str(ROOT / ".venv" / "bin" / "python")) as process:
        nameserver = "{}:{}".format(*process.addresses["nameserver"])

        def run() -> int:
            stream = spark.readStream.format("gantrymq").option("gantrymq.namesrv", nameserver)
            frame = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            query = writer.option("checkpointLocation", str(tmp_path / "ckpt")).trigger(availableNow=True).start()
            query.awaitTermination()
            return sum([each["numInputRows"] for each in query.recentProgress])

        with BlockingProducer("grown", nameserver=nameserver) as producer:
            make(nameserver, topic, 4)
            for _ in range(20):
                producer.send(Message(topic, b"x"))
            assert run() == 20
            make(nameserver, topic, 8)
        with BlockingProducer("grown", nameserver=nameserver) as producer:
            used = {producer.send(Message(topic, b"x")).queue.queue_id for _ in range(24)}
        assert used == set(range(8))
        assert run() == 24
        process.kill()
        with pytest.raises(PySparkException):
            run()
