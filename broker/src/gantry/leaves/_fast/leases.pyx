# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.leases`: one pass over each text."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, strlen

from gantry.leaves._fast.octets cimport put_bytes, put_decimal, put_u32, read_i64, read_u32
from gantry.leaves._fast.properties cimport pick_in, scan_into
from gantry.leaves._fast.records cimport Parts, parts_of
from gantry.leaves._fast.requests cimport Send

from gantry.leaves import leases as pure
from gantry.leaves.leases import TAG_ACK, TAG_BATCH_ACK, TAG_LEASE, TAGS, quoted
from gantry.leaves.requests import VERSION

cdef extern from "Python.h":
    str PyUnicode_DecodeASCII(const char* at, Py_ssize_t n, const char* errors)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    MINIMUM = 91  # bytes of a record
    DIGITS_MAX = 18
    NUMBER_BYTES = 21  # of an i64 and a comma
    FIXED_BYTES = 256  # of a body or properties without texts and lists, at most
    ANSWER_BYTES = 640  # of a pop's answer without its lists, at most
    PLAIN_BYTES_MAX = 1 << 23  # half of a frame; what is larger is measured by the pure twin
    QUEUE_MAX = 0x7FFFFFFF

cdef bytes tag_lease = TAG_LEASE
cdef bytes tag_ack = TAG_ACK
cdef bytes tag_batch_ack = TAG_BATCH_ACK
cdef tuple tags = (TAGS,)
cdef int VERSION_NUMBER = VERSION


cdef struct Text:
    const char* at
    Py_ssize_t length


cdef struct Scan:
    const unsigned char* at
    const unsigned char* end
    bint good


cdef inline char* _put_text(char* at, Text text) noexcept nogil:
    return put_bytes(at, text.at, text.length)


cdef inline char* _put_words(char* at, const char* words) noexcept nogil:
    return put_bytes(at, words, <Py_ssize_t>strlen(words))


cdef Text _text(object text) except *:
    """The UTF-8 of a text, which lives as long as the text."""
    cdef Text found
    found.at = PyUnicode_AsUTF8AndSize(text, &found.length)
    return found


cdef object _message(str topic, str unique_topic, Text group, char* body, Py_ssize_t body_bytes, bytes tag, str last,
                     long long offset, long long due_ms, key, place):
    cdef Text of = _text(unique_topic), broker = _text(place[2]), revive = _text(place[0]), end = _text(last)
    cdef bytes scratch = PyBytes_FromStringAndSize(
        NULL, FIXED_BYTES + of.length + broker.length + revive.length + group.length
    )
    cdef char* begin = PyBytes_AS_STRING(scratch)
    cdef char* to = put_bytes(begin, b"TAGS\x01", 5)
    cdef Send send = Send.__new__(Send)
    to = put_bytes(to, PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))
    to = put_bytes(to, b"\x02UNIQ_KEY\x01", 10)
    to = _put_text(to, of)
    to = put_bytes(to, b"@", 1)
    to = put_decimal(to, <long long>key[2])
    to = put_bytes(to, b"@", 1)
    to = put_decimal(to, offset)
    to = put_bytes(to, b"@", 1)
    to = _put_text(to, group)
    to = put_bytes(to, b"@", 1)
    to = put_decimal(to, <long long>key[4])
    to = put_bytes(to, b"@", 1)
    to = _put_text(to, broker)
    to = put_bytes(to, b"@", 1)
    to = _put_text(to, end)
    to = put_bytes(to, b"\x02TIMER_DELIVER_MS\x01", 18)
    to = put_decimal(to, due_ms)
    to = put_bytes(to, b"\x02TIMER_OUT_MS\x01", 14)
    to = put_decimal(to, due_ms)
    to = put_bytes(to, b"\x02REAL_TOPIC\x01", 12)
    to = _put_text(to, revive)
    to = put_bytes(to, b"\x02REAL_QID\x01", 10)
    to = put_decimal(to, <long long>place[1])
    to = put_bytes(to, b"\x02", 1)
    send.serialization = send.opaque = send.code = send.language = send.version = 0
    send.rpc_flag = 2
    send.group = send.default_topic = ""
    send.default_queues = 4
    send.max_reconsume_times = -1
    send.unit_mode = send.batch = False
    send.topic = topic
    send.queue_id = send.flag = send.sys_flag = send.reconsume_times = send.size = 0
    send.queue_offset = send.log_offset = -1
    send.prepared_offset = 0
    send.born_ms = place[4]
    send.born_host = place[3]
    send.body = PyBytes_FromStringAndSize(body, body_bytes)
    scan_into(send, PyBytes_FromStringAndSize(begin, to - begin))
    return send


