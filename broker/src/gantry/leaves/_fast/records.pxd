# The attributes of the compiled entries, and where the parts of a record stand, for the modules beside this one.

cdef class Entry:
    cdef public long long log_offset, queue_offset, tags_code, store_ms, prepared_offset, born_ms
    cdef public int size, queue_id, sys_flag
    cdef public str topic
    cdef public bytes unique_key, keys, properties

cdef struct Parts:
    Py_ssize_t size, born_bytes, store_bytes, body_at, body_bytes, topic_at, topic_bytes, properties_at

cdef bint parts_of(const unsigned char* at, Py_ssize_t left, bint check_crc, Parts* parts) noexcept nogil
cdef str topic_text(const unsigned char* at, Py_ssize_t n)
