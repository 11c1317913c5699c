"""Which messages may go into the log.

The order of the checks and their codes are RocketMQ's (`AbstractSendMessageProcessor.msgCheck`, then
`handleRetryAndDLQ`, then the store's own), so that a client's error handling works as with RocketMQ:

    the broker takes no messages now        gate: 2 slave, 14 disk full or closing
    the name is no topic's, or the broker's 29, 16
    the topic does not exist                made from the template that the send names, else 17
    the topic or the broker is not writable 16
    the queue does not exist                29; a negative queue is "any"
    a retry topic                           26 without its group; too often redelivered: on to the dead-letter topic
    transaction bits                        13: never stored as a plain message
    body, properties or UNIQ_KEY too long   13; also by what the topic's attributes allow, and of which message type
    properties with a sector of zeros       13: a start could not tell them from what a power cut took

Properties are too long when they leave no room for all that the broker may add later: a record has an i16 for their
length.  So every admitted message can become a half or a delayed message, be put back, committed, redelivered and made
a dead letter.  `OURS_BYTES_MAX` is the sum of all these additions at their longest.  What never becomes a half may fill
what a half would bring along.  A redelivery brings most of the sum along; only its last part is left for it to fill.

`admit` checks one message.  It stores the result for a topic in `queues` or `typed`, so that the loop over a run looks
into one table and compares a few numbers; after a change of a topic `topic_changed` has to be called.  Only topics to
which nothing special applies, or nothing but a type, are stored: absence there means "call admit", never "refuse".

A refusal is a value.  Nothing here uses sockets, time or the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gantry.append.redelivery import (
    ORIGIN_ID,
    RETRY_TOPIC,
    MoveToDeadLetters,
    RedeliveryCounts,
    Retry,
    as_dead_letter,
    own_bytes,
)
from gantry.append.topiclimits import TopicLimits, limits_of
from gantry.errors import Refusal
from gantry.leaves import properties
from gantry.leaves.records import SYS_TRANSACTION_BITS
from gantry.model import names
from gantry.model.topic import MULTI_TAG, TopicConfig
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send

PROPERTIES_BYTES_MAX = 32767  # an i16 in the record
UNIQUE_KEY_BYTES_MAX = 255  # it is repeated in other properties; clients make 32 or 34 characters
OURS_BYTES_MAX = 2560
"""What a broker adds to a message's properties in its life, its own name and region left out.  At most:

    half            709  PGROUP, TRAN_MSG, __transactionId__, REAL_TOPIC, REAL_QID
    put back        170  root, checks, age, armed again
    redelivery      440  RETRY_TOPIC, ORIGIN_MESSAGE_ID, and what Java's client notes when it sends it itself
    dead letter     560  DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, DELAY
    delay           420  REAL_TOPIC, REAL_QID, DELAY or TIMER_OUT_MS; carried on
    unique key       60  where its producer gave none
