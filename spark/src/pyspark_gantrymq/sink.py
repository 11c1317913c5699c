"""The sink: `df.write.format("gantrymq")` and `df.writeStream.format("gantrymq")`, in Arrow batches.

    write    in executors: each row is acknowledged when it returns; transactional: each is a half of a part, whose name
             nobody uses twice
    commit   in the driver: transactional: the batch is decided at the sink's home, ended in every group, and only then
             does Spark hear that it is done.  Whoever committed the batch first has won; the rows of others are dropped
    abort    in the driver: the parts that are known are never committed, unless the batch was

Spark makes a writer for each batch and forgets it; so there is nothing here that lives longer than a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gantry.client.batchadmin import SinkBatch
from gantry.client.blockingsinks import BlockingSinks
from gantry.client.identity import Identity
from gantry.clock import SystemClock
from gantry.errors import GantryError
from gantry.leaves import properties
from gantry.transaction.batches import PROPERTY
from pyspark_gantrymq import sinkcolumns
from pyspark_gantrymq.sinkcolumns import PROPERTIES_BYTES_MAX, TRANSACTION_ROOM_BYTES
from pyspark_gantrymq.sinkhome import sink_of
from pyspark_gantrymq.sinkoptions import SinkOptions, read
from pyspark_gantrymq.sinksending import SinkSender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_gantrymq")

_ABORT_S = 30.0


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    part: str
    groups: tuple[str, ...]
    rows: int
    dead: int


class _Sink:
    """What both writers do."""

    def __init__(self, options: SinkOptions, sink: SinkBatch | None) -> None:
        self._options = options
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows of a partition; they are acknowledged when this returns."""
        context = TaskContext.get()
        assert context is not None, "a writer runs in a task"
        partition = context.partitionId()
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = context.getLocalProperty("streaming.sql.batchId") or ""
        part, extra = f"{partition}-{uuid4().hex}", b""
        room = PROPERTIES_BYTES_MAX
        if self._sink is not None:
            one = self._sink if self._sink.batch >= 0 else replace(self._sink, batch=int(batch))
            extra = _half(self._options, one, part)
            room -= TRANSACTION_ROOM_BYTES
        ids = Identity(self._options.namesrv.split(";")[0], SystemClock()).message_ids
        names = (ids.next() for _ in count())
        sender = SinkSender(self._options, query, batch, extra)
        try:
            for row in chain.from_iterable(
                sinkcolumns.rows(records, self._options.topic, names, room) for records in iterator
            ):
                sender.send(row)
            sender.finish()
        finally:
            sender.close()
        return Written(part, tuple(sorted(sender.groups)), sender.sent, sender.dead)

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        if self._sink is None:
            return
        written = [message for message in messages if isinstance(message, Written)]
        parts = [one.part for one in written if one.rows]
        groups = sorted({group for one in written for group in one.groups})
        one = self._sink if self._sink.batch >= 0 else replace(self._sink, batch=batch)
        with BlockingSinks(self._options.namesrv, self._options.commit_timeout_s) as sinks:
            decision = sinks.commit(one, parts, groups)
        if not decision.is_done and set(decision.parts) != set(parts):
            log.warning("batch %d of sink %s had been committed by another run; its rows count", one.batch, one.sink)

    def _abort(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        if self._sink is None:
            return
        parts = [message.part for message in messages if isinstance(message, Written) and message.rows]
        one = self._sink if self._sink.batch >= 0 else replace(self._sink, batch=batch)
        try:
            with BlockingSinks(self._options.namesrv, min(_ABORT_S, self._options.commit_timeout_s)) as sinks:
                sinks.abort(one, parts)
        except GantryError as error:
            # The next run of the query decides the batch, and what this one wrote with it.
            log.warning("batch %d of sink %s could not be aborted now: %s", one.batch, one.sink, error)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Of `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        self._commit(messages, -1)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good, or the commit did."""
        self._abort(messages, -1)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Of `df.writeStream`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """All tasks of a batch are done."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """A task failed for good, or the commit did, or the query was stopped."""
        self._abort(messages, batchId)


def batch_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """For a `df.write`, after everything about it was checked."""
    if overwrite:
        raise ValueError('a topic cannot be overwritten; use mode("append")')
    return BatchWriter(*_checked(options, schema, is_stream=False))


def stream_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """For a query, after everything about it was checked."""
    if overwrite:
        raise ValueError('a topic cannot be overwritten; use outputMode("append") or ("update")')
    return StreamWriter(*_checked(options, schema, is_stream=True))


def _checked(options: dict[str, str], schema: StructType, is_stream: bool) -> tuple[SinkOptions, SinkBatch | None]:
    given = read(options)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    sinkcolumns.check(fields, bool(given.topic))
    return given, sink_of(given, is_stream) if given.is_transactional else None


def _half(options: SinkOptions, one: SinkBatch, part: str) -> bytes:
    return properties.pack(
        {
            "TRAN_MSG": "true",
            "PGROUP": options.group,
            "CHECK_IMMUNITY_TIME_IN_SECONDS": str(options.immunity_s),
            PROPERTY: f"{one.sink}/{one.batch}/{part}/{one.home}",
        }
    )