def lease(str topic, key, long long end_ms, offsets, str more, place):
    """The delayed message of a lease; see the pure twin."""
    cdef str of = <str?>key[1]
    cdef object q_broker = quoted(place[2]), q_group = quoted(key[0]), q_topic = quoted(of)
    cdef Text broker = _text(q_broker), group = _text(q_group), name = _text(q_topic), rest = _text(more)
    cdef Py_ssize_t count = len(offsets)
    cdef long long start = key[3], pop_ms = key[4], offset
    cdef bytes scratch = PyBytes_FromStringAndSize(
        NULL, FIXED_BYTES + broker.length + group.length + name.length + rest.length + count * NUMBER_BYTES
    )
    cdef char* begin = PyBytes_AS_STRING(scratch)
    cdef char* to = put_bytes(begin, b'{"bm":0,"bn":', 13)
    cdef bint is_next = False
    to = _put_text(to, broker)
    to = put_bytes(to, b',"c":', 5)
    to = _put_text(to, group)
    to = put_bytes(to, b',"d":[', 6)
    for offset in offsets:
        if is_next:
            to = put_bytes(to, b",", 1)
        is_next = True
        to = put_decimal(to, offset - start)
    to = put_bytes(to, b'],"it":', 7)
    to = put_decimal(to, end_ms - pop_ms)
    to = put_bytes(to, b',"n":', 5)
    to = put_decimal(to, count)
    to = put_bytes(to, b',"pt":', 6)
    to = put_decimal(to, pop_ms)
    to = put_bytes(to, b',"q":', 5)
    to = put_decimal(to, <long long>key[2])
    to = put_bytes(to, b',"ro":0,"so":', 13)
    to = put_decimal(to, start)
    to = put_bytes(to, b',"t":', 5)
    to = _put_text(to, name)
    to = _put_text(to, rest)
    to = put_bytes(to, b"}", 1)
    return _message(topic, of, _text(key[0]), begin, to - begin, tag_lease, "ck", start, end_ms, key, place)


def ack(str topic, key, offsets, bint is_moved, long long due_ms, place):
    """The delayed message of an acknowledgement; see the pure twin."""
    cdef str of = <str?>key[1]
    cdef object q_broker = quoted(place[2]), q_group = quoted(key[0]), q_topic = quoted(of)
    cdef Text broker = _text(q_broker), group = _text(q_group), name = _text(q_topic)
    cdef Py_ssize_t count = len(offsets)
    cdef long long first = offsets[0], offset
    cdef bytes scratch = PyBytes_FromStringAndSize(
        NULL, FIXED_BYTES + broker.length + group.length + name.length + count * NUMBER_BYTES
    )
    cdef char* begin = PyBytes_AS_STRING(scratch)
    cdef char* to = put_bytes(begin, b'{"ao":', 6)
    cdef bint is_next = False
    to = put_decimal(to, first)
    to = put_bytes(to, b',"bn":', 6)
    to = _put_text(to, broker)
    to = put_bytes(to, b',"c":', 5)
    to = _put_text(to, group)
    to = put_bytes(to, b',"pt":', 6)
    to = put_decimal(to, <long long>key[4])
    to = put_bytes(to, b',"q":', 5)
    to = put_decimal(to, <long long>key[2])
    to = put_bytes(to, b',"so":', 6)
    to = put_decimal(to, <long long>key[3])
    to = put_bytes(to, b',"t":', 5)
    to = _put_text(to, name)
    if count > 1:
        to = put_bytes(to, b',"aol":[', 8)
        for offset in offsets:
            if is_next:
                to = put_bytes(to, b",", 1)
            is_next = True
            to = put_decimal(to, offset)
        to = put_bytes(to, b"]", 1)
    if is_moved:
        to = put_bytes(to, b',"moved":1', 10)
    to = put_bytes(to, b"}", 1)
    return _message(
        topic, of, _text(key[0]), begin, to - begin, tag_batch_ack if count > 1 else tag_ack, "ack", first, due_ms, key,
        place,
    )


