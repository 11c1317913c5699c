"""Queries side by side: the source beside tuples and Spark's own rate source, the Arrow sink beside a row writer.

What is compared runs in turn in one session, and a round's ratio is taken within the round; a figure is the median of
the rounds with the least and the most.  A round's value is the median of its batches as Spark's progress times them,
after the first ones, in which Python processes start and the JVM compiles.  `addBatch` is the work of a batch,
`triggerExecution` all of it: planning, and two files of the checkpoint.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from gantry.client.blocking import BlockingProducer, MessageQueue
from gantry.model.message import Message
from pyspark_gantrymq.columns import COLUMNS

Row = dict[str, object]
_ROWS, _WARM, _TIMED = 80_000, 2, 3
_LITTLE, _LITTLE_WARM, _LITTLE_TIMED = 8, 10, 30
_BATCH = 64
_PATIENCE_S = 300.0
# Spark gives a Python process ten seconds to start, which cannot be changed.
_TOO_SLOW, _STARTS_MAX = "Python worker failed to connect back", 5
_BODY = "cast(repeat(char(97 + cast(value % 26 as int)), 1024) as binary)"
_PAIRS = "map('UNIQ_KEY', concat('7F0000010000', value), 'KEYS', 'k1', 'TAGS', 't', 'WAIT', 'true', 'colour', 'red')"
# What the rate source needs to have the same columns; every row's values are its own where a message's are.
_BUILT = {
    "topic": "'filled'",
    "brokerName": "'broker-a'",
    "queueId": "cast(value % 2 as int)",
    "queueOffset": "value",
    "msgId": "concat('7F0000010000', value)",
    "keys": "concat('k', value % 7)",
    "tags": "concat('t', value % 3)",
    "body": _BODY,
    "properties": _PAIRS,
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp + interval 1 second",
    "bornHost": "concat('127.0.0.1:', 10000 + value % 7)",
    "reconsumeTimes": "cast(value % 2 as int)",
    "flag": "cast(value % 5 as int)",
    "sysFlag": "cast(value % 3 as int)",
    "commitLogOffset": "value * 1200",
    "transactionId": "if(value < 0, 'never', null)",
}
_SUMS = {"string": "sum(length({0}))", "binary": "sum(length({0}))", "timestamp": "sum(cast({0} as double))"}
_SUMS |= {"map<string,string>": "sum(size({0}))", "int": "sum({0})", "bigint": "sum({0})"}
WHOLE = [_SUMS[kind].format(name) for name, kind in COLUMNS.items()]


@dataclass(frozen=True)
class Ground:
    """What all queries of a run stand on."""

    spark: SparkSession
    nameserver: str
    folder: Path
    rounds: int
    answering: str = ""  # a name server whose broker keeps nothing

    def messages(self, kind: str, topic: str, rows_max: int) -> DataFrame:
        """A stream of a topic from its beginning."""
        options = {"gantrymq.namesrv": self.nameserver, "subscribe": topic, "startingOffsets": "earliest"}
        return self.spark.readStream.format(kind).options(**options, maxOffsetsPerTrigger=str(rows_max)).load()

    def rate(self, rows: int) -> DataFrame:
        """A stream that Spark makes itself."""
        reader = self.spark.readStream.format("rate-micro-batch")
        return reader.option("rowsPerBatch", rows).option("numPartitions", 2).load()

    def sink(self, kind: str, data: DataFrame, topic: str, nameserver: str) -> DataStreamWriter:
        """A query into a topic."""
        return data.writeStream.format(kind).option("gantrymq.namesrv", nameserver).option("topic", topic)

    def took_ms(self, writer: DataStreamWriter, key: str, warm: int, timed: int) -> float:
        """The median of a duration over the timed batches of a query; begun again when the machine was too busy."""
        for _ in range(_STARTS_MAX):
            with contextlib.suppress(TimeoutError):
                return self._took_ms(writer, key, warm, timed)
        raise SystemExit(f"{_STARTS_MAX} times too slow a machine")

    def _took_ms(self, writer: DataStreamWriter, key: str, warm: int, timed: int) -> float:
        checkpoint = self.folder / uuid.uuid4().hex
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while (query.lastProgress or {"batchId": -1})["batchId"] < warm + timed - 1:
                ended = query.exception()
                if ended is not None and _TOO_SLOW in str(ended):
                    raise TimeoutError
                if ended is not None or time.monotonic() > deadline:
                    raise SystemExit(f"a query ended or is late: {ended}")
                time.sleep(0.02)
            progress = [each for each in query.recentProgress if warm <= each["batchId"] < warm + timed]
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return statistics.median([each["durationMs"][key] for each in progress if key in each["durationMs"]])

    def compared(self, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
        """What each run took, round by round."""
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(self.rounds):
            for name, run in runs.items():
                found[name].append(run())
        return found


def ratio(over: list[float], under: list[float]) -> str:
    """The median of the rounds' ratios, with the least and the most."""
    each = sorted(a / b for a, b in zip(over, under, strict=True))
    return f"{statistics.median(each):.2f} ({each[0]:.2f}..{each[-1]:.2f})"


