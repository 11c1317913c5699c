# cython: language_level=3
"""System calls that take long, without Python's lock: the flush thread, and reading cold ranges of the log.

A Python thread that comes back from fdatasync has to win the interpreter from the loop before it can say so;
this one writes to an eventfd that the loop polls anyway.  Only `store.background` uses it.
"""

from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from posix.unistd cimport pread

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


def read_through(int descriptor, ranges):
    """Read these [start, end) of a file into nowhere, so that they are in the page cache; the errno, or 0.

    All of them in one go: a thread that comes back to Python between two of them takes the interpreter from the loop
    each time, and keeps it for as long as the machine has no core for it.
    """
    cdef char* scratch = NULL
    cdef long long* bounds = NULL
    cdef long long at, end
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
    finally:
        free(scratch)
        free(bounds)
    return error
