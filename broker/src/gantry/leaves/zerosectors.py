"""Properties in which a start could not tell zeros that were written from a sector that never was (`store.logscan`).

A producer may not send them (`append.admit`), but RocketMQ's broker takes them, and a record of its folder may be
delivered, committed, redelivered or moved here.  Such a copy says what its properties have been:

    GANTRY_CRC32    the last property: the CRC-32 of all bytes before it, as eight hexadecimal digits

Where it is right, zeros in the properties are what was written.
"""

from __future__ import annotations

from binascii import crc32

from gantry.leaves.properties import NAME_END, PAIR_END, UNWRITTEN

_GUARD = b"GANTRY_CRC32"
_PAIR = b"%b\x01%08x\x02"
_PAIR_BYTES = len(_PAIR % (_GUARD, 0))
# What every broker adds to each message; left out where there is no room for the checksum.
_BROKERS = frozenset({_GUARD, b"MSG_REGION", b"TRACE_ON", b"CLUSTER"})


def is_doubtful(text: bytes) -> bool:
    """Return whether a start would take a record with these properties for one that a power cut tore."""
    return (text[-1:] == b"\0" or UNWRITTEN in text) and not is_whole(text)


def is_whole(text: bytes) -> bool:
    """Return whether these properties end with their checksum, and it is right."""
    return text[-_PAIR_BYTES:] == _PAIR % (_GUARD, crc32(text[:-_PAIR_BYTES]))


def guarded(text: bytes, bytes_max: int) -> bytes:
    """Return the properties with their checksum if a start needs it to accept them, else unchanged.

    Where they would be longer than `bytes_max`, what a broker says about itself is left out.
    """
    if not is_doubtful(text):
        return text
    made = _with_checksum(text, frozenset({_GUARD}))
    return made if len(made) <= bytes_max else _with_checksum(text, _BROKERS)


def _with_checksum(text: bytes, unwanted: frozenset[bytes]) -> bytes:
    pairs = [pair for pair in text.split(PAIR_END) if pair and pair.partition(NAME_END)[0] not in unwanted]
    made = b"".join([pair + PAIR_END for pair in pairs])
    return made + _PAIR % (_GUARD, crc32(made))