"""
HALF_BYTES_MAX = 880
"""What of it a half brings along when it is redelivered."""
KEY_BYTES_MAX = 60
"""What of it the unique key takes that a message gets whose producer gave none."""
DELAY_BYTES_MAX = 512
"""What of it the delay of a redelivery may take, which brings everything else along."""
BODY_BYTES_MAX = 4 << 20  # RocketMQ's maxMessageSize

SYS_MULTI_TAGS = 0x2
SYS_COMMIT_BIT = 0x8  # committed is 8, rolled back 12, prepared 4
# Since this version a client's maxReconsumeTimes counts (facts 1.5, V3_4_9).
VERSION_OF_MAX_RECONSUME = 121
# A message with one of these needs special handling; all others are plain.
NOT_PLAIN = properties.TRAIT_DELAY | properties.TRAIT_TRANSACTION | properties.TRAIT_TIMER_CANCEL

_ENDED = Refusal(
    ResponseCode.MESSAGE_ILLEGAL, "only the broker stores messages whose sys flag says committed or rolled back"
)
_UNREADABLE = Refusal(
    ResponseCode.MESSAGE_ILLEGAL,
    f"the message properties have {len(properties.UNWRITTEN)} zero bytes in a row, which a start after a crash takes "
    "for a sector that was never written; encode the value, in base64 for example",
)
_TRANSACTION_BATCH = Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch holds no transactional messages; send them singly")
_DELAY_BATCH = Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch holds no delayed messages; send them singly")
_RETRY_BATCH = Refusal(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")


class TopicCatalog(Protocol):
    """The part of the topic table that admission uses."""

    def get(self, name: str) -> TopicConfig | None:
        """Return the configuration of the topic; None when it does not exist."""
        ...

    def auto_create(
        self, name: str, default_topic: str, default_queues: int, unit_mode: bool
    ) -> TopicConfig | Refusal:
        """Create a topic from its template, or return why it may not be created."""
        ...

    def ensure(self, config: TopicConfig) -> TopicConfig:
        """Create this topic unless one of its name exists; return the topic that exists afterwards."""
        ...


class RetryLimits(Protocol):
    """The part of the group table that admission uses."""

    def retry_times_max(self, group: str) -> int | None:
        """How often the group gets a message again, or None for a group that does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """How large a message may be; `properties_bytes_max` is what a client may fill of a half, our own additions left
    out.
    """

    body_bytes_max: int = BODY_BYTES_MAX
    properties_bytes_max: int = PROPERTIES_BYTES_MAX - OURS_BYTES_MAX

    def refusal(self, send: Send, is_redelivery: bool = False) -> Refusal | None:
        """Return why body, properties or unique key are too long; None when they are not."""
        allowed, found = self.properties_bytes_max, len(send.properties)
        if is_redelivery and found > allowed:
            # Its properties hold what a broker has added; what earlier redeliveries added is replaced by this one.
            if own_bytes(send.properties) <= allowed + HALF_BYTES_MAX:
                allowed += OURS_BYTES_MAX - DELAY_BYTES_MAX
        elif not (send.traits & properties.TRAIT_TRANSACTION or send.sys_flag & SYS_TRANSACTION_BITS):
            allowed += HALF_BYTES_MAX - KEY_BYTES_MAX
        return (
            _too_long("message body has", len(send.body), self.body_bytes_max)
            or _too_long("message properties have", found, allowed)
            or _too_long("message's UNIQ_KEY has", len(send.unique_key), UNIQUE_KEY_BYTES_MAX)
            or (_UNREADABLE if found >= len(properties.UNWRITTEN) and properties.UNWRITTEN in send.properties else None)
        )


