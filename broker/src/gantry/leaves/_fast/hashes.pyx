# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `leaves.hashes`, for texts that are ASCII; all others go to the pure code."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from gantry.leaves import hashes as pure
from gantry.leaves._fast.properties cimport is_ascii, java_hash_ascii

cdef extern from "crc.h" nogil:
    void crc_setup()
    unsigned int crc_of "crc31"(const unsigned char* at, size_t n)

crc_setup()


def java_hash(text):
    """Java's `String.hashCode` of the text, between -2**31 and 2**31 - 1."""
    cdef bytes raw
    if type(text) is bytes:
        raw = <bytes>text
    elif type(text) is str and (<str>text).isascii():
        raw = (<str>text).encode("ascii")
    else:
        return pure.java_hash(text)
    if not is_ascii(<const unsigned char*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
        return pure.java_hash(raw)
    return java_hash_ascii(<const unsigned char*>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))


def index_hash(key):
    """The hash of a key index entry, between 0 and 2**31 - 1; the key is `topic#key`."""
    cdef long long value = java_hash(key)
    if value == -0x80000000:
        return 0
    return -value if value < 0 else value


def crc31(data):
    """CRC-32 without its top bit (`UtilAll.crc32`)."""
    cdef Py_buffer view
    cdef unsigned int value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = crc_of(<const unsigned char*>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return value
