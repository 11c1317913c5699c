"""Retention overtakes a reader: exactly so many messages are missing.  (One that it does not: test_four_days.)"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingPuller, ReadFrom
from pyspark_gantrymq import pulls
from pyspark_gantrymq.offsets import Queue, Stretch
from pyspark_gantrymq.options import parse
from testkit.localcommand import LocalCluster
from testkit.process import GantryProcess
from testkit.sources import ROOT
from testkit.sparkstream import eventually, make_topic, send_bodies, work_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = str(ROOT / ".venv" / "bin" / "python")
# Segments of some hundred messages, which are old after a second.
CONFIG = {
    "messages.body_bytes_max": str(1 << 14),
    "store.segment_bytes": str(1 << 18),
    "store.reserved_hours": "0.0003",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def expire(nameserver: str, topic: str) -> int:
    """Delete what is old, all but the last segment; the offset of the oldest message that is left."""

    async def ask() -> None:
        async with Admin(nameserver=nameserver) as admin:
            await admin.delete_expired()

    def first() -> int:
        asyncio.run(ask())
        with BlockingPuller("looking", nameserver=nameserver) as puller:
            return puller.min_offset(puller.queues(topic)[0])

    seen = [first()]

    def is_over() -> bool:
        seen.append(first())
        return seen[-1] > 0 and len(seen) > 20 and len(set(seen[-20:])) == 1

    eventually(is_over, "retention deletes what it may, and no more")
    return seen[-1]


def send(nameserver: str, topic: str, count: int) -> None:
    send_bodies(nameserver, topic, [b"x" * 1000] * count)


def test_a_reader_that_retention_overtook_fails_or_counts_what_is_lost(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with GantryProcess(tmp_path / "data", CONFIG, python=PYTHON) as process:
        nameserver = "{}:{}".format(*process.addresses["nameserver"])
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        make_topic(nameserver, topic, 1)
        send(nameserver, topic, 100)
        assert sum(work_off(spark, nameserver, tmp_path, **options)) == 100
        send(nameserver, topic, 1500)
        first = expire(nameserver, topic)
        assert 100 < first < 1600
        gone = f"messages 100 to {first - 1} are gone, {first - 100} in all; option failOnDataLoss=false"
        with pytest.raises(PySparkException, match=gone):
            work_off(spark, nameserver, tmp_path, **options)
        few = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "200"}
        batches = work_off(spark, nameserver, tmp_path, **options, **few)
        assert (sum(batches), max(batches)) == (1600 - first, min(200, 1600 - first))
        rows = spark.read.parquet(str(tmp_path / "out")).select("queueOffset").collect()
        assert sorted(row.queueOffset for row in rows) == [*range(100), *range(first, 1600)]


def test_a_batch_that_is_repeated_from_a_slave_behind_retention_says_what_is_missing(
    topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hours = {"store.delete_hours": ",".join(f"{hour:02}" for hour in range(24))}  # for slaves: nobody asks them
    flags = [text for key, value in (CONFIG | hours).items() for text in ("--set", f"{key}={value}")]
    with LocalCluster(tmp_path / "cluster", "--replicas", "2", *flags) as cluster:
        make_topic(cluster.name_server, topic, 1)
        send(cluster.name_server, topic, 1500)
        with BlockingPuller("looking", nameserver=cluster.name_server, read_from=ReadFrom.SLAVE) as puller:
            (queue,) = puller.queues(topic)
            eventually(lambda: puller.min_offset(queue) > 1000, "a slave deletes what is old")
        given = {"gantrymq.namesrv": cluster.name_server, "subscribe": topic, "readFrom": "slave"}

        def read(**more: str) -> list[int]:
            """What a query has in its log of offsets, without a look at what is there, as after a kill."""
            task = pulls.Task([Stretch(Queue(topic, queue.broker_name, 0), 100, 1000)])
            batches = pulls.read(parse(given | more, is_stream=True), ["queueOffset"], task)
            return [at for batch in batches for at in batch.column(0).to_pylist()]

        with pytest.raises(RuntimeError, match="messages 100 to 999 are gone, 900 in all; option failOnDataLoss=false"):
            read()
        with caplog.at_level(logging.WARNING):
            assert read(failOnDataLoss="false") == []
        assert caplog.messages == [
            f"{topic}/{queue.broker_name}/0: messages 100 to 999 are gone, 900 in all; passed over"
        ]
