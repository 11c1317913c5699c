"""Is the archive complete?  Queue offsets are dense, so that a queue with a gap or a message twice is seen at once.

    python -m pyspark_gantrymq.jobs.audit --archive DIR [--checkpoint DIR]

For every queue: first and last offset, rows, and how many offsets between are missing or there twice.  With the archive
job's checkpoint the last offset is compared with what that job believes to have written, which finds a missing end as
well.  The exit code is 1 when anything is wrong.  Not seen: messages before the first one that the archive ever had.

Spark keeps the offsets of the newest hundred batches, so it may not be known any more where a queue began.  Then a
queue without any archived message counts as missing from 0 on.  `--began-late` is for an archive that did not begin
with 0 (`startingOffsets=latest`, or retention was faster): such a queue is held against the oldest offset that Spark
kept.

A topic that was read with a filter (tags, SQL) has gaps by intention and cannot be audited.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import launch

QUEUE = ("topic", "brokerName", "queueId")


def build(archived: DataFrame) -> DataFrame:
    """Return a row per queue; `missing` and `twice` are 0 in a complete archive."""
    offsets = archived.groupBy(*QUEUE).agg(
        f.min("queueOffset").alias("first"),
        f.max("queueOffset").alias("last"),
        f.count("*").alias("rows"),
        f.count_distinct("queueOffset").alias("offsets"),
    )
    return offsets.select(
        *QUEUE,
        "first",
        "last",
        "rows",
        (f.col("last") - f.col("first") + 1 - f.col("offsets")).alias("missing"),
        (f.col("rows") - f.col("offsets")).alias("twice"),
    ).orderBy(*QUEUE)


def against(audited: DataFrame, ends: DataFrame) -> DataFrame:
    """Add to `missing` the messages between a queue's end and the checkpoint's `end`; empty queues excepted."""
    joined = audited.join(ends, list(QUEUE), "full_outer")
    reaches = f.coalesce(f.col("last") + 1, f.col("start"))
    lacking = f.greatest(f.col("end") - reaches, f.lit(0))
    missing = f.coalesce("missing", f.lit(0)) + f.coalesce(lacking, f.lit(0))
    return joined.select(*QUEUE, "first", "last", "rows", missing.alias("missing"), "twice").orderBy(*QUEUE)


def ends_of(spark: SparkSession, checkpoint: str, began_late: bool = False) -> DataFrame:
    """Return, by queue, where the last committed batch of a checkpoint ended, and the `start` of the queue.

    A start that is not known any more is 0, or with `began_late` the oldest position that is known.
    """
    logged = _numbered(spark, f"{checkpoint}/offsets")
    committed = [number for number in _numbered(spark, f"{checkpoint}/commits") if number in logged]
    if not committed:
        raise ValueError(f"{checkpoint} has no committed batch")
    offsets = {number: json.loads(text.splitlines()[2]) for number, text in logged.items()}
    starts = {queue: at for number in sorted(offsets) for queue, at in _flat(offsets[number].get("from", {}))}
    newest_first = sorted(offsets, reverse=True)
    oldest = {queue: at for number in newest_first for queue, at in _flat(offsets[number].get("q", {}))}
    others = oldest if began_late else dict.fromkeys(oldest, 0)
    rows = [(*queue, {**others, **starts}[queue], end) for queue, end in _flat(offsets[max(committed)]["q"])]
    return spark.createDataFrame(rows, "topic string, brokerName string, queueId int, start bigint, end bigint")


def _numbered(spark: SparkSession, folder: str) -> dict[int, str]:
    named = spark.read.text(folder, wholetext=True).select(f.input_file_name().alias("file"), "value").collect()
    numbers = {row["file"].rpartition("/")[2]: row["value"] for row in named}
    return {int(name): text for name, text in numbers.items() if name.isdigit()}


def _flat(nested: dict[str, dict[str, dict[str, int]]]) -> list[tuple[tuple[str, str, int], int]]:
    return [
        ((topic, broker, int(queue)), at)
        for topic, brokers in nested.items()
        for broker, queues in brokers.items()
        for queue, at in queues.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit once; return 1 when the archive is not complete."""
    parser = launch.parser(__doc__, "audit")
    parser.add_argument("--archive", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="of the archive job")
    parser.add_argument("--began-late", action="store_true", help="the archive did not begin with offset 0")
    given: Any = parser.parse_args(arguments)
    spark = launch.session(given)
    audited = build(launch.archived(spark, given.archive))
    if given.checkpoint:
        audited = against(audited, ends_of(spark, given.checkpoint, given.began_late))
    audited = audited.cache()
    audited.show(10_000, truncate=False)
    wrong = audited.where("missing > 0 OR twice > 0").count()
    print(f"{wrong} queues are not as they should be" if wrong else "every queue is complete")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
