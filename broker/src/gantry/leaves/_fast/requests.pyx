# cython: language_level=3, freethreading_compatible=False
"""The compiled twins of `leaves.requests`: the same attributes, kept as C values.

An integer attribute has the width of its field on the wire (or of what it is compared with), so that assigning a
value that no frame could carry raises OverflowError here, where the pure twin would notice it at encoding.
"""

import cython


@cython.freelist(512)
cdef class Send:
    """One message on its way into the log; `gantry.leaves.requests.Send` says who writes which field."""

    def __init__(
        self, int code=0, int language=0, int version=0, int opaque=0, int rpc_flag=2, int serialization=0,
        str group="", str topic="", str default_topic="", int default_queues=4, int queue_id=0, int sys_flag=0,
        long long born_ms=0, int flag=0, bytes properties=b"", int reconsume_times=0, int max_reconsume_times=-1,
        bint unit_mode=False, bint batch=False, bytes body=b"", int traits=0, bytes unique_key=b"", bytes keys=b"",
        long long tags_code=0, bytes born_host=b"", long long prepared_offset=0,
    ):
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.rpc_flag = rpc_flag
        self.serialization = serialization
        self.group = group
        self.topic = topic
        self.default_topic = default_topic
        self.default_queues = default_queues
        self.queue_id = queue_id
        self.sys_flag = sys_flag
        self.born_ms = born_ms
        self.flag = flag
        self.properties = properties
        self.reconsume_times = reconsume_times
        self.max_reconsume_times = max_reconsume_times
        self.unit_mode = unit_mode
        self.batch = batch
        self.body = body
        self.traits = traits
        self.unique_key = unique_key
        self.keys = keys
        self.tags_code = tags_code
        self.born_host = born_host
        self.prepared_offset = prepared_offset
        self.queue_offset = -1
        self.log_offset = -1
        self.size = 0

    @property
    def is_oneway(self):
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & 2 != 0

    def __repr__(self):
        return (
            f"Send(code={self.code}, opaque={self.opaque}, topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, log_offset={self.log_offset}, body={len(self.body)} bytes)"
        )


@cython.freelist(64)
cdef class Pull:
    """One well-formed pull request; see `gantry.leaves.requests.Pull`."""

    def __init__(
        self, int code=11, int language=0, int version=0, int opaque=0, int rpc_flag=0, int serialization=0,
        str group="", str topic="", int queue_id=0, long long queue_offset=0, int count_max=32, int sys_flag=0,
        long long commit_offset=0, long long suspend_ms=0, str subscription=None, long long sub_version=0,
        str expression_type=None, int bytes_max=-1,
    ):
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.rpc_flag = rpc_flag
        self.serialization = serialization
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.count_max = count_max
        self.sys_flag = sys_flag
        self.commit_offset = commit_offset
        self.suspend_ms = suspend_ms
        self.subscription = subscription
        self.sub_version = sub_version
        self.expression_type = expression_type
        self.bytes_max = bytes_max

    @property
    def is_oneway(self):
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & 2 != 0

    def __repr__(self):
        return (
            f"Pull(code={self.code}, opaque={self.opaque}, group={self.group!r}, topic={self.topic!r}, "
            f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, count_max={self.count_max})"
        )


@cython.freelist(256)
cdef class End:
    """One well-formed END_TRANSACTION; see `gantry.leaves.requests.End`."""

    def __init__(
        self, int code=37, int language=0, int version=0, int opaque=0, int rpc_flag=0, int serialization=0,
        str group="", long long queue_offset=0, long long log_offset=0, int kind=0, bint from_check=False,
        str message_id="", str transaction_id="",
    ):
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.rpc_flag = rpc_flag
        self.serialization = serialization
        self.group = group
        self.queue_offset = queue_offset
        self.log_offset = log_offset
        self.kind = kind
        self.from_check = from_check
        self.message_id = message_id
        self.transaction_id = transaction_id

    @property
    def is_oneway(self):
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & 2 != 0

    def __repr__(self):
        return (
            f"End(code={self.code}, opaque={self.opaque}, group={self.group!r}, queue_offset={self.queue_offset}, "
            f"log_offset={self.log_offset}, kind={self.kind})"
        )
