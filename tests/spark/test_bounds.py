"""Where queries begin and end by time, how much a batch may have, and what is said before anything starts."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from gantry.client.blocking import BlockingProducer
from gantry.model.message import Message
from testkit.sparkstream import make_topic, send_bodies, stream, work_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY = random.Random(1).randbytes(10_000)  # which nobody can compress


def read(spark: SparkSession, nameserver: str, **options: str) -> DataFrame:
    return spark.read.format("gantrymq").option("gantrymq.namesrv", nameserver).options(**options).load()


def test_a_batch_of_a_stream_has_about_as_many_bytes_as_it_may(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    make_topic(nameserver, topic, 2)
    send_bodies(nameserver, topic, [BODY] * 100)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxBytesPerTrigger": "400000"}
    batches = work_off(spark, nameserver, tmp_path, **options)
    assert sum(batches) == 100 and 30 <= max(batches) <= 42


@pytest.mark.slow
def test_of_two_limits_the_lower_counts(spark: SparkSession, nameserver: str, topic: str, tmp_path: Path) -> None:
    make_topic(nameserver, topic, 1)
    send_bodies(nameserver, topic, [BODY] * 30)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxBytesPerTrigger": "100000"}
    assert max(work_off(spark, nameserver, tmp_path / "bytes", **options, maxOffsetsPerTrigger="20")) <= 10
    assert max(work_off(spark, nameserver, tmp_path / "rows", **options, maxOffsetsPerTrigger="5")) == 5


def test_queues_begin_and_end_at_times_of_their_own(spark: SparkSession, nameserver: str, topic: str) -> None:
    make_topic(nameserver, topic, 2)
    with BlockingProducer("times", nameserver=nameserver) as producer:
        first = producer.send(Message(topic, b"0")).queue
        for number in range(1, 6):
            producer.send(Message(topic, b"%d" % number), queue=first)
    stored = {
        bytes(row.body): int(row.storeTimestamp.timestamp() * 1000)
        for row in read(spark, nameserver, subscribe=topic).select("body", "storeTimestamp").collect()
    }

    def bound(at_ms: int) -> str:
        return json.dumps({topic: {first.broker_name: {str(first.queue_id): at_ms}}})

    since = {body for body, at_ms in stored.items() if at_ms >= stored[b"3"]}
    found = read(spark, nameserver, subscribe=topic, startingOffsetsByTimestamp=bound(stored[b"3"])).collect()
    assert {bytes(row.body) for row in found} == since
    found = read(spark, nameserver, subscribe=topic, endingOffsetsByTimestamp=bound(stored[b"3"])).collect()
    assert {bytes(row.body) for row in found} == stored.keys() - since
    late = {"startingOffsetsByTimestamp": bound(int(time.time() * 1000) + 10**9)}
    assert read(spark, nameserver, subscribe=topic, **late).count() == 0
    with pytest.raises(PySparkException, match="has no message of"):
        read(spark, nameserver, subscribe=topic, **late, startingOffsetsByTimestampStrategy="error").count()


def test_a_mistake_in_an_option_is_an_error_of_load(spark: SparkSession, nameserver: str) -> None:
    for wrong, said in [
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"maxOutage": "forever"}, "maxOutage is a number with"),
        ({"tags": "a", "sqlFilter": "b = 1"}, "exclude each other"),
    ]:
        with pytest.raises(PySparkException, match=said):
            stream(spark, nameserver, subscribe="t", **wrong)
