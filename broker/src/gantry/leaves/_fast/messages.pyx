# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.messages`.

`read` hands each record that is odd in any way to the pure twin, which decides whether it is a message.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from gantry.leaves import messages as pure
from gantry.leaves._fast.octets cimport put_u32, read_i64, read_u32
from gantry.leaves._fast.records cimport Parts, parts_of, topic_text
from gantry.leaves.messages import FIELDS, SYS_COMPRESSED
from gantry.leaves.records import PROPERTIES_BYTES_MAX

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object one, object name, object value) except -1
    const unsigned char* PyUnicode_1BYTE_DATA(object text)
    bint PyUnicode_IS_ASCII(object text)
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)
    str PyUnicode_DecodeUTF8(const char* at, Py_ssize_t n, const char* errors)

cdef enum:
    COMPRESSED = 1
    NAMES = 61
    HOSTS_MAX = 1024

assert SYS_COMPRESSED == COMPRESSED
cdef int PROPERTIES_MAX = PROPERTIES_BYTES_MAX

cdef str TOPIC, BODY, PROPERTIES, QUEUE_ID, QUEUE_OFFSET, LOG_OFFSET, SIZE, FLAG, SYS_FLAG, BORN_MS, BORN_HOST
cdef str STORE_MS, STORE_HOST, RECONSUME_TIMES, PREPARED_OFFSET, OFFSET_MESSAGE_ID, BROKER_NAME, DECODE_ERROR
(
    TOPIC, BODY, PROPERTIES, QUEUE_ID, QUEUE_OFFSET, LOG_OFFSET, SIZE, FLAG, SYS_FLAG, BORN_MS, BORN_HOST,
    STORE_MS, STORE_HOST, RECONSUME_TIMES, PREPARED_OFFSET, OFFSET_MESSAGE_ID, BROKER_NAME, DECODE_ERROR,
) = FIELDS

# Messages of one topic have the same few properties and hosts: the strings made before are nearly always the next ones.
cdef list names = [""] * NAMES
cdef dict hosts = {}


cdef str _name(const unsigned char* at, Py_ssize_t n):
    cdef Py_ssize_t slot = (n * 31 + at[n - 1] * 7 + at[n >> 1]) % NAMES
    cdef str found = <str>names[slot]
    if len(found) == n and memcmp(PyUnicode_1BYTE_DATA(found), at, <size_t>n) == 0:
        return found
    found = PyUnicode_DecodeUTF8(<const char*>at, n, "replace")
    if PyUnicode_IS_ASCII(found):
        names[slot] = found
    return found


cdef dict _parsed(const unsigned char* at, const unsigned char* end):
    """All pairs as text; `leaves.properties.parse`."""
    cdef dict pairs = {}
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
        if mark != NULL and mark != at and mark + 1 != stop:
            pairs[_name(at, mark - at)] = PyUnicode_DecodeUTF8(<const char*>mark + 1, stop - mark - 1, "replace")
        at = stop + 1
    return pairs


cdef str _host(const unsigned char* at, Py_ssize_t n, host_text):
    cdef bytes raw = PyBytes_FromStringAndSize(<const char*>at, n)
    cdef object found = hosts.get(raw)
    if found is None:
        if len(hosts) >= HOSTS_MAX:
            hosts.clear()
        found = hosts[raw] = host_text(raw)
    return <str>found


cdef str _place(const unsigned char* host, Py_ssize_t host_bytes, const unsigned char* log_offset):
    """The offset message id: a host of 8 or 20 bytes and a log offset, in hex."""
    cdef char text[56]
    cdef Py_ssize_t i, n = 0
    cdef unsigned char byte
    for i in range(host_bytes + 8):
        byte = host[i] if i < host_bytes else log_offset[i - host_bytes]
        text[n] = b"0123456789ABCDEF"[byte >> 4]
        text[n + 1] = b"0123456789ABCDEF"[byte & 15]
        n += 2
    return PyUnicode_DecodeASCII(text, n, NULL)


