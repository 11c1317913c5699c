"""Messages as Arrow columns with exactly the types that Spark expects.

Spark compares the schema of the first batch with its own and refuses the query when a type, a name or the order
differs: timestamps are microseconds in UTC, a map's values may be null.  Clients send any number as the time at which a
message was born; what lies before 1970 or after the year 9999 becomes the nearest of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from gantry.model.message import KEYS, TAGS, StoredMessage
from pyspark_gantrymq.columns import RAW_PROPERTIES

TRANSACTION_ID = "__transactionId__"
TIME_MS_MAX = 253_402_214_400_000  # 9999-12-31: Python has no later year


def _micros(ms: int) -> int:
    """Return the time in microseconds; the nearest one that a timestamp can show, where a client sent another."""
    return min(max(ms, 0), TIME_MS_MAX) * 1000


_TYPES: dict[str, Any] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_VALUES: dict[str, tuple[str, Callable[[StoredMessage], object]]] = {
    "topic": ("string", lambda one: one.topic),
    "brokerName": ("string", lambda one: one.broker_name),
    "queueId": ("int", lambda one: one.queue_id),
    "queueOffset": ("bigint", lambda one: one.queue_offset),
    "msgId": ("string", lambda one: one.message_id),
    "keys": ("string", lambda one: one.properties.get(KEYS)),
    "tags": ("string", lambda one: one.properties.get(TAGS)),
    "body": ("binary", lambda one: one.body),
    "properties": ("map<string,string>", lambda one: list(one.properties.items())),
    RAW_PROPERTIES: ("string", lambda one: "".join([f"{k}\x01{v}\x02" for k, v in one.properties.items()])),
    "bornTimestamp": ("timestamp", lambda one: _micros(one.born_ms)),
    "storeTimestamp": ("timestamp", lambda one: _micros(one.store_ms)),
    "bornHost": ("string", lambda one: one.born_host),
    "reconsumeTimes": ("int", lambda one: one.reconsume_times),
    "flag": ("int", lambda one: one.flag),
    "sysFlag": ("int", lambda one: one.sys_flag),
    "commitLogOffset": ("bigint", lambda one: one.log_offset),
    "transactionId": ("string", lambda one: one.properties.get(TRANSACTION_ID)),
}


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns."""
    shown = ["properties" if name == RAW_PROPERTIES else name for name in names]
    return pa.schema([pa.field(one, _TYPES[_VALUES[name][0]]) for one, name in zip(shown, names, strict=True)])


def one_by_one(messages: Sequence[StoredMessage], names: Sequence[str]) -> pa.RecordBatch:
    """Return these columns of messages that are decoded already."""
    schema = schema_of(names)
    made = [[_VALUES[name][1](one) for one in messages] for name in names]
    arrays = [pa.array(values, field.type) for values, field in zip(made, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
