# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twins of `scan`, `pick` and `pack` of `leaves.properties`; its other functions stay what they are."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from gantry.leaves import properties as pure
from gantry.leaves._fast.requests cimport Send
from gantry.leaves._fast.scan cimport _sequence
from gantry.leaves.hashes import java_hash
from gantry.leaves.properties import *  # noqa: F403  the same names, see gantry.leaves
from gantry.leaves.properties import NAME_END, PAIR_END, add, get, parse

cdef enum:
    DELAY = 1
    TRANSACTION = 2
    UNIQUE_KEY = 4
    WAIT_FALSE = 8
    REPLY = 16
    POP_CK = 32
    LMQ = 64
    CHECK_IMMUNITY = 128
    INNER_BATCH = 256
    TIMER_CANCEL = 512
    ENDS_OPEN = 1024
    SHARDING_KEY = 2048
    NAMES_DELAY = 4096

assert (pure.TRAIT_DELAY, pure.TRAIT_TRANSACTION, pure.TRAIT_UNIQUE_KEY, pure.TRAIT_WAIT_FALSE) == (1, 2, 4, 8)
assert (pure.TRAIT_REPLY, pure.TRAIT_POP_CK, pure.TRAIT_LMQ, pure.TRAIT_CHECK_IMMUNITY) == (16, 32, 64, 128)
assert (pure.TRAIT_SHARDING_KEY, pure.TRAIT_NAMES_DELAY) == (2048, 4096)
assert (pure.TRAIT_INNER_BATCH, pure.TRAIT_TIMER_CANCEL, pure.TRAIT_ENDS_OPEN) == (256, 512, 1024)


