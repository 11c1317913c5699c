"""Retention overtakes a reader: exactly so many messages are missing.  (One that it does not: test_four_days.)"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingPuller
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
