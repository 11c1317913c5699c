"""Idempotent consumption: every message has its business effect in PostgreSQL exactly once, written by the executors.

    python -m pyspark_gantrymq.jobs.idempotent --namesrv HOST:PORT --subscribe Orders --group revenue
        --database postgresql://... --effect effect.sql --checkpoint DIR [--once] [--redis redis://...]

For each chunk of a partition one transaction: a row of `message_log` per message, and the effect for those whose row
was inserted; the stub, if the producer keeps one in this database, is confirmed, and a message whose stub is void has
no effect.  Whatever repeats a message (a task tried again, a batch replayed after SIGKILL, a COMMIT whose answer was
lost, two jobs at once, a producer that sent it twice) finds the row there and does nothing.  Messages of a queue keep
their order within a batch.

The effect is one statement of SQL whose parameters are the columns of `build`, or, from a program, any function of a
cursor and messages that can be pickled: `run(spark, source, consumption, ...)`.  A failure of the effect (data that it
does not take) fails the query with the statement's error; nothing of the chunk remains.

With Redis (`--redis`) what is done already costs no transaction; see `prefilter` for why it decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gantry.guarantee import schema
from pyspark_gantrymq.jobs import launch
from pyspark_gantrymq.jobs.prefilter import Prefilter, identity
from pyspark_gantrymq.jobs.transactions import Cursor, Row, bring_a_row, carry_out, carry_out_once, chunks, inserted

SAY = schema.statements(schema.POSTGRESQL)
Effect = Callable[[Cursor, Sequence[Row]], None]


@dataclass(frozen=True)
class SqlEffect:
    """One statement, carried out for every message with its columns as parameters (`:message_id`)."""

    text: str

    def __call__(self, cursor: Cursor, messages: Sequence[Row]) -> None:
        cursor.executemany(schema.in_words_of(schema.POSTGRESQL, self.text), messages)


@dataclass(frozen=True)
class Consumption:
    """What a task needs to know; pickled into executors."""

    database: str
    group: str
    effect: Effect
    redis: str = ""
    redis_expiry_s: int = 3600


@dataclass(frozen=True)
class Counts:
    """Messages seen; those that were new and had their effect; those that Redis knew to be done."""

    seen: int = 0
    fresh: int = 0
    known: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.seen + other.seen, self.fresh + other.fresh, self.known + other.known)


def build(messages: DataFrame) -> DataFrame:
    """The parameters that an effect may use, one row per message."""
    return messages.select(
        f.col("msgId").alias("message_id"),
        f.col("topic"),
        f.col("brokerName").alias("broker"),
        f.col("queueId").alias("queue_id"),
        f.col("queueOffset").alias("queue_offset"),
        f.coalesce("keys", f.lit("")).alias("message_keys"),
        f.coalesce("tags", f.lit("")).alias("tags"),
        f.col("body"),
        f.to_json("properties").alias("properties"),
        f.unix_millis("bornTimestamp").alias("born_at_ms"),
        f.unix_millis("storeTimestamp").alias("received_at_ms"),
    )


def consume(consumption: Consumption, rows: Iterable[Row]) -> Iterator[Counts]:
    """For mapPartitions, in an executor: carry out a partition; one count of it."""
    prefilter = None
    if consumption.redis:
        prefilter = Prefilter(consumption.redis, consumption.group, consumption.redis_expiry_s)
    totals = Counts()
    try:
        work = partial(_carry_out_chunk, consumption, prefilter)
        for database, ids, counts in carry_out(consumption.database, chunks(rows), work):
            if prefilter is not None:
                prefilter.done(database, ids)
            totals = totals + counts
    finally:
        if prefilter is not None:
            prefilter.close()
    yield totals


def _carry_out_chunk(
    consumption: Consumption, prefilter: Prefilter | None, cursor: Cursor, chunk: list[Row]
) -> tuple[str, list[str], Counts]:
    database, done = "", set[str]()
    if prefilter is not None:
        database = identity(cursor)
        done = prefilter.claim(database, [row["message_id"] for row in chunk])
    left = [{**row, "consumer_group": consumption.group} for row in chunk if row["message_id"] not in done]
    # Everybody inserts in the order of the ids: two that hold some of each other's would wait for ever.
    ordered = sorted(left, key=lambda row: row["message_id"])
    fresh = [row for row, is_new in zip(ordered, inserted(cursor, SAY.log, ordered), strict=True) if is_new]
    fresh = _confirmed(cursor, fresh)
    if fresh:
        consumption.effect(cursor, sorted(fresh, key=_place))
    return database, [row["message_id"] for row in left], Counts(len(chunk), len(fresh), len(done))


def _confirmed(cursor: Cursor, fresh: list[Row]) -> list[Row]:
    """Those that have an effect.  Their stubs are confirmed before it: who withdraws one now waits, and is too late."""
    confirmed = inserted(cursor, SAY.confirm, fresh)
    others = [row for row, is_confirmed in zip(fresh, confirmed, strict=True) if not is_confirmed]
    withdrawn = bring_a_row(cursor, SAY.withdrawn, others)
    void = {row["message_id"] for row, is_void in zip(others, withdrawn, strict=True) if is_void}
    return [row for row in fresh if row["message_id"] not in void]


def _place(row: Row) -> tuple[str, str, int, int]:
    return row["topic"], row["broker"], row["queue_id"], row["queue_offset"]


def on_batch(consumption: Consumption, batch: DataFrame, number: int) -> dict[str, int]:
    """For foreachBatch: carry it out, and say what was in it."""
    # Rows travel pickled: Spark's way by Arrow needs pandas, and the database is what takes the time.
    found = batch.rdd.map(_as_row).mapPartitions(partial(consume, consumption)).collect()
    counts = {"batch": number, **asdict(sum(found, Counts()))}
    launch.say(**counts)
    return counts


def _as_row(row: Any) -> Row:
    return dict(row.asDict())


def prepare(database: str) -> None:
    """The tables of the guarantee, where they are missing; of two that start at once the second waits."""
    carry_out_once(database, _make_tables)


def _make_tables(cursor: Cursor) -> None:
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('message_guarantee'))")
    cursor.execute("SELECT to_regclass('message_guarantee')")
    there = cursor.fetchone()
    found = 0
    if there is not None and there[0] is not None:
        cursor.execute(SAY.version)
        found = (cursor.fetchone() or (0,))[0]
    for statement in schema.create(schema.POSTGRESQL, found):
        cursor.execute(statement)


def main(arguments: Sequence[str] | None = None) -> int:
    """Consume until stopped, or with --once what is there."""
    parser = launch.reads(launch.parser(__doc__, "idempotent"))
    parser.add_argument("--group", required=True, help="the consumer group in whose name message_log is kept")
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    parser.add_argument("--effect", required=True, type=Path, help="file with one SQL statement")
    parser.add_argument("--redis", default="", help="redis://... of the pre-filter, or @FILE that holds it (none)")
    parser.add_argument("--redis-expiry", type=int, default=3600, metavar="SECONDS", help="how long Redis remembers")
    given: Any = parser.parse_args(arguments)
    effect = SqlEffect(given.effect.read_text(encoding="utf-8").strip().removesuffix(";"))
    consumption = Consumption(given.database, given.group, effect, given.redis, given.redis_expiry)
    prepare(given.database)
    if given.redis:
        Prefilter(given.redis, given.group, given.redis_expiry).close()  # its form, before anything runs
    spark = launch.session(given)
    stream = build(launch.stream(spark, given)).writeStream.foreachBatch(partial(_told, consumption))
    return launch.run(stream, given)


def _told(consumption: Consumption, batch: DataFrame, number: int) -> None:
    on_batch(consumption, batch, number)


if __name__ == "__main__":
    sys.exit(main())
