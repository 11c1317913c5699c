# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled twin of `leaves.frames`: hot requests without a dictionary, others without a JSON parser, replies
without a format string.

What `scan` does not know, the pure code decodes, frame by frame; see there for why the twins agree.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

from gantry.leaves import frames as pure
from gantry.leaves._fast.octets cimport put_bytes, put_decimal, put_u32, read_u32
from gantry.leaves._fast.properties cimport scan_into
from gantry.leaves._fast.requests cimport End, Pull, Send
from gantry.leaves._fast.scan cimport Head, Text, read_integer, scan_binary, scan_json, unescape
from gantry.leaves.frames import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FRAME_BYTES_MAX,
    LANGUAGE_OTHER,
    LANGUAGE_PYTHON,
    LANGUAGES,
    SERIALIZATION_JSON,
    SERIALIZATION_ROCKETMQ,
    VERSION,
    Command,
    encode,
    encode_head,
    encode_success,
    frame_length,
)
from gantry.leaves.requests import End as PureEnd
from gantry.leaves.requests import Pull as PurePull
from gantry.leaves.requests import Send as PureSend

cdef extern from *:
    """
    #include <Python.h>
    static PyObject* ascii_text(const unsigned char* at, Py_ssize_t n) { return PyUnicode_DecodeASCII((const char*)at, n, NULL); }
    """
    str ascii_text(const unsigned char* at, Py_ssize_t n)

cdef int FRAME_MAX = FRAME_BYTES_MAX
cdef tuple SEND_FIELDS = PureSend.__slots__
cdef tuple PULL_FIELDS = PurePull.__slots__
cdef tuple END_FIELDS = PureEnd.__slots__

# A broker has few topics and groups: the last strings made are nearly always the next ones.
cdef enum:
    KNOWN = 16
    FIELD_NAMES = 127
cdef list known = [""] * KNOWN
cdef list field_names = [""] * FIELD_NAMES


cdef str _name(Text text):
    """A string for this text, the one made before where it is the same."""
    cdef int slot
    cdef str found
    if text.length == 0:
        return ""
    slot = (text.length * 7 + text.at[text.length - 1] + text.at[text.length >> 1]) % KNOWN
    found = <str>known[slot]
    if len(found) == text.length and memcmp(PyUnicode_1BYTE(found), text.at, <size_t>text.length) == 0:
        return found
    found = ascii_text(text.at, text.length)
    known[slot] = found
    return found


cdef str _field_name(Text text):
    """The same for the name of a header field; there are some dozens of them."""
    cdef int slot
    cdef str found
    if text.length == 0:
        return ""
    slot = (text.length * 31 + text.at[text.length - 1] * 7 + text.at[text.length >> 1]) % FIELD_NAMES
    found = <str>field_names[slot]
    if len(found) == text.length and memcmp(PyUnicode_1BYTE(found), text.at, <size_t>text.length) == 0:
        return found
    found = ascii_text(text.at, text.length)
    field_names[slot] = found
    return found


cdef extern from "Python.h":
    const unsigned char* PyUnicode_1BYTE "PyUnicode_1BYTE_DATA"(object text)


cdef bint _small(Text text, int* value) noexcept nogil:
    cdef long long wide = 0
    if text.escaped or not read_integer(text, -0x80000000, 0x7FFFFFFF, &wide):
        return False
    value[0] = <int>wide
    return True


cdef bint _wide(Text text, long long* value) noexcept nogil:
    return not text.escaped and read_integer(text, -0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, value)


cdef inline bint _truth(Text text) noexcept nogil:
    if text.length == 1:
        return text.at[0] == c"1"
    return (text.length == 4 and (text.at[0] | 32) == c"t" and (text.at[1] | 32) == c"r"
            and (text.at[2] | 32) == c"u" and (text.at[3] | 32) == c"e")


