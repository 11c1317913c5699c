"""A group hears of every batch, the last one too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantry.client.blocking import BlockingPuller
from pyspark_gantrymq import GantryMQOffsetListener, groupoffsets, offsets
from pyspark_gantrymq.listener import positions
from pyspark_gantrymq.offsets import Queue
from pyspark_gantrymq.options import parse
from pyspark_gantrymq.stream import StreamReader
from pyspark_gantrymq.survey import queue_of
from testkit.sparkstream import delete_topic, eventually, make_topic, send, stream, work_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lag(nameserver: str, group: str, topic: str) -> int:
    """Messages that a group has not finished."""
    with BlockingPuller(group, nameserver=nameserver) as puller:
        return sum([puller.max_offset(one) - (puller.committed(one) or 0) for one in puller.queues(topic)])


def until_done(nameserver: str, group: str, topic: str) -> None:
    """News to listeners comes on a thread of its own."""
    eventually(lambda: lag(nameserver, group, topic) == 0, "the group was not told the last batch")


def test_only_the_ends_of_our_own_source_are_read() -> None:
    assert positions('{"q":{"t":{"b":{"3":7}}},"v":1}') == {Queue("t", "b", 3): 7}
    for text in (None, "", "17", '{"t":{"0":5}}', '{"init":{"mode":"latest"},"v":1}', '{"v":1}', '{"q":{},"v":2}'):
        assert positions(text) == {}


def test_a_group_is_told_the_last_batch_of_a_query_that_ends_or_is_stopped(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    group = f"{topic}-group"
    listener = GantryMQOffsetListener(nameserver, group)
    make_topic(nameserver, topic)
    send(nameserver, topic, 25)
    spark.streams.addListener(listener)
    try:
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
        assert sum(work_off(spark, nameserver, tmp_path, **options)) == 25
        until_done(nameserver, group, topic)
        send(nameserver, topic, 5)
        query = (
            stream(spark, nameserver, **options)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "ckpt"))
            .start()
        )
        query.processAllAvailable()
        query.stop()
        until_done(nameserver, group, topic)
    finally:
        spark.streams.removeListener(listener)


def test_a_group_that_is_further_ahead_stays_there_unless_it_is_forced(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    make_topic(nameserver, topic, 1)
    send(nameserver, topic, 30)
    group = f"{topic}-group"
    with BlockingPuller(group, nameserver=nameserver) as puller:
        queue = puller.queues(topic)[0]
        puller.commit(queue, 20)
        ahead = {Queue(topic, queue.broker_name, 0): 12}
        GantryMQOffsetListener(nameserver, group)._tell("run", ahead)
        assert puller.committed(queue) == 20
        GantryMQOffsetListener(nameserver, group, force=True)._tell("run", ahead)
        assert puller.committed(queue) == 12
        GantryMQOffsetListener(nameserver, group)._tell("run", dict.fromkeys(ahead, 21))
        assert puller.committed(queue) == 21


def test_a_topic_that_was_deleted_does_not_keep_a_group_from_hearing_of_others(
    nameserver: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, stays, group = f"{topic}-a", f"{topic}-b", f"{topic}-group"
    for name in (goes, stays):
        make_topic(nameserver, name, 1)
        send(nameserver, name, 9)
    delete_topic(nameserver, goes)
    listener, asked = GantryMQOffsetListener(nameserver, group), []
    tell = groupoffsets.tell
    monkeypatch.setattr(groupoffsets, "tell", lambda *given: asked.append(given[2]) or tell(*given))
    dead, alive = Queue(goes, "broker-a", 0), Queue(stays, "broker-a", 0)
    with BlockingPuller(group, nameserver=nameserver) as puller:
        for at in (3, 7, 7):
            listener._tell("run", {dead: 5, alive: at})
            assert puller.committed(queue_of(alive)) == at
        given = {"gantrymq.namesrv": nameserver, "subscribe": stays, "groupId": group}
        StreamReader(parse(given, is_stream=True), ["body"]).commit(offsets.end({dead: 5, alive: 9}, {}, {}))
        assert puller.committed(queue_of(alive)) == 9
    assert asked == [{dead: 5, alive: 3}, {dead: 5, alive: 7}, {dead: 5}, {dead: 5, alive: 9}]


PROGRAM = """
import sys
from pathlib import Path
from testkit.sparksession import start
from testkit.sparkstream import work_off
from pyspark_gantrymq import GantryMQOffsetListener

nameserver, topic, folder = sys.argv[1:]
spark = start(Path(folder))
spark.streams.addListener(GantryMQOffsetListener(nameserver, f"{topic}-group"))
work_off(spark, nameserver, Path(folder), subscribe=topic, startingOffsets="earliest")
spark.stop()
"""


@pytest.mark.slow
def test_a_program_that_stops_spark_at_once_has_told_the_group(nameserver: str, topic: str, tmp_path: Path) -> None:
    send(nameserver, topic, 25)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, nameserver, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert lag(nameserver, f"{topic}-group", topic) == 0, json.dumps(done.stderr[-2000:])
