"""`spark.readStream` against a real broker: what is there, what comes later, and nothing twice after a restart."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from gantry.client.blocking import BlockingProducer, BlockingPuller, Message
from pyspark_gantrymq import offsets
from pyspark_gantrymq.options import parse
from pyspark_gantrymq.stream import StreamReader
from testkit.sparkstream import delete_topic, ids, make_topic, send, stream, work_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def start(frame: DataFrame, folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "ckpt")).start()


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


@pytest.mark.slow
def test_a_stream_of_a_pattern_goes_on_when_one_topic_goes_and_another_one_comes(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    stays, goes, comes = (f"{topic}-{name}" for name in ("stays", "goes", "comes"))
    options = {"subscribePattern": f"{topic}-.*", "startingOffsets": "earliest"}
    make_topic(nameserver, stays)
    make_topic(nameserver, goes)
    sent = send(nameserver, stays, 10) + send(nameserver, goes, 10)
    query = start(stream(spark, nameserver, **options, failOnDataLoss="false", maxOutage="1s"), tmp_path)
    try:
        query.processAllAvailable()
        assert ids(spark, tmp_path) == sorted(sent)
        delete_topic(nameserver, goes)
        sent += send(nameserver, stays, 10)
        query.processAllAvailable()
        assert ids(spark, tmp_path) == sorted(sent)
        make_topic(nameserver, comes)
        sent += send(nameserver, comes, 10)
        query.processAllAvailable()
        assert ids(spark, tmp_path) == sorted(sent)
    finally:
        query.stop()
    with pytest.raises(PySparkException, match=f"topic {goes} is away: not there any more; option failOnData"):
        work_off(spark, nameserver, tmp_path, **options)
    sent += send(nameserver, comes, 5)
    assert sum(work_off(spark, nameserver, tmp_path, **options, failOnDataLoss="false")) == 5
    make_topic(nameserver, goes)
    sent += send(nameserver, goes, 7)
    assert sum(work_off(spark, nameserver, tmp_path, **options, failOnDataLoss="false")) == 7
    assert ids(spark, tmp_path) == sorted(sent)


def test_a_stream_of_assigned_queues_reads_no_other_ones(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    make_topic(nameserver, topic, 3)
    with BlockingPuller("looking", nameserver=nameserver) as puller:
        queues = puller.queues(topic)
    assigned = json.dumps({topic: {queues[0].broker_name: [0, 2]}})
    with BlockingProducer("shop", nameserver=nameserver) as producer:

        def send_some() -> list[str]:
            return [producer.send(Message(topic, b"x"), queue=one).message_id for one in queues]

        sent = send_some()
        query = start(stream(spark, nameserver, assign=assigned, startingOffsets="earliest"), tmp_path)
        try:
            query.processAllAvailable()
            assert ids(spark, tmp_path) == sorted([sent[0], sent[2]])
            sent += send_some()
            make_topic(nameserver, topic, 4)
            query.processAllAvailable()
        finally:
            query.stop()
    assert ids(spark, tmp_path) == sorted([sent[at] for at in (0, 2, 3, 5)])


def test_queues_that_a_topic_loses_end_a_stream_that_has_not_read_them_and_new_ones_are_read_from_0(
    nameserver: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(nameserver, topic, 4)
    send(nameserver, topic, 40)
    given = {"gantrymq.namesrv": nameserver, "subscribe": topic, "startingOffsets": "earliest"}

    def following(at: offsets.Offset, limit: ReadLimit, **more: str) -> offsets.Offset:
        return StreamReader(parse(given | more, is_stream=True), ["body"]).latestOffset(at, limit)

    begun = following(offsets.sentinel("earliest"), ReadMaxRows(20))
    assert sum(offsets.positions(begun).values()) == 20
    make_topic(nameserver, topic, 2)
    with pytest.raises(RuntimeError, match=r"/2 is a queue of its topic no more, and messages 5 to 9 were not read"):
        following(begun, ReadAllAvailable())
    with caplog.at_level(logging.WARNING):
        less = following(begun, ReadAllAvailable(), failOnDataLoss="false")
    assert sorted(offsets.positions(less).values()) == [5, 5, 10, 10]
    assert caplog.text.count("were not read; going on without") == 2
    make_topic(nameserver, topic, 5)
    sent = send(nameserver, topic, 25)
    whole = following(less, ReadAllAvailable())
    assert sum(offsets.positions(whole).values()) == 40 + len(sent)
    assert list(offsets.begun(whole).values()) == [0], "the fifth queue"
