"""What becomes of a message that a consumer could not handle.

    its attempts are used up, or its consumer says so    dead letter: %DLQ%group, not delivered again by itself
    otherwise                                            retry: %RETRY%group, after the delay of a level

A group gets a message once and then `times_max` times again.  The delay is the consumer's choice (a level above 0),
else it grows with the attempts: level 3 for the first, one more each time, which is 10 s, 30 s, 1 min, ... 2 h on
RocketMQ's ladder; what lies above the ladder is its last step.

Two ways lead here, and they obey the same rules: the request CONSUMER_SEND_MSG_BACK, where the broker copies the record
itself, and a send to the retry topic, to which Java clients resort when that request fails.

A copy is the same message: body, flag, unique key, birth and the producer's properties stay.  It says where it came
from in RETRY_TOPIC and ORIGIN_MESSAGE_ID, a dead letter also in DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID; what an
earlier round wrote (delays, disguises, counts of a client) is taken out, so the properties do not grow from round to
round.  Its transaction bits are cleared: it is no commit of the half that its original came from.

Sources: RocketMQ's `AbstractSendMessageProcessor.consumerSendMsgBack` and `handleRetryAndDLQ`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import delays, frames, properties, records, sendbacks
from gantry.leaves.records import PROPERTIES_BYTES_MAX, SYS_TRANSACTION_BITS
from gantry.model import names

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record

LEVEL_DEAD = -1  # what a consumer says to give a message up at once
LEVEL_FIRST = 3  # 10 s, the first delay that the broker chooses
RETRY_TOPIC = sendbacks.RETRY_TOPIC
ORIGIN_ID = sendbacks.ORIGIN_ID
DLQ_TOPIC = b"DLQ_ORIGIN_TOPIC"
DLQ_ID = b"DLQ_ORIGIN_MESSAGE_ID"
TIMES_MAX = (1 << 31) - 1
"""A redelivery count is an i32 in the record, into which a producer may write what it likes."""
FIRST_POP = b"1ST_POP_TIME"  # in ms, of a message that was popped before

_DEAD_ORIGINS = frozenset({DLQ_TOPIC, DLQ_ID})
_OF_COPIES = sendbacks.SPENT | sendbacks.ORIGINS
_ID_BYTES_MAX = sendbacks.ORIGIN_ID_BYTES_MAX
_OF_BROKERS = frozenset({b"MSG_REGION", b"TRACE_ON", b"CLUSTER"})
_OF_ROUNDS = _OF_COPIES | _DEAD_ORIGINS
assert sendbacks.ORIGIN_TOPIC_BYTES_MAX == names.RETRY_TOPIC_BYTES_MAX


class Retry(NamedTuple):
    """A message that is delivered once more, after the delay of this level."""

    level: int


class MoveToDeadLetters(NamedTuple):
    """A message whose group used up its attempts: it goes to the dead-letter topic and is not delivered again."""


class Origin(NamedTuple):
    """The topic and the offset id under which a message was consumed first."""

    topic: str
    message_id: str  # the offset id of its first record


class RedeliveryCounts:
    """Counts by (group, topic of origin); both exist, so the tables are bounded by those of the metadata."""

    __slots__ = ("dead", "dropped", "refused", "retried")

    def __init__(self) -> None:
        self.retried: dict[tuple[str, str], int] = {}
        self.dead: dict[tuple[str, str], int] = {}
        self.dropped: dict[str, int] = {}  # by group: failed messages of groups without retries
        self.refused: dict[str, int] = {}  # by reason

    def count(self, fate: Retry | MoveToDeadLetters, group: str, topic: str) -> None:
        """Count a message that was put into a retry or dead-letter topic."""
        table = self.dead if isinstance(fate, MoveToDeadLetters) else self.retried
        table[group, topic] = table.get((group, topic), 0) + 1

    def refuse(self, reason: str) -> None:
        """Count a refused request to send a message back."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


def fate_of(times: int, times_max: int, level: int) -> Retry | MoveToDeadLetters:
    """What becomes of a message that was redelivered `times` times before this failure.

    level: the consumer's choice; 0 leaves it to the broker.
    """
    if level < 0 or times >= times_max:
        return MoveToDeadLetters()
    return Retry(level or LEVEL_FIRST + max(0, times))