cdef object _message(const unsigned char* p, Parts* parts, object new, object make, object host_text, str broker_name):
    cdef Py_ssize_t born = parts.born_bytes, store = parts.store_bytes
    cdef object one = new(make)
    PyObject_GenericSetAttr(one, TOPIC, topic_text(p + parts.topic_at, parts.topic_bytes))
    PyObject_GenericSetAttr(one, BODY, PyBytes_FromStringAndSize(<const char*>p + parts.body_at, parts.body_bytes))
    PyObject_GenericSetAttr(one, PROPERTIES, _parsed(p + parts.properties_at, p + parts.size))
    PyObject_GenericSetAttr(one, QUEUE_ID, <int>read_u32(p + 12))
    PyObject_GenericSetAttr(one, QUEUE_OFFSET, read_i64(p + 20))
    PyObject_GenericSetAttr(one, LOG_OFFSET, read_i64(p + 28))
    PyObject_GenericSetAttr(one, SIZE, parts.size)
    PyObject_GenericSetAttr(one, FLAG, <int>read_u32(p + 16))
    PyObject_GenericSetAttr(one, SYS_FLAG, <int>read_u32(p + 36))
    PyObject_GenericSetAttr(one, BORN_MS, read_i64(p + 40))
    PyObject_GenericSetAttr(one, BORN_HOST, _host(p + 48, born, host_text))
    PyObject_GenericSetAttr(one, STORE_MS, read_i64(p + 48 + born))
    PyObject_GenericSetAttr(one, STORE_HOST, _host(p + 56 + born, store, host_text))
    PyObject_GenericSetAttr(one, RECONSUME_TIMES, <int>read_u32(p + 56 + born + store))
    PyObject_GenericSetAttr(one, PREPARED_OFFSET, read_i64(p + 60 + born + store))
    PyObject_GenericSetAttr(one, OFFSET_MESSAGE_ID, _place(p + 56 + born, store, p + 28))
    PyObject_GenericSetAttr(one, BROKER_NAME, broker_name)
    PyObject_GenericSetAttr(one, DECODE_ERROR, "")
    return one


def read(data, Py_ssize_t at, long long bytes_max, make, host_text, str broker_name):
    """The good records with uncompressed bodies from data[at] on as messages; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* base
    cdef Parts parts
    cdef list found = [], odd
    cdef Py_ssize_t end, before
    cdef object new = make.__new__
    PyObject_GetBuffer(data, &memory, PyBUF_SIMPLE)
    try:
        base = <const unsigned char*>memory.buf
        end = memory.len
        if at < 0:
            raise ValueError(f"messages: {at} of {end} bytes")
        while at < end and bytes_max > 0:
            if parts_of(base + at, end - at, True, &parts):
                if read_u32(base + at + 36) & COMPRESSED:
                    break
                found.append(_message(base + at, &parts, new, make, host_text, broker_name))
                bytes_max -= parts.body_bytes
                at += parts.size
                continue
            before = at
            odd, at = pure.read(data, at, 1, make, host_text, broker_name)
            found += odd
            if at == before:
                break
            for one in odd:
                bytes_max -= len(one.body)
    finally:
        PyBuffer_Release(&memory)
    return found, at


def join(batch):
    """The body of a batch; see the pure twin."""
    cdef list parts = list(batch)
    cdef Py_ssize_t total = 0, body_bytes, own_bytes
    cdef bytes body, properties, joined
    cdef unsigned char* at
    for flag, body, properties in parts:
        if PyBytes_GET_SIZE(properties) > PROPERTIES_MAX or not -0x80000000 <= flag <= 0x7FFFFFFF:
            return pure.join(parts)  # says what is wrong
        total += 22 + PyBytes_GET_SIZE(body) + PyBytes_GET_SIZE(properties)
    joined = PyBytes_FromStringAndSize(NULL, total)
    at = <unsigned char*>PyBytes_AS_STRING(joined)
    for flag, body, properties in parts:
        body_bytes, own_bytes = PyBytes_GET_SIZE(body), PyBytes_GET_SIZE(properties)
        at = put_u32(at, <unsigned int>(22 + body_bytes + own_bytes))
        at = put_u32(at, 0)
        at = put_u32(at, 0)
        at = put_u32(at, <unsigned int><int>flag)
        at = put_u32(at, <unsigned int>body_bytes)
        memcpy(at, PyBytes_AS_STRING(body), <size_t>body_bytes)
        at += body_bytes
        at[0] = <unsigned char>(own_bytes >> 8)
        at[1] = <unsigned char>own_bytes
        memcpy(at + 2, PyBytes_AS_STRING(properties), <size_t>own_bytes)
        at += 2 + own_bytes
    return joined
