# The attributes of the compiled requests, for the modules beside this one.

cdef class Send:
    cdef public int code, language, version, opaque, rpc_flag, serialization
    cdef public str group, topic, default_topic
    cdef public int default_queues, queue_id, sys_flag, flag, reconsume_times, max_reconsume_times
    cdef public long long born_ms, tags_code, prepared_offset, queue_offset, log_offset
    cdef public bytes properties, body, unique_key, keys, born_host
    cdef public bint unit_mode, batch
    cdef public int traits, size

cdef class Pull:
    cdef public int code, language, version, opaque, rpc_flag, serialization
    cdef public str group, topic, subscription, expression_type
    cdef public int queue_id, count_max, sys_flag, bytes_max
    cdef public long long queue_offset, commit_offset, suspend_ms, sub_version

cdef class End:
    cdef public int code, language, version, opaque, rpc_flag, serialization
    cdef public str group, message_id, transaction_id
    cdef public long long queue_offset, log_offset
    cdef public int kind
    cdef public bint from_check
