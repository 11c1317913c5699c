# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.runs`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from gantry.leaves._fast.properties cimport scan_into
from gantry.leaves._fast.records cimport Entry
from gantry.leaves._fast.requests cimport Send

cdef extern from *:
    """
    #define _GNU_SOURCE
    #include <string.h>
    void* memmem(const void*, size_t, const void*, size_t);
    """
    void* memmem(const void* hay, size_t hay_bytes, const void* needle, size_t needle_bytes) nogil

from gantry.leaves import properties as pure
from gantry.leaves.records import split_batch
from gantry.leaves.runs import KIND_DELAY, KIND_FIFO, KIND_NORMAL

cdef enum:
    DELAY = 1
    TRANSACTION = 2
    UNIQUE_KEY = 4
    POP_CK = 32
    TIMER_CANCEL = 512
    ENDS_OPEN = 1024
    SHARDING_KEY = 2048
    NAMES_DELAY = 4096
    NORMAL = 1
    FIFO = 2
    DELAYED = 3
    TRANSACTION_BITS = 0xC
    V6_HOSTS = 0x30
    V6_BORN = 0x10
    V6_STORE = 0x20
    UNWRITTEN_BYTES = 512
    BATCH_HEAD_BYTES = 20
    BATCH_BYTES_MIN = 22

cdef bytes UNWRITTEN = pure.UNWRITTEN
assert len(UNWRITTEN) == UNWRITTEN_BYTES
cdef tuple NO_QUEUE = (0, 0)
assert (KIND_NORMAL, KIND_FIFO, KIND_DELAY) == (1, 2, 3)
assert (pure.TRAIT_DELAY, pure.TRAIT_TRANSACTION, pure.TRAIT_TIMER_CANCEL) == (1, 2, 512)
assert (pure.TRAIT_SHARDING_KEY, pure.TRAIT_NAMES_DELAY) == (2048, 4096)
assert (pure.TRAIT_UNIQUE_KEY, pure.TRAIT_POP_CK, pure.TRAIT_ENDS_OPEN, pure.PAIR_END) == (4, 32, 1024, b"\x02")


def plain(sends, queues, Py_ssize_t body_bytes_max, Py_ssize_t properties_bytes_max, Py_ssize_t unique_key_bytes_max,
          int traits, int sys_flags):
    """How many messages from the first on are plain; see the pure twin."""
    cdef Py_ssize_t number = 0
    cdef str topic = None
    cdef int queue_count = 0
    cdef Send send
    for send in sends:
        if send.topic is not topic:
            topic = send.topic
            queue_count = queues.get(topic, 0)
        if (
            send.queue_id < 0 or send.queue_id >= queue_count or send.batch or send.traits & traits
            or send.sys_flag & sys_flags or PyBytes_GET_SIZE(send.body) > body_bytes_max
            or PyBytes_GET_SIZE(send.properties) > properties_bytes_max
            or PyBytes_GET_SIZE(send.unique_key) > unique_key_bytes_max
            or (PyBytes_GET_SIZE(send.properties) >= UNWRITTEN_BYTES and UNWRITTEN in send.properties)
        ):
            break
        number += 1
    return number


def sort(sends, queues, typed, Py_ssize_t body_bytes_max, Py_ssize_t properties_bytes_max,
         Py_ssize_t unique_key_bytes_max):
    """The plain messages and those that ask for a delay; see the pure twin."""
    cdef list plain_ones = [], delayed = []
    cdef str topic = None
    cdef int queue_count = 0, kind = 0
    cdef Send send
    for send in sends:
        if send.topic is not topic:
            topic = send.topic
            queue_count, kind = queues.get(topic, 0), 0
            if queue_count == 0:
                queue_count, kind = typed.get(topic, NO_QUEUE)
        if (
            send.queue_id < 0 or send.queue_id >= queue_count or send.batch or send.traits & (TRANSACTION | TIMER_CANCEL)
            or send.sys_flag & TRANSACTION_BITS or PyBytes_GET_SIZE(send.body) > body_bytes_max
            or PyBytes_GET_SIZE(send.properties) > properties_bytes_max
            or PyBytes_GET_SIZE(send.unique_key) > unique_key_bytes_max
            or (PyBytes_GET_SIZE(send.properties) >= UNWRITTEN_BYTES and UNWRITTEN in send.properties)
            or (kind and kind != (DELAYED if send.traits & (DELAY | NAMES_DELAY)
                                  else FIFO if send.traits & SHARDING_KEY else NORMAL))
        ):
            return None
        if send.traits & DELAY:
            delayed.append(send)
        else:
            plain_ones.append(send)
    return plain_ones, delayed


cdef inline int _int(const unsigned char* at) noexcept nogil:
    return <int>((<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3])


cdef inline short _short(const unsigned char* at) noexcept nogil:
    return <short>((<unsigned int>at[0] << 8) | at[1])


