"""The columns of a row to be sent, and how an Arrow batch becomes messages.

    body               binary, required
    topic              string; else the option `topic`
    tags, keys         string; keys are parted by blanks
    properties         map<string,string>; names of RocketMQ's own are refused
    delayTimeLevel     int, 1 to 18: deliver later; or
    deliverTimestamp   timestamp: deliver at that instant
    shardingKey        string: rows with the same key go to the same queue, in their order
    queueId            int, brokerName string: exactly this queue, or any of this group
    flag               int, the application's own
    msgId              string: the id of a message that is sent again; else it gets a new one

A row that cannot be a message is no error here: `Row.fault` says why, and the writer sends it to the dead-letter topic
or fails.  Properties are packed here, once, with the message's id in them, so that a repeated send is the same message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from gantry.leaves import properties
from gantry.model.ids import UniqueIds
from gantry.model.message import DELAY, SHARDING_KEY, TIMER_DELIVER_MS, UNIQUE_KEY, property_fault
from gantry.model.names import topic_fault

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary",),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>",),
    "delayTimeLevel": ("int", "smallint", "tinyint"),
    "deliverTimestamp": ("timestamp",),
    "shardingKey": ("string",),
    "queueId": ("int",),
    "brokerName": ("string",),
    "flag": ("int",),
    "msgId": ("string",),
}
BODY_BYTES_MAX = 15 << 20  # a frame has 16 MiB; the broker checks the topic's own limit
PROPERTIES_BYTES_MAX = 32_767
TRANSACTION_ROOM_BYTES = 2048  # of the properties of a half: what the sink and the broker add
_LEVEL_MAX = 18
_ID_CHARACTERS_MAX = 255
_FLAG_MAX = (1 << 31) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES = frozenset({"body", "topic", "shardingKey"})
_OFTEN = _VALUES | {"properties", "tags", "keys", "msgId"}


class Row(NamedTuple):
    """One row to send; `fault` says why it cannot be a message, and then `message_id` is the given value."""

    topic: str
    body: bytes
    packed: bytes
    message_id: str
    flag: int = 0
    is_delayed: bool = False
    key: str = ""
    queue_id: int = -1
    broker: str = ""
    fault: str = ""


_made = partial(tuple.__new__, Row)  # what Row._make does, without a call of Python's for each


def check(fields: Iterable[tuple[str, str]], has_topic: bool) -> None:
    """Check the columns of the query's result, as (name, type); ValueError saying what is wrong."""
    given = dict(fields)
    for name, kind in given.items():
        if name not in COLUMNS:
            raise ValueError(f"the sink has no column {name!r}; select from {', '.join(COLUMNS)}")
        if kind not in COLUMNS[name]:
            raise ValueError(f"column {name} is {kind}; the sink wants {COLUMNS[name][0]}, cast it")
    if "body" not in given:
        raise ValueError("the sink wants a column body (binary); cast your value to binary as body")
    if "topic" not in given and not has_topic:
        raise ValueError("no topic: give the option topic or a column topic")
    if "delayTimeLevel" in given and "deliverTimestamp" in given:
        raise ValueError("delayTimeLevel and deliverTimestamp exclude each other; drop one of the columns")


def rows(batch: pa.RecordBatch, topic: str, ids: UniqueIds, room: int = PROPERTIES_BYTES_MAX) -> Iterator[Row]:
    """Yield the messages of a batch, in its order; `room` is how many bytes of properties each may have."""
    return at_once(batch, topic, ids, room) or one_by_one(batch, topic, ids, room)


def at_once(batch: pa.RecordBatch, topic: str, ids: UniqueIds, room: int) -> Iterator[Row] | None:
    """Return the rows in a fraction of the time, if they are plain and valid; else None."""
    if not _OFTEN.issuperset(batch.schema.names):
        return None
    columns = {name: _plain(batch.column(name)) for name in batch.schema.names if name in _VALUES}
    count, bodies = batch.num_rows, columns["body"]
    if batch.column("body").null_count or max(map(len, bodies), default=0) > BODY_BYTES_MAX:
        return None
    topics = [own or topic for own in columns.get("topic", [None] * count)]
    if any(topic_fault(each) for each in set(topics)):
        return None
    from pyspark_gantrymq import sinkpacking  # it imports Arrow, which checking columns does not need

    found = sinkpacking.packed(batch, ids.take(count), room)
    if found is None:
        return None
    keys = [key or "" for key in columns["shardingKey"]] if "shardingKey" in columns else repeat("")
    nothing = repeat(0), repeat(False), keys, repeat(-1), repeat(""), repeat("")
    return map(_made, zip(topics, bodies, *found, *nothing, strict=False))


