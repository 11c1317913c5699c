"""The archive against a real broker: complete after kills of its driver, audited, and sent again."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantry.client.blocking import BlockingProducer
from gantry.model.message import Message
from testkit.sparkjob import SparkJob, work_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

archive = pytest.importorskip("pyspark_gantrymq.jobs.archive", reason="missing pyspark; make spark-env")
audit = pytest.importorskip("pyspark_gantrymq.jobs.audit")
launch = pytest.importorskip("pyspark_gantrymq.jobs.launch")


def send(nameserver: str, topic: str, numbers: range) -> dict[str, bytes]:
    """id -> body of what was acknowledged."""
    with BlockingProducer("shop", nameserver=nameserver) as producer:
        bodies = [str(number).encode() for number in numbers]
        return {producer.send(Message(topic, body, keys=("k",))).message_id: body for body in bodies}


def is_complete(spark: SparkSession, archive: str, checkpoint: str, sent: dict[str, bytes]) -> None:
    archived = spark.read.parquet(archive)
    assert {row.msgId: bytes(row.body) for row in archived.select("msgId", "body").collect()} == sent
    audited = audit.against(audit.build(archived), audit.ends_of(spark, checkpoint)).collect()
    assert sum(row.rows for row in audited if row.rows) == len(sent)
    assert not [row for row in audited if row.missing or row.twice]


def test_the_archive_has_every_message_once_over_several_runs(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    archived, checkpoint = str(tmp_path / "archive"), str(tmp_path / "checkpoint")
    parser = launch.reads(launch.parser("", "archive"))
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--checkpoint", checkpoint, "--once"]
    given = parser.parse_args([*flags, "--option", "maxOffsetsPerTrigger=30"])
    sent: dict[str, bytes] = {}
    for nth in range(2):
        sent |= send(nameserver, topic, range(nth * 50, nth * 50 + 50))
        assert launch.run(archive.write(archive.build(launch.stream(spark, given)), archived), given) == 0
        is_complete(spark, archived, checkpoint, sent)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_archive_is_complete_after_kills(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    archived, checkpoint = str(tmp_path / "archive"), str(tmp_path / "checkpoint")
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--to", archived, "--checkpoint", checkpoint]
    chance = random.Random(7)
    sent = send(nameserver, topic, range(200))
    for nth in range(1, 6):
        with SparkJob("archive", [*flags, "--every", "0 seconds"], tmp_path / "log") as job:
            sent |= send(nameserver, topic, range(nth * 200, nth * 200 + 200))
            while not list(Path(checkpoint).glob("commits/[0-9]*")) and job.process.poll() is None:
                threading.Event().wait(0.1)
            assert job.process.poll() is None or job.was_too_slow(), job.log()[-6000:]
            threading.Event().wait(chance.random() * 3)
            job.kill()
    work_off("archive", [*flags, "--once"], tmp_path / "log")
    is_complete(spark, archived, checkpoint, sent)


def test_an_archive_that_lacks_its_end_is_told_by_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    offsets = '{"cluster":"c","from":{"t":{"b":{"0":5,"1":0}}},"q":{"t":{"b":{"0":9,"1":3,"2":0}}},"topics":{},"v":1}'
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets/0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}\n')
    (tmp_path / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    columns = "topic string, brokerName string, queueId int, queueOffset bigint"
    archived = spark.createDataFrame([("t", "b", 0, offset) for offset in (5, 6, 7)], columns)
    audited = audit.against(audit.build(archived), audit.ends_of(spark, str(tmp_path)))
    assert {row.queueId: row.missing for row in audited.collect()} == {0: 1, 1: 3, 2: 0}
    # Spark has purged the batch that said where the queues began.
    (tmp_path / "offsets/0").unlink()
    for number, end in ((200, 2), (201, 3)):
        text = f'v1\n{{}}\n{{"q":{{"t":{{"b":{{"0":9,"1":{end},"2":0,"3":7}}}}}},"v":1}}\n'
        (tmp_path / f"offsets/{number}").write_text(text)
        (tmp_path / f"commits/{number}").write_text("v1\n{}")
    for began_late, missing in ((False, {0: 1, 1: 3, 2: 0, 3: 7}), (True, {0: 1, 1: 1, 2: 0, 3: 0})):
        audited = audit.against(audit.build(archived), audit.ends_of(spark, str(tmp_path), began_late))
        assert {row.queueId: row.missing for row in audited.collect()} == missing


def test_a_topic_of_digits_comes_out_of_the_archive_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("007", b"x")], "topic string, body binary")
    rows.write.partitionBy("topic").parquet(str(tmp_path / "archive"))
    assert [row.topic for row in launch.archived(spark, str(tmp_path / "archive")).collect()] == ["007"]
