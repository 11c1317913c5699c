"""Resends messages whose effect in a consumer group is missing: a scan over the guarantee's tables.

    python -m pyspark_gantrymq.jobs.resend --namesrv HOST:PORT --database postgresql://... --group packing
        [--once] [--every 30] [--resends-max 5] [--backoff 60] [--backlog 0] [--void ID,ID --by NAME]

One pass: the query `missing` (gantry.guarantee.statements, five conditions), then for each delivery that it finds the
counter is raised and the next time set, with a guard on the counter, and only then the message is sent, under its own
id; its new place is written into the delivery, so that it is not missing again while it waits in a backlog.  It is sent
to its topic, whatever way was declared for the group, because a Spark source reads nothing else; the other groups know
it by their log.

This happens in portions of 32 MiB of bodies, keys and properties.  Two jobs at once share the work.  A job that dies in
between has raised the counter of messages that it did not send, or did not note the places of; they are due again after
their backoff, which doubles with each time and has `--backlog`, the time that the group is expected to be behind, on
top.  A database that does not answer is asked again in the next pass.  While no name server knows a master nothing is
claimed: an outage must not use up what may be sent again.

Deliveries that need a person are counted in each pass: refused ones, with the broker's remark on stderr (they are tried
until they are exhausted, and do not delay others), exhausted, stuck, overdue ones.  `--show-for-a-person` prints their
ids and sends nothing; `--void` withdraws messages, which are then never sent again and have no effect in any group.

`--log-kept HOURS` deletes rows of guarantee_log that no question needs, of messages that the broker stored before that;
without it the table grows for ever.  A message whose row is gone, and that has no stub here, has its effect again when
it comes again.  So choose more than the retention of the broker plus the longest replay.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gantry.client.blockingsinks import BlockingSinks
from gantry.errors import UnreachableError
from gantry.guarantee.dialects import POSTGRESQL
from gantry.guarantee.housekeeping import FORGOTTEN_MAX
from gantry.guarantee.migration import install
from gantry.guarantee.rules import next_resend_ms
from gantry.guarantee.statements import MISSING_COLUMNS, statements
from pyspark_gantrymq.jobs import launch, places
from pyspark_gantrymq.jobs.places import MessageLocation, Refusal
from pyspark_gantrymq.jobs.sendable import properties, sharding_key
from pyspark_gantrymq.jobs.transactions import Cursor, Row, carry_out, carry_out_alone, first_of, inserted

SAY = statements(POSTGRESQL)
BY = "resend job"
STUBS = "message_id string, topic string, body binary, message_keys string, tags string, properties string"
_FIELDS = [part.split()[0] for part in STUBS.split(", ")]
_LONG = [MISSING_COLUMNS.index(name) for name in ("body", "message_keys", "properties")]
# Rows travel to executors in the messages of the driver, of 128 MiB at most (spark.rpc.message.maxSize).
BYTES_MAX = 32 << 20
FORGETS_MAX = 100  # of one pass
_REFUSALS_SHOWN = 100  # of one pass
Send = Callable[[DataFrame], Sequence[MessageLocation | Refusal]]


@dataclass(frozen=True)
class ResendPolicy:
    """Settings: when a message is sent again to a group, and how many in one pass."""

    group: str
    resends_max: int = 5
    backoff_ms: int = 60_000
    backlog_ms: int = 0
    stuck_after_ms: int = 600_000
    rows_max: int = 10_000
    log_kept_ms: int = 0  # how long rows of guarantee_log are kept at least; 0: they are never deleted

    def parameters(self, now_ms: int) -> dict[str, object]:
        """Return the parameters of the statements."""
        return {
            "consumer_group": self.group,
            "resends_max": self.resends_max,
            "now_ms": now_ms,
            "before_ms": now_ms - self.stuck_after_ms,
            "rows_max": self.rows_max,
        }

    def next_ms(self, now_ms: int, attempts: int) -> int:
        """Return when a delivery is due again after its `attempts`-th resend; always after this pass."""
        return next_resend_ms(now_ms, attempts, self.backoff_ms, self.backlog_ms)


def build(stubs: DataFrame) -> DataFrame:
    """Return the messages that the sink sends for stubs."""
    written = f.from_json("properties", "map<string,string>")
    return stubs.select(
        "topic",
        "body",
        f.col("message_keys").alias("keys"),
        "tags",
        sharding_key(written),
        properties(written).alias("properties"),
        f.col("message_id").alias("msgId"),
    )


def claim(rules: ResendPolicy, now_ms: int, cursor: Cursor) -> list[Row]:
    """Claim missing deliveries by raising their counters, and return them: at most BYTES_MAX together."""
    rows = first_of(cursor, SAY.missing, rules.parameters(now_ms), BYTES_MAX, _size)
    found = [dict(zip(MISSING_COLUMNS, row, strict=True)) for row in rows]
    # In the order of their ids, so that two jobs never wait for each other.
    found.sort(key=lambda row: str(row["message_id"]))
    more = {"now_ms": now_ms, "changed_by": BY}
    wanted = [{**row, **more, "next_resend_at_ms": rules.next_ms(now_ms, row["attempts"] + 1)} for row in found]
    return [row for row, is_ours in zip(found, inserted(cursor, SAY.claim, wanted), strict=True) if is_ours]


def _size(row: tuple[Any, ...]) -> int:
    return sum(len(row[at]) for at in _LONG)


def note(claimed: Sequence[Row], found: Sequence[MessageLocation], cursor: Cursor) -> int:
    """Store the places of messages that were claimed and sent; return how many, without those sent again since."""
    now = {place.message_id: place for place in found}
    # Claimed with the count of before; in the order of their ids, as above.
    rows = [
        {**row, **asdict(now[row["message_id"]]), "copy_topic": row["topic"], "resends": row["resends"] + 1}
        for row in claimed
        if row["message_id"] in now
    ]
    return sum(inserted(cursor, SAY.moved, rows))


def _noted(claimed: Sequence[Row], cursor: Cursor, found: Sequence[MessageLocation]) -> int:
    return note(claimed, found, cursor)


def forgotten(database: str, rules: ResendPolicy, now_ms: int) -> int:
    """Delete old rows of guarantee_log in many short transactions; return how many."""
    total = 0
    for count in carry_out(database, [rules] * FORGETS_MAX, partial(forget, now_ms)):
        total += count
        if count < FORGOTTEN_MAX:
            break
    return total


def forget(now_ms: int, cursor: Cursor, rules: ResendPolicy) -> int:
    """Delete some rows of guarantee_log that are older than `log_kept_ms` and not needed; return how many."""
    cursor.execute(SAY.forget, {"consumer_group": rules.group, "before_ms": now_ms - rules.log_kept_ms})
    return cursor.rowcount


def withdraw(database: str, ids: Sequence[str], by: str = BY) -> int:
    """Withdraw messages; return how many.  The others had an effect in some group, were void, or do not exist."""
    rows = [{"message_id": each, "now_ms": _now_ms(), "changed_by": by} for each in sorted(set(ids))]
    return sum(carry_out(database, rows, _void))


def _void(cursor: Cursor, row: Row) -> int:
    changed = 0
    with cursor.connection.transaction():
        for text in SAY.void:
            cursor.execute(text, row)
        changed = cursor.rowcount
        if not changed:  # too late for some group: nothing of it
            raise psycopg.Rollback
    return changed


def for_a_person(rules: ResendPolicy, now_ms: int, cursor: Cursor) -> dict[str, list[str]]:
    """Return ids of messages that need a person for this group, by the reason."""
    found = {}
    for name, question in (("exhausted", SAY.exhausted), ("stuck", SAY.stuck), ("overdue", SAY.overdue)):
        cursor.execute(question, rules.parameters(now_ms))
        found[name] = [str(row[0]) for row in cursor.fetchall()]
    return found


def one_pass(
    spark: SparkSession, database: str, rules: ResendPolicy, now_ms: int, send: Send
) -> dict[str, int]:
    """Run one pass: claim, send and store the places, a bounded number of bytes at a time; return the counts."""
    refusals: list[Refusal] = []
    sent = 0
    while sent < rules.rows_max:
        left = replace(rules, rows_max=rules.rows_max - sent)
        (claimed,) = carry_out(database, [left], lambda cursor, each: claim(each, now_ms, cursor))
        if not claimed:
            break
        sent += len(claimed)
        rows = [tuple(row[name] for name in _FIELDS) for row in claimed]
        found = send(build(spark.createDataFrame(rows, STUBS)))
        stored = [each for each in found if isinstance(each, MessageLocation)]
        refusals += [each for each in found if isinstance(each, Refusal)]
        list(carry_out(database, [stored], partial(_noted, claimed)))
    for refusal in refusals[:_REFUSALS_SHOWN]:
        print(f"message {refusal.message_id} is refused: {refusal.why}", file=sys.stderr, flush=True)
    (people,) = carry_out(database, [rules], lambda cursor, each: for_a_person(each, now_ms, cursor))
    pruned = {"forgotten": forgotten(database, rules, now_ms)} if rules.log_kept_ms else {}
    counts = {**pruned, "sent": sent - len(refusals), "refused": len(refusals)}
    return {**counts, **{name: len(ids) for name, ids in people.items()}}


def prepare(database: str, group: str, may_migrate: bool) -> None:
    """Create missing tables; tables of version 1 are a MigrationError unless they may be migrated."""
    carry_out_alone(
        database, lambda connection: install(connection, POSTGRESQL, _now_ms(), (), group, may_migrate)
    )


def check_masters(nameservers: str) -> None:
    """Raise UnreachableError while no name server knows a group with a master: nothing could be sent."""
    with BlockingSinks(nameservers) as brokers:
        if not brokers.cluster().masters():
            raise UnreachableError(f"no group that is registered at {nameservers} has a master")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one pass with --once (exit code 1 when something was refused), else one per period, until stopped."""
    parser = launch.sends(launch.parser(__doc__, "resend"))
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    parser.add_argument("--group", required=True, help="the consumer group whose log says what arrived")
    parser.add_argument("--once", action="store_true", help="one pass")
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--resends-max", type=int, default=5)
    parser.add_argument("--backoff", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--backlog", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--stuck-after", type=int, default=600, metavar="SECONDS")
    parser.add_argument("--rows-max", type=int, default=10_000, help="sent in one pass at most (10000)")
    parser.add_argument("--log-kept", type=int, default=0, metavar="HOURS", help="delete rows of older messages")
    parser.add_argument("--migrate", action="store_true", help="migrate tables of version 1, whose writers end with it")
    parser.add_argument("--show-for-a-person", action="store_true")
    parser.add_argument("--void", metavar="ID,ID", help="withdraw these messages, and send nothing")
    parser.add_argument("--by", default=BY, metavar="NAME", help="who withdraws them")
    return repeat(parser.parse_args(arguments))


