# Numbers as RocketMQ's formats have them, in network byte order, and bytes behind one another.
#
# A writer returns where the next byte goes; the caller has made sure that there is room.

from libc.string cimport memcpy

# Some of the modules hold what they write as text, some as numbers.
ctypedef fused Octet:
    char
    unsigned char


cdef inline unsigned int read_u32(const unsigned char* at) noexcept nogil:
    return (<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3]


cdef inline long long read_i64(const unsigned char* at) noexcept nogil:
    return <long long>((<unsigned long long>read_u32(at) << 32) | read_u32(at + 4))


cdef inline Octet* put_u32(Octet* at, unsigned int value) noexcept nogil:
    at[0] = <Octet>(value >> 24)
    at[1] = <Octet>(value >> 16)
    at[2] = <Octet>(value >> 8)
    at[3] = <Octet>value
    return at + 4


cdef inline Octet* put_u64(Octet* at, unsigned long long value) noexcept nogil:
    return put_u32(put_u32(at, <unsigned int>(value >> 32)), <unsigned int>value)


cdef inline Octet* put_bytes(Octet* at, const void* data, Py_ssize_t length) noexcept nogil:
    memcpy(at, data, <size_t>length)
    return at + length


cdef inline Octet* put_decimal(Octet* at, long long value) noexcept nogil:
    """Write a number in decimal, at most 20 characters."""
    cdef char digits[20]
    cdef int first = 20
    cdef unsigned long long rest = <unsigned long long>value
    if value < 0:
        at[0] = <Octet>45  # a minus
        at += 1
        rest = 0 - rest
    while True:
        first -= 1
        digits[first] = <char>(48 + rest % 10)
        rest //= 10
        if rest == 0:
            return put_bytes(at, &digits[first], 20 - first)
