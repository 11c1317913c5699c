"""The sink against Apache's own broker, RocketMQ 5 from Maven Central: at least once, and why not in transactions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit.sinktopic import bodies, messages, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from interop import servers

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


def write(df: DataFrame, server: servers.Apache, **options: str) -> None:
    given = {"gantrymq.namesrv": server.name_server} | options
    df.write.format("gantrymq").mode("append").options(**given).save()


def rows(spark: SparkSession, server: servers.Apache, topic: str) -> list[Any]:
    read = spark.read.format("gantrymq").option("gantrymq.namesrv", server.name_server).option("subscribe", topic)
    return list(read.load().collect())


def test_every_row_arrives_with_what_its_columns_say(
    spark: SparkSession, apache: servers.Apache, topic: str
) -> None:
    whole = spark.range(0, 2000, 1, 3).selectExpr(
        "cast(cast(id as string) as binary) as body",
        "concat('k', id, ' all') as keys",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "map('colour', 'blue', '名', cast(id as string)) as properties",
        "cast(id as int) as flag",
    )
    write(whole, apache, topic=topic)
    found = {int(bytes(row.body)): row for row in rows(spark, apache, topic)}
    assert sorted(found) == list(range(2000))
    for number, row in found.items():
        assert (row["keys"], row.tags) == (f"k{number} all", "odd" if number % 2 else "even")
        assert (row.properties["colour"], row.properties["名"], row.flag) == ("blue", str(number), number)
    assert len({row.msgId for row in found.values()}) == 2000


def test_ids_sharding_and_dead_letters_are_as_with_our_own(
    spark: SparkSession, apache: servers.Apache, topic: str
) -> None:
    given = [(f"{number}".encode(), f"id-{number}", f"shard-{number % 5}") for number in range(100)]
    write(spark.createDataFrame(given, "body binary, msgId string, shardingKey string"), apache, topic=topic)
    found = rows(spark, apache, topic)
    assert sorted(row.msgId for row in found) == sorted(f"id-{number}" for number in range(100))
    queues: dict[int, set[int]] = {}
    for row in found:
        queues.setdefault(int(bytes(row.body)) % 5, set()).add(row.queueId)
    assert all(len(of_shard) == 1 for of_shard in queues.values())
    large = bytes(range(256)) * (5 << 12)  # 5 MiB, and Apache's broker takes 1 here
    mixed = spark.createDataFrame([(b"good",), (large,)], "body binary")
    write(mixed, apache, topic=topic + "-mixed", deadLetterTopic=topic + "-dead")
    assert bodies(apache.name_server, topic + "-mixed") == ["good"]
    (letter,) = rows(spark, apache, topic + "-dead")
    assert bytes(letter.body) == large and letter.properties["GANTRY_SINK_REASON"]


def test_rows_are_delivered_later_and_not_before(spark: SparkSession, apache: servers.Apache, topic: str) -> None:
    now = datetime.now(UTC)
    soon, late = now + timedelta(seconds=5), now + timedelta(hours=1)
    instants = [(b"now", None), (b"soon", soon), (b"late", late)]
    write(spark.createDataFrame(instants, "body binary, deliverTimestamp timestamp"), apache, topic=topic)
    levels = [(b"level 0", None), (b"level 1", 1), (b"level 18", 18)]
    write(spark.createDataFrame(levels, "body binary, delayTimeLevel int"), apache, topic=topic)
    expected = ["level 0", "level 1", "now", "soon"]
    until(lambda: len(bodies(apache.name_server, topic)) >= len(expected), "what is due is delivered")
    assert bodies(apache.name_server, topic) == expected
    found = {message.body: message for message in messages(apache.name_server, topic)}
    # Apache's timer wheel has steps of a second.
    assert found[b"soon"].store_ms >= int(soon.timestamp() * 1000) - 1000
    assert found[b"level 1"].store_ms - found[b"level 1"].born_ms >= 1000


def test_a_stream_goes_on_over_a_restart_of_the_broker(
    spark: SparkSession, apache: servers.Apache, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()

    def run() -> None:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(tmp_path / "in"))
        options = {"gantrymq.namesrv": apache.name_server, "topic": topic}
        options["checkpointLocation"] = str(tmp_path / "checkpoint")
        writer = lines.selectExpr("cast(value as binary) as body").writeStream.format("gantrymq").options(**options)
        assert writer.trigger(availableNow=True).start().awaitTermination(300)

    for number in range(3):
        lines = [f"{number}-{line}" for line in range(100)]
        (tmp_path / "in" / str(number)).write_text("\n".join(lines) + "\n")
    run()
    apache.stop()
    apache.start()
    (tmp_path / "in" / "3").write_text("".join(f"3-{line}\n" for line in range(100)))
    run()
    assert set(bodies(apache.name_server, topic)) == {f"{n}-{line}" for n in range(4) for line in range(100)}


def test_a_transactional_sink_is_refused_with_its_reason(
    spark: SparkSession, apache: servers.Apache, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    one = spark.createDataFrame([(b"body",)], "body binary")
    why = "needs GantryMQ on every broker: Apache RocketMQ delivers a half again"
    with pytest.raises(PySparkException, match=why):
        write(one, apache, topic=topic, mode="transactional")
    with pytest.raises(PySparkException, match=why):
        write(one, apache, topic=topic, mode="transactional", sinkId="s", batchId="0")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0").write_text("line\n")
    options = {"gantrymq.namesrv": apache.name_server, "topic": topic, "mode": "transactional"}
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    lines = spark.readStream.format("text").load(str(tmp_path / "in")).selectExpr("cast(value as binary) as body")
    query = lines.writeStream.format("gantrymq").options(**options).trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=why):
        query.awaitTermination(180)
    # Refused before a byte was sent, and the checkpoint belongs to nobody.
    options["mode"] = "at-least-once"
    lines.writeStream.format("gantrymq").options(**options).trigger(availableNow=True).start().awaitTermination(180)
    assert bodies(apache.name_server, topic) == ["line"]