cdef bint is_ascii(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char seen = 0
    for i in range(length):
        seen |= at[i]
    return seen < 0x80


cdef long long java_hash_ascii(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    """Java's hash of a text whose UTF-16 units are its bytes."""
    cdef Py_ssize_t i
    cdef unsigned int value = 0
    for i in range(length):
        value = 31 * value + at[i]
    return <long long><int>value


cdef long long _java_hash(const unsigned char* at, Py_ssize_t length) except? -1:
    """Java's hash of a text."""
    cdef unsigned int value = 0
    if java_hash_utf8(&value, at, length):
        return <long long><int>value
    return java_hash(at[:length])


cdef bint java_hash_utf8(unsigned int* hashed, const unsigned char* at, Py_ssize_t length) noexcept nogil:
    """Go on with Java's hash of a text by its UTF-16 units; False when these bytes are no UTF-8."""
    cdef const unsigned char* end = at + length
    cdef const unsigned char* stop
    cdef unsigned int value = hashed[0], character
    while at < end:
        if at[0] < 0x80:
            value = 31 * value + at[0]
            at += 1
            continue
        stop = _sequence(at, end)
        if stop == NULL:
            return False
        character = at[0] & (0x1F if stop - at == 1 else 0x0F if stop - at == 2 else 0x07)
        while at < stop:
            at += 1
            character = character << 6 | at[0] & 0x3F
        at += 1
        if character >= 0x10000:
            value = 31 * value + (0xD800 | (character - 0x10000) >> 10)
            character = 0xDC00 | (character - 0x10000) & 0x3FF
        value = 31 * value + character
    hashed[0] = value
    return True


cdef inline bint _is(const unsigned char* at, Py_ssize_t length, const char* word, Py_ssize_t word_length) noexcept nogil:
    return length == word_length and memcmp(at, word, <size_t>length) == 0


cdef bint _is_true(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    return (length == 4 and (at[0] | 32) == c"t" and (at[1] | 32) == c"r" and (at[2] | 32) == c"u" and (at[3] | 32) == c"e")


cdef bint _asks_for_delay(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t i
    if at[0] == c"-":
        return False
    for i in range(length):
        if at[i] != c"0":
            return True
    return False


cdef inline int _with(int bits, int bit, bint on) noexcept nogil:
    return bits | bit if on else bits & ~bit


cdef object scan_into(Send send, bytes properties):
    """Set the four scanned fields of a send, and its properties."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(properties)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(properties)
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef const unsigned char* value
    cdef Py_ssize_t n, m
    cdef int traits = 0, delays = 0
    send.properties = properties
    send.unique_key = send.keys = b""
    send.tags_code = 0
    if at < end and (end - 1)[0] != 2:
        traits = ENDS_OPEN
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
        if mark == NULL or mark + 1 == stop:
            at = stop + 1
            continue
        n = mark - at
        value = mark + 1
        m = stop - value
        if _is(at, n, "UNIQ_KEY", 8):
            send.unique_key = PyBytes_FromStringAndSize(<const char*>value, m)
        elif _is(at, n, "TAGS", 4):
            send.tags_code = java_hash_ascii(value, m) if is_ascii(value, m) else _java_hash(value, m)
        elif _is(at, n, "KEYS", 4):
            send.keys = PyBytes_FromStringAndSize(<const char*>value, m)
        elif _is(at, n, "WAIT", 4):
            traits = _with(traits, WAIT_FALSE, not _is_true(value, m))
        elif _is(at, n, "TRAN_MSG", 8):
            traits = _with(traits, TRANSACTION, _is_true(value, m))
        elif _is(at, n, "MSG_TYPE", 8):
            traits = _with(traits, REPLY, _is(value, m, "reply", 5))
        elif _is(at, n, "DELAY", 5):
            delays = _with(delays, 1, _asks_for_delay(value, m))
            traits |= NAMES_DELAY
        elif _is(at, n, "TIMER_DELAY_SEC", 15):
            delays = _with(delays, 2, _asks_for_delay(value, m))
            traits |= NAMES_DELAY
        elif _is(at, n, "TIMER_DELAY_MS", 14):
            delays = _with(delays, 4, _asks_for_delay(value, m))
            traits |= NAMES_DELAY
        elif _is(at, n, "TIMER_DELIVER_MS", 16):
            delays = _with(delays, 8, _asks_for_delay(value, m))
            traits |= NAMES_DELAY
        elif _is(at, n, "__STARTDELIVERTIME", 18):
            delays = _with(delays, 16, _asks_for_delay(value, m))
        elif _is(at, n, "TIMER_DEL_UNIQKEY", 17):
            traits |= TIMER_CANCEL
        elif _is(at, n, "POP_CK", 6):
            traits |= POP_CK
        elif _is(at, n, "INNER_MULTI_DISPATCH", 20):
            traits |= LMQ
        elif _is(at, n, "CHECK_IMMUNITY_TIME_IN_SECONDS", 30):
            traits |= CHECK_IMMUNITY
        elif _is(at, n, "INNER_NUM", 9):
            traits |= INNER_BATCH
        elif _is(at, n, "__SHARDINGKEY", 13):
            traits |= SHARDING_KEY
        at = stop + 1
    if PyBytes_GET_SIZE(send.unique_key):
        traits |= UNIQUE_KEY
    if delays:
        traits |= DELAY
    send.traits = traits


def scan(bytes properties):
    """What the broker needs to know: (traits, unique key, raw KEYS, tags code); see the pure twin."""
    cdef Send send = Send.__new__(Send)
    scan_into(send, properties)
    return send.traits, send.unique_key, send.keys, send.tags_code


cdef list pick_in(const unsigned char* at, const unsigned char* end, tuple names):
    """The values of these names in the properties [at, end), None for each that is not there."""
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef Py_ssize_t i, count = len(names)
    cdef bytes name
    cdef list found = [None] * count
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
        if mark != NULL and mark + 1 != stop:
            for i in range(count):
                name = <bytes>names[i]
                if _is(at, mark - at, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)):
                    found[i] = PyBytes_FromStringAndSize(<const char*>mark + 1, stop - mark - 1)
                    break
        at = stop + 1
    return found


def pick(bytes properties, tuple names):
    """The values under these names, in their order; see the pure twin."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(properties)
    return pick_in(at, at + PyBytes_GET_SIZE(properties), names)


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


def pack(dict pairs):
    """The byte string of these pairs; see the pure twin, which also says what is wrong with one."""
    cdef Py_ssize_t total = 0, name_bytes = 0, value_bytes = 0
    cdef const char* name_at
    cdef const char* value_at
    cdef str name, value
    cdef bytes packed
    cdef char* at
    for name, value in pairs.items():
        if not name or not value:
            continue
        try:
            name_at = PyUnicode_AsUTF8AndSize(name, &name_bytes)
            value_at = PyUnicode_AsUTF8AndSize(value, &value_bytes)
        except UnicodeEncodeError:
            return pure.pack(pairs)
        if (memchr(name_at, 1, <size_t>name_bytes) != NULL or memchr(name_at, 2, <size_t>name_bytes) != NULL
                or memchr(value_at, 1, <size_t>value_bytes) != NULL or memchr(value_at, 2, <size_t>value_bytes) != NULL):
            return pure.pack(pairs)
        total += name_bytes + value_bytes + 2
    packed = PyBytes_FromStringAndSize(NULL, total)
    at = PyBytes_AS_STRING(packed)
    for name, value in pairs.items():
        if not name or not value:
            continue
        name_at = PyUnicode_AsUTF8AndSize(name, &name_bytes)
        value_at = PyUnicode_AsUTF8AndSize(value, &value_bytes)
        memcpy(at, name_at, <size_t>name_bytes)
        at += name_bytes
        at[0] = 1
        memcpy(at + 1, value_at, <size_t>value_bytes)
        at += value_bytes + 1
        at[0] = 2
        at += 1
    return packed
