"""A run of `replay` at the sink: one batch, which is delivered as a whole, or closed so that none of it ever is.

    no letter is refused       the batch is committed               delivered
    one is refused for good    its number is decided to be empty    closed; the refused letter is returned
    the run fails otherwise    the same                             closed; the error is returned
    brokers do not answer      nothing is known                     an error; the next start repeats it

A run is closed by committing the empty batch in the name of another owner.  The first commit of a number is final and
keeps its owner, and another owner is refused.  So the owner that is accepted tells the outcome of a run, however often
it is asked, also after a driver that was killed before it got the answer.  Late letters of a closed run are refused.

With `mode=at-least-once` there are no batches: what is not refused is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from gantry.client.blockingsinks import BlockingSinks
from gantry.client.requests.sink_requests import SinkBatch
from gantry.errors import GantryError, RefusedError
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import sinkcolumns, sinkoptions
from pyspark_gantrymq.jobs.places import Refusal, as_row, batches
from pyspark_gantrymq.jobs.transactions import Row
from pyspark_gantrymq.sink import BatchWriter, Written
from pyspark_gantrymq.sinkhome import sink_of

_CLOSER = ".closed"
_OF_TRANSACTIONS = ("sinkId", "batchId", "owner")


@dataclass(frozen=True)
class Sent:
    """The outcome of a run; if it is not delivered, nothing of it ever is."""

    is_delivered: bool
    refused: tuple[Refusal, ...] = ()
    error: Exception | None = None


def send(messages: DataFrame, options: Mapping[str, str]) -> Sent:
    """Send a run, with the sink's options.  After an exception the outcome is unknown; the run has to be repeated."""
    if options.get("mode") == sinkoptions.AT_LEAST_ONCE:
        options = {name: text for name, text in options.items() if name not in _OF_TRANSACTIONS}
    given = sinkoptions.read(options)
    sinkcolumns.check([(field.name, field.dataType.simpleString()) for field in messages.schema.fields], has_topic=True)
    one = sink_of(given, is_stream=False) if given.is_transactional else None
    writer = BatchWriter(given, one, hears_refusals=True)
    if one is not None and _is_decided(given, one):
        return Sent(_is_delivered(given, one))
    refused: tuple[Refusal, ...] = ()
    try:
        # Rows travel pickled: Spark's way by Arrow needs pandas.
        written = messages.rdd.map(as_row).mapPartitions(partial(_written, writer)).collect()
        refused = tuple(Refusal(*each) for part in written for each in part.refused)
        if one is None or not refused:
            writer.commit(list(written))
            return Sent(True, refused)
    except (PySparkException, Py4JError, GantryError) as error:
        if one is None:
            raise
        return Sent(True) if _is_delivered(given, one, error) else Sent(False, (), error)
    return Sent(True) if _is_delivered(given, one) else Sent(False, refused)


def _written(writer: BatchWriter, rows: Iterable[Row]) -> Iterator[Written]:
    yield writer.write(batches(rows))


def _is_decided(given: sinkoptions.SinkOptions, one: SinkBatch) -> bool:
    """Return whether an interrupted run had been decided."""
    with BlockingSinks(given.namesrv, given.commit_timeout_s) as sinks:
        return sinks.decision(one).batch >= one.batch


def _is_delivered(given: sinkoptions.SinkOptions, one: SinkBatch, why: Exception | None = None) -> bool:
    """Close a batch unless it was delivered; return whether it was.  An exception (`why`, if given) if that fails."""
    try:
        with BlockingSinks(given.namesrv, given.commit_timeout_s) as sinks:
            is_closed = _is_let_in(sinks, replace(one, owner=one.owner + _CLOSER))
            is_delivered = _is_let_in(sinks, one)
    except GantryError as error:
        raise why or error from error
    if not is_closed and not is_delivered:
        raise why or GantryError(f"batch {one.batch} of sink {one.sink} belongs to another owner; use another --sink")
    return is_delivered


def _is_let_in(sinks: BlockingSinks, one: SinkBatch) -> bool:
    """Commit the batch as empty; return whether it belongs to this owner, or to none: then it is ended."""
    try:
        sinks.commit(one, [], [])
    except RefusedError as error:
        if error.code != ResponseCode.TRANSACTION_SHOULD_ROLLBACK:
            raise
        return False
    return True
