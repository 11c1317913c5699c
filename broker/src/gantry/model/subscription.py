"""What a consumer wants, and how its group is treated.

`Subscription` is RocketMQ's `SubscriptionData`: one topic and an expression over tags, as heartbeats carry it.  The
tags and their hashes are always derived from the expression here: a client's own list may be missing, or text instead
of numbers (Go), and the rule is the same for all.  `GroupConfig` is `SubscriptionGroupConfig`.  Both are values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from gantry.leaves import hashes
from gantry.model import documents

ALL_TAGS = "*"
TAG_EXPRESSION = "TAG"
SQL_EXPRESSION = "SQL92"

CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"
BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"
FROM_LAST_OFFSET, FROM_FIRST_OFFSET, FROM_TIMESTAMP = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)

EXPRESSION_CHARS_MAX = 16_384  # of TAG and SQL92; RocketMQ has no limit

RETRY_QUEUES = 1
RETRY_TIMES_MAX = 16
CONSUME_TIMEOUT_MINUTES = 15
_TYPE_CHARS_MAX = 40


def expression_fault(expression_type: str | None, expression: str | None) -> str | None:
    """Why an expression is too long, or its type is; None when they are not."""
    count = len(expression or "")
    if count > EXPRESSION_CHARS_MAX:
        return f"the expression has {count} characters, {EXPRESSION_CHARS_MAX} are allowed; name fewer tags"
    if len(expression_type or "") > _TYPE_CHARS_MAX:
        return f"the type of the expression has {len(expression_type or '')} characters, {_TYPE_CHARS_MAX} are allowed"
    return None


def tags_of(expression: str) -> tuple[str, ...]:
    """The tags of a TAG expression, in their order and each once; none for `*` and for the empty expression."""
    if expression == ALL_TAGS:
        return ()
    return tuple(dict.fromkeys(tag for tag in map(str.strip, expression.split("||")) if tag))


@dataclass(frozen=True)
class Subscription:
    """One topic, and which of its messages.  The greater version is the newer one."""

    topic: str
    expression: str = ALL_TAGS
    version: int = 0
    expression_type: str = TAG_EXPRESSION
    class_filter_mode: bool = False

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags wanted; none means all messages, if it is a TAG expression."""
        return tags_of(self.expression) if self.expression_type == TAG_EXPRESSION else ()

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": [hashes.java_hash(tag) for tag in self.tags],
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }

    @staticmethod
    def from_json(value: object) -> Subscription:
        """Read the subscription from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "a subscription")
        fault = expression_fault(documents.text(source, "expressionType"), documents.text(source, "subString"))
        if fault is not None:
            raise ValueError(f"subString: {fault}")
        return Subscription(
            topic=documents.text(source, "topic"),
            expression=documents.text(source, "subString", ALL_TAGS) or ALL_TAGS,
            version=documents.integer(source, "subVersion"),
            expression_type=documents.text(source, "expressionType", TAG_EXPRESSION) or TAG_EXPRESSION,
            class_filter_mode=documents.boolean(source, "classFilterMode"),
        )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What a consumer group may do and how its failures are retried."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_orderly: bool = False
    retry_queues: int = RETRY_QUEUES
    retry_times_max: int = RETRY_TIMES_MAX
    retry_policy: dict[str, object] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    slow_broker_id: int = 1
    notify_enable: bool = True
    sys_flag: int = 0
    consume_timeout_minutes: int = CONSUME_TIMEOUT_MINUTES
    attributes: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the JSON object that RocketMQ's clients and tools expect."""
        return {
            "attributes": dict(self.attributes),
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minutes,
            "groupName": self.name,
            "groupRetryPolicy": dict(self.retry_policy),
            "groupSysFlag": self.sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_enable,
            "retryMaxTimes": self.retry_times_max,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": self.slow_broker_id,
        }

    @staticmethod
    def from_json(value: object) -> GroupConfig:
        """Read the group from RocketMQ's JSON object; ValueError naming the field that is wrong."""
        source = documents.document(value, "a group")
        return GroupConfig(
            name=documents.text(source, "groupName"),
            consume_enable=documents.boolean(source, "consumeEnable", True),
            consume_from_min_enable=documents.boolean(source, "consumeFromMinEnable", True),
            consume_broadcast_enable=documents.boolean(source, "consumeBroadcastEnable", True),
            consume_orderly=documents.boolean(source, "consumeMessageOrderly"),
            retry_queues=documents.integer(source, "retryQueueNums", RETRY_QUEUES),
            retry_times_max=documents.integer(source, "retryMaxTimes", RETRY_TIMES_MAX),
            retry_policy=dict(documents.mapping(source, "groupRetryPolicy") or {"type": "CUSTOMIZED"}),
            broker_id=documents.integer(source, "brokerId"),
            slow_broker_id=documents.integer(source, "whichBrokerWhenConsumeSlowly", 1),
            notify_enable=documents.boolean(source, "notifyConsumerIdsChangedEnable", True),
            sys_flag=documents.integer(source, "groupSysFlag"),
            consume_timeout_minutes=documents.integer(source, "consumeTimeoutMinute", CONSUME_TIMEOUT_MINUTES),
            attributes=documents.texts(source, "attributes"),
        )