cdef int _long_send_name(Text name) noexcept nogil:
    """The letter that code 310 has for this name of code 10, or 0."""
    cdef int n = name.length
    if n == 13 and memcmp(name.at, b"producerGroup", 13) == 0:
        return c"a"
    if n == 5 and memcmp(name.at, b"topic", 5) == 0:
        return c"b"
    if n == 12 and memcmp(name.at, b"defaultTopic", 12) == 0:
        return c"c"
    if n == 21 and memcmp(name.at, b"defaultTopicQueueNums", 21) == 0:
        return c"d"
    if n == 7 and memcmp(name.at, b"queueId", 7) == 0:
        return c"e"
    if n == 7 and memcmp(name.at, b"sysFlag", 7) == 0:
        return c"f"
    if n == 13 and memcmp(name.at, b"bornTimestamp", 13) == 0:
        return c"g"
    if n == 4 and memcmp(name.at, b"flag", 4) == 0:
        return c"h"
    if n == 10 and memcmp(name.at, b"properties", 10) == 0:
        return c"i"
    if n == 14 and memcmp(name.at, b"reconsumeTimes", 14) == 0:
        return c"j"
    if n == 8 and memcmp(name.at, b"unitMode", 8) == 0:
        return c"k"
    if n == 17 and memcmp(name.at, b"maxReconsumeTimes", 17) == 0:
        return c"l"
    if n == 5 and memcmp(name.at, b"batch", 5) == 0:
        return c"m"
    return 0


cdef bytes _properties(Text text):
    """The properties that this text means."""
    cdef bytes exact
    cdef int n
    if not text.escaped:
        return PyBytes_FromStringAndSize(<const char*>text.at, text.length)
    exact = PyBytes_FromStringAndSize(NULL, text.length)
    n = unescape(text, <unsigned char*>PyBytes_AS_STRING(exact))
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(exact), n)


cdef object _send(Head* head, int serialization, const unsigned char* body, Py_ssize_t body_bytes):
    """The Send that these fields make, or None for the pure code to decide."""
    cdef Send send = Send.__new__(Send)
    cdef bytes properties = b""
    cdef int i, letter, seen = 0
    cdef Text text
    cdef bint good = True
    send.reconsume_times = 0
    send.max_reconsume_times = -1
    send.unit_mode = send.batch = False
    for i in range(head.fields):
        if head.code == 10:
            letter = _long_send_name(head.name[i])
        else:
            letter = head.name[i].at[0] if head.name[i].length == 1 else 0
        text = head.value[i]
        if letter == c"i":
            properties = _properties(text)
            continue
        if letter < c"a" or letter > c"m":
            continue
        if text.escaped or text.is_wide:
            return None
        seen |= 1 << (letter - c"a")
        if letter == c"a":
            send.group = _name(text)
        elif letter == c"b":
            send.topic = _name(text)
        elif letter == c"c":
            send.default_topic = _name(text)
        elif letter == c"d":
            good = _small(text, &send.default_queues)
        elif letter == c"e":
            good = _small(text, &send.queue_id)
        elif letter == c"f":
            good = _small(text, &send.sys_flag)
        elif letter == c"g":
            good = _wide(text, &send.born_ms)
        elif letter == c"h":
            good = _small(text, &send.flag)
        elif letter == c"j":
            good = text.length == 0 or _small(text, &send.reconsume_times)
        elif letter == c"k":
            send.unit_mode = _truth(text)
        elif letter == c"l":
            good = text.length == 0 or _small(text, &send.max_reconsume_times)
        else:
            send.batch = _truth(text)
        if not good:
            return None
    if seen & 0xFF != 0xFF:
        return None
    send.code = head.code
    send.language = head.language
    send.version = head.version
    send.opaque = head.opaque
    send.rpc_flag = head.flag
    send.serialization = serialization
    send.body = PyBytes_FromStringAndSize(<const char*>body, body_bytes)
    send.born_host = b""
    send.prepared_offset = 0
    send.queue_offset = send.log_offset = -1
    send.size = 0
    scan_into(send, properties)
    return send


