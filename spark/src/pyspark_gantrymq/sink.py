"""The sink: `df.write.format("gantrymq")` and `df.writeStream.format("gantrymq")`, in Arrow batches.

    write    in executors: each row is acknowledged when it returns; transactional: each is a half of a part, whose name
             is unique
    commit   in the driver: transactional: the batch is decided at the sink's home and ended in every group; only then
             does commit return.  The first commit of a batch is final; the rows of others are dropped
    abort    in the driver: the known parts are never committed, unless the batch was; nor are those of failed tasks of
             this writer, and those that no task can be writing any more

Spark makes a writer for each batch and drops it afterwards; so nothing here is kept longer than a batch.  A part's
name says which writer it belongs to.  The owner of a batch is Spark's query, whose id is in the checkpoint: another
checkpoint that uses the same sink by mistake is refused where its batch has the number of a batch that is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.identity import ClientIdentity
from gantry.client.requests.sink_requests import UNDECIDED, OpenPartInfo, SinkBatch
from gantry.clock import SystemClock
from gantry.errors import GantryError
from gantry.leaves import properties
from gantry.transaction.batches import PROPERTY
from pyspark_gantrymq import sinkcolumns
from pyspark_gantrymq.sinkcolumns import PROPERTIES_BYTES_MAX, TRANSACTION_ROOM_BYTES, Row
from pyspark_gantrymq.sinkhome import sink_of
from pyspark_gantrymq.sinkoptions import SinkOptions, read
from pyspark_gantrymq.sinksending import SinkSender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_gantrymq")

_ABORT_S = 30.0
_GIVE_UP_S = 10.0  # of a task that has failed already


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote; `refused`: ids, topics and remarks of refused rows, when the writer `hears_refusals`."""

    part: str
    groups: tuple[str, ...]
    rows: int
    dead: int
    query: str = ""
    refused: tuple[tuple[str, str, str], ...] = ()