def found(
    long long opaque, long long pop_ms, long long invisible_ms, long long revive_queue, long long rest, popped, str counts,
    long long body_bytes,
):
    """The frame of a pop's answer up to its body; see the pure twin."""
    cdef Py_ssize_t room = ANSWER_BYTES, header_bytes
    cdef bint is_next = False, is_next_offset
    cdef bytes frame
    cdef char* begin
    cdef char* to
    cdef long long offset
    for one in popped:
        room += (5 + len(one[3])) * NUMBER_BYTES
    if counts or room > PLAIN_BYTES_MAX or body_bytes > PLAIN_BYTES_MAX:
        return pure.found(opaque, pop_ms, invisible_ms, revive_queue, rest, popped, counts, body_bytes)
    frame = PyBytes_FromStringAndSize(NULL, room)
    begin = PyBytes_AS_STRING(frame)
    to = _put_words(begin + 8, b'{"code":0,"extFields":{"invisibleTime":"')
    to = put_decimal(to, invisible_ms)
    to = _put_words(to, b'","msgOffsetInfo":"')
    for one in popped:
        if is_next:
            to = put_bytes(to, b";", 1)
        is_next = True
        to = put_decimal(to, <long long>one[0])
        to = put_bytes(to, b" ", 1)
        to = put_decimal(to, <long long>one[1])
        to = put_bytes(to, b" ", 1)
        is_next_offset = False
        for offset in one[3]:
            if is_next_offset:
                to = put_bytes(to, b",", 1)
            is_next_offset = True
            to = put_decimal(to, offset)
    to = _put_words(to, b'","popTime":"')
    to = put_decimal(to, pop_ms)
    to = _put_words(to, b'","restNum":"')
    to = put_decimal(to, rest)
    to = _put_words(to, b'","reviveQid":"')
    to = put_decimal(to, revive_queue)
    to = _put_words(to, b'","startOffsetInfo":"')
    is_next = False
    for one in popped:
        if is_next:
            to = put_bytes(to, b";", 1)
        is_next = True
        to = put_decimal(to, <long long>one[0])
        to = put_bytes(to, b" ", 1)
        to = put_decimal(to, <long long>one[1])
        to = put_bytes(to, b" ", 1)
        to = put_decimal(to, <long long>one[2])
    to = _put_words(to, b'"},"flag":1,"language":"PYTHON","opaque":')
    to = put_decimal(to, opaque)
    to = _put_words(to, b',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":')
    to = put_decimal(to, VERSION_NUMBER)
    to = put_bytes(to, b"}", 1)
    header_bytes = to - begin - 8
    put_u32(begin, <unsigned int>(4 + header_bytes + body_bytes))
    put_u32(begin + 4, <unsigned int>header_bytes)
    return frame[: to - begin]


cdef inline bint _is_next(Scan* scan, const char* wanted, Py_ssize_t length) noexcept nogil:
    """Whether these bytes stand here; then they are passed."""
    if scan.end - scan.at < length or memcmp(scan.at, wanted, <size_t>length) != 0:
        return False
    scan.at += length
    return True


cdef inline void _expect(Scan* scan, const char* wanted, Py_ssize_t length) noexcept nogil:
    if not _is_next(scan, wanted, length):
        scan.good = False


cdef long long _number(Scan* scan, bint may_be_negative) noexcept nogil:
    cdef long long number = 0
    cdef bint is_negative = may_be_negative and _is_next(scan, b"-", 1)
    cdef const unsigned char* begin = scan.at
    while scan.at < scan.end and 48 <= scan.at[0] <= 57 and scan.at - begin <= DIGITS_MAX:
        number = number * 10 + scan.at[0] - 48
        scan.at += 1
    if scan.at == begin or scan.at - begin > DIGITS_MAX or (begin[0] == 48 and scan.at - begin > 1):
        scan.good = False
    return -number if is_negative else number


