# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `leaves.delays`: one pass over the properties of each message.

What is not plain (a number that is none, text beyond ASCII, a record that is odd) the pure twin reads.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp

from gantry.leaves import delays as pure
from gantry.leaves._fast.halves cimport message_of
from gantry.leaves._fast.octets cimport put_bytes, put_decimal, put_u32, put_u64, read_i64, read_u32
from gantry.leaves._fast.properties cimport is_ascii
from gantry.leaves._fast.records cimport Entry
from gantry.leaves._fast.requests cimport Send

from gantry.errors import CorruptRecordError
from gantry.leaves._fast.halves import message_at
from gantry.leaves.delays import (
    BY_LEVEL,
    CANCEL_BIT,
    CANCELS,
    CARRIED,
    HASH_MAX,
    LEASE_BIT,
    LEVEL,
    OURS,
    OUT_MS,
    REAL_QUEUE,
    REAL_TOPIC,
    RETIMED,
    RETIME_BIT,
    ROLLED,
    TIMES,
    address,
    handle,
    last,
    timer_code,
    without,
)

cdef extern from "Python.h":
    const unsigned char* PyUnicode_1BYTE_DATA(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)
    bint PyUnicode_IS_ASCII(object text)

cdef enum:
    ENDS_OPEN = 1024
    TIMER_CANCEL = 512
    NO_QUEUE_BIT = 4
    ENTRY_BYTES = 20
    PRE_BLANK = 0x7FFFFFFF
    MINIMUM = 91  # bytes of a record
    DIGITS_MAX = 15
    DIGITS_SURE = 18
    QUEUE_DIGITS_MAX = 9
    # The places of what is asked for, in the order of the names below.
    AT_LEVEL = 0
    AT_FIRST_TIME = 1
    ASKED = 5
    # What an earlier delay wrote, behind that.
    NAMES = 13
    KNOWN = 64

cdef long long CANCEL = CANCEL_BIT, HASH = HASH_MAX, LEASE = LEASE_BIT, RETIME = RETIME_BIT
cdef tuple names = (LEVEL, *TIMES, *sorted(OURS))
cdef const char* name_at[NAMES]
cdef Py_ssize_t name_bytes[NAMES]
cdef int nth_name
for nth_name in range(NAMES):
    name_at[nth_name] = PyBytes_AS_STRING(names[nth_name])
    name_bytes[nth_name] = PyBytes_GET_SIZE(names[nth_name])
assert len(names) == NAMES and frozenset(names) == BY_LEVEL

cdef struct Value:
    const unsigned char* at
    Py_ssize_t length  # 0: there is none

# A broker has few topics: the last strings made are nearly always the next ones.
cdef list known = [""] * KNOWN


cdef str _name(const unsigned char* at, Py_ssize_t length):
    """A text of ASCII, the one made before where it is the same."""
    cdef int slot = <int>((length * 7 + at[length - 1] + at[length >> 1]) % KNOWN)
    cdef str text = <str>known[slot]
    if len(text) != length or memcmp(PyUnicode_1BYTE_DATA(text), at, <size_t>length) != 0:
        text = known[slot] = PyUnicode_DecodeASCII(<const char*>at, length, NULL)
    return text


