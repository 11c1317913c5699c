"""Our source and sink beside Spark's own for Kafka, the same rows, each against its broker.

Spark has its source for Kafka in the JVM, ours is Python that hands over Arrow.  So besides the rate of a batch (what
`addBatch` took) there is the CPU: of Spark (driver, JVM and Python workers) and of the broker, over the timed batches.
Every round checks how many rows a query saw.  The newest Spark for which Maven Central has Kafka's source is 4.2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter
from servers import Server
from sparkqueries import Ground, Row

_ROWS, _WARM, _TIMED = 80_000, 3, 4
_BODY = "cast(repeat(char(97 + cast(value % 26 as int)), 1024) as binary)"
_PATIENCE_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """Of each round: rows a second, CPU of Spark and of the broker in us a row."""

    rates: list[float] = field(default_factory=list)
    spark_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)


def beside_kafka(ground: Ground, topic: str, ours_pid: int, other: Server) -> list[Row]:
    """Rows of source and sink; `topic` is filled and has two queues, Kafka's of this name is filled here."""
    servers = f"127.0.0.1:{other.port}"
    count = _ROWS * (_WARM + _TIMED + 2)
    made = ground.spark.range(count).selectExpr("id as value").selectExpr(f"{_BODY} as value")
    made.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    stream = ground.spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)

    def from_kafka() -> DataFrame:
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(_ROWS)}
        return stream.options(**options).load().selectExpr("value as body", "offset", "partition")

    def from_ours() -> DataFrame:
        data = ground.messages("gantrymq", topic, _ROWS)
        return data.selectExpr("body", "queueOffset as offset", "queueId as partition")

    def rows() -> DataFrame:
        return ground.rate(_ROWS)

    def to_kafka() -> DataStreamWriter:
        data = rows().selectExpr(f"{_BODY} as value")
        return data.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "sunk")

    def to_ours() -> DataStreamWriter:
        return ground.sink("gantrymq", rows().selectExpr(f"{_BODY} as body"), f"{topic}-sunk", ground.nameserver)

    def read(data: Callable[[], DataFrame]) -> Callable[[], DataStreamWriter]:
        return lambda: data().writeStream.foreachBatch(_summed)

    found = []
    for what, ours, theirs in (("source", read(from_ours), read(from_kafka)), ("sink", to_ours, to_kafka)):
        measured = {"ours": Measured(), "kafka": Measured()}
        for _ in range(ground.rounds):
            _measure(ground, ours(), ours_pid, measured["ours"])
            _measure(ground, theirs(), other.pid, measured["kafka"])
        found += _rows(what, measured["ours"], measured["kafka"])
    return found


def enough_beside() -> int:
    """Messages that each of two queues needs, and a few."""
    return _ROWS * (_WARM + _TIMED + 3) // 2


def _summed(data: DataFrame, batch: int) -> None:
    row = data.selectExpr("count(*) as n", "sum(length(body)) as bytes", "sum(offset)", "sum(partition)").collect()[0]
    if not _ROWS - 2 <= row["n"] <= _ROWS or row["bytes"] != row["n"] * 1024:  # Kafka rounds each partition's share
        raise AssertionError(f"batch {batch} has {row['n']} rows and {row['bytes']} bytes")


def _measure(ground: Ground, writer: DataStreamWriter, broker: int, into: Measured) -> None:
    checkpoint = ground.folder / uuid.uuid4().hex
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        _until(query, _WARM - 1)
        spark, server = _tree_us(os.getpid()), _tree_us(broker)
        first = (query.lastProgress or {"batchId": -1})["batchId"]
        _until(query, first + _TIMED)
        spark, server = _tree_us(os.getpid()) - spark, _tree_us(broker) - server
        last = query.lastProgress["batchId"]
        progress = [each for each in query.recentProgress if first < each["batchId"] <= last]
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    took_ms = statistics.median([each["durationMs"]["addBatch"] for each in progress])
    into.rates.append(_ROWS / took_ms * 1000)
    into.spark_us.append(spark / (_ROWS * (last - first)))
    into.broker_us.append(server / (_ROWS * (last - first)))


def _until(query: object, batch: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:  # type: ignore[attr-defined]
        ended = query.exception()  # type: ignore[attr-defined]
        if ended is not None or time.monotonic() > deadline:
            raise SystemExit(f"a query ended or is late: {ended}")
        time.sleep(0.01)


def _tree_us(root: int) -> float:
    """CPU in us that a process, its children and what has ended below it have used."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(words[1])
                used[int(folder.name)] = sum(map(int, words[11:15]))
    below = {root}
    grows = True
    while grows:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        below |= more
        grows = bool(more)
    return sum(used.get(pid, 0) for pid in below) * 1e6 / _TICKS


def _rows(what: str, ours: Measured, kafka: Measured) -> list[Row]:
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    note = (
        f"ours {middle(ours.rates) / 1000:.0f}k/s, Spark {middle(ours.spark_us):.1f} us and broker "
        f"{middle(ours.broker_us):.1f} us CPU a row; Kafka {middle(kafka.rates) / 1000:.0f}k/s, "
        f"{middle(kafka.spark_us):.1f} and {middle(kafka.broker_us):.1f} us"
    )
    both = [
        (ours_us + broker) / (theirs + other)
        for ours_us, broker, theirs, other in zip(
            ours.spark_us, ours.broker_us, kafka.spark_us, kafka.broker_us, strict=True
        )
    ]
    rates = [mine / theirs for mine, theirs in zip(ours.rates, kafka.rates, strict=True)]
    return [
        {"figure": f"{what} beside Kafka's, speed", "found": _spread(rates), "target": "", "note": note},
        {"figure": f"{what} beside Kafka's, CPU of Spark and broker", "found": _spread(both), "target": "", "note": ""},
    ]


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
