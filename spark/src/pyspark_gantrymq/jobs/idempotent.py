"""Idempotent consumption: every message has its business effect in PostgreSQL exactly once, written by the executors.

    python -m pyspark_gantrymq.jobs.idempotent --namesrv HOST:PORT --subscribe Orders --group revenue
        --database postgresql://... --effect effect.sql --checkpoint DIR [--once] [--redis redis://...]
        [--declare Orders] [--migrate]

For each chunk of a partition one transaction: a row of `guarantee_log` per message, and the effect for those whose row
was inserted.  The delivery to this group, if the producer keeps its stubs in this database, is confirmed; a message
that is withdrawn, closed or confirmed already has no effect.  Whatever repeats a message (a task tried again, a batch
replayed after SIGKILL, a COMMIT whose answer was lost, two jobs at once, a producer that sent it twice) finds the row
there and does nothing.  Messages of a queue keep their order within a batch.

The effect is one statement of SQL whose parameters are the columns of `build`, or, from a program, any function of a
cursor and messages that can be pickled: `run(spark, source, consumption, ...)`.

A message that the effect refuses (a value that is no number, a constraint) is kept in `message_refused`, with its
bytes and the database's error, and has no effect; the others of its chunk have theirs.  It is counted in each batch's
`refused`, and its delivery is open as before.  Once the reason is gone, delete its rows of `message_refused` and
`guarantee_log` and send it again, which `resend` does where there is a stub.  With `--fail-on-refusal` it fails the
query instead, and nothing of the chunk remains.  Other errors of the effect (a missing table) always fail the query.

With Redis (`--redis`) a message that is done already needs no transaction; the database still decides (`prefilter`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gantry.guarantee import rules
from gantry.guarantee.dialects import POSTGRESQL, rendered
from gantry.guarantee.migration import GroupOfTopic, install
from gantry.guarantee.statements import statements
from pyspark_gantrymq.jobs import launch, texts
from pyspark_gantrymq.jobs.prefilter import Prefilter, identity
from pyspark_gantrymq.jobs.transactions import (
    Connection,
    Cursor,
    Row,
    answers,
    carry_out,
    carry_out_alone,
    chunks,
    inserted,
)

SAY = statements(POSTGRESQL)
BY = "idempotent job"
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
KEEP = rendered(
    f"INSERT INTO message_refused ({_KEPT}) VALUES ({', '.join(f':{name}' for name in _KEPT.split(', '))})\n"
    "ON CONFLICT (consumer_group, message_id) DO NOTHING",
    POSTGRESQL.style,
)
KEPT = rendered(
    "SELECT message_id FROM message_refused WHERE consumer_group = :consumer_group AND message_id = ANY(:ids)",
    POSTGRESQL.style,
)
Effect = Callable[[Cursor, Sequence[Row]], None]


@dataclass(frozen=True)
class SqlEffect:
    """One SQL statement, executed for every message with its columns as parameters (`:message_id`)."""

    text: str

    def __call__(self, cursor: Cursor, messages: Sequence[Row]) -> None:
        cursor.executemany(rendered(self.text, POSTGRESQL.style), messages)


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
    # Of all rows: when, and who, for the audit columns of deliveries.
    common = {"consumer_group": consumption.group, "now_ms": time.time_ns() // 1_000_000, "changed_by": BY}
    left = [{**row, **common} for row in chunk if row["message_id"] not in done]
    # All tasks insert in the order of the ids: otherwise two transactions could wait for each other for ever.
    ordered = sorted(left, key=lambda row: row["message_id"])
    fresh = [row for row, is_new in zip(ordered, inserted(cursor, SAY.log, ordered), strict=True) if is_new]
    fresh, confirmed = _confirmed(cursor, fresh)
    refused = _carry_out_effects(consumption, cursor, sorted(fresh, key=_place)) if fresh else []
    # A delivery that stays confirmed means that there was an effect: it could not be withdrawn or sent again.
    cursor.executemany(SAY.revert, [row for row in refused if row["message_id"] in confirmed])
    cursor.executemany(SAY.refuse, refused)
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
    """Confirm deliveries; return the messages that may have an effect, and the ids of those confirmed now.

    This comes before the effect: withdrawing one of them now waits, and is too late unless the effect is refused.
    """
    looked = list(zip(fresh, inserted(cursor, SAY.confirm, fresh), strict=True))
    others = [row for row, is_confirmed in looked if not is_confirmed]
    verdicts = zip(others, answers(cursor, SAY.verdict, others), strict=True)
    forbidden = {row["message_id"] for row, verdict in verdicts if not rules.may_have_effect(verdict)}
    # Their log rows stay, and no later copy takes them for an effect.
    cursor.executemany(SAY.refuse, [row for row in others if row["message_id"] in forbidden])
    confirmed = {row["message_id"] for row, is_confirmed in looked if is_confirmed}
    return [row for row in fresh if row["message_id"] not in forbidden], confirmed


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


def prepare(database: str, group: str = "", topics: Sequence[str] = (), may_migrate: bool = False) -> None:
    """Create missing tables of the guarantee, and declare that the messages of `topics` are for `group`.

    Tables of version 1 are a MigrationError unless they may be migrated.  Of two jobs that start at once the second
    waits.
    """
    # A Spark source reads the topic and no retry topic, so that is the way of a resend.
    groups = [GroupOfTopic(topic, group, "topic") for topic in topics]
    now_ms = time.time_ns() // 1_000_000

    def make(connection: Connection) -> None:
        install(connection, POSTGRESQL, now_ms, groups, group, may_migrate)
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('message_guarantee'))")
            cursor.execute(_REFUSED)

    carry_out_alone(database, make)


def main(arguments: Sequence[str] | None = None) -> int:
    """Consume until stopped, or with --once what is there; return the exit code."""
    parser = launch.reads(launch.parser(__doc__, "idempotent"))
    parser.add_argument("--group", required=True, help="the consumer group in whose name guarantee_log is kept")
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    parser.add_argument("--effect", required=True, type=Path, help="file with one SQL statement")
    parser.add_argument("--redis", default="", help="redis://... of the pre-filter, or @FILE that holds it (none)")
    parser.add_argument("--redis-expiry", type=int, default=3600, metavar="SECONDS", help="how long Redis remembers")
    parser.add_argument("--fail-on-refusal", action="store_true", help="do not keep refused messages in a table")
    parser.add_argument("--declare", default="", metavar="TOPIC,TOPIC", help="stubs of these topics expect the group")
    parser.add_argument("--migrate", action="store_true", help="migrate tables of version 1, whose writers end with it")
    given: Any = parser.parse_args(arguments)
    effect = SqlEffect(given.effect.read_text(encoding="utf-8").strip().removesuffix(";"))
    redis = given.redis, given.redis_expiry
    consumption = Consumption(given.database, given.group, effect, *redis, keeps_refused=not given.fail_on_refusal)
    prepare(given.database, given.group, [each for each in given.declare.split(",") if each], given.migrate)
    if given.redis:
        Prefilter(given.redis, given.group, given.redis_expiry).close()  # its form, before anything runs
    spark = launch.session(given)
    stream = build(launch.stream(spark, given)).writeStream.foreachBatch(partial(_told, consumption))
    return launch.run(stream, given)


def _told(consumption: Consumption, batch: DataFrame, number: int) -> None:
    on_batch(consumption, batch, number)


if __name__ == "__main__":
    sys.exit(main())
