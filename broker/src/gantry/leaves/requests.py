"""What a decoded frame becomes: a `Command`, or, for the codes that come by the hundred thousand, a `Send`,
a `Pull` or an `End`.

A `Command` keeps its header fields as a table of strings, which is right for the seventy codes that come now and then.
Sends (10, 310, 320), pulls (11, 361) and ends of transactions (37) have their fields read and range-checked while the
frame is decoded, because a table look-up and a conversion per field and message would cost more than everything the
broker does with the message.

A `Send` is used after its request too: it is *one message on its way into the log*.  Its fields have four writers, in
this order, and each writes only its own:

    decode()      the RPC part, the header part, and what it scanned out of the properties
    the broker    born_host; topic, queue_id, properties where a message is redirected; prepared_offset
    the store     queue_offset
    encode_run()  log_offset, size

The compiled twin has classes of the same names with the same attributes; only attributes are part of the contract.
"""

from __future__ import annotations

VERSION = 479
"""The version that we send in headers: RocketMQ 5.3.3.  Java consumers refuse SQL filters below 232."""

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
LANGUAGE_PYTHON = 3
LANGUAGE_OTHER = 7

SERIALIZATION_JSON = 0
SERIALIZATION_ROCKETMQ = 1

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2


class Command:
    """One request or response with its header fields as strings; `opaque` pairs the two.

    The body is a copy of its own.  Optional fields that did not come are not in `ext`.
    """

    __slots__ = ("body", "code", "ext", "flag", "language", "opaque", "remark", "serialization", "version")

    def __init__(
        self,
        code: int,
        *,
        language: int = LANGUAGE_PYTHON,
        version: int = VERSION,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        serialization: int = SERIALIZATION_JSON,
    ) -> None:
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.ext: dict[str, str] = {} if ext is None else ext
        self.body = body
        self.serialization = serialization

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of ours."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Return whether the request is one-way, so that it gets no answer."""
        return self.flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        return (
            f"Command(code={self.code}, opaque={self.opaque}, flag={self.flag}, remark={self.remark!r}, "
            f"ext={sorted(self.ext)}, body={len(self.body)} bytes)"
        )


class Send:
    """One message on its way into the log; the module's docstring lists who writes which field."""

    __slots__ = (
        "batch",
        "body",
        "born_host",
        "born_ms",
        "code",
        "default_queues",
        "default_topic",
        "flag",
        "group",
        "keys",
        "language",
        "log_offset",
        "max_reconsume_times",
        "opaque",
        "prepared_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "rpc_flag",
        "serialization",
        "size",
        "sys_flag",
        "tags_code",
        "topic",
        "traits",
        "unique_key",
        "unit_mode",
        "version",
    )

    def __init__(
        self,
        code: int = 0,
        language: int = 0,
        version: int = 0,
        opaque: int = 0,
        rpc_flag: int = FLAG_ONEWAY,
        serialization: int = SERIALIZATION_JSON,
        group: str = "",
        topic: str = "",
        default_topic: str = "",
        default_queues: int = 4,
        queue_id: int = 0,
        sys_flag: int = 0,
        born_ms: int = 0,
        flag: int = 0,
        properties: bytes = b"",
        reconsume_times: int = 0,
        max_reconsume_times: int = -1,
        unit_mode: bool = False,
        batch: bool = False,
        body: bytes = b"",
        traits: int = 0,
        unique_key: bytes = b"",
        keys: bytes = b"",
        tags_code: int = 0,
        born_host: bytes = b"",
        prepared_offset: int = 0,
    ) -> None:
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
    def is_oneway(self) -> bool:
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        return (
            f"Send(code={self.code}, opaque={self.opaque}, topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, log_offset={self.log_offset}, body={len(self.body)} bytes)"
        )


class Pull:
    """One well-formed pull request; `bytes_max` is -1 and the two texts are None where the client sent none."""

    __slots__ = (
        "bytes_max",
        "code",
        "commit_offset",
        "count_max",
        "expression_type",
        "group",
        "language",
        "opaque",
        "queue_id",
        "queue_offset",
        "rpc_flag",
        "serialization",
        "sub_version",
        "subscription",
        "suspend_ms",
        "sys_flag",
        "topic",
        "version",
    )

    def __init__(
        self,
        code: int = 11,
        language: int = 0,
        version: int = 0,
        opaque: int = 0,
        rpc_flag: int = 0,
        serialization: int = SERIALIZATION_JSON,
        group: str = "",
        topic: str = "",
        queue_id: int = 0,
        queue_offset: int = 0,
        count_max: int = 32,
        sys_flag: int = 0,
        commit_offset: int = 0,
        suspend_ms: int = 0,
        subscription: str | None = None,
        sub_version: int = 0,
        expression_type: str | None = None,
        bytes_max: int = -1,
    ) -> None:
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
    def is_oneway(self) -> bool:
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        return (
            f"Pull(code={self.code}, opaque={self.opaque}, group={self.group!r}, topic={self.topic!r}, "
            f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, count_max={self.count_max})"
        )


class End:
    """One well-formed END_TRANSACTION; the ids are empty where the client sent none."""

    __slots__ = (
        "code",
        "from_check",
        "group",
        "kind",
        "language",
        "log_offset",
        "message_id",
        "opaque",
        "queue_offset",
        "rpc_flag",
        "serialization",
        "transaction_id",
        "version",
    )

    def __init__(
        self,
        code: int = 37,
        language: int = 0,
        version: int = 0,
        opaque: int = 0,
        rpc_flag: int = 0,
        serialization: int = SERIALIZATION_JSON,
        group: str = "",
        queue_offset: int = 0,
        log_offset: int = 0,
        kind: int = 0,
        from_check: bool = False,
        message_id: str = "",
        transaction_id: str = "",
    ) -> None:
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
    def is_oneway(self) -> bool:
        """Return whether the request is one-way, so that it gets no answer."""
        return self.rpc_flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        return (
            f"End(code={self.code}, opaque={self.opaque}, group={self.group!r}, queue_offset={self.queue_offset}, "
            f"log_offset={self.log_offset}, kind={self.kind})"
        )