cdef void _pass_list(Scan* scan) noexcept nogil:
    _expect(scan, b"[", 1)
    while scan.good:
        _number(scan, True)
        if not _is_next(scan, b",", 1):
            break
    _expect(scan, b"]", 1)


cdef Text _plain(Scan* scan) noexcept nogil:
    """A text in quotes, of plain ASCII."""
    cdef Text found
    _expect(scan, b'"', 1)
    found.at = <const char*>scan.at
    while scan.at < scan.end and 32 <= scan.at[0] < 127 and scan.at[0] != 34 and scan.at[0] != 92:
        scan.at += 1
    found.length = <const char*>scan.at - found.at
    _expect(scan, b'"', 1)
    if found.length == 0:
        scan.good = False
    return found


cdef object _lease_key(Scan* scan):
    cdef Text group, topic
    cdef long long queue_id, start, pop_ms
    _expect(scan, b'{"bm":', 6)
    _number(scan, True)
    _expect(scan, b',"bn":', 6)
    _plain(scan)
    _expect(scan, b',"c":', 5)
    group = _plain(scan)
    _expect(scan, b',"d":', 5)
    _pass_list(scan)
    _expect(scan, b',"it":', 6)
    _number(scan, True)
    _expect(scan, b',"n":', 5)
    _number(scan, True)
    _expect(scan, b',"pt":', 6)
    pop_ms = _number(scan, True)
    _expect(scan, b',"q":', 5)
    queue_id = _number(scan, True)
    _expect(scan, b',"ro":', 6)
    _number(scan, True)
    _expect(scan, b',"so":', 6)
    start = _number(scan, True)
    _expect(scan, b',"t":', 5)
    topic = _plain(scan)
    if _is_next(scan, b',"cid":', 7):
        _plain(scan)
    if _is_next(scan, b',"gen":', 7):
        _number(scan, True)
    _is_next(scan, b',"again":1', 10)
    _is_next(scan, b',"move":1', 9)
    return _key(scan, group, topic, queue_id, start, pop_ms)


cdef object _ack_key(Scan* scan):
    cdef Text group, topic
    cdef long long queue_id, start, pop_ms
    _expect(scan, b'{"ao":', 6)
    _number(scan, True)
    _expect(scan, b',"bn":', 6)
    _plain(scan)
    _expect(scan, b',"c":', 5)
    group = _plain(scan)
    _expect(scan, b',"pt":', 6)
    pop_ms = _number(scan, True)
    _expect(scan, b',"q":', 5)
    queue_id = _number(scan, True)
    _expect(scan, b',"so":', 6)
    start = _number(scan, True)
    _expect(scan, b',"t":', 5)
    topic = _plain(scan)
    if _is_next(scan, b',"aol":', 7):
        _pass_list(scan)
    _is_next(scan, b',"moved":1', 10)
    return _key(scan, group, topic, queue_id, start, pop_ms)


cdef object _key(Scan* scan, Text group, Text topic, long long queue_id, long long start, long long pop_ms):
    _expect(scan, b"}", 1)
    if not scan.good or scan.at != scan.end or not 0 <= queue_id <= QUEUE_MAX:
        return None
    return (
        PyUnicode_DecodeASCII(group.at, group.length, NULL),
        PyUnicode_DecodeASCII(topic.at, topic.length, NULL),
        queue_id,
        start,
        pop_ms,
    )


