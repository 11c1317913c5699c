# cython: language_level=3
"""System calls that take long, without Python's lock: the flush thread, and reading cold ranges of the log.

A Python thread that comes back from fdatasync has to win the interpreter from the loop before it can say so;
this one writes to an eventfd that the loop polls anyway.  Only `store.background` uses it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, errno
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, mmap, munmap
from posix.unistd cimport _SC_PAGESIZE, pread, sysconf

cdef extern from "sys/mman.h" nogil:
    int mincore(void* start, size_t length, unsigned char* found)

cdef extern from "fcntl.h" nogil:
    int posix_fadvise(int descriptor, long long start, long long length, int advice)
    enum:
        POSIX_FADV_WILLNEED

cdef extern from "flush_thread.h" nogil:
    struct flush_thread:
        int event_fd
    flush_thread* flush_start()
    void flush_request(flush_thread* thread, int* files, int count, long long target)
    int flush_outcome(flush_thread* thread, long long* target)
    void flush_drain(flush_thread* thread)
    void flush_close(flush_thread* thread)

cdef enum:
    CHUNK_BYTES = 262144
    PAGES_AT_ONCE = 1024


cdef class FlushThread:
    """The flush thread; owned by one `store.background`, used by one other thread."""

    cdef flush_thread* thread

    def __cinit__(self):
        self.thread = flush_start()
        if self.thread == NULL:
            raise OSError("the flush thread did not start")

    def __dealloc__(self):
        self.close()

    @property
    def event_fd(self):
        """Readable when there is an outcome to fetch."""
        self._check()
        return self.thread.event_fd

    cdef _check(self):
        if self.thread == NULL:
            raise ValueError("the flush thread was closed")

    def request(self, descriptors, long long target):
        """Sync these descriptors, then report `target`; replaces a request that has not begun."""
        cdef int count = len(descriptors), nth
        cdef int* files
        self._check()
        files = <int*>malloc(count * sizeof(int) + 1)
        if files == NULL:
            raise MemoryError("no memory to name the files to sync")
        try:
            for nth in range(count):
                files[nth] = descriptors[nth]
        except BaseException:
            free(files)
            raise
        flush_request(self.thread, files, count, target)

    def outcome(self):
        """(highest target that became durable since the last call or -1, errno of the first failure ever or 0)."""
        cdef long long target = -1
        cdef int error
        self._check()
        error = flush_outcome(self.thread, &target)
        return target, error

    def drain(self):
        """Block until nothing waits or runs; the outcome still has to be fetched."""
        self._check()
        with nogil:
            flush_drain(self.thread)

    def close(self):
        """Carry out what waits, end the thread; again is fine."""
        cdef flush_thread* thread = self.thread
        self.thread = NULL
        if thread != NULL:
            with nogil:
                flush_close(thread)


def read_through(int descriptor, ranges, long long ahead_bytes=0):
    """Read these [start, end) of a file into nowhere, so that they are in the page cache; the errno, or 0.

    What follows them, up to `ahead_bytes`, is asked for and not waited for.

    All of them in one go: a thread that comes back to Python between two of them takes the interpreter from the loop
    each time, and keeps it for as long as the machine has no core for it.
    """
    cdef char* scratch = NULL
    cdef long long* bounds = NULL
    cdef long long at, end = 0
    cdef Py_ssize_t count = len(ranges), nth
    cdef ssize_t got
    cdef int error = 0
    bounds = <long long*>malloc(2 * count * sizeof(long long) + 1)
    scratch = <char*>malloc(CHUNK_BYTES)
    try:
        if bounds == NULL or scratch == NULL:
            raise MemoryError("no memory to read the log through")
        for nth in range(count):
            bounds[2 * nth], bounds[2 * nth + 1] = ranges[nth]
        with nogil:
            for nth in range(count):
                at, end, got = bounds[2 * nth], bounds[2 * nth + 1], 1
                while at < end and got > 0 and error == 0:
                    got = pread(descriptor, scratch, <size_t>(min(end - at, <long long>CHUNK_BYTES)), at)
                    if got > 0:
                        at += got
                    elif got < 0 and errno == EINTR:
                        got = 1
                    elif got < 0:
                        error = errno
            if ahead_bytes > 0 and error == 0:
                posix_fadvise(descriptor, end, ahead_bytes, POSIX_FADV_WILLNEED)
    finally:
        free(scratch)
        free(bounds)
    return error


def in_memory(memory, long long base, places, long long near_bytes):
    """Whether all pages of these (log offset, size) of a mapped file are in memory; memory[0] is log offset `base`.

    What lies between two of them counts with them when it is no longer than `near_bytes`.  No page is touched.  False
    also when the kernel cannot tell, and for a place outside of the file.
    """
    cdef Py_buffer view
    cdef long long at, size, begin = 0, reach = -1
    if not kernel_tells:
        return False
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    try:
        for at, size in places:
            at -= base
            if at < 0 or size < 0 or size > view.len or at > view.len - size:
                return False
            if reach >= 0 and begin <= at <= reach + near_bytes:
                reach = max(reach, at + size)
                continue
            if not _are_in(<const char*>view.buf, begin, reach):
                return False
            begin, reach = at, at + size
        return _are_in(<const char*>view.buf, begin, reach)
    finally:
        PyBuffer_Release(&view)


cdef bint _are_in(const char* memory, long long begin, long long end) noexcept nogil:
    """Whether the pages of memory[begin:end] are in memory; nothing is."""
    cdef unsigned char found[PAGES_AT_ONCE]
    cdef uintptr_t at = (<uintptr_t>memory + <uintptr_t>begin) & ~(page_bytes - 1)
    cdef uintptr_t stop
    cdef size_t count, nth
    if end <= begin:
        return True
    stop = <uintptr_t>memory + <uintptr_t>end
    while at < stop:
        count = min((stop - at + page_bytes - 1) // page_bytes, <size_t>PAGES_AT_ONCE)
        if mincore(<void*>at, count * page_bytes, found) != 0:
            return False
        for nth in range(count):
            if not found[nth] & 1:
                return False
        at += count * page_bytes
    return True


cdef uintptr_t page_bytes = <uintptr_t>sysconf(_SC_PAGESIZE)


cdef bint _kernel_tells() noexcept nogil:
    """Whether a page that nobody has touched is said not to be in memory: gVisor says of all that they are."""
    cdef unsigned char found[1]
    cdef void* page = mmap(NULL, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    cdef bint tells
    if page == MAP_FAILED:
        return False
    tells = mincore(page, page_bytes, found) == 0 and not found[0] & 1
    munmap(page, page_bytes)
    return tells


cdef bint kernel_tells = _kernel_tells()
