"""The archive: every message of some topics as Parquet, raw, so that it can be audited and sent again.

    python -m pyspark_gantrymq.jobs.archive --namesrv HOST:PORT --subscribe Orders --to DIR --checkpoint DIR [--once]

All columns of the source, partitioned by topic and the day on which the broker stored the message.  Spark's file sink
keeps a list of the files that count (`_spark_metadata`), so that a killed job leaves nothing twice: read the folder
with Spark, or by that list.  The source's offsets are exact and dense; `audit` checks this, and `restore` relies on it.

One file per task and batch: with few messages a batch, let batches be rare (`--every "5 minutes"`), and bound big ones
with `--option maxOffsetsPerTrigger=...`.  Retention of the broker is the limit of a pause: a job that was down longer
has a gap, which the source reports and does not pass over (`failOnDataLoss`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import launch

PARTITIONS = ("topic", "date")


def build(messages: DataFrame) -> DataFrame:
    """Return the messages with the day on which the broker stored them, by which they are partitioned."""
    return messages.withColumn("date", f.to_date("storeTimestamp"))


def write(archived: DataFrame, folder: str) -> Any:
    """Return the stream's writer, still without checkpoint and trigger."""
    return archived.writeStream.format("parquet").option("path", folder).partitionBy(*PARTITIONS).outputMode("append")


def main(arguments: Sequence[str] | None = None) -> int:
    """Archive until stopped, or with --once what is there; return the exit code."""
    parser = launch.reads(launch.parser(__doc__, "archive"))
    parser.add_argument("--to", required=True, metavar="DIR", help="where the archive lies")
    given: Any = parser.parse_args(arguments)
    spark = launch.session(given)
    return launch.run(write(build(launch.stream(spark, given)), given.to), given)


if __name__ == "__main__":
    sys.exit(main())
