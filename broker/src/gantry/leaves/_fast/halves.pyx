# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.halves`: one pass over the properties, one look at a record.

What is not plain (a number that is none, text beyond ASCII, a record that is odd) the pure twin reads.
"""

from sys import intern

import cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from gantry.leaves import halves as pure
from gantry.leaves._fast.octets cimport read_i64, read_u32
from gantry.leaves._fast.properties cimport is_ascii, scan_into
from gantry.leaves._fast.requests cimport Send
from gantry.leaves.halves import (
    BATCH,
    CHECKS,
    GROUP,
    IMMUNITY,
    OURS,
    REAL_QUEUE,
    REAL_TOPIC,
    REARMED,
    ROOT,
    SINCE,
    TRANSACTION_ID,
    without,
)
from gantry.leaves.records import MAGIC_V1, MAGIC_V2
from gantry.leaves.requests import Send as PureSend

cdef extern from "Python.h":
    const unsigned char* PyUnicode_1BYTE_DATA(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)

cdef enum:
    TRAIT_TRANSACTION = 2
    TRAIT_ENDS_OPEN = 1024
    DIGITS_SURE = 19
    # The places of what is read, in the order of the names below.
    AT_ROOT = 0
    AT_TOPIC = 1
    AT_QUEUE = 2
    AT_GROUP = 3
    AT_KEY = 4
    AT_CHECKS = 5
    AT_SINCE = 6
    AT_REARMED = 7
    AT_IMMUNITY = 8
    AT_IMMUNITY_CLOUD = 9
    AT_TRANSACTION_ID = 10
    AT_BATCH = 11
    NAMES = 12
    HEAD_BYTES = 88  # of a record up to its body, both hosts IPv4
    MINIMUM = 91
    V1_TOPIC_MAX = 127

cdef tuple names = (
    ROOT, REAL_TOPIC, REAL_QUEUE, GROUP, b"UNIQ_KEY", CHECKS, SINCE, REARMED, *IMMUNITY, TRANSACTION_ID, BATCH
)
cdef const char* name_at[NAMES]
cdef Py_ssize_t name_bytes[NAMES]
cdef int number_of_name
for number_of_name in range(NAMES):
    name_at[number_of_name] = PyBytes_AS_STRING(names[number_of_name])
    name_bytes[number_of_name] = PyBytes_GET_SIZE(names[number_of_name])
assert set(OURS) == {ROOT, CHECKS, SINCE, REARMED, REAL_TOPIC, REAL_QUEUE, TRANSACTION_ID}

cdef unsigned int V1 = <unsigned int>(<long long>MAGIC_V1 & 0xFFFFFFFF)
cdef unsigned int V2 = <unsigned int>(<long long>MAGIC_V2 & 0xFFFFFFFF)
cdef tuple SEND_FIELDS = PureSend.__slots__

# A broker has few topics and groups: the last strings made are nearly always the next ones.
cdef enum:
    KNOWN = 64
cdef list known = [""] * KNOWN


cdef void _find(bytes text, Value* found) noexcept:
    """The values under the names above."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(text)
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef Py_ssize_t n
    cdef int i
    for i in range(NAMES):
        found[i].length = 0
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
        if mark != NULL and mark + 1 != stop:
            n = mark - at
            for i in range(NAMES):
                if n == name_bytes[i] and memcmp(at, name_at[i], <size_t>n) == 0:
                    found[i].at = mark + 1
                    found[i].length = stop - mark - 1
                    break
        at = stop + 1


cdef bytes _bytes(Value value):
    return PyBytes_FromStringAndSize(<const char*>value.at, value.length) if value.length else None


cdef str _text(Value value, bint is_one_of_few):
    cdef int slot
    cdef str text
    if value.length == 0:
        return ""
    if not is_ascii(value.at, value.length):
        return intern(pure._text(_bytes(value))) if is_one_of_few else pure._text(_bytes(value))
    if not is_one_of_few:
        return PyUnicode_DecodeASCII(<const char*>value.at, value.length, NULL)
    slot = <int>((value.length * 7 + value.at[value.length - 1] + value.at[value.length >> 1]) % KNOWN)
    text = <str>known[slot]
    if len(text) != value.length or memcmp(PyUnicode_1BYTE_DATA(text), value.at, <size_t>value.length) != 0:
        # The same for all that are open, also where there are more groups than slots.
        text = known[slot] = intern(PyUnicode_DecodeASCII(<const char*>value.at, value.length, NULL))
    return text