cdef Py_ssize_t _count(const unsigned char* at, const unsigned char* end) noexcept nogil:
    """How many messages a batch's body has; 0 when it is no batch."""
    cdef Py_ssize_t count = 0, size, body_bytes
    while at < end:
        if end - at < BATCH_BYTES_MIN:
            return 0
        size = _int(at)
        body_bytes = _int(at + 16)
        if size < BATCH_BYTES_MIN or size > end - at or body_bytes < 0 or body_bytes > size - BATCH_BYTES_MIN:
            return 0
        if BATCH_BYTES_MIN + body_bytes + _short(at + BATCH_HEAD_BYTES + body_bytes) != size:
            return 0
        at += size
        count += 1
    return count


def unpack(Send request, Py_ssize_t count_max):
    """How many messages a batch request has, and the messages; see the pure twin."""
    cdef bytes shared = request.properties, text
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(request.body)
    cdef const unsigned char* end = at + PyBytes_GET_SIZE(request.body)
    cdef Py_ssize_t count = _count(at, end), shared_bytes, own_bytes, body_bytes
    cdef list sends = []
    cdef Send send
    if count == 0:
        split_batch(request.body)
        raise AssertionError("the twins differ: one of them can read this batch")
    if count > count_max:
        return count, sends
    if shared and not shared.endswith(b"\x02"):
        shared += b"\x02"
    shared_bytes = PyBytes_GET_SIZE(shared)
    while at < end:
        body_bytes = _int(at + 16)
        own_bytes = _int(at) - BATCH_BYTES_MIN - body_bytes
        send = Send.__new__(Send)
        send.code = request.code
        send.language = request.language
        send.version = request.version
        send.opaque = request.opaque
        send.rpc_flag = request.rpc_flag
        send.group = request.group
        send.topic = request.topic
        send.default_topic = ""
        send.default_queues = 4
        send.queue_id = request.queue_id
        send.sys_flag = request.sys_flag
        send.born_ms = request.born_ms
        send.flag = _int(at + 12)
        send.reconsume_times = request.reconsume_times
        send.max_reconsume_times = -1
        send.born_host = b""
        send.queue_offset = send.log_offset = -1
        send.body = PyBytes_FromStringAndSize(<const char*>at + BATCH_HEAD_BYTES, body_bytes)
        at += BATCH_BYTES_MIN + body_bytes
        text = PyBytes_FromStringAndSize(NULL, shared_bytes + own_bytes)
        memcpy(PyBytes_AS_STRING(text), PyBytes_AS_STRING(shared), <size_t>shared_bytes)
        memcpy(PyBytes_AS_STRING(text) + shared_bytes, at, <size_t>own_bytes)
        at += own_bytes
        scan_into(send, text)
        sends.append(send)
    return count, sends


def seal(gathered, bytes suffix, bytes mark, in_order):
    """Give each message its address and the broker's properties; see the pure twin."""
    cdef list joint = []
    cdef Py_ssize_t suffix_bytes = PyBytes_GET_SIZE(suffix), text_bytes
    cdef bytes text, sealed, born_host
    cdef char* at
    cdef bint ends_open
    cdef Send send
    for peer, sends in gathered:
        born_host = peer.born_host
        for send in sends:
            text = send.properties
            text_bytes = PyBytes_GET_SIZE(text)
            ends_open = False
            if send.traits & (UNIQUE_KEY | POP_CK) != UNIQUE_KEY or memmem(
                PyBytes_AS_STRING(text), <size_t>text_bytes, PyBytes_AS_STRING(mark), <size_t>PyBytes_GET_SIZE(mark)
            ) != NULL:
                text = in_order(send)
                text_bytes = PyBytes_GET_SIZE(text)
            elif send.traits & ENDS_OPEN:
                ends_open = True
                send.traits &= ~ENDS_OPEN
            sealed = PyBytes_FromStringAndSize(NULL, text_bytes + ends_open + suffix_bytes)
            at = PyBytes_AS_STRING(sealed)
            memcpy(at, PyBytes_AS_STRING(text), <size_t>text_bytes)
            at += text_bytes
            if ends_open:
                at[0] = 2
                at += 1
            memcpy(at, PyBytes_AS_STRING(suffix), <size_t>suffix_bytes)
            send.properties = sealed
            send.born_host = born_host
            send.sys_flag &= ~TRANSACTION_BITS
            joint.append(send)
    return joint


def entries(sends, long long store_ms, int store_host_bytes):
    """What the log holds of these messages; see the pure twin."""
    cdef list found = []
    cdef int store_bit = V6_STORE if store_host_bytes == 20 else 0
    cdef Send send
    cdef Entry entry
    for send in sends:
        entry = Entry.__new__(Entry)
        entry.log_offset = send.log_offset
        entry.size = send.size
        entry.topic = send.topic
        entry.queue_id = send.queue_id
        entry.queue_offset = send.queue_offset
        entry.tags_code = send.tags_code
        entry.store_ms = store_ms
        entry.sys_flag = (send.sys_flag & ~V6_HOSTS) | (V6_BORN if PyBytes_GET_SIZE(send.born_host) == 20 else 0) | store_bit
        entry.prepared_offset = send.prepared_offset
        entry.unique_key = send.unique_key
        entry.keys = send.keys
        entry.properties = send.properties
        entry.born_ms = send.born_ms
        found.append(entry)
    return found
