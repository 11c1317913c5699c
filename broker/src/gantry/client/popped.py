"""A popped message and its receipt: which lease of which broker the message belongs to.

A pop leaves a message invisible for the rest of the group until the lease ends.  The receipt names the message of that
lease (RocketMQ: the property POP_CK; facts: eight parts, separated by blanks), and an acknowledgement or a change of
the invisible time carries it.  A changed message has a new receipt, and the old one is worth nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gantry.leaves import fields
from gantry.model.message import StoredMessage
from gantry.model.names import RETRY_PREFIX

NORMAL, RETRY, RETRY_V2 = 0, 1, 2  # the flag of a receipt: which topic its message stands in
ORDERLY_QUEUE = 999  # the revive queue of orderly pops: their leases are not in the revive topic
_PARTS = 8
_RECEIPT_CHARACTERS_MAX = 512


class Receipt(NamedTuple):
    """Where a popped message stands and which lease it belongs to; times in milliseconds of the broker's clock."""

    start_offset: int  # of the lease: the first queue offset of the pop in this queue
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    flag: int
    broker_name: str
    queue_id: int
    queue_offset: int

    @staticmethod
    def parse(text: str) -> Receipt:
        """Read the text of a receipt; ValueError when it is none.  RocketMQ's proxy adds a ninth part, ignored here."""
        parts = text.split(" ") if len(text) <= _RECEIPT_CHARACTERS_MAX else []
        name = parts.pop(5) if len(parts) in (_PARTS, _PARTS + 1) else ""
        numbers = [number for part in parts[: _PARTS - 1] if (number := fields.integer(part)) is not None]
        if not name or len(numbers) != _PARTS - 1 or min(numbers) < 0 or numbers[4] > RETRY_V2:
            raise ValueError(f"receipt {text[:60]!r}: not the text that came with a popped message")
        start, pop_ms, invisible_ms, revive_queue, flag, queue_id, queue_offset = numbers
        return Receipt(start, pop_ms, invisible_ms, revive_queue, flag, name, queue_id, queue_offset)

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @property
    def is_orderly(self) -> bool:
        """Whether it belongs to an orderly pop, whose messages are acknowledged as one batch of their queue."""
        return self.revive_queue == ORDERLY_QUEUE

    def topic_of(self, group: str, topic: str) -> str:
        """Return the topic that the message stands in, for requests: the topic itself or the group's retry topic."""
        return topic if self.flag == NORMAL else retry_topic(group, topic, self.flag)

    def changed(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> Receipt:
        """Return the receipt after a change of the invisible time: a lease of this message alone."""
        place = self.flag, self.broker_name, self.queue_id, self.queue_offset
        return Receipt(self.queue_offset, pop_ms, invisible_ms, revive_queue, *place)


def retry_topic(group: str, topic: str, flag: int = RETRY) -> str:
    """Return the topic of a group's messages of `topic` that are delivered again by pops."""
    return f"{RETRY_PREFIX}{group}{'+' if flag == RETRY_V2 else '_'}{topic}"


class PoppedMessage:
    """One delivery of a message by a pop; `receipt` follows changes of the invisible time."""

    __slots__ = ("receipt", "stored")

    def __init__(self, stored: StoredMessage, receipt: Receipt | None) -> None:
        self.stored = stored
        self.receipt = receipt  # None: the record is so damaged that its lease is unknown; it can only expire

    @property
    def handle(self) -> str:
        """The receipt as text, as RocketMQ's clients know it; empty without one."""
        return "" if self.receipt is None else str(self.receipt)

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when it is delivered again."""
        return self.stored.topic

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1 on."""
        return 1 + self.stored.reconsume_times

    @property
    def body(self) -> bytes:
        """The body as the producer sent it, decompressed."""
        return self.stored.body

    @property
    def decode_error(self) -> str:
        """Why `body` holds the stored bytes instead of the sent ones; empty when it was decoded."""
        return self.stored.decode_error

    @property
    def tags(self) -> str:
        """Its tag; empty when it has none."""
        return self.stored.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it can be found by."""
        return self.stored.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, RocketMQ's own ones included."""
        return self.stored.properties

    @property
    def message_id(self) -> str:
        """The id that the producer gave it; every copy has the same, so duplicates can be recognised."""
        return self.stored.message_id

    def __repr__(self) -> str:
        stored = self.stored
        return f"PoppedMessage({stored.topic}, {stored.broker_name}/{stored.queue_id}, {stored.queue_offset})"
