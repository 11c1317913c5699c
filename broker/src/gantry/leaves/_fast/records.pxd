# The attributes of the compiled entries, for the modules beside this one.

cdef class Entry:
    cdef public long long log_offset, queue_offset, tags_code, store_ms, prepared_offset, born_ms
    cdef public int size, queue_id, sys_flag
    cdef public str topic
    cdef public bytes unique_key, keys, properties