class WriteGate:
    """Whether the broker as a whole takes messages; shut for any number of reasons, open when none is left."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None
        self._reasons: dict[str, Refusal] = {}

    def shut(self, reason: str, refusal: Refusal) -> None:
        """Refuse everything with this refusal (the first reason's, while there are several)."""
        self._reasons[reason] = refusal
        self.refusal = next(iter(self._reasons.values()))

    def reopen(self, reason: str) -> None:
        """Remove this reason; no effect when the gate was not shut for it."""
        self._reasons.pop(reason, None)
        self.refusal = next(iter(self._reasons.values()), None)

    def refusal_but_for(self, reason: str) -> Refusal | None:
        """Return the first refusal of any other reason; messages the broker must store pass a full disk's reason."""
        return next((refusal for each, refusal in self._reasons.items() if each != reason), None)

    @property
    def reasons(self) -> list[str]:
        """Return the reasons for which the gate is shut, in the order in which they came."""
        return list(self._reasons)


class Admission:
    """Checks messages, and stores which topics need no closer look."""

    def __init__(
        self, topics: TopicCatalog, groups: RetryLimits, gate: WriteGate, limits: MessageLimits, broker_name: str
    ) -> None:
        self.redeliveries = RedeliveryCounts()
        self.queues: dict[str, int] = {}  # topics without specialities: how many queue ids they have
        self.typed: dict[str, tuple[int, int]] = {}  # the same of topics for one type of message, and its kind
        self.gate = gate
        self.limits = limits
        self.is_writable = True  # the broker's own permission
        self.checks_type = True  # whether a topic's message.type is looked at
        self.is_orderly: Callable[[str], bool] = lambda group: False  # whether a group consumes in order now
        self._topics = topics
        self._groups = groups
        self._broker_name = broker_name
        self._next_queue = 0

    def topic_changed(self, name: str) -> None:
        """Forget what is stored about a topic that was created, changed or deleted."""
        self.queues.pop(name, None)
        self.typed.pop(name, None)

    def set_writable(self, is_writable: bool) -> None:
        """Set whether the broker has permission to write."""
        self.is_writable = is_writable
        self.queues.clear()
        self.typed.clear()

    def admit(self, send: Send) -> Refusal | None:
        """Return why a message is refused, or None: then its queue is chosen, and a dead letter is readdressed.

        A topic that does not exist may be created here.
        """
        if self.gate.refusal is not None:
            return self.gate.refusal
        topic = self._topic_of(send)
        if isinstance(topic, Refusal):
            return topic
        refusal = self._topic_refusal(topic) or self._choose_queue(send, topic)
        if refusal is not None:
            return refusal
        if names.is_retry_topic(send.topic):
            return self._admit_redelivery(send)
        limits = limits_of(topic.name, topic.attributes, self.checks_type)
        if topic.filter_type == MULTI_TAG:
            send.sys_flag |= SYS_MULTI_TAGS
        elif (self.is_writable or not topic.order) and not names.is_dlq_topic(topic.name):
            # A dead letter is never delayed, so its topic is not plain.
            count = max(topic.write_queues, topic.read_queues)
            if limits is None:
                self.queues[topic.name] = count
            elif limits.kind:
                self.typed[topic.name] = count, limits.kind
        refusal = content_refusal(send) or self.limits.refusal(send)
        if refusal is None and limits is not None and not send.batch:
            return limits.refusal(send)
        return refusal

    def admit_batch(self, send: Send) -> Refusal | None:
        """Like `admit`, for the request that carries a batch; its messages are checked one by one afterwards."""
        if names.is_retry_topic(send.topic):
            return _RETRY_BATCH
        return batch_refusal(send) or self.admit(send)

    def limits_of(self, name: str) -> TopicLimits | None:
        """Return the limits of a topic that are below the broker's, for the messages of a batch; None without any."""
        topic = self._topics.get(name)
        return None if topic is None else limits_of(name, topic.attributes, self.checks_type)

    def _topic_of(self, send: Send) -> TopicConfig | Refusal:
        if send.topic in names.NOT_SENDABLE_TOPICS or names.is_revive_topic(send.topic):
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{send.topic}] is forbidden.")
        topic = self._topics.get(send.topic)
        if topic is not None:
            return topic
        fault = names.topic_fault(send.topic)
        if fault is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, fault)
        group = self._group_of(send) if names.is_retry_topic(send.topic) else None
        if group is not None and self._groups.retry_times_max(group) is None:
            return _no_group(group)  # before it has a topic: groups are bounded, and names are not
        made = self._topics.auto_create(send.topic, send.default_topic, send.default_queues, send.unit_mode)
        if isinstance(made, Refusal) and group is not None:
            return self._topics.ensure(TopicConfig(send.topic, read_queues=1, write_queues=1))
        return made

    def _topic_refusal(self, topic: TopicConfig) -> Refusal | None:
        # RocketMQ: a broker without write permission still takes messages of topics that are not ordered; their
        # producers have been told by the name server, and ordered ones must not go astray.
        if topic.order and not self.is_writable:
            return Refusal(
                ResponseCode.NO_PERMISSION, f"the broker[{self._broker_name}] sending message is forbidden"
            )
        if not topic.is_writable or topic.write_queues <= 0:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
        return None

    def _choose_queue(self, send: Send, topic: TopicConfig) -> Refusal | None:
        if send.queue_id >= max(topic.write_queues, topic.read_queues):
            return Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{send.queue_id}] is illegal, topic[{topic.name}] has "
                f"{topic.write_queues} queues to write and {topic.read_queues} to read",
            )
        if send.queue_id < 0:
            self._next_queue += 1
            send.queue_id = self._next_queue % topic.write_queues
        return None

    def _admit_redelivery(self, send: Send) -> Refusal | None:
        """Admit a redelivery as often as its group allows; after that readdress it as a dead letter."""
        group = self._group_of(send)
        times_max = self._groups.retry_times_max(group)
        if times_max is None:
            return _no_group(group)
        if send.version >= VERSION_OF_MAX_RECONSUME and send.max_reconsume_times >= 0:
            times_max = send.max_reconsume_times
        origin = self._origin_topic(send)
        fate: Retry | MoveToDeadLetters = Retry(0)
        refusal = None
        # RocketMQ 5: an orderly consumer retries in place and sends here only what it has given up.  What was never
        # tried is a replayed dead letter, which RocketMQ makes a dead letter again.
        if send.reconsume_times > times_max or (send.reconsume_times > 0 and self.is_orderly(group)):
            fate = MoveToDeadLetters()
            refusal = self._make_dead_letter(send, group, origin)
        refusal = refusal or content_refusal(send) or self.limits.refusal(send, is_redelivery=True)
        if refusal is None:
            self.redeliveries.count(fate, group, origin)
        return refusal

    def _group_of(self, send: Send) -> str:
        """Return the group of a retry topic: the rest of its name, or what stands before a topic's name in it.

        A message may be sent again to a group that pops: its retry topic of a topic is `%RETRY%group_topic`.  That name
        may mean several groups (`a_b_c`: `a` or `a_b`), so the topic that the message came from decides first.
        """
        whole = names.group_of(send.topic) or ""
        if self._groups.retry_times_max(whole) is not None:
            return whole
        origin = self._origin_topic(send)
        told = whole.removesuffix(f"_{origin}") if origin else whole
        if told != whole and self._groups.retry_times_max(told) is not None:
            return told
        at = whole.find("_")
        while at > 0:
            if self._topics.get(whole[at + 1 :]) and self._groups.retry_times_max(whole[:at]) is not None:
                return whole[:at]
            at = whole.find("_", at + 1)
        return whole

    def _make_dead_letter(self, send: Send, group: str, origin: str) -> Refusal | None:
        topic = self._topics.ensure(TopicConfig(names.dlq_topic(group), read_queues=1, write_queues=1))
        origin_id = properties.get(send.properties, ORIGIN_ID) or b""
        text = as_dead_letter(send.properties, origin, origin_id.decode("utf-8", "replace"))
        send.topic = topic.name
        send.queue_id = 0
        # RocketMQ: a dead letter says DELAY=-1, which overrules the level that the client asked for.
        send.properties = properties.add(text, b"DELAY", b"-1")
        send.traits &= ~(properties.TRAIT_DELAY | properties.TRAIT_ENDS_OPEN)
        return self._topic_refusal(topic)

    def _origin_topic(self, send: Send) -> str:
        """Return the topic from which the redelivery says it came, if there is such a topic."""
        said = (properties.get(send.properties, RETRY_TOPIC) or b"").decode("utf-8", "replace")
        return "" if self._topics.get(said) is None else said


def content_refusal(send: Send) -> Refusal | None:
    """Return a refusal for a message with flags or properties that only the broker may set; else None."""
    if send.sys_flag & SYS_COMMIT_BIT and not send.traits & properties.TRAIT_TRANSACTION:
        return _ENDED
    return None


def _no_group(group: str) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")


def _too_long(what: str, found: int, allowed: int) -> Refusal | None:
    if found <= allowed:
        return None
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the {what} {found} bytes, {allowed} are allowed")


def batch_refusal(send: Send) -> Refusal | None:
    """Return a refusal for a transactional or delayed message, which a batch may not hold; else None."""
    if send.traits & properties.TRAIT_TRANSACTION or send.sys_flag & SYS_TRANSACTION_BITS:
        return _TRANSACTION_BATCH
    if send.traits & (properties.TRAIT_DELAY | properties.TRAIT_TIMER_CANCEL):
        return _DELAY_BATCH
    return None
