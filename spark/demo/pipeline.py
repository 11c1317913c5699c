"""The streaming job of the demonstration: raw orders to Parquet, revenue per minute of the shop's day to a database.

    python pipeline.py --namesrv HOST:PORT --folder DIR

Two queries over the topic Orders, each with a checkpoint of its own:

    archive    every message into Parquet, by Spark's file sink: its list of files decides what is in the archive
    revenue    orders and cents per minute (update mode: each batch brings the minutes that changed, with their new
               sums), written by foreachBatch in one transaction of SQLite, together with the number of the batch

A batch whose number is in the database was committed before the driver was killed; it is left alone.  Spark repeats a
batch from the offsets that it logged before it began, so the same messages are in it.  SQLite is written by the driver
alone; executors that write want a database server (pyspark_gantrymq.jobs.idempotent).

Progress goes to stdout, a line of JSON after each batch.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_gantrymq.jobs import archive, launch

TOPIC = "Orders"
_TABLES = """
CREATE TABLE IF NOT EXISTS revenue (minute TEXT PRIMARY KEY, orders INTEGER, cents INTEGER);
CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY);
"""
_UPSERT = """
INSERT INTO revenue VALUES (?, ?, ?)
ON CONFLICT (minute) DO UPDATE SET orders = excluded.orders, cents = excluded.cents
"""


def build(orders: DataFrame) -> DataFrame:
    """Orders and cents per minute of the day on which they were placed."""
    order = f.from_json(f.decode("body", "UTF-8"), "placed_at string, quantity string, unit_price_cents string")
    placed = orders.select(order.alias("order"))
    return placed.groupBy(f.substring("order.placed_at", 1, 5).alias("minute")).agg(
        f.count("*").alias("orders"),
        f.sum(f.col("order.quantity").cast("long") * f.col("order.unit_price_cents").cast("long")).alias("cents"),
    )


def write(database: Path, batch: DataFrame, number: int) -> None:
    """One batch, once."""
    rows = [tuple(row) for row in batch.collect()]
    with closing(sqlite3.connect(database)) as connection:
        with connection:
            is_new = connection.execute("INSERT OR IGNORE INTO batches VALUES (?)", (number,)).rowcount == 1
            if is_new:
                connection.executemany(_UPSERT, rows)
        counted = connection.execute("SELECT coalesce(sum(orders), 0) FROM revenue").fetchone()[0]
    launch.say(batch=number, counted=counted, repeated=0 if is_new else 1)


def counted_before(database: Path) -> int:
    """What earlier runs have counted: after them there may be nothing left to do."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(_TABLES)
        (counted,) = connection.execute("SELECT coalesce(sum(orders), 0) FROM revenue").fetchone()
    return int(counted)


def main() -> int:
    """Until somebody ends it, or a query fails."""
    parser = launch.parser(__doc__, "pipeline")
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    given: Any = parser.parse_args()
    given.start, given.option, given.subscribe = "earliest", [], TOPIC
    database: Path = given.folder / "revenue.db"
    before = counted_before(database)
    spark = launch.session(given)
    revenue = build(launch.stream(spark, given)).writeStream.outputMode("update")
    raw = archive.build(launch.stream(spark, given))
    writers = {
        "revenue": revenue.foreachBatch(partial(write, database)),
        "archive": archive.write(raw, str(given.folder / "archive")),
    }
    for name, writer in writers.items():
        checkpoint = str(given.folder / "checkpoints" / name)
        writer.queryName(name).option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()
    print("ready", flush=True)
    launch.say(counted=before)
    spark.streams.awaitAnyTermination()
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
