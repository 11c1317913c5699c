"""Which names topics and groups may have, and the names that have a meaning for the broker itself.

A name is ASCII: letters, digits, `_`, `-`, `%` and `|`.  A topic has at most 127 bytes (what a V1 record's length byte
holds), a retry or dead-letter topic 255, a group 120; a client id, of any characters, has 512.  The checks return a
reason or None, because a bad name is an everyday refusal and no exception.  Source: RocketMQ's `TopicValidator` and
`Validators`; facts 2.4, 2.5 and 6.4 of the protocol (`broker/docs/protocol.md`).

Names go into folder names (`consumequeue/<topic>/<queue>`), so a checked name is also a safe path component: the
alphabet has neither `/` nor `.`.
"""

from __future__ import annotations

TOPIC_BYTES_MAX = 127
RETRY_TOPIC_BYTES_MAX = 255
GROUP_BYTES_MAX = 120
CLIENT_ID_BYTES_MAX = 512  # RocketMQ has no limit; its clients make some 50 bytes of address, process and time

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"

TEMPLATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
POP_ORDER_TOPIC = "rmq_sys_POP_ORDER"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_TOPICS = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
        TRACE_TOPIC,
        POP_ORDER_TOPIC,
    }
)
# Topics that only the broker itself writes; a producer that names one is refused with NO_PERMISSION.
NOT_SENDABLE_TOPICS = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TIMER_TOPIC}
    | {POP_ORDER_TOPIC}
)

REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"  # + cluster: leases of popped messages and their acknowledgements

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
BROADCAST_SYSTEM_GROUPS = frozenset({"CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL"})
SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        TRANSACTION_GROUP,
    }
    | BROADCAST_SYSTEM_GROUPS
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

_ALPHABET = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def topic_fault(topic: str) -> str | None:
    """Why this topic name is not allowed, or None when it is."""
    if not topic or topic.isspace():
        return "the topic name is blank"
    if not _ALPHABET.issuperset(topic):
        return f"the topic name {_shown(topic)} has characters outside %|a-zA-Z0-9_-"
    limit = RETRY_TOPIC_BYTES_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_BYTES_MAX
    if len(topic) > limit:
        return f"the topic name {_shown(topic)} has {len(topic)} bytes, {limit} are allowed"
    return None


def group_fault(group: str) -> str | None:
    """Why this group name is not allowed, or None when it is."""
    if not group or group.isspace():
        return "the group name is blank"
    if not _ALPHABET.issuperset(group):
        return f"the group name {_shown(group)} has characters outside %|a-zA-Z0-9_-"
    if len(group) > GROUP_BYTES_MAX:
        return f"the group name {_shown(group)} has {len(group)} bytes, {GROUP_BYTES_MAX} are allowed"
    return None


def client_fault(client_id: str) -> str | None:
    """Why this client id is not allowed, or None when it is."""
    if not client_id:
        return "the client id is empty"
    if len(client_id) * 4 > CLIENT_ID_BYTES_MAX and len(client_id.encode("utf-8", "replace")) > CLIENT_ID_BYTES_MAX:
        return f"the client id {_shown(client_id)} has more than {CLIENT_ID_BYTES_MAX} bytes"
    return None


def is_system_topic(topic: str) -> bool:
    """Return whether the broker keeps this topic for itself; clients may neither create nor delete it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_revive_topic(topic: str) -> bool:
    """Return whether this topic holds leases of popped messages; only brokers write it."""
    return topic.startswith(REVIVE_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the broker keeps this group for itself."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Return whether this is a retry topic: it holds a group's messages that are to be delivered again."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Return whether this is a dead-letter topic: it holds messages whose group used up all retries."""
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """Return the group's retry topic; a name that has the prefix already is returned as it is."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the group's dead-letter topic; a name that has the prefix already is returned as it is."""
    return group if group.startswith(DLQ_PREFIX) else DLQ_PREFIX + group


def group_of(topic: str) -> str | None:
    """The consumer group that a retry or dead-letter topic belongs to; None for other topics."""
    if topic.startswith(RETRY_PREFIX):
        return topic[len(RETRY_PREFIX) :]
    if topic.startswith(DLQ_PREFIX):
        return topic[len(DLQ_PREFIX) :]
    return None


def reply_topic(cluster: str) -> str:
    """Return the topic that holds the replies of RocketMQ's request-reply in a cluster."""
    return f"{cluster}_REPLY_TOPIC"


def _shown(name: str) -> str:
    """Return the name as an error text shows it, shortened: a hostile name must not fill a log line."""
    return repr(name if len(name) <= 40 else name[:40] + "...")
