from gantry.leaves._fast.requests cimport Send

cdef struct Value:
    const unsigned char* at
    Py_ssize_t length  # 0: there is none

# The attributes of the compiled facts, for the modules beside this one.

cdef class HalfFacts:
    cdef public long long checks, queue_id, root, since_ms
    cdef public str batch, group, topic, unique_key
    cdef public object immunity_ms
    cdef public bint is_rearmed

cdef int read_facts(HalfFacts facts, bytes text, long long queue_offset, bint with_key) except -1
cdef Send message_of(const unsigned char* at, Py_ssize_t left)
