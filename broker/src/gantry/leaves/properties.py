"""Message properties as RocketMQ writes them: `name 0x01 value 0x02 name 0x01 value 0x02 ...`.

The properties of a message stay one byte string from the socket to the disk; `scan` finds the few that the broker
acts on, in one pass; the rest is not read until a client calls `parse`.  Source: RocketMQ's
`MessageDecoder`; the reading rules, to the byte (they are the same for every function here):

    The string is split at 0x02.  A pair is split at its first 0x01; a value may hold further 0x01.
    A pair without 0x01, with an empty name or with an empty value does not count.
    Of two pairs with the same name the later one counts.
    The last 0x02 may be missing (some 4.9 clients leave it out): then the string *ends open*, and has to be
    closed before a pair is appended.

Nothing here raises on hostile bytes; text that is not UTF-8 reads with replacement characters.
"""

from __future__ import annotations

from gantry.leaves.hashes import java_hash

TRAIT_DELAY = 1  # asks for delivery later: DELAY or a timer property with a value that is neither zero nor negative
TRAIT_TRANSACTION = 2  # TRAN_MSG is "true", in any case of letters
TRAIT_UNIQUE_KEY = 4  # has a UNIQ_KEY
TRAIT_WAIT_FALSE = 8  # has a WAIT that is not "true": do not wait for flush and replicas
TRAIT_REPLY = 16  # MSG_TYPE is "reply"
TRAIT_POP_CK = 32  # has a POP_CK, which only a broker may add
TRAIT_LMQ = 64  # has an INNER_MULTI_DISPATCH: asks to be put into more than one queue
TRAIT_CHECK_IMMUNITY = 128  # has a CHECK_IMMUNITY_TIME_IN_SECONDS
TRAIT_INNER_BATCH = 256  # has an INNER_NUM: several messages in one record
TRAIT_TIMER_CANCEL = 512  # has a TIMER_DEL_UNIQKEY: cancels a timer message
TRAIT_ENDS_OPEN = 1024  # the last pair lacks its 0x02
TRAIT_SHARDING_KEY = 2048  # has a __SHARDINGKEY: the order of its messages counts
TRAIT_NAMES_DELAY = 4096  # has DELAY or a TIMER_ property for a delay, whatever its value

NAME_END = b"\x01"
PAIR_END = b"\x02"
UNWRITTEN = bytes(512)
"""A sector that was never written.  A start takes properties with one for torn, unless `zerosectors` guards them."""

_CLOUD_DETAIL = 4  # of the cloud product's property, by which RocketMQ's proxy knows no delayed message
_KEYS, _TAGS, _UNIQUE_KEY, _WAIT, _TRANSACTION, _DELAY, _TYPE, _PRESENT = range(8)
_SCANNED: dict[bytes, tuple[int, int]] = {
    b"KEYS": (_KEYS, 0),
    b"TAGS": (_TAGS, 0),
    b"UNIQ_KEY": (_UNIQUE_KEY, 0),
    b"WAIT": (_WAIT, 0),
    b"TRAN_MSG": (_TRANSACTION, 0),
    b"MSG_TYPE": (_TYPE, 0),
    b"DELAY": (_DELAY, 0),
    b"TIMER_DELAY_SEC": (_DELAY, 1),
    b"TIMER_DELAY_MS": (_DELAY, 2),
    b"TIMER_DELIVER_MS": (_DELAY, 3),
    b"__STARTDELIVERTIME": (_DELAY, 4),
    b"TIMER_DEL_UNIQKEY": (_PRESENT, TRAIT_TIMER_CANCEL),
    b"POP_CK": (_PRESENT, TRAIT_POP_CK),
    b"INNER_MULTI_DISPATCH": (_PRESENT, TRAIT_LMQ),
    b"CHECK_IMMUNITY_TIME_IN_SECONDS": (_PRESENT, TRAIT_CHECK_IMMUNITY),
    b"INNER_NUM": (_PRESENT, TRAIT_INNER_BATCH),
    b"__SHARDINGKEY": (_PRESENT, TRAIT_SHARDING_KEY),
}


