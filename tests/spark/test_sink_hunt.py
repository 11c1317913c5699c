"""Ways in which a row could get lost or be there twice, tried: retries, empty batches, shared names, a full broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit.process import GantryProcess
from testkit.sinktopic import bodies, left_open, until
from testkit.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

OPEN_MAX = 200
PYTHON = str(ROOT / ".venv/bin/python")


def numbers(spark: SparkSession, count: int, partitions: int = 2, begin: int = 0) -> DataFrame:
    whole = spark.range(begin, begin + count, 1, partitions)
    return whole.selectExpr("cast(cast(id as string) as binary) as body")


def expected(count: int, begin: int = 0) -> list[str]:
    return sorted(str(number) for number in range(begin, begin + count))


def write(df: DataFrame, nameserver: str, **options: str) -> None:
    df.write.format("gantrymq").mode("append").options(**{"gantrymq.namesrv": nameserver} | options).save()


def transaction(df: DataFrame, batch: int, nameserver: str, topic: str, **options: str) -> None:
    from pyspark_gantrymq.transaction import gantrymq_transaction

    gantrymq_transaction(df, batch, namesrv=nameserver, sink_id=f"sink-{topic}", topic=topic, **options)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go to the sink soon, not 10 000 at a time."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "50")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("small_batches")
def test_a_task_that_is_tried_again_leaves_nothing_of_its_first_try(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    from pyspark import TaskContext
    from pyspark.sql import functions as f

    def breaks_in_the_middle(body: bytes) -> bytes:
        """The first attempt of the first task dies when some of its rows have been sent."""
        context = TaskContext.get()
        assert context is not None
        if int(body) == 250 and context.attemptNumber() == 0:
            raise RuntimeError("in the middle of a write")
        return body

    broken = numbers(spark, 600).select(f.udf(breaks_in_the_middle, "binary", useArrow=False)("body").alias("body"))
    transaction(broken, 0, nameserver, topic)
    assert bodies(nameserver, topic) == expected(600)
    assert left_open(nameserver, f"sink-{topic}") == []
    write(broken, nameserver, topic=topic + "-plain")
    assert set(bodies(nameserver, topic + "-plain")) == set(expected(600)), "at least once, without a transaction"


def test_batches_without_rows_and_without_tasks_are_batches(spark: SparkSession, nameserver: str, topic: str) -> None:
    empty = numbers(spark, 10).where("length(body) > 100")
    none = spark.createDataFrame([], "body binary")
    for batch, df in enumerate((empty, none, numbers(spark, 10), empty, none, none)):
        transaction(df, batch, nameserver, topic)
        transaction(df, batch, nameserver, topic)
    assert bodies(nameserver, topic) == expected(10)


def test_a_batch_of_dead_letters_alone_is_there_once(spark: SparkSession, nameserver: str, topic: str) -> None:
    bad = numbers(spark, 20).selectExpr("body", "'a b' as topic")
    for _ in range(3):
        transaction(bad, 0, nameserver, topic, deadLetterTopic=topic + "-dead")
    transaction(numbers(spark, 5), 1, nameserver, topic, deadLetterTopic=topic + "-dead")
    assert bodies(nameserver, topic + "-dead") == expected(20)
    assert bodies(nameserver, topic) == expected(5)


class Query:
    """A stream of files with a `foreachBatch` or with a sink of its own."""

    def __init__(self, spark: SparkSession, folder: Path, checkpoint: str) -> None:
        (folder / "in").mkdir(exist_ok=True)
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(folder / "in"))
        rows = lines.selectExpr("cast(value as binary) as body")
        self.writer = rows.writeStream.option("checkpointLocation", str(folder / checkpoint))

    def run(self, each: Any = None, **options: str) -> None:
        writer = self.writer.foreachBatch(each) if each else self.writer.format("gantrymq").options(**options)
        assert writer.trigger(availableNow=True).start().awaitTermination(180)


def file(folder: Path, name: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / name).write_text(name + "\n")
    (folder / name).rename(folder / "in" / name)


def test_a_foreach_batch_that_fails_behind_its_write_is_repeated_and_counts_once(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    failures = [True, False, True, False]

    def each(df: DataFrame, batch: int) -> None:
        transaction(df, batch, nameserver, topic)
        if failures.pop(0):
            raise RuntimeError("behind the write")
        transaction(df, batch, nameserver, topic)  # by hand, once more

    for name in ("a", "b"):
        file(tmp_path, name)
        with pytest.raises(PySparkException, match="behind the write"):
            Query(spark, tmp_path, "checkpoint").run(each)
        Query(spark, tmp_path, "checkpoint").run(each)
    assert bodies(nameserver, topic) == ["a", "b"]


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_sink_that_another_checkpoint_uses_is_refused_and_nobody_loses_a_row_unheard(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path, by_hand: bool
) -> None:
    from pyspark.errors import PySparkException

    def run(checkpoint: str, sink: str = f"sink-{topic}") -> None:
        if by_hand:
            from pyspark_gantrymq.transaction import gantrymq_transaction

            def each(df: DataFrame, batch: int) -> None:
                gantrymq_transaction(df, batch, namesrv=nameserver, sink_id=sink, topic=topic)

            Query(spark, tmp_path, checkpoint).run(each)
        else:
            options = {"gantrymq.namesrv": nameserver, "topic": topic, "mode": "transactional", "sinkId": sink}
            Query(spark, tmp_path, checkpoint).run(**options)

    file(tmp_path, "a")
    run("first")
    with pytest.raises(PySparkException, match="two queries or checkpoints share the sink"):
        run("second")
    assert bodies(nameserver, topic) == ["a"]
    run("third", f"other-{topic}")
    assert bodies(nameserver, topic) == ["a", "a"], "another name is another sink"
    assert left_open(nameserver, f"sink-{topic}") == []


def test_a_second_copy_of_a_task_that_goes_on_behind_the_commit_adds_nothing(topic: str, tmp_path: Path) -> None:
    """What speculation does on a cluster: two at once write a partition, one of them counts, the other hears late."""
    from gantry.client.blockingsinks import BlockingSinks
    from gantry.client.requests.sink_requests import SinkBatch
    from pyspark_gantrymq import sink, sinkoptions
    from pyspark_gantrymq.sinkcolumns import Row
    from pyspark_gantrymq.sinksending import SinkSender

    with GantryProcess(tmp_path / "data", {"transactions.check_interval_s": "0.5"}, python=PYTHON) as process:
        nameserver = "{}:{}".format(*process.addresses["nameserver"])
        options = sinkoptions.read({"gantrymq.namesrv": nameserver, "topic": topic, "mode": "transactional"})
        with BlockingSinks(nameserver) as sinks:
            one = SinkBatch("speculative", 0, sinks.home_of("speculative"))
            copies = [
                SinkSender(options, "query", "0", sink._half(options, one, f"0-writer-{name}")) for name in ("a", "b")
            ]
            for number in range(100):
                for copy in copies:
                    message_id = f"{number}-{id(copy)}"
                    copy.send(Row(topic, b"%d" % number, f"UNIQ_KEY\x01{message_id}\x02".encode(), message_id))
            copies[0].finish()
            sinks.commit(one, ["0-writer-a"], sorted(copies[0].groups))
            for number in range(100, 150):
                copies[1].send(Row(topic, b"%d" % number, f"UNIQ_KEY\x01late-{number}\x02".encode(), f"late-{number}"))
            copies[1].finish()
        for copy in copies:
            copy.close()
        until(lambda: left_open(nameserver) == [], "what came late is rolled back")
        assert bodies(nameserver, topic) == expected(100)


def test_a_broker_that_takes_no_more_halves_fails_the_batch_and_keeps_nothing_of_it(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    config = {"transactions.open_max": str(OPEN_MAX), "transactions.check_interval_s": "0.5"}
    with GantryProcess(tmp_path / "data", config, python=PYTHON) as process:
        nameserver = "{}:{}".format(*process.addresses["nameserver"])
        small = {"sendTimeoutMs": "2000"}
        with pytest.raises(PySparkException, match="not sent within 2 s"):
            transaction(numbers(spark, 2 * OPEN_MAX), 0, nameserver, topic, **small)
        until(lambda: left_open(nameserver) == [], "the failed batch has made room")
        transaction(numbers(spark, OPEN_MAX // 2), 0, nameserver, topic, **small)
        with pytest.raises(PySparkException, match="not sent within 2 s"):
            write(numbers(spark, 2 * OPEN_MAX), nameserver, topic=topic, mode="transactional", **small)
        until(lambda: left_open(nameserver) == [], "and so has a write that is for once")
        file(tmp_path, "a")
        options = {"gantrymq.namesrv": nameserver, "topic": topic, "mode": "transactional"}
        Query(spark, tmp_path, "checkpoint").run(**options)
        assert bodies(nameserver, topic) == sorted([*expected(OPEN_MAX // 2), "a"])
