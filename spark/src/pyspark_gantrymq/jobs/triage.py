"""Sorts dead letters: why each one died, what can be done about it, and how many died for which reason.

    python -m pyspark_gantrymq.jobs.triage --namesrv HOST:PORT --database postgresql://... --checkpoint DIR [--once]
        [--error-property ERROR_CLASS] [--transient REGEX] [--expire-after HOURS] [--archive DIR] [--approve-transient]

Reads every dead-letter topic (%DLQ%group) and writes `dead_letter`, one row per death, and `dead_letter_count`, deaths
per window, group, topic and class (see `letters`).  The class is what the consumer wrote into a property when it gave
the message up; without one it is `malformed body` where the body is not the JSON that it was meant to be (`--json`),
and `unknown` otherwise.  The route:

    expired    born longer ago than --expire-after: no longer needed; --archive keeps it as Parquet as well
    transient  its class matches --transient, and it died less than 4 times: worth a replay, once approved
    poison     everything else: kept with its raw bytes, for a person

A letter that is malformed in any way ends nothing: see `texts` for what the tables keep of it.
Nothing is sent again here: `replay` sends what was approved.  `--approve-transient` approves transient letters as they
come.  A batch that is repeated changes nothing: the rows exist already, and counts rise only with new rows.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import launch, letters, texts
from pyspark_gantrymq.jobs.transactions import Cursor, Row, carry_out, carry_out_once, chunks, inserted

TOPICS = "%DLQ%.*"
_PREFIX = len("%DLQ%")
REPLAYS = "DLQ_REPLAYS"
REPLAYED = (REPLAYS, "GANTRY_REPLAYS")  # the second by `gantry dlq replay`
TRANSIENT = "(?i)timeout|timed out|unavailable|connection|deadlock|too many|busy|retry"
_COUNTED = ("window_start_ms", "consumer_group", "topic", "error_class", "route")


@dataclass(frozen=True)
class TriageRules:
    """Settings by which letters are sorted; `expire_after_h` in hours, `window_ms` of the counts."""

    error_property: str = "ERROR_CLASS"
    is_json: bool = False
    transient: str = TRANSIENT
    expire_after_h: int = 72
    window_ms: int = 60_000


def build(dead: DataFrame, rules: TriageRules, now: Column | None = None) -> DataFrame:
    """Return a row of `dead_letter` per message, and the window in which it counts."""
    prop = f.col("properties")
    age_ms = f.unix_millis(now if now is not None else f.current_timestamp()) - f.unix_millis("bornTimestamp")
    malformed = f.when(texts.json_or_null(f.col("body")).isNull(), f.lit("malformed body"))
    error = f.coalesce(prop[rules.error_property], malformed if rules.is_json else f.lit(None), f.lit("unknown"))
    replays = sum((texts.count(prop[name]) for name in REPLAYED), f.lit(0))
    may_be_replayed = f.col("error_class").rlike(rules.transient) & (f.col("replays") < letters.REPLAYS_MAX)
    sorted_out = dead.select(
        f.substring("topic", _PREFIX + 1, 255).alias("consumer_group"),
        texts.identifier(f.coalesce(prop["UNIQ_KEY"], prop["ORIGIN_MESSAGE_ID"], "msgId")).alias("message_id"),
        replays.alias("replays"),
        texts.identifier(f.coalesce(prop["DLQ_ORIGIN_TOPIC"], prop["RETRY_TOPIC"], f.lit(""))).alias("topic"),
        f.col("brokerName").alias("broker"),
        f.col("queueId").alias("queue_id"),
        f.col("queueOffset").alias("queue_offset"),
        texts.storable(f.coalesce("keys", f.lit(""))).alias("message_keys"),
        texts.storable(f.coalesce("tags", f.lit(""))).alias("tags"),
        "body",
        f.to_json("properties").alias("properties"),
        texts.identifier(error).alias("error_class"),
        (age_ms > rules.expire_after_h * 3_600_000).alias("is_expired"),
        f.col("reconsumeTimes").alias("reconsume_times"),
        f.unix_millis("bornTimestamp").alias("born_at_ms"),
        f.unix_millis("storeTimestamp").alias("died_at_ms"),
    )
    route = f.when(f.col("is_expired"), "expired").when(may_be_replayed, "transient").otherwise("poison")
    window = f.col("died_at_ms") - f.col("died_at_ms") % rules.window_ms
    return sorted_out.withColumns({"route": route, "window_start_ms": window}).drop("is_expired")


def keep(database: str, approve: bool, rows: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Write letters, in an executor, for mapPartitions; yield per transaction how many there were, and new ones."""
    yield from carry_out(database, chunks(row.asDict() for row in rows), partial(_keep_chunk, approve))


