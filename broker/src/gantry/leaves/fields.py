"""Header fields as typed values: what counts as a number or a boolean, and which hot requests are well-formed.

Header values are text, whatever the client wrote (`leaves.headers` coerces).  The grammar, for every code:

    integer   an optional sign, then one or more ASCII digits, no blanks; the value has to fit the field, i32 or i64
    boolean   "true" in any case of letters, or "1": true.  Every other text: false, as in Java's Boolean.parseBoolean

C++ clients write booleans as 0 and 1; Java would read that 1 as false, we do not, because the client meant true.

A send is well-formed when its eight mandatory fields are there and its numbers are integers that fit; an optional
number may be missing or empty, but not ill-typed.  Code 10 names its fields in full, 310 and 320 by letters; names of
the other kind are unknown fields.  A pull is well-formed under the same rules with nine mandatory fields, the end of a
transaction with four.
"""

from __future__ import annotations

import re
from operator import itemgetter

from gantry.leaves.properties import scan
from gantry.leaves.requests import End, Pull, Send

I32_MIN, I32_MAX = -(2**31), 2**31 - 1
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

HOT_CODES = frozenset({10, 11, 37, 310, 320, 361})
_SEND_LONG_CODE = 10
_PULL_CODES = frozenset({11, 361})
_END_CODE = 37

_INTEGER = re.compile("([+-]?)0*([0-9]{1,19})")
# Fewer digits than these always fit; the short cut for nearly every number that comes.
_I32_DIGITS_SURE = 10
_I64_DIGITS_SURE = 19

# The mandatory fields come in one look-up, in the order in which they are unpacked below; the optional ones by name.
_SEND_LONG = itemgetter(
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag"
)
_SEND_LETTERS = itemgetter("a", "b", "c", "d", "e", "f", "g", "h")
_SEND_LONG_OPTIONAL = ("properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch")
_SEND_LETTERS_OPTIONAL = ("i", "j", "k", "l", "m")
_PULL = itemgetter(
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
)
_END = itemgetter("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback")


class _IllTypedError(Exception):
    """A field of a hot request is not what it has to be; never leaves this module."""


def integer(text: str, low: int = I64_MIN, high: int = I64_MAX) -> int | None:
    """Return the integer that this text writes; None when it is no integer or lies outside [low, high]."""
    if len(text) < _I64_DIGITS_SURE and text.isascii() and text.isdigit():
        value = int(text)
    else:
        match = _INTEGER.fullmatch(text)
        if match is None:
            return None
        value = int(match[1] + match[2])
    return value if low <= value <= high else None


def boolean(text: str) -> bool:
    """Return True for "true", in any case of letters, and for "1"; False for every other text."""
    return text == "true" or text == "1" or text.lower() == "true"


def hot_request(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    serialization: int,
    ext: dict[str, str],
    body: bytes,
) -> Send | Pull | End | None:
    """The Send, Pull or End of a request with one of HOT_CODES, or None when it is not well-formed."""
    read = _end if code == _END_CODE else _pull if code in _PULL_CODES else _send
    try:
        return read(code, language, version, opaque, flag, serialization, ext, body)
    except (KeyError, _IllTypedError):
        return None


def _send(
    code: int, language: int, version: int, opaque: int, flag: int, serialization: int, ext: dict[str, str], body: bytes
) -> Send:
    if code == _SEND_LONG_CODE:
        mandatory, optional = _SEND_LONG, _SEND_LONG_OPTIONAL
    else:
        mandatory, optional = _SEND_LETTERS, _SEND_LETTERS_OPTIONAL
    group, topic, default_topic, default_queues, queue_id, sys_flag, born_ms, user_flag = mandatory(ext)
    name_properties, name_reconsumed, name_unit, name_reconsume_max, name_batch = optional
    get = ext.get
    properties = get(name_properties, "").encode()
    traits, unique_key, keys, tags_code = scan(properties)
    return Send(
        code,
        language,
        version,
        opaque,
        flag,
        serialization,
        group,
        topic,
        default_topic,
        _i32(default_queues),
        _i32(queue_id),
        _i32(sys_flag),
        _i64(born_ms),
        _i32(user_flag),
        properties,
        _i32(get(name_reconsumed) or "0"),
        _i32(get(name_reconsume_max) or "-1"),
        boolean(get(name_unit, "")),
        boolean(get(name_batch, "")),
        body,
        traits,
        unique_key,
        keys,
        tags_code,
    )


def _pull(
    code: int, language: int, version: int, opaque: int, flag: int, serialization: int, ext: dict[str, str], body: bytes
) -> Pull:
    group, topic, queue_id, queue_offset, count_max, sys_flag, commit_offset, suspend_ms, sub_version = _PULL(ext)
    get = ext.get
    return Pull(
        code,
        language,
        version,
        opaque,
        flag,
        serialization,
        group,
        topic,
        _i32(queue_id),
        _i64(queue_offset),
        _i32(count_max),
        _i32(sys_flag),
        _i64(commit_offset),
        _i64(suspend_ms),
        get("subscription"),
        _i64(sub_version),
        get("expressionType"),
        _i32(get("maxMsgBytes") or "-1"),
    )


def _end(
    code: int, language: int, version: int, opaque: int, flag: int, serialization: int, ext: dict[str, str], body: bytes
) -> End:
    group, queue_offset, log_offset, kind = _END(ext)
    get = ext.get
    return End(
        code,
        language,
        version,
        opaque,
        flag,
        serialization,
        group,
        _i64(queue_offset),
        _i64(log_offset),
        _i32(kind),
        boolean(get("fromTransactionCheck", "")),
        get("msgId", ""),
        get("transactionId", ""),
    )


def _i32(text: str) -> int:
    if len(text) < _I32_DIGITS_SURE and text.isascii() and text.isdigit():
        return int(text)
    value = integer(text, I32_MIN, I32_MAX)
    if value is None:
        raise _IllTypedError
    return value


def _i64(text: str) -> int:
    if len(text) < _I64_DIGITS_SURE and text.isascii() and text.isdigit():
        return int(text)
    value = integer(text)
    if value is None:
        raise _IllTypedError
    return value