def one_by_one(batch: pa.RecordBatch, topic: str, ids: UniqueIds, room: int) -> Iterator[Row]:
    """Yield the rows, one by one, valid or not."""
    columns = {name: _plain(batch.column(name)) for name in batch.schema.names}
    bodies = columns.pop("body")
    for at, body in enumerate(bodies):
        yield _row({name: values[at] for name, values in columns.items()}, body, topic, ids.next(), room)


def _plain(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _row(values: dict[str, object], body: object, default_topic: str, message_id: str, room: int) -> Row:
    topic = str(values.get("topic") or default_topic)
    given_id = values.get("msgId")
    message_id, id_fault = _message_id(given_id, message_id)
    pairs, fault = _pairs(values)
    when, delay_fault = _delay(values)
    packed = properties.pack(pairs | when | {UNIQUE_KEY: message_id})
    queue_id, flag = values.get("queueId"), values.get("flag")
    if not isinstance(body, bytes):
        body, fault = b"", "the body is null"
    if len(packed) > room:
        fault = fault or f"properties of {len(packed)} bytes, {room} are allowed"
        packed = properties.pack({UNIQUE_KEY: message_id})
    if isinstance(queue_id, int) and queue_id < 0:
        fault = fault or f"queueId {queue_id} is none"
    if isinstance(flag, int) and not -_FLAG_MAX <= flag <= _FLAG_MAX:
        fault = fault or f"flag {flag} is too large"
    return Row(
        topic,
        body,
        packed,
        str(given_id) if id_fault else message_id,
        flag if isinstance(flag, int) else 0,
        bool(when),
        str(values.get("shardingKey") or ""),
        queue_id if isinstance(queue_id, int) else -1,
        str(values.get("brokerName") or ""),
        fault or id_fault or delay_fault or topic_fault(topic) or _too_long(body) or "",
    )


def _message_id(given: object, new: str) -> tuple[str, str]:
    """Return the given id or the new one, and why the given one cannot be used."""
    if not given:
        return new, ""
    text = str(given)
    if len(text) > _ID_CHARACTERS_MAX or any(character in text for character in "\x01\x02"):
        return new, f"msgId {text[:40]!r} is no id: {_ID_CHARACTERS_MAX} characters at most, neither 0x01 nor 0x02"
    return text, ""


def _pairs(values: dict[str, object]) -> tuple[dict[str, str], str]:
    """Return properties, tags, keys and sharding key that may be stored, and what is wrong with the others."""
    pairs: dict[str, str] = {}
    faults = []
    given = values.get("properties") or ()
    assert isinstance(given, (list, tuple))
    for name, text in given:
        fault = f"property {str(name)[:40]!r} is null" if text is None else property_fault(name, text)
        if fault is None:
            pairs[name] = text
        else:
            faults.append(fault)
    for name, column in (("TAGS", "tags"), ("KEYS", "keys"), (SHARDING_KEY, "shardingKey")):
        text = str(values.get(column) or "")
        if "\x01" in text or "\x02" in text:
            faults.append(f"{column} may hold neither 0x01 nor 0x02")
        elif text:
            pairs[name] = text
    return pairs, faults[0] if faults else ""


def _delay(values: dict[str, object]) -> tuple[dict[str, str], str]:
    level, instant = values.get("delayTimeLevel"), values.get("deliverTimestamp")
    if isinstance(level, int) and level:
        if not 1 <= level <= _LEVEL_MAX:
            return {}, f"delayTimeLevel {level}: expected 1 to {_LEVEL_MAX}"
        return {DELAY: str(level)}, ""
    if isinstance(instant, datetime):
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        milliseconds = round((aware - _EPOCH).total_seconds() * 1000)
        if milliseconds <= 0:
            return {}, "deliverTimestamp lies before 1970"
        return {TIMER_DELIVER_MS: str(milliseconds)}, ""
    return {}, ""


def _too_long(body: bytes) -> str | None:
    return f"a body of {len(body)} bytes fits into no frame" if len(body) > BODY_BYTES_MAX else None
