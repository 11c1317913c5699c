# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Many sockets behind one descriptor: a pass reads all that are ready, and one call writes to all.

`Poll` owns an epoll descriptor, which the event loop watches like a single socket.  `Poll.receive` is one pass: without
Python's lock it asks which sockets are ready and reads each once, one behind the other, into the read buffer of all
connections.  With the lock it decodes them and hands over: sends of all connections as one list, everything else
connection by connection.  `Poll.flush` writes, without the lock, what was written to channels since the last one.

`Channel` is one socket.  It has the methods of asyncio's transport that `transport.connection` uses, and calls the same
methods of it that asyncio would (BufferedProtocol), with two differences: what was read into the common buffer comes
decoded to `received`, and `get_buffer` is asked only while a frame is unfinished.

Bounds: a pass reads at most what the buffer holds; sockets that found no room in it are read in the next pass before
any other, so a few that always have more to read keep nobody out.  Output is the protocol's to bound.

Level-triggered, and a socket that is neither read nor written is taken out of the epoll: a peer that is gone would wake
the loop for ever.  An exception of a protocol fails its channel only; the owner is told.

Only `transport.gathered` uses it: one thread, that of the loop.  Names are asyncio's, semantics those of its selector
loop: half a close by the peer ends the connection after the output.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset
from posix.unistd cimport close as close_descriptor

import os

from gantry.errors import RemoteProtocolError
from gantry.leaves._fast.frames cimport decode
from gantry.leaves._fast.requests cimport Send

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int op, int descriptor, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout)
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
        EPOLL_CLOEXEC

cdef extern from "<sys/socket.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t recv(int descriptor, void* at, size_t n, int flags)
    ssize_t send(int descriptor, const void* at, size_t n, int flags)
    ssize_t sendmsg(int descriptor, msghdr* message, int flags)
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL

cdef enum:
    EVENTS = 1024
    READ_LEAST = 16384  # no second read begins with less room in the buffer
    SENDS = 64  # channels whose output one step of a flush writes
    PIECES = 16  # pieces of output in one system call
    NOT_READ = -1000000  # else what recv returned, or -1 - errno

cdef struct Socket:
    int descriptor
    bint is_read  # nothing paused it
    bint is_odd  # has an unfinished frame: the protocol says where the next bytes go

cdef struct Ready:
    int slot
    uint32_t events
    Py_ssize_t start
    ssize_t got


cdef bint _all_sends(list requests):
    for request in requests:
        if type(request) is not Send:
            return False
    return len(requests) > 0