def named(memory, long long base, long long end, places):
    """Whose lease each record is; see the pure twin."""
    cdef Py_buffer view
    cdef const unsigned char* record
    cdef list made = []
    cdef long long at, log_offset
    cdef Py_ssize_t size
    cdef object tag, key
    cdef Parts parts
    cdef Scan scan
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    try:
        end = min(end - base, <long long>view.len)
        for place in places:
            log_offset = place[0]
            size = place[1]
            at = log_offset - base
            key = None
            if size >= MINIMUM and 0 <= at <= end - size:
                record = <const unsigned char*>view.buf + at
                if read_u32(record) == size and read_i64(record + 28) == log_offset and parts_of(record, size, False, &parts):
                    tag = pick_in(record + parts.properties_at, record + parts.size, tags)[0]
                    scan.at = record + parts.body_at
                    scan.end = scan.at + parts.body_bytes
                    scan.good = True
                    if tag == tag_lease:
                        key = _lease_key(&scan)
                    elif tag == tag_ack or tag == tag_batch_ack:
                        key = _ack_key(&scan)
            made.append(None if key is None else (key, tag == tag_lease))
    finally:
        PyBuffer_Release(&view)
    return made


cdef inline int _digit(unsigned char digit) noexcept nogil:
    if 65 <= digit <= 90:
        return digit - 65
    if 97 <= digit <= 122:
        return digit - 71
    if 48 <= digit <= 57:
        return digit + 4
    return 62 if digit == 43 else 63 if digit == 47 else -1


cdef unsigned long long _bits(Scan* scan) noexcept nogil:
    """The bits of a bit set in base64 of 4 or 8 digits, padding included."""
    cdef unsigned long long bits = 0
    cdef unsigned int three
    cdef int i, digit, padding = 0, shift = 0
    _expect(scan, b'"', 1)
    while scan.good and shift < 48 and scan.end - scan.at >= 4 and scan.at[0] != 34 and not padding:
        three = 0
        for i in range(4):
            digit = _digit(scan.at[i])
            if digit < 0 and (scan.at[i] != 61 or i < 2):
                scan.good = False
            elif digit < 0:
                padding += 1
                digit = 0
            elif padding:
                scan.good = False
            three = three << 6 | <unsigned int>digit
        bits |= <unsigned long long>((three >> 16) | (three & 0xFF00) | ((three & 0xFF) << 16)) << shift
        shift += 24
        scan.at += 4
    _expect(scan, b'"', 1)
    if shift == 0:
        scan.good = False
        return 0
    return bits & ((<unsigned long long>1 << (shift - 8 * padding)) - 1)


def acks(bytes body):
    """The leases that a body acknowledges, or None; see the pure twin."""
    cdef Scan scan
    cdef Text group, topic
    cdef long long invisible_ms, pop_ms, queue_id, revive_queue, start
    cdef unsigned long long bits
    cdef int flag
    cdef list found = []
    scan.at = <const unsigned char*>PyBytes_AS_STRING(body)
    scan.end = scan.at + PyBytes_GET_SIZE(body)
    scan.good = True
    _expect(&scan, b'{"acks":[', 9)
    while scan.good:
        _expect(&scan, b'{"b":', 5)
        bits = _bits(&scan)
        _expect(&scan, b',"c":', 5)
        group = _plain(&scan)
        _expect(&scan, b',"it":', 6)
        invisible_ms = _number(&scan, False)
        _expect(&scan, b',"pt":', 6)
        pop_ms = _number(&scan, False)
        _expect(&scan, b',"q":', 5)
        queue_id = _number(&scan, False)
        _expect(&scan, b',"r":"', 6)
        flag = scan.at[0] - 48 if scan.at < scan.end else -1
        if not 0 <= flag <= 2:
            return None
        scan.at += 1
        _expect(&scan, b'","rq":', 7)
        revive_queue = _number(&scan, False)
        _expect(&scan, b',"so":', 6)
        start = _number(&scan, False)
        _expect(&scan, b',"t":', 5)
        topic = _plain(&scan)
        _expect(&scan, b"}", 1)
        if not scan.good:
            return None
        found.append((
            PyUnicode_DecodeASCII(group.at, group.length, NULL), PyUnicode_DecodeASCII(topic.at, topic.length, NULL),
            flag, queue_id, start, pop_ms, invisible_ms, revive_queue, bits,
        ))
        if not _is_next(&scan, b",", 1):
            break
    _expect(&scan, b'],"brokerName":', 15)
    _plain(&scan)
    _expect(&scan, b"}", 1)
    return found if scan.good and scan.at == scan.end else None