cdef object _pull(Head* head, int serialization):
    """The Pull that these fields make, or None for the pure code to decide."""
    cdef Pull pull = Pull.__new__(Pull)
    cdef int i, n, seen = 0
    cdef const unsigned char* name
    cdef Text text
    cdef bint good = True
    pull.subscription = pull.expression_type = None
    pull.bytes_max = -1
    for i in range(head.fields):
        name = head.name[i].at
        n = head.name[i].length
        text = head.value[i]
        if text.escaped or text.is_wide:
            return None
        if n == 13 and memcmp(name, b"consumerGroup", 13) == 0:
            pull.group = _name(text)
            seen |= 1
        elif n == 5 and memcmp(name, b"topic", 5) == 0:
            pull.topic = _name(text)
            seen |= 2
        elif n == 7 and memcmp(name, b"queueId", 7) == 0:
            good = _small(text, &pull.queue_id)
            seen |= 4
        elif n == 11 and memcmp(name, b"queueOffset", 11) == 0:
            good = _wide(text, &pull.queue_offset)
            seen |= 8
        elif n == 10 and memcmp(name, b"maxMsgNums", 10) == 0:
            good = _small(text, &pull.count_max)
            seen |= 16
        elif n == 7 and memcmp(name, b"sysFlag", 7) == 0:
            good = _small(text, &pull.sys_flag)
            seen |= 32
        elif n == 12 and memcmp(name, b"commitOffset", 12) == 0:
            good = _wide(text, &pull.commit_offset)
            seen |= 64
        elif n == 20 and memcmp(name, b"suspendTimeoutMillis", 20) == 0:
            good = _wide(text, &pull.suspend_ms)
            seen |= 128
        elif n == 10 and memcmp(name, b"subVersion", 10) == 0:
            good = _wide(text, &pull.sub_version)
            seen |= 256
        elif n == 12 and memcmp(name, b"subscription", 12) == 0:
            pull.subscription = _name(text)
        elif n == 14 and memcmp(name, b"expressionType", 14) == 0:
            pull.expression_type = _name(text)
        elif n == 11 and memcmp(name, b"maxMsgBytes", 11) == 0:
            good = text.length == 0 or _small(text, &pull.bytes_max)
        if not good:
            return None
    if seen != 511:
        return None
    pull.code = head.code
    pull.language = head.language
    pull.version = head.version
    pull.opaque = head.opaque
    pull.rpc_flag = head.flag
    pull.serialization = serialization
    return pull


cdef object _end(Head* head, int serialization):
    """The End that these fields make, or None for the pure code to decide."""
    cdef End end = End.__new__(End)
    cdef int i, n, seen = 0
    cdef const unsigned char* name
    cdef Text text
    cdef bint good = True
    end.message_id = end.transaction_id = ""
    end.from_check = False
    for i in range(head.fields):
        name = head.name[i].at
        n = head.name[i].length
        text = head.value[i]
        if text.escaped or text.is_wide:
            return None
        if n == 13 and memcmp(name, b"producerGroup", 13) == 0:
            end.group = _name(text)
            seen |= 1
        elif n == 20 and memcmp(name, b"tranStateTableOffset", 20) == 0:
            good = _wide(text, &end.queue_offset)
            seen |= 2
        elif n == 15 and memcmp(name, b"commitLogOffset", 15) == 0:
            good = _wide(text, &end.log_offset)
            seen |= 4
        elif n == 16 and memcmp(name, b"commitOrRollback", 16) == 0:
            good = _small(text, &end.kind)
            seen |= 8
        elif n == 20 and memcmp(name, b"fromTransactionCheck", 20) == 0:
            end.from_check = _truth(text)
        elif n == 5 and memcmp(name, b"msgId", 5) == 0:
            end.message_id = ascii_text(text.at, text.length)
        elif n == 13 and memcmp(name, b"transactionId", 13) == 0:
            end.transaction_id = ascii_text(text.at, text.length)
        if not good:
            return None
    if seen != 15:
        return None
    end.code = head.code
    end.language = head.language
    end.version = head.version
    end.opaque = head.opaque
    end.rpc_flag = head.flag
    end.serialization = serialization
    return end


cdef object _command(Head* head, int serialization, const unsigned char* body, Py_ssize_t body_bytes):
    """The Command that these fields make."""
    cdef dict ext = {}
    cdef int i
    for i in range(head.fields):
        ext[_field_name(head.name[i])] = _properties(head.value[i]).decode("utf-8")
    return Command(
        head.code, language=head.language, version=head.version, opaque=head.opaque, flag=head.flag, ext=ext,
        remark=ascii_text(head.remark.at, head.remark.length) if head.has_remark else None,
        body=PyBytes_FromStringAndSize(<const char*>body, body_bytes), serialization=serialization,
    )


cdef object _scanned(const unsigned char* at, int header_bytes, Py_ssize_t body_bytes, int serialization):
    cdef Head head
    cdef const unsigned char* body = at + header_bytes
    if not (scan_binary(at, body, &head) if serialization else scan_json(at, body, &head)):
        return None
    if not head.flag & 1:
        if head.code == 310 or head.code == 10 or head.code == 320:
            return _send(&head, serialization, body, body_bytes)
        if head.code == 11 or head.code == 361:
            return _pull(&head, serialization)
        if head.code == 37:
            return _end(&head, serialization)
    return None if head.remarked else _command(&head, serialization, body, body_bytes)


cdef object _as_ours(object request):
    """The pure code's hot request as one of our class."""
    if type(request) is PureSend:
        ours, fields = Send(), SEND_FIELDS
    elif type(request) is PurePull:
        ours, fields = Pull(), PULL_FIELDS
    elif type(request) is PureEnd:
        ours, fields = End(), END_FIELDS
    else:
        return request
    for field in fields:
        setattr(ours, field, getattr(request, field))
    return ours