def fill(nameserver: str, topic: str, queues: int, count: int) -> None:
    """`count` messages of 1 KiB with five properties in each queue."""
    with BlockingProducer("bench", nameserver=nameserver) as producer:
        first = producer.send(_message(topic)).queue
        for number in range(queues):
            queue = MessageQueue(topic, first.broker_name, number)
            left = count - (queue == first)
            while left > 0:
                producer.send_batch([_message(topic) for _ in range(min(left, _BATCH))], queue=queue)
                left -= _BATCH


def _message(topic: str) -> Message:
    return Message(topic, b"x" * 1024, tags="t", keys=("k1",), properties={"colour": "red", "shape": "round"})


def aggregate(ground: Ground, topic: str) -> list[Row]:
    """Sums over all columns; `topic` has two queues with enough for every batch."""
    built = [f"{expression} as {name}" for name, expression in _BUILT.items()]

    def run(data: Callable[[], DataFrame]) -> Callable[[], float]:
        def once() -> float:
            return ground.took_ms(data().writeStream.foreachBatch(_whole), "addBatch", _WARM, _TIMED)

        return once

    found = ground.compared(
        {
            "arrow": run(lambda: ground.messages("gantrymq", topic, _ROWS)),
            "tuples": run(lambda: ground.messages("gantrymq-tuples", topic, _ROWS)),
            "rate": run(lambda: ground.rate(_ROWS).selectExpr(*built)),
        }
    )
    note = ", ".join(f"{name} {_ROWS / statistics.median(took):.0f}k/s" for name, took in found.items())
    what = f"aggregate over {len(COLUMNS)} columns"
    return [
        _row(f"{what}, speed beside tuples", ratio(found["tuples"], found["arrow"]), ">= 2", note),
        _row(f"{what}, speed beside the rate source", ratio(found["rate"], found["arrow"]), ">= 0.25", ""),
    ]


def _whole(data: DataFrame, batch: int) -> None:
    data.selectExpr(*WHOLE).collect()


def latency(ground: Ground, topic: str) -> list[Row]:
    """A trigger for one message in each of eight queues, and one for which nothing came."""

    def timed(data: DataFrame, key: str = "triggerExecution") -> float:
        return ground.took_ms(data.writeStream.format("noop"), key, _LITTLE_WARM, _LITTLE_TIMED)

    found = ground.compared(
        {
            "queues": lambda: timed(ground.messages("gantrymq", topic, _LITTLE)),
            "rate": lambda: timed(ground.rate(_LITTLE)),
            "asking": lambda: timed(ground.messages("gantrymq", topic, _LITTLE), "latestOffset"),
        }
    )
    note = ", ".join(f"{name} {statistics.median(took):.0f} ms" for name, took in found.items())
    return [
        _row("trigger, 8 idle queues, time beside the rate source", ratio(found["queues"], found["rate"]), "<= 2", note)
    ]


def sink(ground: Ground, topic: str) -> list[Row]:
    """Rows of 1 KiB from Spark, with a body alone and with what messages mostly have; also without a broker's work."""
    shapes = {
        "body": [f"{_BODY} as body"],
        "body, tags, keys, 2 properties": [
            f"{_BODY} as body", "'t' as tags", "concat('k', value) as keys",
            "map('colour', 'red', 'shape', 'round') as properties",
        ],
    }  # fmt: skip
    runs = [(f"sink ({shape})", expressions, ground.nameserver) for shape, expressions in shapes.items()]
    runs += [(f"sink ({shape}) into what only answers", each, ground.answering) for shape, each in shapes.items()]
    rows = []
    for what, expressions, nameserver in runs:

        def run(kind: str, expressions: list[str] = expressions, nameserver: str = nameserver) -> Callable[[], float]:
            def once() -> float:
                data = ground.rate(_ROWS).selectExpr(*expressions)
                return ground.took_ms(ground.sink(kind, data, topic, nameserver), "addBatch", _WARM, _TIMED)

            return once

        found = ground.compared({"arrow": run("gantrymq"), "rows": run("gantrymq-tuples")})
        note = ", ".join(f"{name} {_ROWS / statistics.median(took):.0f}k/s" for name, took in found.items())
        rows.append(_row(f"{what}, speed beside a row writer", ratio(found["rows"], found["arrow"]), ">= 2.5", note))
    return rows


def _row(figure: str, found: str, target: str, note: str) -> Row:
    return {"figure": figure, "found": found, "target": target, "note": note}


def enough(rows: int = _ROWS, batches: int = _WARM + _TIMED) -> int:
    """Messages that a run of `aggregate` reads from each of two queues, and a few."""
    return rows * (batches + 2) // 2


def enough_little() -> int:
    """Messages that a run of `latency` reads from each of eight queues, and a few."""
    return _LITTLE_WARM + _LITTLE_TIMED + 10
