# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.openhalves`."""

from sys import intern

import cython

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from gantry.errors import CorruptRecordError
from gantry.leaves import openhalves as pure
from gantry.leaves._fast.halves cimport HalfFacts, message_of, read_facts
from gantry.leaves._fast.octets cimport read_i64, read_u32
from gantry.leaves._fast.records cimport Entry
from gantry.leaves._fast.requests cimport End, Send

from gantry.leaves._fast.halves import message_at
from gantry.leaves.openhalves import COMMIT, LETTERS, ROLLBACK, STATE

cdef enum:
    SYS_COMMIT = 8
    SYS_ROLLBACK = 12
    TRANSACTION_BITS = 0xC
    DELAYS = 513
    DIGITS_SURE = 19
    BOUNDS_MAX = 32

assert (COMMIT, ROLLBACK, STATE, LETTERS, pure._DIGITS_SURE) == (8, 12, b"GANTRY_TX", b" crg", 19)
assert pure._DELAYS == 513

cdef long long TAGS_CODE = pure._TAGS_CODE
cdef long long EXACT_MS = <long long>1 << 50  # differences below it are exact as doubles
cdef HalfFacts scratch = HalfFacts(b"", 0)


@cython.freelist(512)
cdef class OpenHalf:
    """An open transaction; `gantry.leaves.openhalves.OpenHalf`."""

    cdef public long long root, current, log_offset, queue_id, checks, since_ms, placed_ms
    cdef public int size
    cdef public str group, topic, batch_text
    cdef public object immunity_ms, batch

    def __init__(self, long long current, tuple place, facts, long long store_ms):
        self.root = facts.root
        self.current = current
        self.log_offset, self.size = place
        self.group, self.topic = intern(facts.group), intern(facts.topic)
        self.queue_id = facts.queue_id
        self.checks = facts.checks
        self.immunity_ms = facts.immunity_ms
        self.since_ms = facts.since_ms or store_ms
        self.placed_ms = store_ms
        self.batch_text = facts.batch

    @staticmethod
    def of(record, facts):
        """Make an OpenHalf of a record; whether the transaction is still open is not checked."""
        place = (record.log_offset, record.size)
        return OpenHalf(record.queue_offset, place, facts, record.store_ms)


cdef class _TopicCounts:
    """Changes of the numbers of open halves, gathered while neighbours have the same topic."""

    cdef dict topics
    cdef str topic
    cdef Py_ssize_t change

    def __cinit__(self, dict topics):
        self.topics, self.topic, self.change = topics, None, 0

    cdef int note(self, str topic, int change) except -1:
        if topic is not self.topic:
            self.carry_out()
            self.topic = topic
        self.change += change
        return 0

    cdef int carry_out(self) except -1:
        cdef Py_ssize_t left
        if self.change:
            left = self.topics.get(self.topic, 0) + self.change
            if left:
                self.topics[self.topic] = left
            else:
                del self.topics[self.topic]
        self.change = 0
        return 0


def enter(entries, Py_ssize_t at, dict is_open, dict topics, long long half_end):
    """Enter the usual halves from entries[at] on; see the pure twin."""
    cdef list entered = [], pairs = []
    cdef str group = None, topic = None
    cdef _TopicCounts counts = _TopicCounts(topics)
    cdef HalfFacts facts = scratch
    cdef Entry entry
    cdef OpenHalf half
    cdef Py_ssize_t number
    try:
        for number in range(at, len(entries)):
            entry = entries[number]
            if entry.queue_offset != half_end:
                break
            read_facts(facts, entry.properties, half_end, False)
            if facts.root != half_end or facts.batch:
                break
            half = OpenHalf.__new__(OpenHalf)
            half.root = half.current = half_end
            half.log_offset, half.size = entry.log_offset, entry.size
            half.group, half.topic, half.batch_text = facts.group, facts.topic, facts.batch
            half.queue_id = facts.queue_id
            half.checks = facts.checks
            half.immunity_ms = facts.immunity_ms
            half.since_ms = facts.since_ms or entry.store_ms
            half.placed_ms = entry.store_ms
            is_open[half_end] = half
            counts.note(half.topic, 1)
            if half.group is not group or half.topic is not topic:
                group, topic = half.group, half.topic
                pairs.append((group, topic))
            half_end += 1
            entered.append(half)
    finally:
        counts.carry_out()
    return entered, pairs


def match(ends, dict is_open, long long warm_from):
    """The halves that these ends name, how many ends answer a check, and the bytes of the halves; see the pure twin."""
    cdef list found = []
    cdef Py_ssize_t checks = 0
    cdef long long total = 0
    cdef End end
    cdef OpenHalf half
    for end in ends:
        half = is_open.get(end.queue_offset)
        if (
            half is None or (end.kind != SYS_COMMIT and end.kind != SYS_ROLLBACK)
            or half.log_offset != end.log_offset or half.log_offset < warm_from or half.group != end.group
        ):
            return None
        checks += end.from_check
        total += half.size
        found.append(half)
    return found, checks, total


