# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.sendbacks`: one look at a record, one pass over its properties."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp

from gantry.leaves._fast.halves cimport Value
from gantry.leaves._fast.octets cimport put_bytes, read_i64, read_u32
from gantry.leaves._fast.properties cimport is_ascii, scan_into
from gantry.leaves._fast.records cimport Parts, parts_of, topic_text
from gantry.leaves._fast.requests cimport Send

from gantry.leaves.sendbacks import (
    ORIGIN_ID,
    ORIGIN_ID_BYTES_MAX,
    ORIGIN_TOPIC_BYTES_MAX,
    ORIGINS,
    RETRY_TOPIC,
    SPENT,
)

cdef extern from "Python.h":
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)

cdef enum:
    MINIMUM = 91  # bytes of a record
    TRANSACTION_BITS = 0xC
    # The places of the two origins, in the order of the names below; behind them what earlier rounds wrote.
    AT_TOPIC = 0
    AT_ID = 1
    NAMES = 21
    ID_BYTES_MAX = 56  # an offset message id, with an IPv6 address
    TOPIC_MAX = 255
    ORIGIN_ID_MAX = 255

assert (ORIGIN_TOPIC_BYTES_MAX, ORIGIN_ID_BYTES_MAX) == (TOPIC_MAX, ORIGIN_ID_MAX)
cdef tuple names = (RETRY_TOPIC, ORIGIN_ID, *sorted(SPENT))
assert len(names) == NAMES and not ORIGINS & SPENT and (RETRY_TOPIC, ORIGIN_ID) == (b"RETRY_TOPIC", b"ORIGIN_MESSAGE_ID")
cdef const char* name_at[NAMES]
cdef Py_ssize_t name_bytes[NAMES]
cdef int nth_name
for nth_name in range(NAMES):
    name_at[nth_name] = PyBytes_AS_STRING(names[nth_name])
    name_bytes[nth_name] = PyBytes_GET_SIZE(names[nth_name])

cdef const char* HEX = b"0123456789ABCDEF"


cdef inline int _which(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    """The place of a name among those above, or -1."""
    cdef int i
    for i in range(NAMES):
        if length == name_bytes[i] and memcmp(at, name_at[i], <size_t>length) == 0:
            return i
    return -1


cdef Py_ssize_t _message_id(const unsigned char* record, Parts* parts, unsigned char* out) noexcept nogil:
    """Write the offset message id of a record, and return its length."""
    cdef const unsigned char* host = record + 56 + parts.born_bytes
    cdef Py_ssize_t i, length = 0
    cdef unsigned char byte
    for i in range(parts.store_bytes + 8):
        byte = host[i] if i < parts.store_bytes else record[28 + i - parts.store_bytes]
        out[length] = <unsigned char>HEX[byte >> 4]
        out[length + 1] = <unsigned char>HEX[byte & 15]
        length += 2
    return length


cdef object _copy(const unsigned char* record, Parts* parts, str retry_topic):
    """The copy and its first topic, or None."""
    cdef const unsigned char* at = record + parts.properties_at
    cdef const unsigned char* end = record + parts.size
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef unsigned char own_id[ID_BYTES_MAX]
    cdef str topic = topic_text(record + parts.topic_at, parts.topic_bytes)
    cdef bint is_again = topic == retry_topic
    cdef Value first_topic = Value(record + parts.topic_at, parts.topic_bytes)
    cdef Value first_id = Value(&own_id[0], _message_id(record, parts, own_id))
    cdef Value said[2]
    cdef bytes scratch = PyBytes_FromStringAndSize(NULL, end - at + 1)
    cdef char* kept = PyBytes_AS_STRING(scratch)
    cdef char* to = kept
    cdef bytes text
    cdef Py_ssize_t kept_bytes
    cdef int which
    cdef Send send
    said[AT_TOPIC].length = said[AT_ID].length = 0
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        if stop > at:
            mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
            which = _which(at, (stop if mark == NULL else mark) - at)
            if which < 0:
                to = put_bytes(to, at, stop - at)
                to[0] = 2
                to += 1
            elif which <= AT_ID and mark != NULL and mark + 1 != stop:
                said[which].at = mark + 1
                said[which].length = stop - mark - 1
        at = stop + 1
    if is_again:
        if 0 < said[AT_TOPIC].length <= TOPIC_MAX:
            first_topic = said[AT_TOPIC]
        if 0 < said[AT_ID].length <= ORIGIN_ID_MAX:
            first_id = said[AT_ID]
        if not is_ascii(first_topic.at, first_topic.length) or not is_ascii(first_id.at, first_id.length):
            return None
    kept_bytes = to - kept
    text = PyBytes_FromStringAndSize(NULL, kept_bytes + 32 + first_topic.length + first_id.length)
    to = put_bytes(PyBytes_AS_STRING(text), kept, kept_bytes)
    to = put_bytes(to, b"RETRY_TOPIC\x01", 12)
    to = put_bytes(to, first_topic.at, first_topic.length)
    to = put_bytes(to, b"\x02ORIGIN_MESSAGE_ID\x01", 19)
    to = put_bytes(to, first_id.at, first_id.length)
    to[0] = 2
    send = Send.__new__(Send)
    send.serialization = send.opaque = send.code = send.language = send.version = 0
    send.rpc_flag = 2
    send.group = send.default_topic = ""
    send.default_queues = 4
    send.max_reconsume_times = -1
    send.unit_mode = send.batch = False
    send.topic = topic
    send.queue_id = <int>read_u32(record + 12)
    send.flag = <int>read_u32(record + 16)
    send.queue_offset = read_i64(record + 20)
    send.log_offset = read_i64(record + 28)
    send.size = <int>parts.size
    send.sys_flag = <int>read_u32(record + 36) & ~TRANSACTION_BITS
    send.born_ms = read_i64(record + 40)
    send.born_host = PyBytes_FromStringAndSize(<const char*>record + 48, parts.born_bytes)
    send.reconsume_times = <int>read_u32(record + 56 + parts.born_bytes + parts.store_bytes)
    send.prepared_offset = 0
    send.body = PyBytes_FromStringAndSize(<const char*>record + parts.body_at, parts.body_bytes)
    scan_into(send, text)
    return send, topic if not is_again else PyUnicode_DecodeASCII(<const char*>first_topic.at, first_topic.length, NULL)


def copies(memory, long long base, long long end, offsets, str retry_topic, long long bytes_max):
    """Copies of the records at these log offsets, with their first topics; see the pure twin."""
    cdef Py_buffer view
    cdef const unsigned char* record
    cdef list made = []
    cdef long long total = 0, at, log_offset
    cdef int size
    cdef object found
    cdef Parts parts
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    try:
        end = min(end - base, <long long>view.len)
        for log_offset in offsets:
            at = log_offset - base
            found = None
            if 0 <= at <= end - MINIMUM:
                record = <const unsigned char*>view.buf + at
                size = <int>read_u32(record)
                if read_i64(record + 28) == log_offset and MINIMUM <= size <= end - at:
                    total += size
                    if made and total > bytes_max:
                        break
                    if parts_of(record, <Py_ssize_t>size, False, &parts):
                        found = _copy(record, &parts, retry_topic)
            made.append(found)
    finally:
        PyBuffer_Release(&view)
    return made