cdef long long _number(Value value, long long default) except? -1:
    cdef Py_ssize_t i
    cdef long long number = 0
    if value.length == 0:
        return default
    if value.length >= DIGITS_SURE:
        return pure._number(_bytes(value), default)
    for i in range(value.length):
        if value.at[i] < c"0" or value.at[i] > c"9":
            return pure._number(_bytes(value), default)
        number = 10 * number + value.at[i] - c"0"
    return number


@cython.freelist(64)
cdef class HalfFacts:
    """What a half record's properties say; `gantry.leaves.halves.HalfFacts`."""

    def __init__(self, bytes text, long long queue_offset):
        read_facts(self, text, queue_offset, True)


cdef int read_facts(HalfFacts facts, bytes text, long long queue_offset, bint with_key) except -1:
    """Fill in the facts; the unique key only where it is wanted."""
    cdef Value found[NAMES]
    cdef long long root, checks
    _find(text, found)
    root = _number(found[AT_ROOT], queue_offset)
    facts.root = root if 0 <= root < queue_offset else queue_offset
    facts.topic = _text(found[AT_TOPIC], True)
    facts.queue_id = _number(found[AT_QUEUE], 0)
    facts.group = _text(found[AT_GROUP], True)
    facts.unique_key = _text(found[AT_KEY], False) if with_key else ""
    checks = _number(found[AT_CHECKS], 0)
    facts.checks = checks if checks > 0 else 0
    facts.since_ms = _number(found[AT_SINCE], 0)
    facts.is_rearmed = found[AT_REARMED].length != 0
    facts.batch = _text(found[AT_BATCH], True)
    facts.immunity_ms = None
    if found[AT_IMMUNITY].length or found[AT_IMMUNITY_CLOUD].length:
        facts.immunity_ms = pure._immunity_ms([_bytes(found[AT_IMMUNITY]), _bytes(found[AT_IMMUNITY_CLOUD])])
    return 0


cdef bytes _disguised(Send send, Value* found):
    """The properties of a usual message that becomes a half, or None; `found` are its values under the names above."""
    cdef bytes text = send.properties, made
    cdef Py_ssize_t text_bytes = PyBytes_GET_SIZE(text), topic_bytes = 0, key_bytes = PyBytes_GET_SIZE(send.unique_key)
    cdef const char* wanted = PyUnicode_AsUTF8AndSize(send.topic, &topic_bytes)
    cdef char number[24]
    cdef char* at
    cdef int n = 0, i
    cdef int rest = send.queue_id
    for i in (AT_ROOT, AT_TOPIC, AT_QUEUE, AT_CHECKS, AT_SINCE, AT_REARMED, AT_TRANSACTION_ID):
        if found[i].length:
            return None
    if found[AT_GROUP].length == 0 or not send.traits & TRAIT_TRANSACTION or rest < 0:
        return None
    while rest >= 10:
        number[n] = <char>(c"0" + rest % 10)
        rest //= 10
        n += 1
    number[n] = <char>(c"0" + rest)
    made = PyBytes_FromStringAndSize(
        NULL,
        text_bytes + (1 if send.traits & TRAIT_ENDS_OPEN and text_bytes else 0) + 11 + topic_bytes + 1 + 9 + n + 1 + 1
        + (18 + key_bytes + 1 if key_bytes else 0),
    )
    at = PyBytes_AS_STRING(made)
    memcpy(at, PyBytes_AS_STRING(text), <size_t>text_bytes)
    at += text_bytes
    if send.traits & TRAIT_ENDS_OPEN and text_bytes:
        at[0] = 2
        at += 1
    memcpy(at, b"REAL_TOPIC\x01", 11)
    memcpy(at + 11, wanted, <size_t>topic_bytes)
    at += 11 + topic_bytes
    memcpy(at, b"\x02REAL_QID\x01", 10)
    at += 10
    while n >= 0:
        at[0] = number[n]
        at += 1
        n -= 1
    at[0] = 2
    at += 1
    if key_bytes:
        memcpy(at, b"__transactionId__\x01", 18)
        memcpy(at + 18, PyBytes_AS_STRING(send.unique_key), <size_t>key_bytes)
        at[18 + key_bytes] = 2
    return made


cdef int _readdress(Send send, bytes text, str topic) except -1:
    send.properties = text
    send.traits &= ~TRAIT_ENDS_OPEN
    send.topic = topic
    send.queue_id = 0
    return 0