def origin_of(record: Record, group: str) -> Origin:
    """Return the topic and id under which a message was consumed first.

    Its properties count only in this group's retry topic: anywhere else a producer may have written them.
    """
    first = Origin(record.topic, records.offset_message_id(record.store_host, record.log_offset))
    if record.topic != names.retry_topic(group):
        return first
    topic = properties.get(record.properties, RETRY_TOPIC) or b""
    message_id = properties.get(record.properties, ORIGIN_ID) or b""
    # Longer than any name or id: both are repeated in the copy, which has to fit a record.
    return Origin(
        topic.decode("utf-8", "replace") if 0 < len(topic) <= names.RETRY_TOPIC_BYTES_MAX else first.topic,
        message_id.decode("utf-8", "replace") if 0 < len(message_id) <= _ID_BYTES_MAX else first.message_id,
    )


def popped_from(record: Record, topic: str) -> Origin:
    """Return the topic and id under which a message was popped first from this topic or a retry topic of it.

    In a retry topic its properties say it: only brokers write there.
    """
    first = Origin(topic, records.offset_message_id(record.store_host, record.log_offset))
    message_id = properties.get(record.properties, ORIGIN_ID) or b""
    if record.topic == topic or not 0 < len(message_id) <= _ID_BYTES_MAX:
        return first
    return Origin(topic, message_id.decode("utf-8", "replace"))


def again_of(record: Record, origin: Origin, fate: Retry | MoveToDeadLetters, topic: str, first_pop_ms: int) -> Send:
    """Return the copy for queue 0 of a topic of a popped message that was not acknowledged; it is not delayed.

    Records of others may have no room for what we add (where it comes from, when it was popped): that is left out then.
    """
    kept = text = delays.without(record.properties, _OF_COPIES)
    text += b"%b\x01%b\x02%b\x01%b\x02" % (RETRY_TOPIC, origin.topic.encode(), ORIGIN_ID, origin.message_id.encode())
    if properties.get(text, FIRST_POP) is None:
        text += b"%b\x01%d\x02" % (FIRST_POP, first_pop_ms)
    if isinstance(fate, MoveToDeadLetters):
        text = as_dead_letter(text, origin.topic, origin.message_id)
    return _copied(record, text if len(text) <= PROPERTIES_BYTES_MAX else kept, topic, 0)


def moved_of(record: Record, origin: Origin, topic: str) -> Send:
    """Return the copy for queue 0 of a retry topic of a message that was not delivered since: its counts stay."""
    copy = again_of(record, origin, Retry(0), topic, 0)
    if properties.get(record.properties, FIRST_POP) is None:
        copy.properties = delays.without(copy.properties, frozenset({FIRST_POP}))
    copy.reconsume_times = record.reconsume_times
    return copy


def copy_of(record: Record, origin: Origin, fate: Retry | MoveToDeadLetters, topic: str, queue_id: int) -> Send:
    """Return the copy of a record for the retry or the dead-letter topic."""
    text = delays.without(record.properties, _OF_COPIES)
    text += b"%b\x01%b\x02%b\x01%b\x02" % (RETRY_TOPIC, origin.topic.encode(), ORIGIN_ID, origin.message_id.encode())
    if isinstance(fate, MoveToDeadLetters):
        text = as_dead_letter(text, origin.topic, origin.message_id)
    else:
        text += delay_of(fate)
    return _copied(record, text, topic, queue_id)


def _copied(record: Record, text: bytes, topic: str, queue_id: int) -> Send:
    traits, unique_key, keys, tags_code = properties.scan(text)
    return frames.Send(
        topic=topic,
        queue_id=queue_id,
        sys_flag=record.sys_flag & ~SYS_TRANSACTION_BITS,
        born_ms=record.born_ms,
        flag=record.flag,
        properties=text,
        reconsume_times=min(record.reconsume_times + 1, TIMES_MAX),
        body=record.body,
        traits=traits,
        unique_key=unique_key,
        keys=keys,
        tags_code=tags_code,
        born_host=record.born_host,
    )


def delay_of(fate: Retry) -> bytes:
    """Return the property by which a copy asks for the delay of its retry."""
    return b"DELAY\x01%d\x02" % fate.level


def as_dead_letter(text: bytes, origin_topic: str, origin_id: str) -> bytes:
    """Properties that say whose dead letter it is; the id is the producer's where there is one."""
    text = delays.without(text, _DEAD_ORIGINS)
    unique_key = properties.get(text, b"UNIQ_KEY")
    if origin_topic:
        text = properties.add(text, DLQ_TOPIC, origin_topic.encode())
    if unique_key or origin_id:
        text = properties.add(text, DLQ_ID, unique_key or origin_id.encode())
    return text


def own_bytes(text: bytes) -> int:
    """Return the bytes of these properties without those that a redelivery, or the broker, removes or writes again."""
    return len(delays.without(text, _OF_ROUNDS | _OF_BROKERS))
