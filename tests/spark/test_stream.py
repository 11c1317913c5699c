"""`spark.readStream` against a real broker: what is there, what comes later, and nothing twice after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gantry.client.blocking import BlockingPuller
from pyspark_gantrymq import offsets
from pyspark_gantrymq.options import parse
from pyspark_gantrymq.stream import StreamReader
from testkit.sparkstream import ids, make_topic, send, work_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.parametrize(("how", "told"), [("true", 7), ("false", 7), ("force", 3)])
def test_a_group_that_is_further_ahead_goes_back_only_when_it_is_forced(
    nameserver: str, topic: str, how: str, told: int
) -> None:
    make_topic(nameserver, topic, 1)
    send(nameserver, topic, 9)
    given = {"gantrymq.namesrv": nameserver, "subscribe": topic, "groupId": f"{topic}-group", "commitOffsets": how}
    reader = StreamReader(parse(given, is_stream=True), ["body"])
    with BlockingPuller(f"{topic}-group", nameserver=nameserver) as puller:
        (queue,) = puller.queues(topic)

        def tell(at: int) -> int | None:
            reader.commit(offsets.end({offsets.Queue(topic, queue.broker_name, 0): at}, {}, {}))
            return puller.committed(queue)

        assert tell(2) == (None if how == "false" else 2)
        puller.commit(queue, 7)
        assert (tell(3), tell(8)) == (told, 7 if how == "false" else 8)
