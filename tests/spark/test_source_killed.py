"""The driver of a stream gets SIGKILL: whatever batch it was in, Parquet has every message once.

The stream is the archive job, which adds nothing to source and file sink.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testkit.sparkjob import SparkJob, work_off
from testkit.sparkstream import make_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 20
A_ROUND = 100
QUIET_S = 2.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def archived(spark: SparkSession, folder: Path) -> list[str]:
    return sorted(row.msgId for row in spark.read.parquet(str(folder)).select("msgId").collect())


def batches(checkpoint: Path, kind: str) -> int:
    """How many batches were planned (`offsets`), or finished (`commits`)."""
    folder = checkpoint / kind
    return len([one for one in folder.iterdir() if one.name.isdigit()]) if folder.exists() else 0


def planned_one_more(job: SparkJob, checkpoint: Path) -> bool:
    """Wait until a batch is planned; False when the job ended because this machine is too busy for Spark."""
    before = batches(checkpoint, "offsets")
    while batches(checkpoint, "offsets") == before and job.process.poll() is None:
        threading.Event().wait(0.02)
    assert job.process.poll() is None or job.was_too_slow(), job.log()[-6000:]
    return job.process.poll() is None


def test_every_message_is_there_once_after_kills_at_random_points(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    to, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--to", str(to), "--checkpoint", str(checkpoint)]
    chance = random.Random(11)
    sent: list[str] = []
    unfinished = 0
    for _ in range(ROUNDS):
        sent += send(nameserver, topic, A_ROUND)
        live = ["--every", "0 seconds", "--option", "maxOffsetsPerTrigger=40"]
        with SparkJob("archive", [*flags, *live], tmp_path / "log") as job:
            if planned_one_more(job, checkpoint):
                threading.Event().wait(chance.random() * QUIET_S)
            job.kill()
        unfinished += batches(checkpoint, "offsets") > batches(checkpoint, "commits")
    work_off("archive", [*flags, "--once"], tmp_path / "log")
    assert archived(spark, to) == sorted(sent)
    assert unfinished > 0, "no kill met a batch: nothing was shown"


def test_a_stream_killed_in_its_first_batch_begins_where_that_one_began(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    to, checkpoint = tmp_path / "archive", tmp_path / "checkpoint"
    flags = ["--namesrv", nameserver, "--subscribe", topic, "--to", str(to), "--checkpoint", str(checkpoint)]
    make_topic(nameserver, topic)
    send(nameserver, topic, 30)
    is_planned = False
    while not is_planned:
        with SparkJob("archive", [*flags, "--start", "latest", "--every", "0 seconds"], tmp_path / "log") as job:
            is_planned = planned_one_more(job, checkpoint)
            job.kill()
    assert batches(checkpoint, "offsets") == 1
    for one in (checkpoint / "commits").glob("*"):
        one.unlink()  # an empty batch is quick: as if the kill had come before its end
    later = send(nameserver, topic, 30)
    work_off("archive", [*flags, "--start", "latest", "--once"], tmp_path / "log")
    assert archived(spark, to) == sorted(later)
