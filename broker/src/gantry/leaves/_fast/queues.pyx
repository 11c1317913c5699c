# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.queues`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.string cimport memcpy

from gantry.leaves._fast.octets cimport put_u32, put_u64, read_i64, read_u32
from gantry.leaves._fast.records cimport Entry
from gantry.leaves._fast.requests cimport Send
from gantry.leaves.queues import ENTRY_BYTES, PRE_BLANK_SIZE, unpack

cdef enum:
    STEP = 20
    PRE_BLANK = 0x7FFFFFFF
    NO_QUEUE_BIT = 4
    SEEN_MAX = 32


def pack_entries(entries):
    """The bytes of these (log offset, size, tags code)."""
    cdef list items = list(entries)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, STEP * len(items))
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(out)
    cdef long long log_offset, tags_code
    cdef int size
    for log_offset, size, tags_code in items:
        put_u64(at, <unsigned long long>log_offset)
        put_u32(at + 8, <unsigned int>size)
        put_u64(at + 12, <unsigned long long>tags_code)
        at += STEP
    return out


cdef class _Seen:
    """The queues that a run has touched, in the order of their first message; few, so that looking is walking."""

    cdef list topics
    cdef int ids[SEEN_MAX]
    cdef long long following[SEEN_MAX]  # the next offset of each
    cdef int count

    def __cinit__(self):
        self.topics, self.count = [], 0

    cdef int find(self, str topic, int queue_id) except -2:
        """Return the number of this queue among those of the run, or -1."""
        cdef int number
        for number in range(self.count):
            if self.ids[number] == queue_id and (self.topics[number] is topic or self.topics[number] == topic):
                return number
        return -1

    cdef int add(self, str topic, int queue_id) except -2:
        """Add a queue and return its number; -1 when there is no room."""
        if self.count == SEEN_MAX:
            return -1
        self.topics.append(topic)
        self.ids[self.count] = queue_id
        self.count += 1
        return self.count - 1


def by_queue(entries):
    """Records of the log by the queue they belong to: (topic, queue id, records, packed entries, bytes); see the pure twin."""
    cdef dict more = {}  # of queues beyond those that are looked for by walking
    cdef list group, found = []
    cdef _Seen seen = _Seen()
    cdef int number
    cdef Entry entry
    for entry in entries:
        if entry.sys_flag & NO_QUEUE_BIT:
            continue
        number = seen.find(entry.topic, entry.queue_id)
        if number >= 0:
            (<list>(<tuple>found[number])[2]).append(entry)
            continue
        if seen.add(entry.topic, entry.queue_id) >= 0:
            found.append((entry.topic, entry.queue_id, [entry]))
            continue
        key = (entry.topic, entry.queue_id)
        group = more.get(key)
        if group is None:
            group = more[key] = []
            found.append((entry.topic, entry.queue_id, group))
        group.append(entry)
    return [(topic, queue_id, group, _packed(group), _bytes(group)) for topic, queue_id, group in found]


cdef long long _bytes(list group):
    cdef long long total = 0
    cdef Entry entry
    for entry in group:
        total += entry.size
    return total


