"""Sends archived messages again, with the keys, tags, properties and ids that they had.

    python -m pyspark_gantrymq.jobs.restore --namesrv HOST:PORT --archive DIR
        [--topic Orders] [--from INSTANT] [--to INSTANT] [--id ID,ID] [--into TOPIC]

Instants are when the broker stored a message, as 2026-11-22T09:00:00Z.  A batch job: a message is sent at least once,
and again if the job is started again or a task is; under its own id, so that consumers that keep a log of ids do
nothing (see `idempotent`).  Messages of a queue are sent by one task; those with the same sharding key come to one
queue again, in their order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import launch
from pyspark_gantrymq.jobs.sendable import properties, sharding_key


def build(archived: DataFrame, into: str | None = None) -> DataFrame:
    """Return the messages that the sink sends, in the order of the queues."""
    queue = ("topic", "brokerName", "queueId")
    ordered = archived.repartition(*queue).sortWithinPartitions(*queue, "queueOffset")
    return ordered.select(
        (f.lit(into) if into else f.col("topic")).alias("topic"),
        "body",
        "keys",
        "tags",
        "flag",
        sharding_key(f.col("properties")),
        properties(f.col("properties")).alias("properties"),
        "msgId",
    )


def chosen(archived: DataFrame, topic: str | None, start: str | None, end: str | None, ids: Sequence[str]) -> DataFrame:
    """Return the archived messages with this topic and these ids, stored from `start` on and before `end`."""
    if topic:
        archived = archived.where(f.col("topic") == topic)
    if start:
        archived = archived.where(f.col("storeTimestamp") >= f.to_timestamp(f.lit(start)))
    if end:
        archived = archived.where(f.col("storeTimestamp") < f.to_timestamp(f.lit(end)))
    return archived.where(f.col("msgId").isin(list(ids))) if ids else archived


def main(arguments: Sequence[str] | None = None) -> int:
    """Send the chosen messages once; return the exit code."""
    parser = launch.sends(launch.parser(__doc__, "restore"))
    parser.add_argument("--archive", required=True, metavar="DIR")
    parser.add_argument("--topic", help="only what was sent to this one")
    parser.add_argument("--from", dest="start", metavar="INSTANT", help="stored at this instant or later")
    parser.add_argument("--to", dest="end", metavar="INSTANT", help="stored before this instant")
    parser.add_argument("--id", default="", metavar="ID,ID", help="only these")
    parser.add_argument("--into", metavar="TOPIC", help="send to this topic instead of the one that it came from")
    given: Any = parser.parse_args(arguments)
    spark = launch.session(given)
    ids = [each for each in given.id.split(",") if each]
    archived = launch.archived(spark, given.archive)
    found = chosen(archived, given.topic, given.start, given.end, ids).cache()
    count = found.count()
    if count:
        launch.send(build(found, given.into), given)
    launch.say(sent=count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
