"""Idempotent consumption: every message has its business effect in PostgreSQL exactly once, written by the executors.

    python -m pyspark_gantrymq.jobs.idempotent --namesrv HOST:PORT --subscribe Orders --group revenue
        --database postgresql://... --effect effect.sql --checkpoint DIR [--once] [--redis redis://...]

For each chunk of a partition one transaction: a row of `message_log` per message, and the effect for those whose row
was inserted; the stub, if the producer keeps one in this database, is confirmed, and a message whose stub is void has
no effect.  Whatever repeats a message (a task tried again, a batch replayed after SIGKILL, a COMMIT whose answer was
lost, two jobs at once, a producer that sent it twice) finds the row there and does nothing.  Messages of a queue keep
their order within a batch.

The effect is one statement of SQL whose parameters are the columns of `build`, or, from a program, any function of a
cursor and messages that can be pickled: `run(spark, source, consumption, ...)`.

A message that the effect refuses (a value that is no number, a constraint) is kept in `message_refused`, with its
bytes and the database's error, and has no effect; the others of its chunk have theirs.  It is counted in each batch's
`refused`, and its stub is open as before.  Once the reason is gone, delete its rows of `message_refused` and
`message_log` and send it again, which `resend` does where there is a stub.  With `--fail-on-refusal` it fails the query
instead, and nothing of the chunk remains.  Other errors of the effect (a missing table) always fail the query.

With Redis (`--redis`) a message that is done already needs no transaction; the database still decides (`prefilter`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gantry.guarantee import schema
from pyspark_gantrymq.jobs import launch, texts
from pyspark_gantrymq.jobs.prefilter import Prefilter, identity
from pyspark_gantrymq.jobs.transactions import Cursor, Row, bring_a_row, carry_out, carry_out_once, chunks, inserted

SAY = schema.statements(schema.POSTGRESQL)
# What another value of the message would not have caused: bad data, a constraint, a value that no index holds.
REFUSALS = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
_REFUSED = """
CREATE TABLE IF NOT EXISTS message_refused (
    consumer_group TEXT NOT NULL,
    message_id     TEXT NOT NULL,
    topic          TEXT NOT NULL,
    broker         TEXT NOT NULL,
    queue_id       INTEGER NOT NULL,
    queue_offset   BIGINT NOT NULL,
    message_keys   TEXT NOT NULL,
    tags           TEXT NOT NULL,
    body           BYTEA NOT NULL,
    properties     TEXT,
    why            TEXT NOT NULL,
    refused_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, message_id)
)"""
_KEPT = (
    "consumer_group, message_id, topic, broker, queue_id, queue_offset, message_keys, tags, body, properties, why"
)
KEEP = schema.in_words_of(
    schema.POSTGRESQL,
    f"INSERT INTO message_refused ({_KEPT}) VALUES ({', '.join(f':{name}' for name in _KEPT.split(', '))})\n"
    "ON CONFLICT (consumer_group, message_id) DO NOTHING",
)
KEPT = schema.in_words_of(
    schema.POSTGRESQL,
    "SELECT message_id FROM message_refused WHERE consumer_group = :consumer_group AND message_id = ANY(:ids)",
)
Effect = Callable[[Cursor, Sequence[Row]], None]


@dataclass(frozen=True)
class SqlEffect:
    """One SQL statement, executed for every message with its columns as parameters (`:message_id`)."""

    text: str

    def __call__(self, cursor: Cursor, messages: Sequence[Row]) -> None:
        cursor.executemany(schema.in_words_of(schema.POSTGRESQL, self.text), messages)


@dataclass(frozen=True)
class Consumption:
    """The settings of a task; pickled into executors."""

    database: str
    group: str
    effect: Effect
    redis: str = ""
    redis_expiry_s: int = 3600
    keeps_refused: bool = False  # in `message_refused`; else they fail the task


@dataclass(frozen=True)
class Counts:
    """Messages seen; new ones that had their effect; those that Redis knew to be done; new ones that were refused."""

    seen: int = 0
    fresh: int = 0
    known: int = 0
    refused: int = 0

    def __add__(self, other: Counts) -> Counts:
        new = self.fresh + other.fresh, self.known + other.known, self.refused + other.refused
        return Counts(self.seen + other.seen, *new)


def build(messages: DataFrame) -> DataFrame:
    """Return the columns that an effect may use as parameters, one row per message."""
    return messages.select(
        texts.identifier(f.col("msgId")).alias("message_id"),
        f.col("topic"),
        f.col("brokerName").alias("broker"),
        f.col("queueId").alias("queue_id"),
        f.col("queueOffset").alias("queue_offset"),
        texts.storable(f.coalesce("keys", f.lit(""))).alias("message_keys"),
        texts.storable(f.coalesce("tags", f.lit(""))).alias("tags"),
        f.col("body"),
        f.to_json("properties").alias("properties"),
        f.unix_millis("bornTimestamp").alias("born_at_ms"),
        f.unix_millis("storeTimestamp").alias("received_at_ms"),
    )


def consume(consumption: Consumption, rows: Iterable[Row]) -> Iterator[Counts]:
    """Consume a partition, in an executor, for mapPartitions; yield its counts once."""
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
    # All tasks insert in the order of the ids: otherwise two transactions could wait for each other for ever.
    ordered = sorted(left, key=lambda row: row["message_id"])
    fresh = [row for row, is_new in zip(ordered, inserted(cursor, SAY.log, ordered), strict=True) if is_new]
    fresh, confirmed = _confirmed(cursor, fresh)
    refused = _carry_out_effects(consumption, cursor, sorted(fresh, key=_place)) if fresh else []
    # A stub that stays confirmed means that there was an effect: it could not be withdrawn or sent again.
    cursor.executemany(SAY.reopen, [row for row in refused if row["message_id"] in confirmed])
    ids = [row["message_id"] for row in left]
    if prefilter is not None and consumption.keeps_refused:
        cursor.execute(KEPT, {"consumer_group": consumption.group, "ids": ids})
        kept = {str(row[0]) for row in cursor.fetchall()}
        # Redis must let these through once their rows are deleted and they are sent again.
        ids = [each for each in ids if each not in kept]
    return database, ids, Counts(len(chunk), len(fresh) - len(refused), len(done), len(refused))


def _carry_out_effects(consumption: Consumption, cursor: Cursor, messages: list[Row]) -> list[Row]:
    """Execute the effects, all at once, and one by one if one is refused; return refused messages, which were kept."""
    if not consumption.keeps_refused:
        consumption.effect(cursor, messages)
        return []
    if not _refusal(consumption, cursor, messages):
        return []
    said = [(message, _refusal(consumption, cursor, [message])) for message in messages]
    refused = [{**message, "why": texts.without_nul(why)} for message, why in said if why]
    cursor.executemany(KEEP, refused)
    return refused


def _refusal(consumption: Consumption, cursor: Cursor, messages: list[Row]) -> str:
    """Execute the effects; return the database's error when they were refused and undone, an empty text otherwise."""
    try:
        with cursor.connection.transaction():
            consumption.effect(cursor, messages)
            # Deferred constraints are checked now: at the COMMIT they would fail the whole chunk, at every start.
            with cursor.connection.transaction(force_rollback=True):
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except REFUSALS as error:
        return str(error) or type(error).__name__
    return ""