cdef inline int _which(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    """The place of a name among those above, or -1."""
    cdef int i
    for i in range(NAMES):
        if length == name_bytes[i] and memcmp(at, name_at[i], <size_t>length) == 0:
            return i
    return -1


cdef long long _digits(Value value, Py_ssize_t digits_max) noexcept nogil:
    """The number; 0 when there is none, -1 when it is no plain number."""
    cdef Py_ssize_t i
    cdef long long number = 0
    if value.length > digits_max:
        return -1
    for i in range(value.length):
        if value.at[i] < c"0" or value.at[i] > c"9":
            return -1
        number = 10 * number + value.at[i] - c"0"
    return number


cdef long long _time(Value* asked, long long now_ms) noexcept nogil:
    """The time that the first of the values asks for; -1 when none does."""
    cdef int i
    cdef long long number
    for i in range(AT_FIRST_TIME, ASKED):
        if asked[i].length:
            number = _digits(asked[i], DIGITS_MAX)
            if number < 0:
                return -1
            if i == AT_FIRST_TIME:
                return now_ms + 1000 * number
            return now_ms + number if i == AT_FIRST_TIME + 1 else number
    return -1


cdef bytes _hidden(Send send, bint by_level, long long number):
    """The properties of a message without what an earlier delay wrote, and with this one."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(send.properties)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(send.properties)
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef Py_ssize_t topic_bytes = 0
    cdef const char* topic = PyUnicode_AsUTF8AndSize(send.topic, &topic_bytes)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, end - at + 1 + topic_bytes + 96)
    cdef char* to = PyBytes_AS_STRING(made)
    cdef int which
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        if stop > at:
            mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
            which = _which(at, (stop if mark == NULL else mark) - at)
            if which < 0 or (which < ASKED and not by_level):
                to = put_bytes(to, at, stop - at)
                to[0] = 2
                to += 1
        at = stop + 1
    to = put_bytes(to, b"DELAY\x01", 6) if by_level else put_bytes(to, b"TIMER_OUT_MS\x01", 13)
    to = put_decimal(to, number)
    to = put_bytes(to, b"\x02REAL_TOPIC\x01", 12)
    to = put_bytes(to, topic, topic_bytes)
    to = put_bytes(to, b"\x02REAL_QID\x01", 10)
    to = put_decimal(to, send.queue_id)
    to[0] = 2
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(made), to + 1 - PyBytes_AS_STRING(made))


def hide(sends, long long now_ms, int level_max, long long ahead_ms_max, long long timed_max, tuple topics):
    """Readdress messages that ask for a delay; how many from the first on.  See the pure twin."""
    cdef str level_topic = topics[0], timer_topic = topics[1]
    cdef long long timed = 0, level, at_ms
    cdef Py_ssize_t hidden = 0
    cdef Value asked[ASKED]
    cdef const unsigned char* at
    cdef const unsigned char* end
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    cdef int i
    cdef Send send
    for send in sends:
        at = <const unsigned char*>PyBytes_AS_STRING(send.properties)
        end = at + PyBytes_GET_SIZE(send.properties)
        for i in range(ASKED):
            asked[i].length = 0
        while at < end:
            stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
            if stop == NULL:
                stop = end
            mark = <const unsigned char*>memchr(at, 1, <size_t>(stop - at))
            if mark != NULL and mark + 1 != stop:
                i = _which(at, mark - at)
                if 0 <= i < ASKED:
                    asked[i].at = mark + 1
                    asked[i].length = stop - mark - 1
            at = stop + 1
        level = _digits(asked[AT_LEVEL], DIGITS_MAX)
        if level < 0 or send.queue_id < 0 or send.traits & TIMER_CANCEL:
            break
        if level:
            level = min(level, <long long>level_max)
            send.properties = _hidden(send, True, level)
            send.topic, send.queue_id = level_topic, <int>level - 1
        else:
            at_ms = _time(asked, now_ms)
            if at_ms <= now_ms or at_ms > now_ms + ahead_ms_max or timed >= timed_max:
                break
            timed += 1
            send.properties = _hidden(send, False, at_ms)
            send.topic, send.queue_id = timer_topic, 0
        send.traits &= ~ENDS_OPEN
        hidden += 1
    return hidden


cdef Value _last(bytes text, const char* name, Py_ssize_t length) noexcept:
    """The last value of this name, of whatever length, as `last` finds it; `at` is NULL when there is none."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(text)
    cdef const unsigned char* stop
    cdef Value found = Value(NULL, 0)
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        if stop - at > length and at[length] == 1 and memcmp(at, name, <size_t>length) == 0:
            found.at = at + length + 1
            found.length = stop - at - length - 1
        at = stop + 1
    return found


cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef bytes _base64(const unsigned char* at, Py_ssize_t length):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, (length + 2) // 3 * 4)
    cdef char* to = PyBytes_AS_STRING(made)
    cdef unsigned int bits
    while length > 0:
        bits = <unsigned int>at[0] << 16
        if length > 1:
            bits |= <unsigned int>at[1] << 8
        if length > 2:
            bits |= at[2]
        to[0] = BASE64[bits >> 18]
        to[1] = BASE64[bits >> 12 & 63]
        to[2] = BASE64[bits >> 6 & 63] if length > 1 else c"="
        to[3] = BASE64[bits & 63] if length > 2 else c"="
        to += 4
        at += 3
        length -= 3
    return made


def handles(sends, str topic, str broker):
    """The recall handles of stored messages; see the pure twin."""
    cdef list found = []
    cdef Value real, queue, due, key
    cdef Py_ssize_t broker_bytes = 0, i
    cdef const char* broker_at = PyUnicode_AsUTF8AndSize(broker, &broker_bytes)
    cdef bytes plain
    cdef char* to
    cdef Send send
    for send in sends:
        if send.topic is not topic and send.topic != topic:
            found.append(b"")
            continue
        real = _last(send.properties, "REAL_TOPIC", 10)
        queue = _last(send.properties, "REAL_QID", 8)
        due = _last(send.properties, "TIMER_OUT_MS", 12)
        key = _last(send.properties, "UNIQ_KEY", 8)
        if (
            real.length == 0 or queue.length == 0 or due.length == 0 or key.length == 0
            or queue.length > QUEUE_DIGITS_MAX or _digits(queue, QUEUE_DIGITS_MAX) < 0 or due.at[0] == c"0"
            or _digits(due, DIGITS_SURE) < 0 or not is_ascii(real.at, real.length) or not is_ascii(key.at, key.length)
            or (real.length >= 7 and memcmp(real.at, b"%RETRY%", 7) == 0)
            or _last(send.properties, "TIMER_DEL_UNIQKEY", 17).length
        ):
            found.append(handle(send.properties, broker))
            continue
        plain = PyBytes_FromStringAndSize(NULL, 6 + real.length + broker_bytes + due.length + key.length)
        to = put_bytes(PyBytes_AS_STRING(plain), b"v1 ", 3)
        to = put_bytes(to, real.at, real.length)
        to[0] = c" "
        to = put_bytes(to + 1, broker_at, broker_bytes)
        to[0] = c" "
        to = put_bytes(to + 1, due.at, due.length)
        to[0] = c" "
        put_bytes(to + 1, key.at, key.length)
        found.append(_base64(<const unsigned char*>PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain)))
    return found


