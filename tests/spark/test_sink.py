"""The sink against a real broker: what arrives, what is refused before a query starts, and batches that come again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gantry.client.blocking import BlockingPuller, Message, PullStatus
from gantry.client.blockingsinks import BlockingSinks
from gantry.model.message import StoredMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"


def messages(nameserver: str, topic: str) -> Iterator[StoredMessage]:
    """Everything that consumers of a topic get."""
    with BlockingPuller("look", nameserver=nameserver) as puller:
        for queue in puller.queues(topic):
            at, end = 0, puller.max_offset(queue)
            while at < end:
                found = puller.pull(queue, at, count_max=1000)
                assert found.status is PullStatus.FOUND
                yield from found.messages
                at = found.next_offset


def bodies(nameserver: str, topic: str) -> list[str]:
    return sorted(message.body.decode() for message in messages(nameserver, topic))


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(cast(id as string) as binary) as body")


def write(df: DataFrame, nameserver: str, **options: str) -> None:
    df.write.format("gantrymq").mode("append").options(**{"gantrymq.namesrv": nameserver} | options).save()


def test_every_row_is_acknowledged_when_a_write_returns(spark: SparkSession, nameserver: str, topic: str) -> None:
    write(numbers(spark, 5000), nameserver, topic=topic)
    assert bodies(nameserver, topic) == sorted(str(number) for number in range(5000))


def test_a_message_is_what_its_columns_say(spark: SparkSession, nameserver: str, topic: str) -> None:
    rows = [
        (b"plain", topic, None, None, None, None, None, None),
        (b"all", topic, "red", "k1 k2", {"colour": "blue", "名": "值"}, "shard", None, 7),
        (b"chosen", topic, None, None, {}, None, 2, None),
        (b"odd\x00\x01\x02\xff" * 1000, topic, "t", None, None, None, None, -3),
        (b"", topic, "empty", None, None, None, None, None),
    ]
    schema = (
        "body binary, topic string, tags string, keys string, properties map<string,string>, shardingKey string, "
        "queueId int, flag int"
    )
    write(spark.createDataFrame(rows, schema), nameserver)
    found = {message.body: message for message in messages(nameserver, topic)}
    assert len(found) == 5
    full = found[b"all"]
    assert (full.tags, full.keys, full.flag) == ("red", ("k1", "k2"), 7)
    assert (full.properties["colour"], full.properties["名"]) == ("blue", "值")
    assert full.properties["__SHARDINGKEY"] == "shard"
    assert found[b"chosen"].queue_id == 2 and found[b"odd\x00\x01\x02\xff" * 1000].flag == -3


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        ("body", {"topik": "t"}, "did you mean topic"),
        ("body", {"topic": "t", "inFlight": "many"}, "inFlight is 'many'"),
        ("body", {}, "no topic"),
        ("body", {"topic": "a b"}, "option topic"),
        ("body", {"topic": "t", "mode": "exactly-once"}, "expected at-least-once or transactional"),
        ("body", {"topic": "t", "sinkId": "s"}, "goes with mode=transactional"),
        ("body", {"topic": "t", "mode": "transactional", "sinkId": "s"}, "go together"),
        ("body, 1 as queueOffset", {"topic": "t"}, "no column 'queueOffset'"),
        ("cast(body as string) as body", {"topic": "t"}, "column body is string"),
        ("body as value", {"topic": "t"}, "no column 'value'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    spark: SparkSession, nameserver: str, columns: str, options: dict[str, str], what: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=what):
        write(numbers(spark, 1).selectExpr(*columns.split(", ")), nameserver, **options)


def test_a_row_that_is_refused_for_good_goes_to_the_dead_letters_with_its_bytes(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    from pyspark.errors import PySparkException

    large = bytes(range(256)) * (5 << 12)  # 5 MiB, which no topic takes
    rows = [(b"good", topic, None), (b"bad topic", "a b", None), (b"bad property", topic, {"UNIQ_KEY": "x"})]
    rows += [(large, topic, None), (b"too much", topic, {"p": "x" * 40_000})]
    df = spark.createDataFrame(rows, "body binary, topic string, properties map<string,string>")
    with pytest.raises(PySparkException, match="refused"):
        write(df, nameserver)
    write(df, nameserver, deadLetterTopic=topic + "-dead")
    dead = list(messages(nameserver, topic + "-dead"))
    letters = {message.body: message.properties["GANTRY_SINK_REASON"] for message in dead}
    assert set(letters) == {b"bad topic", b"bad property", large, b"too much"}
    assert "UNIQ_KEY" in letters[b"bad property"] and "40" in letters[b"too much"]
    assert b"good" in {message.body for message in messages(nameserver, topic)}


def test_a_row_goes_to_the_group_that_it_names_only(spark: SparkSession, nameserver: str, topic: str) -> None:
    with BlockingSinks(nameserver) as sinks:
        (group,) = sinks.cluster().groups
    rows = [(b"here", group, None), (b"there", "elsewhere", None), (b"third", group, 2), (b"any", None, None)]
    df = spark.createDataFrame(rows, "body binary, brokerName string, queueId int")
    write(df, nameserver, topic=topic, deadLetterTopic=topic + "-dead")
    found = {message.body: message for message in messages(nameserver, topic)}
    assert set(found) == {b"here", b"third", b"any"} and found[b"third"].queue_id == 2
    (letter,) = messages(nameserver, topic + "-dead")
    assert letter.body == b"there" and "no such queue: elsewhere" in letter.properties["GANTRY_SINK_REASON"]


def test_halves_say_how_long_they_are_left_alone(spark: SparkSession, nameserver: str, topic: str) -> None:
    write(numbers(spark, 5), nameserver, topic=topic, mode="transactional", immunitySeconds="77")
    halves = [one for one in messages(nameserver, HALVES) if one.properties.get("REAL_TOPIC") == topic]
    assert [one.properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] for one in halves] == ["77"] * 5


def test_a_transactional_write_is_there_whole_or_not_at_all(spark: SparkSession, nameserver: str, topic: str) -> None:
    from pyspark.errors import PySparkException

    write(numbers(spark, 500), nameserver, topic=topic, mode="transactional")
    assert bodies(nameserver, topic) == sorted(str(number) for number in range(500))
    broken = numbers(spark, 500).selectExpr("if(body = cast('321' as binary), null, body) as body")
    with pytest.raises(PySparkException, match="body is null"):
        write(broken, nameserver, topic=topic, mode="transactional")
    assert len(bodies(nameserver, topic)) == 500
    again = spark.createDataFrame([(b"bad", "a b"), (b"good", topic)], "body binary, topic string")
    write(again, nameserver, mode="transactional", deadLetterTopic=topic + "-dead")
    assert bodies(nameserver, topic + "-dead") == ["bad"] and "good" in bodies(nameserver, topic)


def test_the_same_batch_of_a_named_sink_counts_once_no_matter_who_writes_it(
    spark: SparkSession, nameserver: str, topic: str
) -> None:
    from pyspark.errors import PySparkException

    from pyspark_gantrymq.transaction import gantrymq_transaction

    for batch in (0, 0, 1, 1, 1):
        rows = numbers(spark, 20 * (batch + 1))
        gantrymq_transaction(rows, batch, namesrv=nameserver, sink_id=f"sink-{topic}", topic=topic)
    assert len(bodies(nameserver, topic)) == 20 + 40
    with pytest.raises(PySparkException, match="is at batch 1"):
        gantrymq_transaction(numbers(spark, 5), 0, namesrv=nameserver, sink_id=f"sink-{topic}", topic=topic)
    with BlockingSinks(nameserver) as sinks:
        assert [part for part in sinks.look(f"sink-{topic}")[1] if part.verdict != "aborted"] == []
    assert len(bodies(nameserver, topic)) == 60


def lines(folder: Path, name: str, count: int) -> None:
    """A file that a stream takes as one batch."""
    unfinished = folder.parent / f"{name}.tmp"
    unfinished.write_text("".join(f"{name}-{number}\n" for number in range(count)))
    unfinished.rename(folder / name)


def test_a_stream_is_transactional_by_its_checkpoint_and_no_other_sink_may_use_it(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    folder = tmp_path / "in"
    folder.mkdir()

    def run(**more: str) -> None:
        stream = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(folder))
        options = {"gantrymq.namesrv": nameserver, "topic": topic, "mode": "transactional"}
        options |= {"checkpointLocation": str(tmp_path / "checkpoint")} | more
        rows = stream.selectExpr("cast(value as binary) as body").writeStream.format("gantrymq").options(**options)
        query = rows.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    lines(folder, "a", 30)
    lines(folder, "b", 10)
    run()
    lines(folder, "c", 5)
    run()
    assert len(bodies(nameserver, topic)) == 45 == len(set(bodies(nameserver, topic)))
    # Spark has forgotten that it finished the last batch: it runs again, and counts once.
    (last,) = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))[-1:]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    run()
    assert len(bodies(nameserver, topic)) == 45
    lines(folder, "d", 1)
    with pytest.raises(PySparkException, match="belongs to sink checkpoint-"):
        run(sinkId="another")


def test_messages_of_others_stay_what_they_are(nameserver: str, topic: str) -> None:
    from gantry.client.blocking import BlockingProducer

    with BlockingProducer("others", nameserver=nameserver) as producer:
        producer.send(Message(topic, b"mine", properties={"SPARK_TXN": "no transaction, no meaning"}))
    assert bodies(nameserver, topic) == ["mine"]