def scan(properties: bytes) -> tuple[int, bytes, bytes, int]:
    """Return what the broker acts on: (traits, unique key, raw KEYS, tags code).

    The tags code is the Java hash of TAGS, 0 without TAGS.  A DELAY (or timer) value counts as a request for delay
    unless it starts with `-` or consists of zeros.  A value that is no number is refused later, by the general path.
    """
    traits = 0
    unique_key = keys = b""
    tags_code = 0
    delays = 0  # one bit for each of the names that ask for delay, so that a later pair overrules only its own name
    for pair in properties.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if not value or name not in _SCANNED:
            continue
        kind, detail = _SCANNED[name]
        if kind == _UNIQUE_KEY:
            unique_key = value
        elif kind == _TAGS:
            tags_code = java_hash(value)
        elif kind == _KEYS:
            keys = value
        elif kind == _WAIT:
            traits = traits & ~TRAIT_WAIT_FALSE if value.lower() == b"true" else traits | TRAIT_WAIT_FALSE
        elif kind == _TRANSACTION:
            traits = traits | TRAIT_TRANSACTION if value.lower() == b"true" else traits & ~TRAIT_TRANSACTION
        elif kind == _TYPE:
            traits = traits | TRAIT_REPLY if value == b"reply" else traits & ~TRAIT_REPLY
        elif kind == _DELAY:
            asks = value[0] != 0x2D and value.strip(b"0") != b""
            delays = delays | 1 << detail if asks else delays & ~(1 << detail)
            if detail < _CLOUD_DETAIL:
                traits |= TRAIT_NAMES_DELAY
        else:
            traits |= detail
    if unique_key:
        traits |= TRAIT_UNIQUE_KEY
    if delays:
        traits |= TRAIT_DELAY
    if properties and properties[-1] != 2:
        traits |= TRAIT_ENDS_OPEN
    return traits, unique_key, keys, tags_code


def parse(properties: bytes | bytearray | memoryview) -> dict[str, str]:
    """All pairs as text, in their order."""
    pairs: dict[str, str] = {}
    for pair in bytes(properties).split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            pairs[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return pairs


def pack(pairs: dict[str, str]) -> bytes:
    """The byte string of these pairs, every pair closed; pairs with an empty name or value are left out.

    Raises ValueError for a name or value that holds a separator (or a lone surrogate): it would read as something else.
    """
    parts = []
    for name, value in pairs.items():
        if not name or not value:
            continue
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise ValueError(f"property {name[:40]!r}: a name or value may hold neither 0x01 nor 0x02")
        parts.append(f"{name}\x01{value}\x02")
    return "".join(parts).encode("utf-8")


def get(properties: bytes, name: bytes) -> bytes | None:
    """The value under this name, or None."""
    found = None
    for pair in properties.split(PAIR_END):
        key, _, value = pair.partition(NAME_END)
        if key == name and value:
            found = value
    return found


def pick(properties: bytes, names: tuple[bytes, ...]) -> list[bytes | None]:
    """The values under these names, in their order; None where there is none.  The names are different ones."""
    found: dict[bytes, bytes] = {}
    for pair in properties.split(PAIR_END):
        key, _, value = pair.partition(NAME_END)
        if value:
            found[key] = value
    return [found.get(name) for name in names]


def add(properties: bytes, name: bytes, value: bytes) -> bytes:
    """The byte string with one more pair at its end, after closing a string that ends open.

    The new pair overrules an earlier one of the same name.  Raises ValueError for a separator in the name or a 0x02 in
    the value, and for an empty name or value.
    """
    if not name or not value or b"\x01" in name or b"\x02" in name or b"\x02" in value:
        raise ValueError(f"property {name[:40]!r}: not a pair that can be read back")
    if properties and properties[-1] != 2:
        properties += PAIR_END
    return properties + name + NAME_END + value + PAIR_END
