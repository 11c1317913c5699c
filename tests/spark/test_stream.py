"""`spark.readStream` against a real broker: what is there, what comes later, and nothing twice after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry.client.blocking import BlockingProducer, BlockingPuller
from gantry.model.message import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(nameserver: str, topic: str, count: int) -> list[str]:
    with BlockingProducer("shop", nameserver=nameserver) as producer:
        return [producer.send(Message(topic, b"x")).message_id for _ in range(count)]


def work_off(spark: SparkSession, nameserver: str, folder: Path, **options: str) -> list[int]:
    """One AvailableNow run into Parquet; the rows of each of its batches."""
    stream = spark.readStream.format("gantrymq").option("gantrymq.namesrv", nameserver).options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", str(folder / "ckpt")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def ids(spark: SparkSession, folder: Path) -> list[str]:
    return sorted(row.msgId for row in spark.read.parquet(str(folder / "out")).select("msgId").collect())


def test_runs_one_after_the_other_bring_every_message_once(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    sent = send(nameserver, topic, 100)
    batches = work_off(spark, nameserver, tmp_path, **options)
    assert sum(batches) == 100 and max(batches) <= 40 + 8
    sent += send(nameserver, topic, 10)
    assert sum(work_off(spark, nameserver, tmp_path, **options)) == 10
    assert work_off(spark, nameserver, tmp_path, **options) == []
    assert ids(spark, tmp_path) == sorted(sent)


def test_a_stream_begins_where_its_group_is_and_tells_it_how_far_it_came(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    send(nameserver, topic, 30)
    with BlockingPuller(f"{topic}-group", nameserver=nameserver) as puller:
        queue = puller.queues(topic)[0]
        end = puller.max_offset(queue)
        puller.commit(queue, end)
        options = {"subscribe": topic, "groupId": f"{topic}-group", "startingOffsets": "group"}
        default = {"startingOffsetsDefault": "earliest"}
        assert sum(work_off(spark, nameserver, tmp_path, **options, **default)) == 30 - end
        send(nameserver, topic, 30)
        work_off(spark, nameserver, tmp_path, **options, maxOffsetsPerTrigger="12")
        assert all((puller.committed(one) or 0) > 0 for one in puller.queues(topic))
