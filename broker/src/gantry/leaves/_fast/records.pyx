# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.records`: encoding runs, walking stretches of log, looking up properties.

`walk` takes what is plainly good; where anything is odd it hands the rest of the range to the pure twin, which
says why it stops.  So the reasons are worded once, and what counts as a record is decided in one place.
"""

import cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from gantry.leaves import records as pure
from gantry.leaves._fast.octets cimport put_bytes, put_u32, put_u64, read_i64, read_u32
from gantry.leaves._fast.properties cimport pick_in, is_ascii, scan_into
from gantry.leaves._fast.requests cimport Send
from gantry.leaves.records import (
    BLANK_BYTES_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_BYTES_MIN,
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    SYS_TRANSACTION_BITS,
    MalformedBatchError,
    encode_blank,
    offset_message_id,
    parse_offset_message_id,
    split_batch,
)
from gantry.leaves.properties import UNWRITTEN as _UNWRITTEN
from gantry.leaves.stored import Record
from gantry.leaves.zerosectors import is_doubtful

cdef extern from "crc.h" nogil:
    void crc_setup()
    unsigned int crc31(const unsigned char* at, size_t n)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    const unsigned char* PyUnicode_1BYTE_DATA(object text)
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)

crc_setup()

cdef enum:
    HEAD_BYTES = 88  # up to the body, both hosts IPv4
    V1_TOPIC_MAX = 127
    MINIMUM = 91
    PROPERTIES_MAX = 32767
    V6 = 0x30
    UNWRITTEN_BYTES = 512

cdef bytes UNWRITTEN = _UNWRITTEN
assert len(UNWRITTEN) == UNWRITTEN_BYTES
cdef unsigned int BLANK = <unsigned int>(<long long>MAGIC_BLANK & 0xFFFFFFFF)
cdef unsigned int V1 = <unsigned int>(<long long>MAGIC_V1 & 0xFFFFFFFF)
cdef unsigned int V2 = <unsigned int>(<long long>MAGIC_V2 & 0xFFFFFFFF)


@cython.freelist(512)
cdef class Entry:
    """Where one record stands, for which queue, under which keys; `gantry.leaves.stored.Entry`."""

    def __init__(
        self, long long log_offset, int size, str topic, int queue_id, long long queue_offset, long long tags_code,
        long long store_ms, int sys_flag, long long prepared_offset, bytes unique_key, bytes keys, bytes properties,
        long long born_ms=0,
    ):
        self.log_offset = log_offset
        self.size = size
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.tags_code = tags_code
        self.store_ms = store_ms
        self.sys_flag = sys_flag
        self.prepared_offset = prepared_offset
        self.unique_key = unique_key
        self.keys = keys
        self.properties = properties
        self.born_ms = born_ms

    def __repr__(self):
        return f"Entry({self.topic!r}/{self.queue_id} at {self.queue_offset}, log {self.log_offset}+{self.size})"


def size_of(Send send, int store_host_bytes=8):
    """How many bytes the record of this message will take."""
    return _size(send, store_host_bytes)


cdef Py_ssize_t _size(Send send, int store_host_bytes) except -1:
    cdef Py_ssize_t topic_bytes = 0
    PyUnicode_AsUTF8AndSize(send.topic, &topic_bytes)
    return (91 + PyBytes_GET_SIZE(send.body) + topic_bytes + PyBytes_GET_SIZE(send.properties)
            + (1 if topic_bytes > V1_TOPIC_MAX else 0) + (12 if len(send.born_host) == 20 else 0) + store_host_bytes - 8)


def run_bytes(sends, int store_host_bytes=8):
    """How many bytes their records will take together; see the pure twin."""
    cdef Py_ssize_t total = 0, properties_bytes
    cdef Send send
    for send in sends:
        properties_bytes = PyBytes_GET_SIZE(send.properties)
        if properties_bytes > PROPERTIES_MAX:
            raise OverflowError(f"properties of {properties_bytes} bytes, a record holds {PROPERTIES_MAX}")
        if properties_bytes and (
            PyBytes_AS_STRING(send.properties)[properties_bytes - 1] == 0
            or (properties_bytes >= UNWRITTEN_BYTES and UNWRITTEN in send.properties)
        ) and is_doubtful(send.properties):
            raise ValueError("properties with a sector of zeros and without their checksum")
        total += _size(send, store_host_bytes)
    return total


cdef Py_ssize_t _encode(unsigned char* base, Py_ssize_t at, Py_ssize_t room, long long log_offset, Send send,
                        long long store_ms, const char* store_host, Py_ssize_t store_host_bytes) except -1:
    """One record at base[at]; where it ends."""
    cdef Py_ssize_t topic_bytes = 0, size
    cdef const char* topic = PyUnicode_AsUTF8AndSize(send.topic, &topic_bytes)
    cdef Py_ssize_t body_bytes = PyBytes_GET_SIZE(send.body), properties_bytes = PyBytes_GET_SIZE(send.properties)
    cdef Py_ssize_t born_bytes = PyBytes_GET_SIZE(send.born_host)
    cdef bint long_topic = topic_bytes > V1_TOPIC_MAX
    cdef unsigned int hosts = (0x10 if born_bytes == 20 else 0) | (0x20 if store_host_bytes == 20 else 0)
    cdef unsigned char* p = base + at
    assert born_bytes == 8 or born_bytes == 20, "born_host is set before a message is stored"
    assert topic_bytes and properties_bytes <= PROPERTIES_MAX, "admission refuses what a record cannot hold"
    size = 75 + body_bytes + topic_bytes + properties_bytes + born_bytes + store_host_bytes + (1 if long_topic else 0)
    assert at + size <= room, "the encode buffer has room for the run"
    send.log_offset = log_offset
    send.size = <int>size
    p = put_u32(p, <unsigned int>size)
    p = put_u32(p, V2 if long_topic else V1)
    p = put_u32(p, crc31(<const unsigned char*>PyBytes_AS_STRING(send.body), <size_t>body_bytes))
    p = put_u32(p, <unsigned int>send.queue_id)
    p = put_u32(p, <unsigned int>send.flag)
    p = put_u64(p, <unsigned long long>send.queue_offset)
    p = put_u64(p, <unsigned long long>log_offset)
    p = put_u32(p, (<unsigned int>send.sys_flag & ~<unsigned int>V6) | hosts)
    p = put_u64(p, <unsigned long long>send.born_ms)
    p = put_bytes(p, PyBytes_AS_STRING(send.born_host), born_bytes)
    p = put_u64(p, <unsigned long long>store_ms)
    p = put_bytes(p, store_host, store_host_bytes)
    p = put_u32(p, <unsigned int>send.reconsume_times)
    p = put_u64(p, <unsigned long long>send.prepared_offset)
    p = put_u32(p, <unsigned int>body_bytes)
    p = put_bytes(p, PyBytes_AS_STRING(send.body), body_bytes)
    if long_topic:
        p[0] = <unsigned char>(topic_bytes >> 8)
        p += 1
    p[0] = <unsigned char>topic_bytes
    p = put_bytes(p + 1, topic, topic_bytes)
    p[0] = <unsigned char>(properties_bytes >> 8)
    p[1] = <unsigned char>properties_bytes
    put_bytes(p + 2, PyBytes_AS_STRING(send.properties), properties_bytes)
    return at + size


def encode_run(bytearray out, Py_ssize_t at, long long log_offset, sends, long long store_ms, bytes store_host):
    """Write the records of these messages one after the other into out[at:]; see the pure twin."""
    cdef unsigned char* base = <unsigned char*>PyByteArray_AS_STRING(out)
    cdef Py_ssize_t room = PyByteArray_GET_SIZE(out), host_bytes = PyBytes_GET_SIZE(store_host)
    cdef long long shift = log_offset - at
    cdef Send send
    assert host_bytes == 8 or host_bytes == 20
    assert 0 <= at <= room
    for send in sends:
        at = _encode(base, at, room, at + shift, send, store_ms, PyBytes_AS_STRING(store_host), host_bytes)
    return at


cdef str last_topic = ""


cdef str topic_text(const unsigned char* at, Py_ssize_t n):
    """The string of an ASCII topic; a run of records has few of them."""
    global last_topic
    if len(last_topic) != n or memcmp(PyUnicode_1BYTE_DATA(last_topic), at, <size_t>n) != 0:
        last_topic = PyUnicode_DecodeASCII(<const char*>at, n, NULL)
    return last_topic


cdef bint parts_of(const unsigned char* at, Py_ssize_t left, bint check_crc, Parts* parts) noexcept nogil:
    """Where the parts of a V1 or V2 record with an ASCII topic stand that is good in every respect; False for others."""
    cdef unsigned int size, magic, sys_flag, body_bytes
    cdef Py_ssize_t body_at = HEAD_BYTES, topic_at, topic_bytes, properties_at
    if left < MINIMUM:
        return False
    size = read_u32(at)
    magic = read_u32(at + 4)
    sys_flag = read_u32(at + 36)
    if size < MINIMUM or <Py_ssize_t>size > left or (magic != V1 and magic != V2):
        return False
    parts.born_bytes = parts.store_bytes = 8
    if sys_flag & 0x10:
        body_at += 12
        parts.born_bytes = 20
    if sys_flag & 0x20:
        body_at += 12
        parts.store_bytes = 20
    if body_at + 3 > <Py_ssize_t>size:
        return False
    body_bytes = read_u32(at + body_at - 4)
    topic_at = body_at + <Py_ssize_t>body_bytes + (1 if magic == V1 else 2)
    if topic_at > <Py_ssize_t>size or read_u32(at + 12) > 0x7FFFFFFF or read_i64(at + 20) < 0:
        return False
    topic_bytes = at[topic_at - 1]
    if magic == V2:
        topic_bytes |= <Py_ssize_t>at[topic_at - 2] << 8
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes == 0 or topic_bytes > (V1_TOPIC_MAX if magic == V1 else 32767) or properties_at > <Py_ssize_t>size:
        return False
    if properties_at + ((<Py_ssize_t>at[properties_at - 2] << 8) | at[properties_at - 1]) != <Py_ssize_t>size:
        return False
    if at[properties_at - 2] & 0x80 or not is_ascii(at + topic_at, topic_bytes):
        return False
    if check_crc and body_bytes and crc31(at + body_at, body_bytes) != read_u32(at + 8):
        return False
    parts.size = <Py_ssize_t>size
    parts.body_at = body_at
    parts.body_bytes = <Py_ssize_t>body_bytes
    parts.topic_at = topic_at
    parts.topic_bytes = topic_bytes
    parts.properties_at = properties_at
    return True


cdef Entry _entry(const unsigned char* at, Py_ssize_t left, long long log_offset, bint check_crc):
    """The entry of a record that is good in every respect and stands at this log offset, or None."""
    cdef Parts parts
    cdef Entry entry
    cdef Send scanned
    if left < MINIMUM or read_i64(at + 28) != log_offset or not parts_of(at, left, check_crc, &parts):
        return None
    scanned = Send.__new__(Send)
    scan_into(scanned, PyBytes_FromStringAndSize(<const char*>at + parts.properties_at, parts.size - parts.properties_at))
    entry = Entry.__new__(Entry)
    entry.log_offset = log_offset
    entry.size = <int>parts.size
    entry.topic = topic_text(at + parts.topic_at, parts.topic_bytes)
    entry.queue_id = <int>read_u32(at + 12)
    entry.queue_offset = read_i64(at + 20)
    entry.tags_code = scanned.tags_code
    entry.store_ms = read_i64(at + 48 + parts.born_bytes)
    entry.sys_flag = <int>read_u32(at + 36)
    entry.prepared_offset = read_i64(at + parts.body_at - 12)
    entry.unique_key = scanned.unique_key
    entry.keys = scanned.keys
    entry.properties = scanned.properties
    entry.born_ms = read_i64(at + 40)
    return entry


def view(buffer, Py_ssize_t at, Py_ssize_t end, bint check_crc=False):
    """The record that begins at buffer[at]; see the pure twin, which also says what is wrong with one."""
    cdef Py_buffer memory
    cdef const unsigned char* p
    cdef Parts parts
    cdef Py_ssize_t born, store
    cdef object found = None
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if 0 <= at and end <= memory.len:
            p = <const unsigned char*>memory.buf + at
            # Whatever log offset it says it has.
            if parts_of(p, end - at, check_crc, &parts):
                born, store = parts.born_bytes, parts.store_bytes
                found = Record(
                    <int>parts.size, <int>read_u32(p + 4), <int>read_u32(p + 8), <int>read_u32(p + 12), <int>read_u32(p + 16),
                    read_i64(p + 20), read_i64(p + 28), <int>read_u32(p + 36), read_i64(p + 40),
                    PyBytes_FromStringAndSize(<const char*>p + 48, born), read_i64(p + 48 + born),
                    PyBytes_FromStringAndSize(<const char*>p + 56 + born, store), <int>read_u32(p + 56 + born + store),
                    read_i64(p + 60 + born + store),
                    PyBytes_FromStringAndSize(<const char*>p + parts.body_at, parts.body_bytes),
                    topic_text(p + parts.topic_at, parts.topic_bytes),
                    PyBytes_FromStringAndSize(<const char*>p + parts.properties_at, parts.size - parts.properties_at),
                )
    finally:
        PyBuffer_Release(&memory)
    return pure.view(buffer, at, end, check_crc) if found is None else found


cdef Entry _as_ours(object entry):
    return Entry(
        entry.log_offset, entry.size, entry.topic, entry.queue_id, entry.queue_offset, entry.tags_code, entry.store_ms,
        entry.sys_flag, entry.prepared_offset, entry.unique_key, entry.keys, entry.properties, entry.born_ms,
    )


def walk(buffer, Py_ssize_t start, Py_ssize_t end, long long log_offset, bint check_crc, long long count_max=2**31):
    """The records from buffer[start] on, the position behind the last good one, and why the walk stopped; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* base
    cdef list entries = []
    cdef Py_ssize_t at = start
    cdef long long shift = log_offset - start
    cdef Entry entry
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        base = <const unsigned char*>memory.buf
        if not (0 <= start and end <= memory.len):
            raise ValueError(f"records: [{start}, {end}) of a buffer of {memory.len} bytes")
        while end - at >= MINIMUM and len(entries) < count_max:
            entry = _entry(base + at, end - at, at + shift, check_crc)
            if entry is None:
                break
            entries.append(entry)
            at += entry.size
    finally:
        PyBuffer_Release(&memory)
    if at == end and entries:
        return entries, at, "more" if len(entries) == count_max else "end"
    more, at, reason = pure.walk(buffer, at, end, at + shift, check_crc, max(count_max - len(entries), 0))
    entries.extend([_as_ours(odd) for odd in more])
    return entries, at, reason


