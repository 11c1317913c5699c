"""What a message that carries a number looks like on the wire, for `exchange`: keys, tags and ids follow from it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gantry.leaves import records
from testkit import rawclient


def unique(number: int) -> str:
    return f"{number:032X}"


def properties(number: int, **more: str) -> str:
    given = {"KEYS": f"k{number}", "UNIQ_KEY": unique(number), "TAGS": "B" if number % 3 else "A", **more}
    return "".join(f"{name}\x01{value}\x02" for name, value in given.items())


def send_fields(topic: str, queue_id: int, properties: str, sys_flag: int = 0) -> dict[str, str]:
    return rawclient.send_fields(topic, queue_id) | {"f": str(sys_flag), "i": properties}


def in_a_batch(body: bytes, properties: str) -> bytes:
    """One message as `MessageDecoder.encodeMessage` writes it: no magic, no checksum, no flag."""
    packed = properties.encode()
    size = 22 + len(body) + len(packed)
    return struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(packed)) + packed


def split(stored: bytes) -> Iterator[records.Record]:
    at = 0
    while at < len(stored):
        record = records.view(stored, at, len(stored))
        yield record
        at += record.size