cdef Send _blank_send():
    """A message with the values that `Send()` gives it."""
    cdef Send send = Send.__new__(Send)
    send.code = send.language = send.version = send.opaque = send.serialization = 0
    send.rpc_flag = 2
    send.group = send.topic = send.default_topic = ""
    send.default_queues = 4
    send.queue_id = send.sys_flag = send.flag = send.reconsume_times = send.traits = send.size = 0
    send.max_reconsume_times = -1
    send.born_ms = send.prepared_offset = 0
    send.unit_mode = send.batch = False
    send.unique_key = b""
    send.queue_offset = send.log_offset = -1
    return send


cdef Send _op(long long root, char letter, str topic, long long born_ms, bytes host):
    """The op message of a usual end."""
    cdef char digits[24]
    cdef int n = 24
    cdef unsigned long long rest = <unsigned long long>(root if root >= 0 else -root)
    cdef Send send = _blank_send()
    cdef Py_ssize_t length
    cdef char* at
    while True:
        n -= 1
        digits[n] = <char>(c"0" + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if root < 0:
        n -= 1
        digits[n] = c"-"
    length = 24 - n
    send.topic, send.born_ms, send.born_host = topic, born_ms, host
    send.body = send.keys = PyBytes_FromStringAndSize(&digits[n], length)
    send.properties = PyBytes_FromStringAndSize(NULL, 12 + length + 11 + length + 2)
    at = PyBytes_AS_STRING(send.properties)
    memcpy(at, b"TAGS\x01d\x02KEYS\x01", 12)
    memcpy(at + 12, &digits[n], <size_t>length)
    at += 12 + length
    memcpy(at, b"\x02GANTRY_TX\x01", 11)
    memcpy(at + 11, &digits[n], <size_t>length)
    at += 11 + length
    at[0] = letter
    at[1] = 2
    send.tags_code = TAGS_CODE
    return send


cdef Send _real(memory, Py_buffer* view, long long at, OpenHalf half):
    """The message of the half's record, as a commit appends it; None for anything else that stands there."""
    cdef Send send = None
    cdef const unsigned char* place = <const unsigned char*>view.buf + at
    if 0 <= at and half.size >= 91 and at + half.size <= view.len:
        if <int>read_u32(place) != half.size or read_i64(place + 28) != half.log_offset:
            return None
        send = message_of(place, half.size)
    if send is None:
        try:
            send = message_at(memory, at, at + half.size)
        except CorruptRecordError:
            return None
    if send.traits & DELAYS:
        return None
    _readdress(send, half.topic, half.queue_id, half.log_offset)
    return send


cdef int _readdress(Send send, str topic, long long queue_id, long long log_offset) except -1:
    send.topic = topic
    send.queue_id = <int>queue_id
    send.sys_flag = (send.sys_flag & ~TRANSACTION_BITS) | SYS_COMMIT
    send.prepared_offset = log_offset
    return 0


def make_real(Send send, str topic, int queue_id, long long log_offset):
    """Make the message of a half record the one that a commit appends; see the pure twin."""
    _readdress(send, topic, queue_id, log_offset)


def op_message(tuple stamp, bytes body, bytes key, bytes state):
    """An op message with this body, key and GANTRY_TX; see the pure twin."""
    cdef Send send = _blank_send()
    send.topic, send.born_ms, send.born_host = stamp
    keys = b"KEYS\x01%b\x02" % key if key else b""
    send.properties = b"TAGS\x01d\x02%bGANTRY_TX\x01%b\x02" % (keys, state)
    send.body = body
    send.keys = key
    send.tags_code = TAGS_CODE
    return send


def lay_out(ends, halves, tuple known, tuple stretch, queues_of, tuple stamp):
    """The run that ends these halves, and its op messages; see the pure twin."""
    cdef Py_buffer view
    cdef dict is_open, queues = {}
    cdef set seen = set()
    cdef list run = [], ops = []
    cdef long long start, stop, born_ms, queue_count
    cdef str op_topic
    cdef bytes host
    cdef Py_ssize_t number
    cdef End end
    cdef OpenHalf half
    cdef Send send
    memory, start, stop = stretch
    is_open, changing = known
    op_topic, born_ms, host = stamp
    cdef bint has_changes = len(changing) > 0
    if len(ends) != len(halves):
        raise ValueError(f"{len(ends)} ends of {len(halves)} halves")
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    try:
        for number in range(len(ends)):
            end, half = ends[number], halves[number]
            root = half.root
            if half.root != half.current or is_open.get(root) is not half or root in seen:
                return None
            if has_changes and root in changing:
                return None
            seen.add(root)
            if end.kind == SYS_COMMIT:
                found = queues.get(half.topic)
                if found is None:
                    found = queues[half.topic] = queues_of(half.topic)
                queue_count = found
                if half.queue_id < 0 or half.queue_id >= queue_count:
                    return None
                if half.log_offset < start or half.log_offset > stop - half.size:
                    return None
                send = _real(memory, &view, half.log_offset - start, half)
                if send is None:
                    return None
                run.append(send)
            send = _op(half.root, c"c" if end.kind == SYS_COMMIT else c"r", op_topic, born_ms, host)
            ops.append(send)
            run.append(send)
    finally:
        PyBuffer_Release(&view)
    return run, ops


@cython.final
cdef class _Sum:
    cdef Py_ssize_t commits, rollbacks
    cdef double seconds
    cdef list latencies


def tally(ends, halves, long long now_ms, tuple bounds_s):
    """Counts of ends by topic; see the pure twin."""
    cdef dict sums = {}
    cdef double bounds[BOUNDS_MAX]
    cdef Py_ssize_t count = len(bounds_s), number, place
    cdef double seconds
    cdef long long past_ms
    cdef End end
    cdef OpenHalf half
    cdef _Sum one
    if count > BOUNDS_MAX or len(ends) != len(halves):
        raise ValueError(f"{count} bounds, {len(ends)} ends of {len(halves)} halves")
    for number in range(count):
        bounds[number] = bounds_s[number]
    for number in range(len(ends)):
        end, half = ends[number], halves[number]
        one = sums.get(half.topic)
        if one is None:
            one = sums[half.topic] = _Sum()
            one.latencies = [0] * (count + 1)
        if end.kind != SYS_COMMIT:
            one.rollbacks += 1
            continue
        if -EXACT_MS < half.since_ms < EXACT_MS and -EXACT_MS < now_ms < EXACT_MS:
            past_ms = now_ms - half.since_ms
            seconds = <double>past_ms / 1000.0 if past_ms > 0 else 0.0
        else:
            seconds = max(0.0, (<object>now_ms - <object>half.since_ms) / 1000)
        one.commits += 1
        one.seconds += seconds
        place = 0
        while place < count and bounds[place] < seconds:
            place += 1
        one.latencies[place] = one.latencies[place] + 1
    return {topic: ((<_Sum>one).commits, (<_Sum>one).rollbacks, (<_Sum>one).seconds, (<_Sum>one).latencies) for topic, one in sums.items()}


cdef bint _state(bytes text, const unsigned char** at, Py_ssize_t* length) noexcept:
    """The value of GANTRY_TX in these properties; False where there is none."""
    cdef const unsigned char* here = <const unsigned char*>PyBytes_AS_STRING(text)
    cdef const unsigned char* end = here + PyBytes_GET_SIZE(text)
    cdef const unsigned char* stop
    cdef const unsigned char* mark
    length[0] = 0
    while here < end:
        stop = <const unsigned char*>memchr(here, 2, <size_t>(end - here))
        if stop == NULL:
            stop = end
        mark = <const unsigned char*>memchr(here, 1, <size_t>(stop - here))
        if mark != NULL and mark + 1 != stop and mark - here == 9 and memcmp(here, b"GANTRY_TX", 9) == 0:
            at[0] = mark + 1
            length[0] = stop - mark - 1
        here = stop + 1
    return length[0] != 0


def close(entries, Py_ssize_t at, dict is_open, dict topics, tuple outcomes, long long op_end):
    """End what the usual op messages from entries[at] on name; see the pure twin."""
    cdef list roots = []
    cdef _TopicCounts counts = _TopicCounts(topics)
    cdef bytearray bits
    cdef long long base, root, place
    cdef Py_ssize_t number, i, length = 0
    cdef const unsigned char* text = NULL
    cdef unsigned char* states
    cdef int outcome, shift
    cdef Entry entry
    cdef OpenHalf half
    bits, base = outcomes
    states = <unsigned char*>PyByteArray_AS_STRING(bits)
    try:
        for number in range(at, len(entries)):
            entry = entries[number]
            if entry.queue_offset != op_end or not _state(entry.properties, &text, &length):
                break
            if length < 2 or length > DIGITS_SURE:
                break
            root = 0
            for i in range(length - 1):
                if text[i] < c"0" or text[i] > c"9":
                    root = -1
                    break
                root = 10 * root + text[i] - c"0"
            if root < 0:
                break
            if text[length - 1] == c"c":
                outcome = 1
            elif text[length - 1] == c"r":
                outcome = 2
            elif text[length - 1] == c"g":
                outcome = 3
            else:
                break
            half = is_open.get(root)
            if half is None or half.root != root or half.batch is not None:
                break
            place = root - base
            if place < 0 or place >> 2 >= PyByteArray_GET_SIZE(bits):
                break
            shift = <int>((place & 3) << 1)
            if not 1 <= (states[place >> 2] >> shift) & 3 <= 2:
                states[place >> 2] = <unsigned char>((states[place >> 2] & ~(3 << shift)) | (outcome << shift))
            del is_open[root]
            counts.note(half.topic, -1)
            op_end += 1
            roots.append(root)
    finally:
        counts.carry_out()
    return roots


def following(dict is_open, long long at, long long end):
    """The first offset of an open half; see the pure twin."""
    while at < end and at not in is_open:
        at += 1
    return at


def done(const long long[:] last_named, Py_ssize_t count, long long half_offset):
    """How many ops name nothing at or behind `half_offset`; see the pure twin."""
    while count < last_named.shape[0] and last_named[count] < half_offset:
        count += 1
    return count
