"""What a row costs on its way out of Spark's columns into a request, with a broker that answers at once.

10 000 rows of 1 KiB with tags, keys and two properties: CPU of this process a row, the least of some rounds, from an
Arrow batch (the sink), and from a `Row` each, made as Spark makes it for a writer that is given rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion as Conversion
from pyspark.sql.types import BinaryType, MapType, StringType, _create_row
from sparktuples import row_of

from gantry.client.identity import ClientIdentity
from gantry.clock import SystemClock
from gantry.leaves.frames import Command, encode
from gantry.model.route import BrokerData, QueueData, TopicRoute
from gantry.wire.codes import ResponseCode
from pyspark_gantrymq import sinkcolumns, sinkoptions
from pyspark_gantrymq.sinksending import SinkSender

_ROWS, _ROUNDS = 10_000, 7
_NAMESRV = "127.0.0.1:9876"
_TYPES = {
    "body": BinaryType(),
    "tags": StringType(),
    "keys": StringType(),
    "properties": MapType(StringType(), StringType()),
}
_ROUTE = TopicRoute((QueueData("broker-a", 8, 8, 6),), (BrokerData("c", "broker-a", {0: "127.0.0.1:1"}),))


class _Answering:
    """A pipe whose broker has done everything already."""

    def __init__(self, answered: Callable[[Any, Command], None]) -> None:
        self._answered = answered

    def __len__(self) -> int:
        return 0

    def put(self, command: Command, token: object) -> None:
        encode(command)
        self._answered(token, Command(code=ResponseCode.SUCCESS))

    def drain(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


def _sender() -> SinkSender:
    sender = SinkSender(sinkoptions.read({"gantrymq.namesrv": _NAMESRV, "topic": "t"}), "", "")
    sender._session.route = lambda *_, **__: _ROUTE  # type: ignore[method-assign]
    sender._pipes["127.0.0.1:1"] = _Answering(sender._answered)  # type: ignore[assignment]
    return sender


def _from_arrow(batch: pa.RecordBatch) -> None:
    sender, ids = _sender(), ClientIdentity(_NAMESRV, SystemClock()).message_ids
    for row in sinkcolumns.rows(batch, "t", ids):
        sender.send(row)
    sender.finish()


def _from_rows(batch: pa.RecordBatch) -> None:
    sender, ids = _sender(), ClientIdentity(_NAMESRV, SystemClock()).message_ids
    makers = [Conversion._create_converter(_TYPES[name], binary_as_bytes=True) for name in batch.schema.names]
    columns = [column.to_pylist() for column in batch.columns]
    for values in zip(*columns, strict=True):
        made = [value if make is None else make(value) for make, value in zip(makers, values, strict=True)]
        sender.send(row_of(_create_row(batch.schema.names, made), "t", ids.next()))
    sender.finish()


def writing() -> list[dict[str, object]]:
    """The figure: how many times less a row costs in Arrow batches."""
    columns = [
        pa.array([bytes([97 + at % 26]) * 1024 for at in range(_ROWS)], pa.binary()),
        pa.array(["t"] * _ROWS),
        pa.array([f"k{at}" for at in range(_ROWS)]),
        pa.array([[("colour", "red"), ("shape", "round")]] * _ROWS, pa.map_(pa.string(), pa.string())),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=list(_TYPES))
    took = {}
    for write in (_from_arrow, _from_rows):
        rounds = []
        for _ in range(_ROUNDS):
            begun = time.process_time()
            write(batch)
            rounds.append(time.process_time() - begun)
        took[write] = min(rounds) / _ROWS * 1e6
    arrow, rows = took[_from_arrow], took[_from_rows]
    note = f"{arrow:.2f} us CPU a row, from rows {rows:.2f}"
    figure = "writing a row (body, tags, keys, 2 properties), without a broker, beside a row writer"
    return [{"figure": figure, "found": f"{rows / arrow:.2f}", "target": ">= 2.5", "note": note}]
