"""What clients do with many messages at a time: put several into a batch, and read the answer to a pull.

    join    the body of a batch request, which `records.split_batch` takes apart
    read    the messages of stored records, as long as there is nothing unusual about them

`read` makes objects of a class that its caller names: leaves know nothing of the model.  Damaged records and compressed
bodies are left to the caller (`wire.record`), one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, TypeVar

from gantry.errors import CorruptRecordError
from gantry.leaves.properties import parse
from gantry.leaves.records import PROPERTIES_BYTES_MAX, offset_message_id, view

__all__ = ["FIELDS", "SYS_COMPRESSED", "join", "read"]

T = TypeVar("T")

SYS_COMPRESSED = 0x1
FIELDS = (
    "topic", "body", "properties", "queue_id", "queue_offset", "log_offset", "size", "flag", "sys_flag", "born_ms",
    "born_host", "store_ms", "store_host", "reconsume_times", "prepared_offset", "offset_message_id", "broker_name",
    "decode_error",
)  # fmt: skip
"""What a message consists of that `read` returns, in this order."""

_HEAD = Struct(">iqii")  # total size, magic and crc, flag, body length
_SHORT = Struct(">h")
_HEAD_BYTES = _HEAD.size + _SHORT.size
_INT_END = 1 << 31


def join(batch: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch of (user flag, body, properties).

    OverflowError for properties that no record can hold, and for a flag of more than 32 bits.
    """
    parts: list[bytes] = []
    for flag, body, properties in batch:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise OverflowError(f"properties of {len(properties)} bytes, a record holds {PROPERTIES_BYTES_MAX}")
        if not -_INT_END <= flag < _INT_END:
            raise OverflowError(f"the flag {flag} has more than 32 bits")
        size = _HEAD_BYTES + len(body) + len(properties)
        parts += (_HEAD.pack(size, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


def read(
    data: bytes | bytearray | memoryview,
    at: int,
    bytes_max: int,
    make: Callable[..., T],
    host_text: Callable[[bytes], str],
    broker_name: str,
) -> tuple[list[T], int]:
    """The good records with uncompressed bodies from data[at] on as messages, and where the first other one begins.

    Ends also behind the body with which they all reach `bytes_max`.  `make` is a class with a slot for each of FIELDS,
    which does nothing but fill them when it is called with their values.
    """
    found: list[T] = []
    end = len(data)
    while at < end and bytes_max > 0:
        try:
            one = view(data, at, end, check_crc=True)
        except CorruptRecordError:
            break
        if one.sys_flag & SYS_COMPRESSED:
            break
        found.append(make(*_values(one, host_text, broker_name)))
        bytes_max -= len(one.body)
        at += one.size
    return found, at


def _values(one: Any, host_text: Callable[[bytes], str], broker_name: str) -> tuple[object, ...]:
    return (
        one.topic, one.body, parse(one.properties), one.queue_id, one.queue_offset, one.log_offset, one.size,
        one.flag, one.sys_flag, one.born_ms, host_text(one.born_host), one.store_ms, host_text(one.store_host),
        one.reconsume_times, one.prepared_offset, offset_message_id(one.store_host, one.log_offset), broker_name, "",
    )  # fmt: skip
