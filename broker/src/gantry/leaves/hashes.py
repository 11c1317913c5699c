"""The three hashes that stand on RocketMQ's wire and disk.

`java_hash` is Java's `String.hashCode`: over UTF-16 units, h = 31 * h + unit, modulo 2**32, read as signed.  It is the
tags code of a consume queue entry and, made non-negative, the hash of a key index entry.  `crc31` is the body checksum
of a record and the registration checksum: CRC-32 without its top bit, because Java keeps it in a positive int.

Text comes as `str` or as its UTF-8 bytes.  Bytes that are not UTF-8 count as the text that replacement of the malformed
parts gives (U+FFFD, as Java's decoder does), so no input raises.
"""

from __future__ import annotations

from struct import unpack
from zlib import crc32


def java_hash(text: str | bytes) -> int:
    """Java's `String.hashCode` of the text, between -2**31 and 2**31 - 1."""
    value = 0
    for unit in _units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def index_hash(key: str | bytes) -> int:
    """The hash of a key index entry, between 0 and 2**31 - 1; the key is `topic#key`.

    RocketMQ: Integer.MIN_VALUE has no absolute value in Java and becomes 0 (`IndexFile.indexKeyHashMethod`).
    """
    value = java_hash(key)
    return 0 if value == -0x80000000 else abs(value)


def crc31(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 without its top bit (`UtilAll.crc32`)."""
    return crc32(data) & 0x7FFFFFFF


def _units(text: str | bytes) -> bytes | tuple[int, ...]:
    """The UTF-16 units of a text; for ASCII, nearly everything, these are its bytes."""
    if text.isascii():
        return text if isinstance(text, bytes) else text.encode("ascii")
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    units = text.encode("utf-16-be", "surrogatepass")
    return unpack(f">{len(units) // 2}H", units)