def whole(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t bytes_max):
    """Where the records from buffer[start] on end, by nothing but their sizes, and why there; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* base
    cdef Py_ssize_t at = start, size
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        base = <const unsigned char*>memory.buf
        if not (0 <= start and end <= memory.len):
            raise ValueError(f"records: [{start}, {end}) of a buffer of {memory.len} bytes")
        while at < end:
            if end - at < 8:
                return at, "bad"
            if read_u32(base + at + 4) == BLANK:
                return at, "blank"
            size = <int>read_u32(base + at)
            if size < MINIMUM or size > end - at:
                return at, "bad"
            if at > start and at + size - start > bytes_max:
                break
            at += size
    finally:
        PyBuffer_Release(&memory)
    return at, ""


cdef Py_ssize_t _properties_at(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    """Where the properties of a record of exactly this size begin, or -1 when it is none; the checks are the pure twin's."""
    cdef unsigned int magic, sys_flag, body_bytes
    cdef Py_ssize_t body_at = HEAD_BYTES, topic_at, topic_bytes, properties_at
    if size < MINIMUM or <Py_ssize_t>read_u32(at) != size:
        return -1
    magic = read_u32(at + 4)
    sys_flag = read_u32(at + 36)
    if (magic != V1 and magic != V2) or read_u32(at + 12) > 0x7FFFFFFF or read_i64(at + 20) < 0:
        return -1
    if sys_flag & 0x10:
        body_at += 12
    if sys_flag & 0x20:
        body_at += 12
    if body_at > size:
        return -1
    body_bytes = read_u32(at + body_at - 4)
    topic_at = body_at + <Py_ssize_t>body_bytes + (1 if magic == V1 else 2)
    if body_bytes > 0x7FFFFFFF or topic_at > size:
        return -1
    topic_bytes = at[topic_at - 1]
    if magic == V2:
        topic_bytes |= <Py_ssize_t>at[topic_at - 2] << 8
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes == 0 or topic_bytes > (V1_TOPIC_MAX if magic == V1 else 32767) or properties_at > size:
        return -1
    if properties_at + ((<Py_ssize_t>at[properties_at - 2] << 8) | at[properties_at - 1]) != size:
        return -1
    return -1 if at[properties_at - 2] & 0x80 else properties_at


def named(buffer, long long log_start, places, tuple names):
    """Of the records at these places the values of these properties, or None; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* base
    cdef list values = []
    cdef long long log_offset
    cdef Py_ssize_t at, size, properties_at
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        base = <const unsigned char*>memory.buf
        for log_offset, size in places:
            at = <Py_ssize_t>(log_offset - log_start)
            properties_at = _properties_at(base + at, size) if 0 <= at <= memory.len - size else -1
            if properties_at < 0:
                values.append(None)
            else:
                values.append(pick_in(base + at + properties_at, base + at + size, names))
    finally:
        PyBuffer_Release(&memory)
    return values