cpdef tuple decode(object buffer, Py_ssize_t start, Py_ssize_t end):
    """Every whole frame in buffer[start:end], and where the first unfinished one begins; see the pure twin."""
    cdef Py_buffer view
    cdef const unsigned char* base
    cdef unsigned int length, header_bytes
    cdef int serialization
    cdef Py_ssize_t stop
    cdef list requests = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"frames: [{start}, {end}) of a buffer of {view.len} bytes")
        base = <const unsigned char*>view.buf
        while end - start >= 8:
            length = read_u32(base + start)
            header_bytes = read_u32(base + start + 4) & 0xFFFFFF
            serialization = base[start + 4]
            if length < 4 or length > <unsigned int>(FRAME_MAX - 4) or header_bytes > length - 4 or serialization > 1:
                return pure.decode(buffer, start, end)  # says what is wrong with it
            stop = start + 4 + length
            if stop > end:
                return start, requests
            request = _scanned(base + start + 8, <int>header_bytes, <Py_ssize_t>(length - 4 - header_bytes), serialization)
            if request is None:
                request = _as_ours(pure.decode(buffer, start, stop)[1][0])
            requests.append(request)
            start = stop
    finally:
        PyBuffer_Release(&view)
    if end - start >= 4:
        frame_length(buffer, start, end)
    return start, requests


cdef bint _is_plain(bytes text):
    """Whether JSON writes these bytes as they are."""
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(text)):
        if at[i] < 0x20 or at[i] > 0x7E or at[i] == c'\"' or at[i] == c"\\":
            return False
    return True


cdef unsigned char* _put_hex(unsigned char* at, unsigned long long value) noexcept nogil:
    """Write a number as sixteen upper-case hexadecimal digits."""
    cdef int i
    for i in range(16):
        at[i] = b"0123456789ABCDEF"[(value >> (60 - 4 * i)) & 15]
    return at + 16


cdef bytes _prefix(bytes store_host, str region):
    """Everything of a reply before the log offset in its message id, taken from the pure twin's own words."""
    probe = bytes(pure.encode_send_replies([PureSend(rpc_flag=0, unique_key=b"k")], store_host, region))
    return probe[8 : probe.index(store_host.hex().upper().encode(), 8) + 2 * len(store_host)]


cdef dict prefixes = {}


cdef bytes _prefix_of(bytes store_host, str region):
    cdef bytes prefix = prefixes.get((store_host, region))
    if prefix is None:
        if len(prefixes) > 64:
            prefixes.clear()
        prefix = prefixes[store_host, region] = _prefix(store_host, region)
    return prefix


cdef inline unsigned char* _put_place(unsigned char* at, Send first) noexcept:
    """Write the queue and the queue offset of a stored message, behind its id."""
    at = put_bytes(at, b'","queueId":"', 13)
    at = put_decimal(at, first.queue_id)
    at = put_bytes(at, b'","queueOffset":"', 17)
    return put_decimal(at, first.queue_offset)