class _Sink:
    """The common part of both writers.  With `hears_refusals`, rows that are refused for good do not fail the task."""

    def __init__(self, options: SinkOptions, sink: SinkBatch | None, hears_refusals: bool = False) -> None:
        self._options = options
        self._sink = sink
        self._hears_refusals = hears_refusals
        self._name = uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send all rows of a partition; they are acknowledged when this returns."""
        context = TaskContext.get()
        assert context is not None, "a writer runs in a task"
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = context.getLocalProperty("streaming.sql.batchId") or ""
        part = f"{context.partitionId()}-{self._name}-{uuid4().hex}"
        one, extra, room = None, b"", PROPERTIES_BYTES_MAX
        if self._sink is not None:
            one = self._one(int(batch or -1))
            extra = _half(self._options, one, part)
            room -= TRANSACTION_ROOM_BYTES
        ids = ClientIdentity(self._options.namesrv.split(";")[0], SystemClock()).message_ids
        refused: list[tuple[str, str, str]] = []

        def told(row: Row, why: str) -> None:
            refused.append((row.message_id, row.topic, why))

        heard = told if self._hears_refusals else None
        sender, is_whole = SinkSender(self._options, query, batch, extra, refused=heard), False
        try:
            for row in chain.from_iterable(
                sinkcolumns.rows(records, self._options.topic, ids, room) for records in iterator
            ):
                sender.send(row)
            sender.finish()
            is_whole = True
        finally:
            sender.close()
            if one is not None and not is_whole:
                # Spark never gets this part's name, so it can never be committed: its halves need not wait.
                self._give_up(one, [part], _GIVE_UP_S)
        return Written(part, tuple(sorted(sender.groups)), sender.sent, sender.dead, query, tuple(refused))

    def _one(self, batch: int, written: Sequence[Written] = ()) -> SinkBatch:
        """Return the batch that is written, with its owner."""
        assert self._sink is not None, "only a transactional sink has batches"
        one = self._sink if self._sink.batch >= 0 else replace(self._sink, batch=batch)
        return replace(one, owner=one.owner or next((message.query for message in written if message.query), ""))

    def _commit(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        if self._sink is None:
            return
        written = [message for message in messages if isinstance(message, Written)]
        parts = [message.part for message in written if message.rows]
        groups = sorted({group for message in written for group in message.groups})
        one = self._one(batch, written)
        with BlockingSinks(self._options.namesrv, self._options.commit_timeout_s) as sinks:
            decision = sinks.commit(one, parts, groups)
        if not decision.is_done and set(decision.parts) != set(parts):
            log.warning("batch %d of sink %s had been committed by another run; its rows count", one.batch, one.sink)

    def _abort(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        if self._sink is None:
            return
        one, within_s = self._one(batch), min(_ABORT_S, self._options.commit_timeout_s)
        try:
            with BlockingSinks(self._options.namesrv, within_s) as sinks:
                if one.is_passing:
                    # No other query writes this sink: decided as empty, the batch is over, also for late parts.
                    sinks.commit(one, [], [])
                    return
                parts = [message.part for message in messages if isinstance(message, Written)]
                sinks.abort(one, parts)
                writers = {_writer_of(part) for part in parts} | {self._name}
                left = {found.part for found in sinks.look(one.sink)[1] if self._is_stray(one, found, writers)}
                if left:
                    sinks.abort(one, sorted(left))
        except GantryError as error:
            # The next run of the query decides the batch, and what this one wrote with it.
            log.warning("batch %d of sink %s could not be aborted now: %s", one.batch, one.sink, error)

    def _is_stray(self, one: SinkBatch, found: OpenPartInfo, writers: set[str]) -> bool:
        """Return whether a part is never committed: it is of a failed task of these writers, or of an old dead run."""
        if found.batch != one.batch or found.verdict != UNDECIDED:
            return False
        return _writer_of(found.part) in writers or found.age_ms > self._options.immunity_s * 1000

    def _give_up(self, one: SinkBatch, parts: list[str], within_s: float) -> None:
        try:
            with BlockingSinks(self._options.namesrv, min(within_s, self._options.commit_timeout_s)) as sinks:
                sinks.abort(one, parts)
        except GantryError as error:
            log.warning("parts %s of sink %s wait for the next decision: %s", ", ".join(parts), one.sink, error)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """The writer of `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Decide the batch: all tasks are done."""
        self._commit(messages, -1)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the batch: a task failed for good, or the commit did."""
        self._abort(messages, -1)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Decide a batch: all its tasks are done."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Abort a batch: a task failed for good, or the commit did, or the query was stopped."""
        self._abort(messages, batchId)


def batch_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a `df.write`; ValueError for wrong options or columns."""
    if overwrite:
        raise ValueError('a topic cannot be overwritten; use mode("append")')
    return BatchWriter(*_checked(options, schema, is_stream=False))


def stream_writer(options: dict[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a streaming query; ValueError for wrong options or columns."""
    if overwrite:
        raise ValueError('a topic cannot be overwritten; use outputMode("append") or ("update")')
    return StreamWriter(*_checked(options, schema, is_stream=True))


def _checked(options: dict[str, str], schema: StructType, is_stream: bool) -> tuple[SinkOptions, SinkBatch | None]:
    given = read(options)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    sinkcolumns.check(fields, bool(given.topic))
    return given, sink_of(given, is_stream) if given.is_transactional else None


def _writer_of(part: str) -> str:
    """Return the writer whose tasks wrote a part."""
    return part.split("-")[1] if part.count("-") > 1 else ""


def _half(options: SinkOptions, one: SinkBatch, part: str) -> bytes:
    return properties.pack(
        {
            "TRAN_MSG": "true",
            "PGROUP": options.group,
            "CHECK_IMMUNITY_TIME_IN_SECONDS": str(options.immunity_s),
            PROPERTY: f"{one.sink}/{one.batch}/{part}/{one.home}",
        }
    )