cdef Value _filled(bytes text, const char* name, Py_ssize_t length) noexcept:
    """The last value of this name that is not empty, as `properties.get` finds it."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(text)
    cdef const unsigned char* stop
    cdef Value found = Value(NULL, 0)
    while at < end:
        stop = <const unsigned char*>memchr(at, 2, <size_t>(end - at))
        if stop == NULL:
            stop = end
        if stop - at > length + 1 and at[length] == 1 and memcmp(at, name, <size_t>length) == 0:
            found.at = at + length + 1
            found.length = stop - at - length - 1
        at = stop + 1
    return found


def codes(entries, levels_ms):
    """The codes of entries of either topic; see the pure twin."""
    cdef list found = []
    cdef tuple durations = tuple(levels_ms)
    cdef Py_ssize_t level_max = len(durations)
    cdef long long number
    cdef Value value
    cdef Entry entry
    for entry in entries:
        if level_max:
            value = _filled(entry.properties, "DELAY", 5)
            number = _digits(value, DIGITS_SURE)
            if number < 0:
                found.append(pure._level_code(entry, durations))
            elif number == 0:
                found.append(entry.tags_code)
            else:
                found.append(entry.store_ms + <long long>durations[min(number, <long long>level_max) - 1])
            continue
        value = _filled(entry.properties, "TIMER_OUT_MS", 12)
        number = _digits(value, DIGITS_SURE)
        if value.length and number < 0:
            found.append(timer_code(entry.properties, entry.tags_code))
        elif number < HASH:
            found.append(entry.tags_code)
        elif _filled(entry.properties, "TIMER_DEL_UNIQKEY", 17).length:
            found.append(number | CANCEL)
        else:
            value = _filled(entry.properties, "REAL_TOPIC", 10)
            if value.length >= 19 and memcmp(value.at, "rmq_sys_REVIVE_LOG_", 19) == 0:
                number |= LEASE
            elif _filled(entry.properties, "GANTRY_RETIMED", 14).length:
                number |= RETIME
            found.append(number)
    return found


def pack_coded(entries, found):
    """The packed queue entries of these records; see the pure twin."""
    cdef Py_ssize_t count = len(entries), i = 0
    cdef list numbers = list(found)
    cdef bytes out
    cdef unsigned char* at
    cdef Entry entry
    if len(numbers) != count:
        return pure.pack_coded(entries, numbers)  # says what is wrong
    out = PyBytes_FromStringAndSize(NULL, ENTRY_BYTES * count)
    at = <unsigned char*>PyBytes_AS_STRING(out)
    for entry in entries:
        put_u64(at, <unsigned long long>entry.log_offset)
        put_u32(at + 8, <unsigned int>entry.size)
        put_u64(at + 12, <unsigned long long><long long>numbers[i])
        at += ENTRY_BYTES
        i += 1
    return out


def entries_at(buffer, Py_ssize_t at, Py_ssize_t count, long long first, offsets):
    """The queue entries at these queue offsets; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* base
    cdef const unsigned char* place
    cdef list found = []
    cdef long long offset, code
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if at < 0:
            raise ValueError(f"delays: entries from {at} on")
        count = min(count, (memory.len - at) // ENTRY_BYTES)
        base = <const unsigned char*>memory.buf + at
        for offset in offsets:
            if offset < first or offset - first >= count:
                break
            place = base + (offset - first) * ENTRY_BYTES
            code = read_i64(place + 12)
            found.append((read_i64(place), <int>read_u32(place + 8), code & ~(LEASE | RETIME) if code >= RETIME else code))
    finally:
        PyBuffer_Release(&memory)
    return found


def ready(found, long long due_ms, long long bytes_max, long long log_start, long long log_end,
          long long segment_bytes):
    """How many of these places from the first on can be delivered; see the pure twin."""
    cdef long long log_offset, code, total = 0
    cdef long long size
    cdef Py_ssize_t number = 0
    for log_offset, size, code in found:
        total += size
        if (
            code < HASH or code > due_ms or size == PRE_BLANK or size <= 0 or log_offset < log_start
            or log_offset < 0 or size > log_end - log_offset or log_offset % segment_bytes + size > segment_bytes
            or (number and total > bytes_max)
        ):
            break
        number += 1
    return number


def deliveries(buffer, long long base, found, str hidden):
    """The messages of hidden records as consumers get them; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* place
    cdef list made = []
    cdef long long log_offset, size, code, at
    cdef Value topic, queue
    cdef Send send
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        for log_offset, size, code in found:
            at = log_offset - base
            send = None
            if 0 <= at and MINIMUM <= size <= memory.len - at:
                place = <const unsigned char*>memory.buf + at
                if <int>read_u32(place) == size and read_i64(place + 28) == log_offset:
                    send = message_of(place, <Py_ssize_t>size)
                    if send is None:
                        send = _odd(buffer, at, size)
            if send is None:
                made.append(None)
                continue
            topic = _last(send.properties, "REAL_TOPIC", 10)
            queue = _last(send.properties, "REAL_QID", 8)
            if (
                topic.length == 0 or queue.length == 0 or queue.length > QUEUE_DIGITS_MAX
                or _digits(queue, QUEUE_DIGITS_MAX) < 0
            ):
                made.append(None)
                continue
            if is_ascii(topic.at, topic.length):
                send.topic = _name(topic.at, topic.length)
            else:
                send.topic = topic.at[:topic.length].decode("utf-8", "replace")
            if send.topic == hidden:
                made.append(None)
                continue
            send.queue_id = <int>_digits(queue, QUEUE_DIGITS_MAX)
            send.sys_flag &= ~NO_QUEUE_BIT
            send.prepared_offset = log_offset
            made.append(send)
    finally:
        PyBuffer_Release(&memory)
    return made


cdef Send _odd(buffer, long long at, long long size):
    """The message of a record that is not plain; None for none."""
    try:
        return message_at(buffer, at, at + size)
    except CorruptRecordError:
        return None
