"""How every job starts: the flags that all of them have, the stream that they read, and how they end.

`--once` works off what is there and ends (Trigger.AvailableNow), for schedules; without it a job runs until it is
stopped.  `--option NAME=VALUE` is passed to the source unchanged.  Master, memory and the like are set by spark-submit.
Started by `python -m`, a job runs on `local[*,4]`, which unlike `local[*]` repeats a failed task.
`--conf NAME=VALUE` sets one of Spark's own settings in that case.

An error ends the process with a code other than 0 and Spark's own text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_gantrymq.jobs import placement

EVERY = "10 seconds"
_LOCAL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}


def parser(theory: str | None, name: str) -> argparse.ArgumentParser:
    """Return the parser with the flags of every job; each job adds its own."""
    made = argparse.ArgumentParser(
        prog=f"python -m pyspark_gantrymq.jobs.{name}",
        description=theory,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(app=f"gantrymq-{name}")
    made.add_argument("--master", default="local[*,4]", help="where to run when spark-submit does not say (local[*,4])")
    made.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark, besides")
    return made


def reads(made: argparse.ArgumentParser, topics: bool = True) -> argparse.ArgumentParser:
    """Add the flags of a job that reads a stream; without --subscribe when the job chooses its `topics` itself."""
    if topics:
        made.add_argument("--subscribe", required=True, metavar="TOPIC,TOPIC", help="what to read")
    made.add_argument("--namesrv", required=True, metavar="HOST:PORT;HOST:PORT", help="name servers")
    made.add_argument("--checkpoint", required=True, help="folder of this job's progress; no other job's")
    made.add_argument("--once", action="store_true", help="work off what is there, and end")
    made.add_argument("--every", default=EVERY, help=f"time between batches ({EVERY})")
    made.add_argument("--start", default="earliest", help="where the first start begins (earliest)")
    made.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the source")
    return made


def session(given: Any) -> SparkSession:
    """Return the Spark session that spark-submit has configured, or one on this machine."""
    builder = SparkSession.builder.appName(given.app)
    # Set by spark-submit before it starts Python; a plain `python -m` has no master yet.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Everything runs in the environment that has the data source; Spark's own default is the path's `python3`.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(given.master)
        for name, value in {**_LOCAL, **pairs(given.conf)}.items():
            builder = builder.config(name, value)
    made = builder.getOrCreate()
    try:
        placement.check(made, os.environ)
    except placement.PlacementError as error:
        sys.exit(str(error))
    return made


def stream(spark: SparkSession, given: Any, **fixed: str) -> DataFrame:
    """Return the messages as a stream; `fixed` are options that the job sets."""
    if "subscribe" in given:
        fixed = {"subscribe": given.subscribe, **fixed}
    options = {"gantrymq.namesrv": given.namesrv, "startingOffsets": given.start, **fixed, **pairs(given.option)}
    return spark.readStream.format("gantrymq").options(**options).load()


def run(writer: Any, given: Any) -> int:
    """Run until the stream ends; return the exit code.  An error of the stream is raised."""
    trigger = {"availableNow": True} if given.once else {"processingTime": given.every}
    query = writer.option("checkpointLocation", given.checkpoint).trigger(**trigger).start()
    query.awaitTermination()
    return 0


def archived(spark: SparkSession, folder: str) -> DataFrame:
    """Read the archive.  Topics are read as text: Spark would read digits as a number, without leading zeros."""
    fields = spark.read.parquet(folder).schema.fields
    names = [StructField(each.name, StringType()) if each.name == "topic" else each for each in fields]
    return spark.read.schema(StructType(names)).parquet(folder)


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id that Spark gave to the query of a checkpoint; it is unique to the checkpoint."""
    (row,) = spark.read.text(f"{checkpoint}/metadata", wholetext=True).collect()
    return str(json.loads(row["value"])["id"])


def pairs(texts: list[str]) -> dict[str, str]:
    """Parse NAME=VALUE texts into a mapping; ValueError without `=`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is no NAME=VALUE")
        found[name] = value
    return found


def say(**fields: object) -> None:
    """Print these fields as one line of JSON."""
    print(json.dumps(fields), flush=True)


def sends(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the flags of a job that sends messages and ends."""
    made.add_argument("--namesrv", required=True, metavar="HOST:PORT;HOST:PORT", help="name servers")
    made.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the sink")
    return made


def send(messages: DataFrame, given: Any) -> None:
    """Send messages through the sink; when this returns each of them is acknowledged."""
    options = {"gantrymq.namesrv": given.namesrv, **pairs(given.option)}
    messages.write.format("gantrymq").mode("append").options(**options).save()