def disguise(Send send, str topic):
    """Readdress a message to queue 0 of `topic`; see the pure twin."""
    cdef Value found[NAMES]
    cdef bytes made
    _find(send.properties, found)
    made = _disguised(send, found)
    if made is None:
        return pure.disguise(send, topic)
    _readdress(send, made, topic)


def disguise_run(sends, str topic, Py_ssize_t group_bytes_max):
    """Disguise all of these, if all are usual; see the pure twin."""
    cdef Value found[NAMES]
    cdef list texts = [], queues = []
    cdef bytes made
    cdef Py_ssize_t i
    cdef Send send
    for send in sends:
        _find(send.properties, found)
        if found[AT_GROUP].length > group_bytes_max or found[AT_BATCH].length or send.topic.startswith("%"):
            return None
        made = _disguised(send, found)
        if made is None:
            return None
        texts.append(made)
    for i, send in enumerate(sends):
        queues.append(send.queue_id)
        _readdress(send, <bytes>texts[i], topic)
    return queues


cdef Send message_of(const unsigned char* at, Py_ssize_t left):
    """The message of a V1 or V2 record with an ASCII topic that is good in every respect, or None."""
    cdef unsigned int size = read_u32(at), magic = read_u32(at + 4), sys_flag = read_u32(at + 36), body_bytes
    cdef Py_ssize_t born = 8, store = 8, body_at, topic_at, topic_bytes, properties_at
    cdef Send send
    if size < MINIMUM or <Py_ssize_t>size > left or (magic != V1 and magic != V2):
        return None
    if sys_flag & 0x10:
        born = 20
    if sys_flag & 0x20:
        store = 20
    body_at = HEAD_BYTES - 16 + born + store
    if body_at + 3 > <Py_ssize_t>size:
        return None
    body_bytes = read_u32(at + body_at - 4)
    topic_at = body_at + <Py_ssize_t>body_bytes + (1 if magic == V1 else 2)
    if topic_at > <Py_ssize_t>size or read_u32(at + 12) > 0x7FFFFFFF or read_i64(at + 20) < 0:
        return None
    topic_bytes = at[topic_at - 1]
    if magic == V2:
        topic_bytes |= <Py_ssize_t>at[topic_at - 2] << 8
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes == 0 or topic_bytes > (V1_TOPIC_MAX if magic == V1 else 32767) or properties_at > <Py_ssize_t>size:
        return None
    if properties_at + ((<Py_ssize_t>at[properties_at - 2] << 8) | at[properties_at - 1]) != <Py_ssize_t>size:
        return None
    if at[properties_at - 2] & 0x80 or not is_ascii(at + topic_at, topic_bytes):
        return None
    send = Send.__new__(Send)
    send.serialization = send.opaque = send.code = send.language = send.version = 0
    send.rpc_flag = 2
    send.group = send.default_topic = ""
    send.default_queues = 4
    send.max_reconsume_times = -1
    send.unit_mode = send.batch = False
    send.queue_offset = send.log_offset = -1
    send.size = 0
    send.topic = _text(Value(at + topic_at, topic_bytes), True)
    send.queue_id = <int>read_u32(at + 12)
    send.flag = <int>read_u32(at + 16)
    send.sys_flag = <int>sys_flag
    send.born_ms = read_i64(at + 40)
    send.born_host = PyBytes_FromStringAndSize(<const char*>at + 48, born)
    send.reconsume_times = <int>read_u32(at + 56 + born + store)
    send.prepared_offset = read_i64(at + 60 + born + store)
    send.body = PyBytes_FromStringAndSize(<const char*>at + body_at, <Py_ssize_t>body_bytes)
    scan_into(
        send, PyBytes_FromStringAndSize(<const char*>at + properties_at, <Py_ssize_t>size - properties_at)
    )
    return send


def message_at(buffer, Py_ssize_t at, Py_ssize_t end):
    """The message of the record at buffer[at]; see the pure twin, which also says what is wrong with one."""
    cdef Py_buffer memory
    cdef Send found = None
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if 0 <= at and end <= memory.len and end - at >= MINIMUM:
            found = message_of(<const unsigned char*>memory.buf + at, end - at)
    finally:
        PyBuffer_Release(&memory)
    if found is None:
        odd = pure.message_at(buffer, at, end)
        found = Send()
        for field in SEND_FIELDS:
            setattr(found, field, getattr(odd, field))
    return found