def _keep_chunk(approve: bool, cursor: Cursor, chunk: list[Row]) -> tuple[int, int]:
    ordered = sorted(chunk, key=lambda row: (row["consumer_group"], row["message_id"], row["replays"]))
    fresh = [row for row, is_new in zip(ordered, inserted(cursor, letters.LETTER, ordered), strict=True) if is_new]
    counted = Counter(tuple(row[name] for name in _COUNTED) for row in fresh)
    counts = [{**dict(zip(_COUNTED, key, strict=True)), "letters": count} for key, count in sorted(counted.items())]
    if counts:
        cursor.executemany(letters.COUNT, counts)
    if approve:
        by = [{**row, "approved_by": "triage"} for row in fresh if row["route"] == "transient"]
        cursor.executemany(letters.APPROVE, by)
    return len(chunk), len(fresh)


def on_batch(database: str, approve: bool, folder: str, batch: DataFrame, number: int) -> dict[str, int]:
    """Write the letters of a batch, expired ones into this folder too; return the counts.  For foreachBatch."""
    batch.persist()
    try:
        found = batch.rdd.mapPartitions(partial(keep, database, approve)).collect()
        if folder:
            batch.where("route = 'expired'").write.mode("overwrite").parquet(folder)
    finally:
        batch.unpersist()
    counts = {"batch": number, "seen": sum(one[0] for one in found), "fresh": sum(one[1] for one in found)}
    launch.say(**counts)
    return counts


def prepare(database: str) -> None:
    """Create the tables of dead letters that are missing in this database."""
    carry_out_once(database, _make_tables)


def _make_tables(cursor: Cursor) -> None:
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('dead_letter'))")
    for statement in letters.CREATE:
        cursor.execute(statement)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sort until stopped, or with --once what is there; return the exit code."""
    parser = launch.reads(launch.parser(__doc__, "triage"), topics=False)
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    parser.add_argument(
        "--error-property", default=TriageRules.error_property, help="where consumers write why they gave up"
    )
    parser.add_argument("--json", action="store_true", help="bodies are meant to be JSON")
    parser.add_argument("--transient", default=TRANSIENT, metavar="REGEX", help="classes that are worth a replay")
    parser.add_argument("--expire-after", type=int, default=TriageRules.expire_after_h, metavar="HOURS")
    parser.add_argument("--archive", default="", metavar="DIR", help="where expired letters are kept as Parquet")
    parser.add_argument("--approve-transient", action="store_true", help="replay them without asking a person")
    given: Any = parser.parse_args(arguments)
    rules = TriageRules(given.error_property, given.json, given.transient, given.expire_after)
    prepare(given.database)
    spark = launch.session(given)
    dead = launch.stream(spark, given, subscribePattern=TOPICS)
    told = partial(_told, given)
    return launch.run(build(dead, rules).writeStream.foreachBatch(told), given)


def _told(given: Any, batch: DataFrame, number: int) -> None:
    folder = ""
    if given.archive:
        # A batch that is repeated writes the same letters into the same folder; one of a new checkpoint has another.
        folder = f"{given.archive}/batch={launch.query_id(batch.sparkSession, given.checkpoint)}-{number}"
    on_batch(given.database, given.approve_transient, folder, batch, number)


if __name__ == "__main__":
    sys.exit(main())
