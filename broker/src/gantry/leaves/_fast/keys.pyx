# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `leaves.keys`; a topic that is not ASCII and a key that is not UTF-8 go to the pure code."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcpy

from gantry.leaves import keys as pure
from gantry.leaves._fast.octets cimport put_u32, put_u64, read_i64, read_u32
from gantry.leaves._fast.properties cimport is_ascii, java_hash_utf8
from gantry.leaves._fast.records cimport Entry
from gantry.leaves.keys import ENTRY, ENTRY_BYTES, FOUND, FOUND_BYTES, SLOT, SLOTS_PER_PAGE, hash_of, keys_of

cdef extern from "Python.h":
    const unsigned char* PyUnicode_1BYTE_DATA(object text)

cdef enum:
    STEP = 20
    PER_PAGE = 1024
    ROLLBACK = 0xC
    KEYS_MAX = 512

assert (ENTRY_BYTES, FOUND_BYTES, SLOTS_PER_PAGE) == (STEP, STEP, PER_PAGE)
assert pure.KEYS_MAX == KEYS_MAX


cdef inline unsigned int _go_on(unsigned int value, const unsigned char* at, Py_ssize_t length) noexcept nogil:
    """Java's hash of a text in UTF-8 that begins with what `value` is the hash of."""
    java_hash_utf8(&value, at, length)
    return value


cdef inline long long _positive(unsigned int value) noexcept nogil:
    cdef long long signed_value = <int>value
    if signed_value == -0x80000000LL:
        return 0
    return -signed_value if signed_value < 0 else signed_value


cdef int _add(bytearray found, Py_ssize_t first, unsigned int value, Entry entry) except -1:
    """Add a hash of the record whose keys begin at byte `first`, unless it is there; how many the record has then."""
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(found)
    cdef Py_ssize_t known = first  # no `range`: with a step from an enum it is an object, for each key
    cdef unsigned char* at = <unsigned char*>PyByteArray_AS_STRING(found)
    cdef unsigned int key_hash = <unsigned int>_positive(value)
    while known < size:
        if read_u32(at + known) == key_hash:
            return <int>((size - first) // STEP)
        known += STEP
    PyByteArray_Resize(found, size + STEP)
    at = <unsigned char*>PyByteArray_AS_STRING(found) + size
    at = put_u32(at, key_hash)
    at = put_u64(at, <unsigned long long>entry.log_offset)
    put_u64(at, <unsigned long long>entry.store_ms)
    return <int>((size - first) // STEP) + 1


cdef int _hash_words(bytearray found, Py_ssize_t first, Entry entry, unsigned int before) except -1:
    """The words of KEYS, blanks between them."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(entry.keys)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(entry.keys)
    cdef const unsigned char* stop
    while at < end:
        stop = <const unsigned char*>memchr(at, c" ", <size_t>(end - at))
        if stop == NULL:
            stop = end
        if stop > at and _add(found, first, _go_on(before, at, stop - at), entry) >= KEYS_MAX:
            return 0
        at = stop + 1
    return 0


cdef inline bint _plain(bytes text) noexcept:
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef unsigned int value = 0
    return is_ascii(at, PyBytes_GET_SIZE(text)) or java_hash_utf8(&value, at, PyBytes_GET_SIZE(text))


def hashed(entries):
    """Every key of these records, in their order, packed; see the pure twin."""
    cdef bytearray found = bytearray()
    cdef Entry entry
    cdef str topic = None
    cdef bint is_plain_topic = False
    cdef Py_ssize_t n, first
    cdef unsigned int before = 0
    for entry in entries:
        if entry.topic is not topic:
            topic = entry.topic
            is_plain_topic = topic.isascii()
            if is_plain_topic:
                before = 31 * _go_on(0, PyUnicode_1BYTE_DATA(topic), len(topic)) + c"#"
        if not is_plain_topic or not _plain(entry.unique_key) or not _plain(entry.keys):
            found += pure.hashed((entry,))
        elif entry.sys_flag & ROLLBACK != ROLLBACK:
            n = PyBytes_GET_SIZE(entry.unique_key)
            first = PyByteArray_GET_SIZE(found)
            if n:
                _add(found, first, _go_on(before, <const unsigned char*>PyBytes_AS_STRING(entry.unique_key), n), entry)
            if PyBytes_GET_SIZE(entry.keys):
                _hash_words(found, first, entry, before)
    return bytes(found)


cdef unsigned char* _slot(object pages, int slot) except NULL:
    """Where this slot is; it stays there while the page keeps its size."""
    page = pages[slot // PER_PAGE]
    if not PyByteArray_Check(page) or PyByteArray_GET_SIZE(page) < slot % PER_PAGE * 4 + 4:
        raise ValueError(f"keys: page {slot // PER_PAGE} does not hold slot {slot}")
    return <unsigned char*>PyByteArray_AS_STRING(page) + slot % PER_PAGE * 4


def matches(found, long long key_hash, long long begin_ms, long long end_ms, Py_ssize_t count_max):
    """Of packed keys those with this hash and of this time, newest first; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* at
    cdef long long store_ms
    cdef Py_ssize_t number
    cdef list hits = []
    PyObject_GetBuffer(found, &memory, PyBUF_SIMPLE)
    try:
        number = memory.len // STEP
        while number > 0 and len(hits) < count_max:
            number -= 1
            at = <const unsigned char*>memory.buf + number * STEP
            if <int>read_u32(at) == key_hash:
                store_ms = read_i64(at + 12)
                if begin_ms <= store_ms <= end_ms:
                    hits.append((read_i64(at + 4), store_ms))
    finally:
        PyBuffer_Release(&memory)
    return hits


def link(found, long long begin_ms, int count, int slots, pages, older):
    """Give these keys the entry numbers from `count` on; see the pure twin."""
    cdef Py_buffer memory
    PyObject_GetBuffer(found, &memory, PyBUF_SIMPLE)
    try:
        return _link(<const unsigned char*>memory.buf, memory.len // STEP, begin_ms, count, slots, pages, older)
    finally:
        PyBuffer_Release(&memory)


cdef object _link(const unsigned char* key, Py_ssize_t keys, long long begin_ms, int count, int slots, pages, older):
    cdef bytes entries = PyBytes_FromStringAndSize(NULL, STEP * keys)
    cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(entries)
    cdef unsigned char* at
    cdef long long store_ms, seconds
    cdef int key_hash, slot, previous, fresh = 0
    cdef Py_ssize_t number
    for number in range(keys):
        key_hash = <int>read_u32(key)
        store_ms = read_i64(key + 12)
        if key_hash < 0 or slots <= 0:
            raise ValueError(f"keys: a hash of {key_hash} for {slots} slots")
        slot = key_hash % slots
        at = _slot(pages, slot)
        previous = <int>read_u32(at)
        if previous >= count:
            previous = older(previous, count)
            at = _slot(pages, slot)
        if previous < 0:
            previous = 0
        fresh += previous == 0
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 and store_ms > begin_ms else 0
        memcpy(out, key, 12)
        out = put_u32(out + 12, <unsigned int>min(seconds, 0x7FFFFFFF))
        out = put_u32(out, <unsigned int>previous)
        put_u32(at, <unsigned int>count)
        count += 1
        key += STEP
    return entries, fresh