cdef inline int _end_stored(unsigned char* start, unsigned char* at, long long opaque) noexcept:
    """Write what follows the unique key, and the lengths in front; return the bytes of the frame."""
    cdef int n
    at = put_bytes(at, b'"},"flag":1,"language":"PYTHON","opaque":', 41)
    at = put_decimal(at, opaque)
    at = put_bytes(at, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
    at = put_decimal(at, VERSION_NUMBER)
    at[0] = c"}"
    n = <int>(at + 1 - start)
    put_u32(start, <unsigned int>(n - 4))
    put_u32(start + 4, <unsigned int>(n - 8))
    return n


def encode_joint_reply(opaque, sends, bytes store_host, str region):
    """The success reply of a batch whose messages are stored; see the pure twin."""
    cdef bytes prefix = _prefix_of(store_host, region), reply
    cdef bytes host = store_host.hex().upper().encode()
    cdef Py_ssize_t prefix_bytes = PyBytes_GET_SIZE(prefix), host_bytes = PyBytes_GET_SIZE(host)
    cdef Py_ssize_t room = prefix_bytes + 340, number = 0
    cdef unsigned char* start
    cdef unsigned char* at
    cdef Send send
    for send in sends:
        if not _is_plain(send.unique_key):
            return pure.encode_joint_reply(opaque, sends, store_host, region)
        room += host_bytes + 18 + PyBytes_GET_SIZE(send.unique_key)
    reply = PyBytes_FromStringAndSize(NULL, room)
    start = <unsigned char*>PyBytes_AS_STRING(reply)
    at = put_bytes(start + 8, PyBytes_AS_STRING(prefix), prefix_bytes)
    for send in sends:
        if number:
            at = put_bytes(at, b",", 1)
            at = put_bytes(at, PyBytes_AS_STRING(host), host_bytes)
        at = _put_hex(at, <unsigned long long>send.log_offset)
        number += 1
    at = _put_place(at, sends[0])
    at = put_bytes(at, b'","transactionId":"', 19)
    number = 0
    for send in sends:
        if number:
            at = put_bytes(at, b",", 1)
        at = put_bytes(at, PyBytes_AS_STRING(send.unique_key), PyBytes_GET_SIZE(send.unique_key))
        number += 1
    return reply[: _end_stored(start, at, opaque)]


def encode_send_replies(sends, bytes store_host, str region, handles=()):
    """The success replies of stored sends, one frame each, in their order; see the pure twin."""
    cdef bytearray out = bytearray()
    cdef bytes prefix = _prefix_of(store_host, region)
    cdef Py_ssize_t end = 0, room = 0, prefix_bytes = PyBytes_GET_SIZE(prefix), unique_bytes, handle_bytes, number = -1
    cdef bytes handle = b""
    cdef bint has_handles = bool(handles)
    cdef unsigned char* start
    cdef unsigned char* at
    cdef Send send
    for send in sends:
        number += 1
        if send.rpc_flag & 2:
            continue
        if has_handles:
            handle = handles[number]
        handle_bytes = PyBytes_GET_SIZE(handle)
        if not _is_plain(send.unique_key):
            PyByteArray_Resize(out, end)
            twin = PureSend(rpc_flag=0, opaque=send.opaque, queue_id=send.queue_id, unique_key=send.unique_key)
            twin.queue_offset, twin.log_offset = send.queue_offset, send.log_offset
            out += pure.encode_send_replies([twin], store_host, region, [handle])
            end = room = len(out)
            continue
        unique_bytes = PyBytes_GET_SIZE(send.unique_key)
        if room - end < prefix_bytes + unique_bytes + handle_bytes + 340:
            room = 2 * room + prefix_bytes + unique_bytes + handle_bytes + 340
            PyByteArray_Resize(out, room)
        start = <unsigned char*>PyByteArray_AS_STRING(out) + end
        memcpy(start + 8, PyBytes_AS_STRING(prefix), <size_t>prefix_bytes)
        at = _put_hex(start + 8 + prefix_bytes, <unsigned long long>send.log_offset)
        at = _put_place(at, send)
        if handle_bytes:
            at = put_bytes(at, b'","recallHandle":"', 18)
            at = put_bytes(at, PyBytes_AS_STRING(handle), handle_bytes)
        at = put_bytes(at, b'","transactionId":"', 19)
        at = put_bytes(at, PyBytes_AS_STRING(send.unique_key), unique_bytes)
        end += _end_stored(start, at, send.opaque)
    PyByteArray_Resize(out, end)
    return out


cdef bytes success_head, success_tail
success_head, success_tail = (pure._SUCCESS % 0).split(b'"opaque":0')
success_head += b'"opaque":'


def encode_end_replies(ends):
    """The success replies of ends that are not one-way, and how many; see the pure twin."""
    cdef Py_ssize_t head = PyBytes_GET_SIZE(success_head), tail = PyBytes_GET_SIZE(success_tail), used = 0
    cdef Py_ssize_t each = 8 + head + 20 + tail
    cdef bytearray out = bytearray()
    cdef unsigned char* start
    cdef unsigned char* at
    cdef int n, count = 0
    cdef End end
    PyByteArray_Resize(out, each * len(ends))
    start = <unsigned char*>PyByteArray_AS_STRING(out)
    for end in ends:
        if end.rpc_flag & 2:
            continue
        at = put_bytes(start + 8, PyBytes_AS_STRING(success_head), head)
        at = put_decimal(at, end.opaque)
        at = put_bytes(at, PyBytes_AS_STRING(success_tail), tail)
        n = <int>(at - start)
        put_u32(start, <unsigned int>(n - 4))
        put_u32(start + 4, <unsigned int>(n - 8))
        start += n
        used += n
        count += 1
    PyByteArray_Resize(out, used)
    return out, count


cdef int VERSION_NUMBER = VERSION

# A cimported class is no attribute of this module; its users expect it beside `decode`, as in the pure twin.
globals().update(Send=Send, Pull=Pull, End=End)
