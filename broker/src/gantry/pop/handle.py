"""Receipt handles of popped messages, and the strings of a pop's answer from which clients make them.

A handle is eight words with single spaces between them:

    start popTime invisibleTime reviveQueue flag broker queueId queueOffset

`start` is the queue offset with which the lease begins, so (topic, queue, start, pop time) names the lease, and the
queue offset one message of it.  Further words are ignored: Apache's proxy adds the log offset as a ninth.  The flag
says which topic the queue belongs to:

    0    the topic itself
    1    the group's retry topic of it, `%RETRY%group_topic` (V1)
    2    the same under the name of RocketMQ's V2, `%RETRY%group+topic`

The answer of a pop has one string for all queues.  Clients make the handle of a message from its queue's two entries;
a message of a retry topic carries its handle in the property POP_CK instead.

    startOffsetInfo     `flag queueId start` for each queue, joined by `;`
    msgOffsetInfo       `flag queueId o1,o2,...`: the offsets of the messages of each queue, in the order of the body
    orderCountInfo      of an orderly pop: `flag qo<queueId>%<offset> count`, how often a message was delivered before,
                        where it was; and `flag queueId count`, the least of all messages of the queue

Source: RocketMQ's `ExtraInfoUtil` and `KeyBuilder`; facts 9.2 of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gantry.leaves import fields
from gantry.model import names

NORMAL, RETRY_V1, RETRY_V2 = 0, 1, 2
ORDERLY_QUEUE = 999
"""The revive queue that the handles of an orderly pop name."""
POP_CK = b"POP_CK"

_WORDS = 8
_TEXT_MAX = 1024  # eight words, of which the longest is the broker's name, and what a proxy adds


class ReceiptHandle(NamedTuple):
    """One message of one lease."""

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    flag: int
    broker: str
    queue_id: int
    offset: int


def encode(handle: ReceiptHandle) -> str:
    """Return the string that clients receive."""
    return (
        f"{handle.start} {handle.pop_ms} {handle.invisible_ms} {handle.revive_queue} {handle.flag} {handle.broker} "
        f"{handle.queue_id} {handle.offset}"
    )


def decode(text: str) -> ReceiptHandle | None:
    """Return the handle of a string; None when it is none."""
    words = text.split(" ") if len(text) <= _TEXT_MAX else []
    if len(words) < _WORDS:
        return None
    broker = words.pop(5)
    numbers = [fields.integer(word) for word in words[: _WORDS - 1]]
    known = [number for number in numbers if number is not None and number >= 0]
    if len(known) < len(numbers) or known[4] > RETRY_V2 or not broker:
        return None
    start, pop_ms, invisible_ms, revive_queue, flag, queue_id, offset = known
    return ReceiptHandle(start, pop_ms, invisible_ms, revive_queue, flag, broker, queue_id, offset)


def retry_topic(topic: str, group: str, flag: int = RETRY_V1) -> str:
    """Return the name of the group's retry topic of a topic."""
    return f"{names.RETRY_PREFIX}{group}{'+' if flag == RETRY_V2 else '_'}{topic}"


def real_topic(topic: str, group: str, flag: int) -> str:
    """Return the topic that a flag means beside a normal topic."""
    return topic if flag == NORMAL else retry_topic(topic, group, flag)


def normal_topic(topic: str, group: str) -> tuple[str, int]:
    """Return the normal topic and the flag of a topic that may be the group's retry topic of another one."""
    if not topic.startswith(names.RETRY_PREFIX):
        return topic, NORMAL
    for flag in (RETRY_V1, RETRY_V2):
        prefix = retry_topic("", group, flag)
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :], flag
    return topic, NORMAL


def count_info(queue_id: int, offsets: Sequence[int], counts: Mapping[int, int]) -> list[str]:
    """Return the entries of a queue in `orderCountInfo`; counts: by offset, missing where a message is new."""
    found = [f"{NORMAL} qo{queue_id}%{offset} {counts[offset]}" for offset in offsets if counts.get(offset)]
    return [*found, f"{NORMAL} {queue_id} {min(counts.get(offset, 0) for offset in offsets)}"]
