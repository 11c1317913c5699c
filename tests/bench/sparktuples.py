"""The yardsticks of the data source: the same reader with a Python tuple a row, and a sink that is given a `Row` each.

Both are what Spark's guide shows first, and do the same work otherwise: the same offsets, tasks and pulls, the same
columns; the same message for a row, the same batches, the same pipes.  They stand nowhere but here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.types import Row, StructType

from gantry.client.blocking import BlockingPuller
from gantry.client.identity import ClientIdentity
from gantry.clock import SystemClock
from gantry.model.message import StoredMessage
from pyspark_gantrymq import columns, options, rows, sinkcolumns, sinkoptions
from pyspark_gantrymq.pulls import Task
from pyspark_gantrymq.sink import Written
from pyspark_gantrymq.sinksending import SinkSender
from pyspark_gantrymq.stream import StreamReader
from pyspark_gantrymq.survey import GROUP, queue_of

_COUNT, _BYTES = 1024, 4 << 20


class TupleReader(StreamReader):
    """As `StreamReader`, but for what a task yields."""

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:  # type: ignore[override]
        """The messages of one task, one by one."""
        assert isinstance(partition, Task)
        makers = [_maker(name) for name in self._names]
        with BlockingPuller(GROUP, nameserver=self._options.nameserver) as puller:
            for one in partition.stretches:
                at = one.start
                while at < one.end:
                    least = min(_COUNT, one.end - at)
                    found = puller.pull(queue_of(one.queue), at, count_max=least, bytes_max=_BYTES)
                    for message in found.messages:
                        yield tuple([make(message) for make in makers])
                    at += len(found.messages)


def _maker(name: str) -> Callable[[StoredMessage], object]:
    """As Spark's converter wants it: a map is a dict, a timestamp a datetime."""
    kind, value = rows._VALUES[name]
    if kind == "timestamp":
        return lambda one: datetime.fromtimestamp(value(one) / 1_000_000, UTC)  # type: ignore[operator]
    return (lambda one: one.properties) if kind.startswith("map") else value


def row_of(row: Row, topic: str, message_id: str) -> sinkcolumns.Row:
    """The message of a `Row`."""
    values: dict[str, Any] = row.asDict()
    body, pairs = values.pop("body"), values.get("properties")
    if pairs is not None:
        values["properties"] = list(pairs.items())
    return sinkcolumns._row(values, body, topic, message_id, sinkcolumns.PROPERTIES_BYTES_MAX)


class RowWriter(DataSourceStreamWriter):
    """As `StreamWriter` at least once, but for how it is given rows."""

    def __init__(self, given: sinkoptions.SinkOptions) -> None:
        self._given = given

    def write(self, iterator: Iterator[Row]) -> Written:
        """Send the rows of a partition."""
        ids = ClientIdentity(self._given.namesrv, SystemClock()).message_ids
        sender = SinkSender(self._given, "", "")
        try:
            for row in iterator:
                sender.send(row_of(row, self._given.topic, ids.next()))
            sender.finish()
        finally:
            sender.close()
        return Written(uuid4().hex, tuple(sender.groups), sender.sent, sender.dead, "")


class TupleSource(DataSource):
    """Format `gantrymq-tuples`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "gantrymq-tuples"

    def schema(self) -> str:
        """All columns."""
        return columns.ddl()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """For `spark.readStream`."""
        return TupleReader(options.parse(self.options, is_stream=True), tuple(schema.fieldNames()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        return RowWriter(sinkoptions.read(dict(self.options)))