cdef class Channel:
    """One socket of a `Poll`; the protocol's transport."""

    cdef readonly object protocol
    cdef Poll poll
    cdef int descriptor, slot
    cdef uint32_t interest
    cdef bint is_dirty, is_ending, is_over, is_full
    cdef dict extra
    cdef list pending  # output in order, the first `head` bytes of the first piece are sent
    cdef list lengths  # of these pieces, when they were written
    cdef Py_ssize_t head, size, high, low

    def get_extra_info(self, str name, default=None):
        """What asyncio calls peername, sockname and socket."""
        return self.extra.get(name, default)

    def is_closing(self):
        """Whether it was closed, from either side."""
        return self.is_ending

    def set_write_buffer_limits(self, high=None, low=None):
        """Call `pause_writing` while more than `high` bytes wait, until `low` (a quarter) are left."""
        self.high = 65536 if high is None else high
        self.low = self.high // 4 if low is None else low

    def get_write_buffer_size(self):
        """How many bytes of output the system has not taken."""
        return self.size

    def write(self, data):
        """Send bytes with the next flush."""
        if not self.is_ending:
            self._append(data)
            self._written()

    def writelines(self, pieces):
        """Send several pieces with the next flush, in order."""
        if not self.is_ending:
            for data in pieces:
                self._append(data)
            self._written()

    def pause_reading(self):
        """Read nothing until `resume_reading`; what this pass has read is still handed over."""
        if not self.is_ending:
            self._read(False)

    def resume_reading(self):
        """Read again."""
        if not self.is_ending:
            self._read(True)

    def close(self):
        """Read nothing more, end when the output is sent."""
        if not self.is_ending:
            self.is_ending = True
            self._read(False)
            self._drained()

    def abort(self):
        """End at once, without the output."""
        self.fail(None)

    def fail(self, error):
        """End at once because of this error, or None; the protocol is told soon."""
        if not self.is_over:
            self.is_ending = self.is_over = True
            self.pending, self.lengths = [], []
            self.size = self.head = 0
            self._take_out()
            self.poll.owner.lost_soon(self, error)

    cdef int _append(self, data) except -1:
        cdef Py_ssize_t n
        if type(data) is not bytes and type(data) is not bytearray:
            data = memoryview(data).cast("B")  # the view keeps mapped memory from being given back
        n = len(data)
        if n:
            self.pending.append(data)
            self.lengths.append(n)
            self.size += n
        return 0

    cdef int _written(self) except -1:
        if not self.is_dirty and self.size:
            self.is_dirty = True
            self.poll.dirty.append(self)
            if not self.poll.in_turn:
                self.poll.owner.flush_soon()
        if self.size > self.high and not self.is_full:
            self.poll.write_out([self])
            if self.size > self.high and not self.is_full:
                self.is_full = True
                self.protocol.pause_writing()
        return 0

    cdef int _read(self, bint is_read) except -1:
        self.poll.sockets[self.slot].is_read = is_read
        return self._want((EPOLLIN if is_read else 0) | (self.interest & EPOLLOUT))

    cdef int _want(self, uint32_t interest) except -1:
        """Watch the socket for these events; for none, take it out."""
        cdef epoll_event event
        cdef int op
        if interest != self.interest:
            event.events = interest
            event.data.u64 = <uint64_t>self.slot
            op = EPOLL_CTL_DEL if interest == 0 else EPOLL_CTL_MOD if self.interest else EPOLL_CTL_ADD
            if epoll_ctl(self.poll.epoll, op, self.descriptor, &event):
                raise OSError(errno, os.strerror(errno))
            self.interest = interest
        return 0

    cdef int _take_out(self) except -1:
        """Free the slot: no event finds this channel any more."""
        cdef epoll_event event
        if self.slot >= 0:
            if self.interest:
                epoll_ctl(self.poll.epoll, EPOLL_CTL_DEL, self.descriptor, &event)
            self.interest = 0
            self.poll.sockets[self.slot].is_read = False
            self.poll.channels[self.slot] = None
            self.poll.free_slots.append(self.slot)
            self.slot = -1
        return 0

    cdef int _sent(self, Py_ssize_t n) except -1:
        """Forget the first n bytes of the output; `_drained` tells the protocol."""
        cdef Py_ssize_t whole, pieces = 0
        self.size -= n
        if self.size == 0:
            self.pending, self.lengths = [], []
            self.head = 0
        else:
            self.head += n
            for whole in self.lengths:
                if self.head < whole:
                    break
                self.head -= whole
                pieces += 1
            del self.pending[:pieces]
            del self.lengths[:pieces]
        return 0

    cdef int _drained(self) except -1:
        if self.is_full and self.size <= self.low:
            self.is_full = False
            self.protocol.resume_writing()
        if self.is_ending and not self.is_over and self.size == 0:
            self.fail(None)
        return 0