def repeat(given: Any) -> int:
    """Do what the arguments say; return the exit code."""
    times = (given.backoff * 1000, given.backlog * 1000, given.stuck_after * 1000)
    rules = ResendPolicy(given.group, given.resends_max, *times, given.rows_max, given.log_kept * 3_600_000)
    prepare(given.database, given.group, given.migrate)
    if given.show_for_a_person:
        (people,) = carry_out(given.database, [rules], lambda cursor, each: for_a_person(each, _now_ms(), cursor))
        launch.say(**people)
        return 0
    if given.void:
        launch.say(void=withdraw(given.database, given.void.split(","), given.by))
        return 0
    spark = launch.session(given)
    options = {"gantrymq.namesrv": given.namesrv, **launch.pairs(given.option)}

    def send(messages: DataFrame) -> Sequence[MessageLocation | Refusal]:
        return places.send(messages, options)

    while True:
        try:
            check_masters(given.namesrv)
            counts = one_pass(spark, given.database, rules, _now_ms(), send)
        except (psycopg.OperationalError, UnreachableError) as error:
            if given.once:
                raise
            who = "the database" if isinstance(error, psycopg.OperationalError) else "the cluster"
            print(f"{who} does not answer, the next pass tries again: {error}", file=sys.stderr, flush=True)
        else:
            launch.say(**counts)
            if given.once:
                return 1 if counts["refused"] else 0
        time.sleep(given.every)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
