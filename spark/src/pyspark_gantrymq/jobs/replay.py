"""Dead letters that were approved are sent to their topic again: each death at most once, each message at most 3 times.

    python -m pyspark_gantrymq.jobs.replay --database postgresql://... --approve ID,ID --by NAME
    python -m pyspark_gantrymq.jobs.replay --database postgresql://... --namesrv HOST:PORT --send

Letters that may be sent have the state `approved` in `dead_letter`; it is set by a person with --approve, by plain SQL,
or by triage.  A run first marks its letters as `sending`, then sends them: to the topic where they were sent first,
under their own ids, with DLQ_REPLAYS one higher and a delay that grows with it.  Then they are `sent`.

A run has 32 MiB of bodies, keys and properties at most, and the next one follows at once while letters are approved.

Each run is one batch of a transactional sink, under its own number: all of it is delivered or nothing, and nothing
twice.  A run that was interrupted is repeated by the next one with the same letters and number, and the broker knows
whether it was delivered.  Only one run is under way at a time; a second one waits.  For brokers without such sinks
(Apache's) use `--option mode=at-least-once`: then a run that is repeated sends again, under the same ids.

A letter that can never be sent as it is (no topic, too large for it) does not delay the others: its run is closed,
which means that nothing of it is ever delivered (see `runs`).  The letter waits for a person again, with the broker's
remark in `refused`, and the others go with the next run at once.  The exit code is 1 then.

A message that dies again comes back by triage with the higher count; after the third replay it is poison.
For one group alone, without a database: `gantry dlq replay`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import launch, letters, runs
from pyspark_gantrymq.jobs.sendable import properties, sharding_key
from pyspark_gantrymq.jobs.transactions import Cursor, carry_out, connect
from pyspark_gantrymq.jobs.triage import REPLAYS, TriageRules, prepare

LETTERS = (
    "message_id string, topic string, body binary, message_keys string, tags string, properties string, replays int"
)
FIRST_DELAY_LEVEL = 3  # 10 s; one more with each replay
ROWS_MAX = 10_000
# A run is one task, and travels to it in one message of the driver, of 128 MiB at most (spark.rpc.message.maxSize).
BYTES_MAX = 32 << 20
SINK = "gantrymq-dead-letter-replay"
REFUSED_SHOWN = 100
Send = Callable[[DataFrame, int, int], runs.Sent]  # messages, the run's number, when it began


def build(approved: DataFrame) -> DataFrame:
    """Return the messages that the sink sends for letters."""
    written = f.from_json("properties", "map<string,string>")
    counted = f.col("replays") + 1
    return approved.select(
        "topic",
        "body",
        f.col("message_keys").alias("keys"),
        "tags",
        sharding_key(written),
        (f.col("replays") + FIRST_DELAY_LEVEL).cast("int").alias("delayTimeLevel"),
        # The next death has a reason of its own.
        properties(written, TriageRules.error_property, **{REPLAYS: counted}).alias("properties"),
        f.col("message_id").alias("msgId"),
    )


def approve(database: str, ids: Sequence[str], by: str, text: str = letters.APPROVE) -> int:
    """Approve or reject letters; return how many changed their state.  Only letters that may be replayed do."""

    def work(cursor: Cursor, wanted: Sequence[str]) -> int:
        changed = 0
        for message_id in sorted(wanted):
            cursor.execute(text, {"message_id": message_id, "approved_by": by})
            changed += cursor.rowcount
        return changed

    (count,) = carry_out(database, [ids], work)
    return int(count)


def take(now_ms: int, cursor: Cursor, run: int) -> tuple[list[tuple[Any, ...]], int]:
    """Mark the letters of a run as `sending`; return them and when the run began.  A repeated call returns the same."""
    cursor.execute(letters.RUN, {"run": run, "now_ms": now_ms})
    if cursor.rowcount:
        cursor.execute(letters.CLAIM, {"run": run, "rows_max": ROWS_MAX, "bytes_max": BYTES_MAX})
    cursor.execute(letters.TAKEN, {"run": run})
    taken = cursor.fetchall()
    cursor.execute(letters.BEGAN, {"run": run})
    return taken, int((cursor.fetchone() or (now_ms,))[0])


def one_run(spark: SparkSession, database: str, now_ms: int, send: Send) -> dict[str, int]:
    """Finish an interrupted run, then send approved letters; return the last run's number and counts of letters.

    `refused` letters wait for a person; each costs its run, and what was not refused goes with the next.
    """
    with connect(database) as lock:
        lock.execute(letters.LOCK)
        broken_off = [int(row[0]) for row in lock.execute(letters.OPEN).fetchall()]
        found = [_carry_out_run(spark, database, now_ms, run, send) for run in broken_off]
        repeated = sum(sent for sent, _ in found)
        refused, total, is_over = sum(count for _, count in found), 0, False
        while not is_over:
            number = int((lock.execute(letters.NEXT).fetchone() or (1,))[0])
            sent, count = _carry_out_run(spark, database, now_ms, number, send)
            refused, total = refused + count, total + sent
            is_closed = count > 0 and not sent
            is_over = not is_closed and not (sent and lock.execute(letters.WAITS).fetchone())
    return {"run": number, "sent": total, "repeated": repeated, "refused": refused}


def _carry_out_run(spark: SparkSession, database: str, now_ms: int, run: int, send: Send) -> tuple[int, int]:
    """Carry out one run; return how many letters were sent, and how many can never be; others stay approved."""
    ((taken, began_ms),) = carry_out(database, [run], partial(take, now_ms))
    sent = runs.Sent(is_delivered=True)
    if taken:
        sent = send(build(spark.createDataFrame(taken, LETTERS).coalesce(1)), run, began_ms)
    list(carry_out(database, [run], partial(_close, sent)))
    if sent.error is not None:
        raise sent.error
    assert {one.message_id for one in sent.refused} <= {row[0] for row in taken}, "or the next run has them again"
    for one in sent.refused[:REFUSED_SHOWN]:
        print(f"letter {one.message_id} for topic {one.topic!r} is refused: {one.why}", file=sys.stderr, flush=True)
    return (len(taken) - len(sent.refused)) * sent.is_delivered, len(sent.refused)


def _close(sent: runs.Sent, cursor: Cursor, run: int) -> None:
    for one in sent.refused:
        cursor.execute(letters.REFUSED, {"run": run, **asdict(one)})
    cursor.execute(letters.SENT if sent.is_delivered else letters.BACK, {"run": run})
    cursor.execute(letters.DONE, {"run": run})


def main(arguments: Sequence[str] | None = None) -> int:
    """Approve, reject or send; return 1 when letters were refused."""
    parser = launch.parser(__doc__, "replay")
    parser.add_argument("--database", required=True, help="connection string of PostgreSQL, or @FILE that holds it")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--approve", metavar="ID,ID", help="these may be sent")
    what.add_argument("--reject", metavar="ID,ID", help="these will not be sent")
    what.add_argument("--send", action="store_true", help="send what was approved")
    parser.add_argument("--by", default="", help="who approves or rejects")
    parser.add_argument("--sink", default=SINK, help=f"the sink's name, one for each database ({SINK})")
    parser.add_argument("--namesrv", metavar="HOST:PORT;HOST:PORT", help="name servers")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the sink")
    given: Any = parser.parse_args(arguments)
    prepare(given.database)
    if not given.send:
        if not given.by:
            parser.error("--approve and --reject need --by: who says so is kept")
        text, ids = (letters.REJECT, given.reject) if given.reject else (letters.APPROVE, given.approve)
        launch.say(changed=approve(given.database, ids.split(","), given.by, text))
        return 0
    if not given.namesrv:
        parser.error("--send needs --namesrv")
    spark = launch.session(given)
    now_ms = time.time_ns() // 1_000_000

    def send(rows: DataFrame, run: int, began_ms: int) -> runs.Sent:
        # Another database, or one that was set back, may have other runs with the same numbers.
        sink = {"mode": "transactional", "sinkId": given.sink, "batchId": str(run), "owner": f"run-{began_ms}"}
        return runs.send(rows, {"gantrymq.namesrv": given.namesrv, **sink, **launch.pairs(given.option)})

    counts = one_run(spark, given.database, now_ms, send)
    launch.say(**counts)
    return 1 if counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
