"""Sending messages from executors and returning the place of each, which Spark's writers cannot return.

A `df.write` reports only that all rows are done.  So this sends with the sink's own sender, at least once, from an
ordinary task that returns places.  A task that Spark repeats sends its rows again, and their last places count.  A row
that goes to the dead-letter topic has no place.  Nor has one that is refused for good: it is returned with the broker's
remark, and the others go on.  A task that finds no broker fails, as a sink's does; then nothing is known of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from gantry.client.identity import ClientIdentity
from gantry.clock import SystemClock
from gantry.model.route import MessageQueue
from pyspark_gantrymq import sinkcolumns, sinkoptions
from pyspark_gantrymq.jobs.transactions import Row, chunks
from pyspark_gantrymq.sinksending import SinkSender

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("shardingKey", pa.string()),
        ("delayTimeLevel", pa.int32()),
        ("msgId", pa.string()),
    ]
)


@dataclass(frozen=True)
class MessageLocation:
    """Where a message was stored last."""

    message_id: str
    broker: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True)
class Refusal:
    """A message that was refused for good, with the reason."""

    message_id: str
    topic: str
    why: str


def send(messages: DataFrame, options: Mapping[str, str]) -> list[MessageLocation | Refusal]:
    """Send messages with columns of `_SCHEMA`; return the result of each that did not go to the dead-letter topic."""
    given = sinkoptions.read(options)
    if given.is_transactional:
        raise ValueError("a batch that is decided as a whole does not tell its messages' places; leave out option mode")
    sinkcolumns.check([(field.name, field.dataType.simpleString()) for field in messages.schema.fields], has_topic=True)
    # Rows travel pickled: Spark's way by Arrow needs pandas.
    return list(messages.rdd.map(as_row).mapPartitions(partial(sent, given)).collect())


def sent(options: sinkoptions.SinkOptions, rows: Iterable[Row]) -> Iterator[MessageLocation | Refusal]:
    """Send a partition, in an executor, for mapPartitions; yield the results."""
    found: dict[str, MessageLocation | Refusal] = {}

    def stored(row: sinkcolumns.Row, queue: MessageQueue, offset: int) -> None:
        found[row.message_id] = MessageLocation(row.message_id, queue.broker_name, queue.queue_id, offset)

    def refused(row: sinkcolumns.Row, why: str) -> None:
        found[row.message_id] = Refusal(row.message_id, row.topic, why)

    ids = ClientIdentity(options.namesrv.split(";")[0], SystemClock()).message_ids
    sender = SinkSender(options, "", "", stored=stored, refused=refused)
    try:
        for records in batches(rows):
            for row in sinkcolumns.rows(records, options.topic, ids):
                sender.send(row)
        sender.finish()
    finally:
        sender.close()
    yield from found.values()


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield rows with some of the columns of `_SCHEMA` as Arrow batches, which the sink takes."""
    for chunk in chunks(rows):
        schema = pa.schema([field for field in _SCHEMA if field.name in chunk[0]])
        yield pa.RecordBatch.from_pylist(chunk, schema)


def as_row(row: Any) -> Row:
    """Return a row as a dictionary that can be pickled, with its properties as pairs."""
    return {**row.asDict(), "properties": list(row.properties.items())}