cdef class Poll:
    """The sockets; `owner` is told `lost_soon(channel, error)`, `flush_soon()` and `complain(channel, error)`."""

    cdef int epoll
    cdef Socket* sockets
    cdef Py_ssize_t room
    cdef list channels, free_slots, dirty
    cdef bint in_pass
    cdef public bint in_turn  # the owner flushes at the end of what is going on: it need not be told
    cdef object owner
    cdef int next_ready, count_ready  # of the last epoll_wait: what is not read yet
    cdef epoll_event events[EVENTS]
    cdef Ready ready[EVENTS]

    def __cinit__(self, owner):
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self.owner = owner
        self.channels, self.free_slots, self.dirty = [], [], []

    def __dealloc__(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)
        free(self.sockets)

    def fileno(self):
        """The descriptor that is readable while a socket is ready."""
        return self.epoll

    def close(self):
        """Close the descriptor; the channels' sockets are their owner's to close before."""
        if self.epoll >= 0:
            close_descriptor(self.epoll)
        self.epoll = -1

    def add(self, int descriptor, protocol, dict extra):
        """Watch a non-blocking socket and return its channel; OSError when the system refuses."""
        cdef Channel channel = Channel.__new__(Channel)
        cdef Socket* grown
        cdef int slot
        assert not self.in_pass, "a slot that is taken again would get the events of its former socket"
        if not self.free_slots:
            slot = len(self.channels)
            if slot >= self.room:
                grown = <Socket*>realloc(self.sockets, <size_t>(2 * slot + 64) * sizeof(Socket))
                if grown == NULL:
                    raise MemoryError("no memory for another socket")
                self.sockets, self.room = grown, 2 * slot + 64
            self.channels.append(None)
            self.free_slots.append(slot)
        slot = self.free_slots.pop()
        channel.poll, channel.descriptor, channel.slot = self, descriptor, slot
        channel.protocol, channel.extra, channel.pending, channel.lengths = protocol, extra, [], []
        channel.set_write_buffer_limits()
        self.sockets[slot].descriptor = descriptor
        self.sockets[slot].is_odd = False
        self.channels[slot] = channel
        try:
            channel._read(True)
        except OSError:
            channel.is_ending = channel.is_over = True
            channel._take_out()
            raise
        return channel

    def receive(self, bytearray memory, now):
        """One pass: read what is ready, hand it over; return runs of sends, as (protocol, requests).

        memory: the read buffer; now: the loop's time.  What is written meanwhile waits for `flush`.
        """
        cdef Py_buffer view
        cdef int first, last, nth
        cdef list passed = [], runs = []
        cdef Channel channel
        assert not self.in_pass, "a pass within a pass"
        PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
        with nogil:
            if self.next_ready >= self.count_ready:
                self.next_ready = 0
                self.count_ready = epoll_wait(self.epoll, self.events, EVENTS, 0)
            first = self.next_ready
            last = self._read_ready(<char*>view.buf, view.len)
        PyBuffer_Release(&view)
        self.next_ready = last
        self.in_pass = True
        for nth in range(first, last):
            passed.append(self.channels[self.ready[nth].slot])
        try:
            for nth in range(first, last):
                channel = <Channel>passed[nth - first]
                if channel is not None and channel.slot >= 0:
                    self._serve(channel, &self.ready[nth], memory, now, runs)
            # Their reads go through the protocol, into the same buffer: nothing in it is needed any more.
            for nth in range(first, last):
                channel = <Channel>passed[nth - first]
                if channel is not None and channel.slot >= 0:
                    if self.ready[nth].got == NOT_READ and self.sockets[channel.slot].is_read:
                        self._serve_odd(channel)
        except BaseException:
            # What was read for the others is lost, and with it where their frames begin.
            for channel in passed:
                if channel is not None:
                    channel.fail(None)
            raise
        finally:
            self.in_pass = False
        return runs

    cdef int _read_ready(self, char* buffer, Py_ssize_t room) noexcept nogil:
        """Read each ready socket once, as far as the buffer goes; return the number of the first that is left."""
        cdef int nth
        cdef Py_ssize_t at = 0
        cdef Ready* ready
        cdef Socket* sock
        for nth in range(self.next_ready, self.count_ready):
            ready = &self.ready[nth]
            ready.slot = <int>self.events[nth].data.u64
            ready.events = self.events[nth].events
            ready.got = NOT_READ
            sock = &self.sockets[ready.slot]
            if not sock.is_read or sock.is_odd or not ready.events & ~<uint32_t>EPOLLOUT:
                continue
            if at > 0 and room - at < READ_LEAST:
                return nth
            ready.start = at
            ready.got = recv(sock.descriptor, buffer + at, <size_t>(room - at), MSG_DONTWAIT)
            if ready.got < 0:
                ready.got = -1 - errno
            else:
                at += ready.got
        return self.count_ready if self.count_ready > self.next_ready else self.next_ready

    cdef int _serve(self, Channel channel, Ready* ready, bytearray memory, now, list runs) except -1:
        cdef ssize_t got = ready.got
        try:
            # First what was read: a write that fails ends the channel, and the requests were sent before that.
            if got > 0 and not channel.is_ending:
                self._hand_over(channel, ready.start, ready.start + got, memory, now, runs)
            if channel.interest & EPOLLOUT and ready.events & (EPOLLOUT | EPOLLERR | EPOLLHUP):
                channel._want(channel.interest & ~<uint32_t>EPOLLOUT)
                self.write_out([channel])
            if got <= 0 and got != NOT_READ and got != -1 - EAGAIN and got != -1 - EINTR and not channel.is_ending:
                self._end(channel, got)
        except Exception as error:
            # As every loop of asyncio does it: the protocol has a bug, the other connections go on.
            self.owner.complain(channel, error)
        return 0

    cdef int _hand_over(
        self, Channel channel, Py_ssize_t start, Py_ssize_t end, bytearray memory, now, list runs
    ) except -1:
        """Decode what was read and give it to the protocol, or add it to the runs of sends."""
        cdef Py_ssize_t used
        cdef tuple decoded
        cdef list requests
        protocol = channel.protocol
        try:
            decoded = decode(memory, start, end)
        except RemoteProtocolError as error:
            protocol.bad_bytes(error)
            return 0
        used, requests = <Py_ssize_t>decoded[0], <list>decoded[1]
        if used == end and _all_sends(requests):
            protocol.last_active = now
            protocol.batch_bytes = end - start
            runs.append((protocol, requests))
        else:
            protocol.received(requests, start, used, end, now)
            self._look(channel)
        return 0

    cdef int _serve_odd(self, Channel channel) except -1:
        cdef Py_buffer view
        cdef ssize_t got
        cdef int descriptor = channel.descriptor
        try:
            PyObject_GetBuffer(channel.protocol.get_buffer(-1), &view, PyBUF_WRITABLE)
            with nogil:
                got = recv(descriptor, view.buf, <size_t>view.len, MSG_DONTWAIT)
                if got < 0:
                    got = -1 - errno
            PyBuffer_Release(&view)
            if got > 0:
                channel.protocol.buffer_updated(got)
                self._look(channel)
            elif got != -1 - EAGAIN and got != -1 - EINTR:
                self._end(channel, got)
        except Exception as error:
            self.owner.complain(channel, error)
        return 0

    cdef int _look(self, Channel channel) except -1:
        """Ask the protocol where its next bytes go."""
        if channel.slot >= 0:
            self.sockets[channel.slot].is_odd = channel.protocol.has_unfinished
        return 0

    cdef int _end(self, Channel channel, ssize_t got) except -1:
        """The peer sends nothing more (0), or the connection is broken."""
        if got == 0:
            channel.close()
        else:
            channel.fail(OSError(<int>(-1 - got), os.strerror(<int>(-1 - got))))
        return 0

    def flush(self):
        """Send what was written to any channel."""
        cdef list dirty = self.dirty
        self.dirty = []
        for channel in dirty:
            (<Channel>channel).is_dirty = False
        self.write_out(dirty)

    cdef int write_out(self, list channels) except -1:
        """Send the output of these channels; what the system does not take waits until the socket is writable."""
        cdef Py_ssize_t at, most
        cdef list again
        while channels:
            again = []
            most = len(channels)
            for at in range(0, most, SENDS):
                self._write_some(channels, at, <int>min(<Py_ssize_t>SENDS, most - at), again)
            channels = again  # those with more pieces than one call takes
        return 0

    cdef int _write_some(self, list channels, Py_ssize_t at, int count, list again) except -1:
        # On the stack, because a protocol that is told below may write so much that it is sent at once: to any channel,
        # so what was sent is accounted for all of them before the first one is told.
        cdef msghdr messages[SENDS]
        cdef iovec pieces[SENDS * PIECES]
        cdef Py_buffer views[SENDS * PIECES]
        cdef int descriptors[SENDS]
        cdef ssize_t results[SENDS]
        cdef ssize_t offered[SENDS]
        cdef Channel channel
        cdef iovec* first
        cdef int nth, piece = 0, used = 0
        memset(messages, 0, <size_t>count * sizeof(msghdr))
        for nth in range(count):
            channel = <Channel>channels[at + nth]
            descriptors[nth] = -1
            offered[nth] = 0
            if channel.slot < 0 or channel.size == 0 or channel.interest & EPOLLOUT:
                continue
            messages[nth].msg_iov = &pieces[used]
            try:
                for piece in range(<int>min(<Py_ssize_t>PIECES, <Py_ssize_t>len(channel.pending))):
                    PyObject_GetBuffer(channel.pending[piece], &views[used], PyBUF_SIMPLE)
                    pieces[used].iov_base = <char*>views[used].buf + (channel.head if piece == 0 else 0)
                    pieces[used].iov_len = <size_t>(views[used].len - (channel.head if piece == 0 else 0))
                    offered[nth] += <ssize_t>pieces[used].iov_len
                    used += 1
                    messages[nth].msg_iovlen += 1
                    if views[used - 1].len != <Py_ssize_t>channel.lengths[piece]:
                        raise BufferError("output was resized while it waited")
            except Exception as error:
                self.owner.complain(channel, error)
                continue
            descriptors[nth] = channel.descriptor
        with nogil:
            for nth in range(count):
                if descriptors[nth] >= 0:
                    if messages[nth].msg_iovlen == 1:  # the rule, and cheaper
                        first = messages[nth].msg_iov
                        results[nth] = send(descriptors[nth], first.iov_base, first.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                    else:
                        results[nth] = sendmsg(descriptors[nth], &messages[nth], MSG_DONTWAIT | MSG_NOSIGNAL)
                    if results[nth] < 0:
                        results[nth] = -1 - errno
        for piece in range(used):
            PyBuffer_Release(&views[piece])
        for nth in range(count):
            channel = <Channel>channels[at + nth]
            if results[nth] == -1 - EAGAIN or results[nth] == -1 - EINTR:
                results[nth] = 0
            if descriptors[nth] >= 0 and channel.slot >= 0 and results[nth] >= 0:
                channel._sent(results[nth])
                if channel.size and results[nth] == offered[nth]:
                    again.append(channel)
        for nth in range(count):
            channel = <Channel>channels[at + nth]
            if descriptors[nth] < 0 or channel.slot < 0:
                continue
            try:
                if results[nth] < 0:
                    self._end(channel, results[nth])
                    continue
                if channel.size and results[nth] < offered[nth]:
                    channel._want(channel.interest | EPOLLOUT)
                channel._drained()
            except Exception as error:
                self.owner.complain(channel, error)
        return 0
