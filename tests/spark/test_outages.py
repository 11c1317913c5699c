"""Brokers that are away, change places, or never come back, under a query that goes on or says what is wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from gantry.client.blocking import BlockingProducer, BlockingPuller
from gantry.errors import GantryError
from gantry.model.message import Message
from testkit.localcommand import LocalCluster
from testkit.ports import free_port
from testkit.process import GantryProcess
from testkit.sources import ROOT
from testkit.sparkstream import eventually, make_topic, send, stream, work_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

PYTHON = str(ROOT / ".venv" / "bin" / "python")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Sending:
    """A thread that sends one message after the other, whatever happens to brokers; what was acknowledged."""

    def __init__(self, nameserver: str, topic: str) -> None:
        self._where = nameserver, topic
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[str] = []

    def _run(self) -> None:
        nameserver, topic = self._where
        with BlockingProducer("shop", nameserver=nameserver) as producer:
            while not self._done.wait(0.01):
                try:
                    self.acknowledged.append(producer.send(Message(topic, b"x" * 200)).message_id)
                except GantryError:
                    continue

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60.0)

    def more(self, count: int = 50) -> None:
        """Until so many more are acknowledged."""
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) >= before + count, f"{count} more acknowledged sends")


def start(frame: DataFrame, folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "ckpt")).start()


def read(query: StreamingQuery) -> int:
    """How many messages of its topic are behind it; the topic began at 0."""
    progress = query.lastProgress
    if not progress or not progress.sources[0].endOffset:
        return 0
    found = json.loads(progress.sources[0].endOffset).get("q", {})
    return sum(at for brokers in found.values() for queues in brokers.values() for at in queues.values())


def ends(nameserver: str, topic: str) -> int:
    with BlockingPuller("looking", nameserver=nameserver) as puller:
        return sum([puller.max_offset(queue) for queue in puller.queues(topic)])


def comes_along(query: StreamingQuery, count: int) -> None:
    eventually(lambda: not query.isActive or read(query) >= count, f"{read(query)} of {count} were read")
    assert query.isActive, query.exception()


def test_a_query_reads_everything_once_across_restarts_and_failovers(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    with LocalCluster(tmp_path / "cluster", "--replicas", "3", "--failover-timers", "fast") as cluster:
        make_topic(cluster.name_server, topic, 4)
        query = start(stream(spark, cluster.name_server, subscribe=topic, startingOffsets="earliest"), tmp_path)
        try:
            with Sending(cluster.name_server, topic) as sending:
                comes_along(query, 20)
                cluster.do("kill", "broker-a", "--master")  # comes back by itself, and another one leads
                sending.more()
                comes_along(query, len(sending.acknowledged))
                cluster.do("kill", "broker-a", "--master", "--keep-down")
                sending.more()
                comes_along(query, len(sending.acknowledged))
            comes_along(query, ends(cluster.name_server, topic))
        finally:
            query.stop()
        rows = spark.read.parquet(str(tmp_path / "out")).select("queueId", "queueOffset", "msgId").collect()
        assert {row.msgId for row in rows} >= set(sending.acknowledged)
        assert len({(row.queueId, row.queueOffset) for row in rows}) == len(rows) == ends(cluster.name_server, topic)
        for place in ("slave", "auto", "master"):
            batch = spark.read.format("gantrymq").option("gantrymq.namesrv", cluster.name_server)
            assert batch.options(subscribe=topic, readFrom=place, maxOutage="5m").load().count() == len(rows)


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """A broker that comes back where it was."""
    yield {"network.port": str(free_port()), "standalone.nameserver_port": str(free_port())}


def test_a_broker_may_be_away_for_as_long_as_the_option_says(
    spark: SparkSession, topic: str, tmp_path: Path, ports: dict[str, str]
) -> None:
    nameserver = f"127.0.0.1:{ports['standalone.nameserver_port']}"
    with GantryProcess(tmp_path / "data", ports, python=PYTHON):
        send(nameserver, topic, 10)
        query = start(stream(spark, nameserver, subscribe=topic, startingOffsets="earliest"), tmp_path)
        comes_along(query, 10)
    eventually(
        lambda: not query.isActive or '"away"' in (query.lastProgress.sources[0].latestOffset or ""),
        f"the progress says who is away: {query.lastProgress}",
    )
    with GantryProcess(tmp_path / "data", ports, python=PYTHON):
        send(nameserver, topic, 10)
        comes_along(query, 20)
        query.stop()
        query.awaitTermination()
        query = start(stream(spark, nameserver, subscribe=topic, maxOutage="2s"), tmp_path)
        send(nameserver, topic, 10)
        comes_along(query, 30)
    with pytest.raises(StreamingQueryException, match=r"is away for \d+ s \(option maxOutage\)"):
        query.awaitTermination(120)
    with pytest.raises(PySparkException, match="is away"):
        work_off(spark, nameserver, tmp_path, subscribe=topic)