cdef bytes _packed(list group):
    """The entries of records without a gap between them, else nothing."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, STEP * len(group))
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(out)
    cdef Entry entry
    cdef long long expected = (<Entry>group[0]).queue_offset
    for entry in group:
        if entry.queue_offset != expected:
            return b""
        expected += 1
        put_u64(at, <unsigned long long>entry.log_offset)
        put_u32(at + 8, <unsigned int>entry.size)
        put_u64(at + 12, <unsigned long long>entry.tags_code)
        at += STEP
    return out


def number(sends, heads):
    """Give each message the next offset of its queue; gives back the heads that follow.  See the pure twin."""
    cdef dict given = {}
    cdef _Seen seen = _Seen()
    cdef int place
    cdef Send send
    for send in sends:
        assert not send.sys_flag & NO_QUEUE_BIT, "a message that no queue shows would be acknowledged and lost"
        place = seen.find(send.topic, send.queue_id)
        if place < 0:
            key = (send.topic, send.queue_id)
            place = seen.add(send.topic, send.queue_id)
            if place < 0:
                offset = given.get(key)
                send.queue_offset = heads.get(key, 0) if offset is None else offset
                given[key] = send.queue_offset + 1
                continue
            seen.following[place] = heads.get(key, 0)
        send.queue_offset = seen.following[place]
        seen.following[place] += 1
    for place in range(seen.count):
        given[(seen.topics[place], seen.ids[place])] = seen.following[place]
    return given


def valid_count(buffer, Py_ssize_t start, Py_ssize_t end):
    """How many whole entries from `start` on are valid, up to the first that is not or the end of the range."""
    cdef Py_buffer memory
    cdef const unsigned char* at
    cdef Py_ssize_t number = 0, count = max(end - start, 0) // STEP
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if count and not (0 <= start and start + count * STEP <= memory.len):
            raise ValueError(f"queues: [{start}, {end}) of a buffer of {memory.len} bytes")
        at = <const unsigned char*>memory.buf + start
        while number < count and not at[0] & 0x80 and 0 < <int>read_u32(at + 8):
            number += 1
            at += STEP
    finally:
        PyBuffer_Release(&memory)
    return number


cdef struct Place:
    long long log_offset
    long long size


cdef class Places:
    """(log offset, bytes) of records or of stretches; see the pure twin, a list, of which this has what is used."""

    cdef Place* items
    cdef Py_ssize_t count, room

    def __cinit__(self, places=()):
        cdef long long log_offset, size
        self.items, self.count, self.room = NULL, 0, 0
        for log_offset, size in places:
            self.add(log_offset, size)

    def __dealloc__(self):
        PyMem_Free(self.items)

    cdef int add(self, long long log_offset, long long size) except -1:
        cdef Place* items
        if self.count == self.room:
            items = <Place*>PyMem_Realloc(self.items, <size_t>max(32, 2 * self.room) * sizeof(Place))
            if items is NULL:
                raise MemoryError()
            self.items, self.room = items, max(32, 2 * self.room)
        self.items[self.count].log_offset, self.items[self.count].size = log_offset, size
        self.count += 1
        return 0

    def append(self, place):
        """Append a place."""
        log_offset, size = place
        self.add(log_offset, size)

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        if isinstance(at, slice):
            return [self.place(number) for number in range(*at.indices(self.count))]
        return self.place(at if at >= 0 else at + self.count)

    cdef tuple place(self, Py_ssize_t number):
        if not 0 <= number < self.count:
            raise IndexError("list index out of range")
        return (self.items[number].log_offset, self.items[number].size)

    def __eq__(self, other):
        return list(self) == list(other) if isinstance(other, (list, Places)) else NotImplemented

    def __repr__(self):
        return repr(list(self))

    @property
    def total(self):
        """Return the sum of the sizes of all places, in bytes."""
        cdef long long total = 0
        cdef Py_ssize_t number
        for number in range(self.count):
            total += self.items[number].size
        return total

    def within(self, long long start, long long end, long long segment_bytes):
        """How many places from the first on lie in [start, end) of the log, each in one segment; see the pure twin."""
        cdef Py_ssize_t number
        cdef long long log_offset, size
        for number in range(self.count):
            log_offset, size = self.items[number].log_offset, self.items[number].size
            if log_offset < start or size > end - log_offset or log_offset % segment_bytes + size > segment_bytes:
                return number
        return self.count

    def stretches(self):
        """The same places, neighbours as one."""
        cdef Places joined = Places()
        cdef Place* last
        cdef Py_ssize_t number
        cdef long long begun = 0, used = 0
        for number in range(self.count):
            last = &self.items[number]
            if used and last.log_offset == begun + used:
                used += last.size
                continue
            if used:
                joined.add(begun, used)
            begun, used = last.log_offset, last.size
        if used:
            joined.add(begun, used)
        return joined

    def gather(self, memory, long long base):
        """The bytes at these places one after the other; see the pure twin."""
        cdef Py_buffer view
        cdef long long total = 0, at, size
        cdef Py_ssize_t number
        cdef bytes out
        cdef char* to
        PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
        try:
            for number in range(self.count):
                at, size = self.items[number].log_offset, self.items[number].size
                if at < base or size < 0 or at - base > view.len or size > view.len - (at - base):
                    raise ValueError(f"queues: places outside of {view.len} bytes from {base} on")
                total += size
            out = PyBytes_FromStringAndSize(NULL, total)
            to = PyBytes_AS_STRING(out)
            for number in range(self.count):
                at, size = self.items[number].log_offset, self.items[number].size
                memcpy(to, <const char*>view.buf + (at - base), <size_t>size)
                to += size
        finally:
            PyBuffer_Release(&view)
        return out


def select(buffer, Py_ssize_t start, Py_ssize_t count, frozenset codes, Py_ssize_t count_max, long long bytes_max):
    """Of the `count` entries from `start` on, those to deliver, and how many were examined; see the pure twin."""
    cdef Py_buffer memory
    cdef const unsigned char* at
    cdef Places chosen = Places()
    cdef Py_ssize_t examined = 0
    cdef long long total = 0
    cdef int size
    PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE)
    try:
        if start < 0:
            raise ValueError(f"queues: a start of {start}")
        count = min(count, (memory.len - start) // STEP)
        at = <const unsigned char*>memory.buf + start
        while examined < count and chosen.count < count_max:
            size = <int>read_u32(at + 8)
            if at[0] & 0x80 or size <= 0:
                break
            if size != PRE_BLANK and (codes is None or <int>read_u32(at + 16) in codes):
                total += size
                if chosen.count and total > bytes_max:
                    break
                chosen.add(read_i64(at), size)
            examined += 1
            at += STEP
    finally:
        PyBuffer_Release(&memory)
    return chosen, examined