def _confirmed(cursor: Cursor, fresh: list[Row]) -> tuple[list[Row], set[str]]:
    """Confirm stubs; return the messages that may have an effect, and the ids of the stubs that were confirmed now.

    This comes before the effect: withdrawing one of them now waits, and is too late unless the effect is refused.
    """
    looked = list(zip(fresh, inserted(cursor, SAY.confirm, fresh), strict=True))
    others = [row for row, is_confirmed in looked if not is_confirmed]
    withdrawn = bring_a_row(cursor, SAY.withdrawn, others)
    void = {row["message_id"] for row, is_void in zip(others, withdrawn, strict=True) if is_void}
    confirmed = {row["message_id"] for row, is_confirmed in looked if is_confirmed}
    return [row for row in fresh if row["message_id"] not in void], confirmed


def _place(row: Row) -> tuple[str, str, int, int]:
    return row["topic"], row["broker"], row["queue_id"], row["queue_offset"]


def on_batch(consumption: Consumption, batch: DataFrame, number: int) -> dict[str, int]:
    """Consume a batch, for foreachBatch, and return its counts."""
    # Rows travel pickled: Spark's way by Arrow needs pandas, and the database is what takes the time.
    found = batch.rdd.map(_as_row).mapPartitions(partial(consume, consumption)).collect()
    counts = {"batch": number, **asdict(sum(found, Counts()))}
    launch.say(**counts)
    return counts


def _as_row(row: Any) -> Row:
    return dict(row.asDict())


def prepare(database: str) -> None:
    """Create missing tables of the guarantee; of two jobs that start at once the second waits."""
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
    cursor.execute(_REFUSED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Consume until stopped, or with --once what is there; return the exit code."""
    parser = launch.reads(launch.parser(__doc__, "idempotent"))
    parser.add_argument("--group", required=True, help="the consumer group in whose name message_log is kept")
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    parser.add_argument("--effect", required=True, type=Path, help="file with one SQL statement")
    parser.add_argument("--redis", default="", help="redis://... of the pre-filter, or @FILE that holds it (none)")
    parser.add_argument("--redis-expiry", type=int, default=3600, metavar="SECONDS", help="how long Redis remembers")
    parser.add_argument("--fail-on-refusal", action="store_true", help="do not keep refused messages in a table")
    given: Any = parser.parse_args(arguments)
    effect = SqlEffect(given.effect.read_text(encoding="utf-8").strip().removesuffix(";"))
    redis = given.redis, given.redis_expiry
    consumption = Consumption(given.database, given.group, effect, *redis, keeps_refused=not given.fail_on_refusal)
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
