"""A popped message and its receipt: which lease of which broker the message belongs to.

A pop leaves a message invisible for the rest of the group until the lease ends.  The receipt names the message of that
lease (RocketMQ: the property POP_CK; facts: eight parts, separated by blanks), and an acknowledgement or a change of
the invisible time carries it.  A changed message has a new receipt, and the old one is worth nothing any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from gantry.model.message import RETRY_TOPIC, StoredMessage
from gantry.model.names import is_retry_topic
from gantry.model.subscription import Subscription
from gantry.pop.handle import ORDERLY_QUEUE, ReceiptHandle, decode, encode, real_topic

log = logging.getLogger(__name__)


class Receipt(ReceiptHandle):
    """Where a popped message stands and which lease it belongs to: the fields of a `ReceiptHandle`."""

    __slots__ = ()

    @staticmethod
    def parse(text: str) -> Receipt:
        """Read the text of a receipt; ValueError when it is none.  RocketMQ's proxy adds a ninth part, ignored here."""
        handle = decode(text) or decode(text.rpartition(" ")[0])
        if handle is None:
            raise ValueError(f"receipt {text[:60]!r}: not the text that came with a popped message")
        return Receipt(*handle)

    def __str__(self) -> str:
        return encode(self)

    @property
    def is_orderly(self) -> bool:
        """Whether it belongs to an orderly pop, whose messages are acknowledged as one batch of their queue."""
        return self.revive_queue == ORDERLY_QUEUE

    def topic_of(self, group: str, topic: str) -> str:
        """Return the topic that the message stands in, for requests: the topic itself or the group's retry topic."""
        return topic if is_retry_topic(topic) else real_topic(topic, group, self.flag)

    def changed(self, pop_ms: int, invisible_ms: int, revive_queue: int) -> Receipt:
        """Return the receipt after a change of the invisible time: a lease of this message alone."""
        return Receipt(
            self.offset, pop_ms, invisible_ms, revive_queue, self.flag, self.broker, self.queue_id, self.offset
        )


def matching(
    messages: Iterable[PoppedMessage], subscription: Subscription
) -> tuple[list[PoppedMessage], list[PoppedMessage]]:
    """Return the messages that a subscription wants, and the others, which are to be acknowledged.

    Brokers compare hashes of tags only.  A record so damaged that its lease is unknown is in neither: its lease ends.
    """
    wanted, unwanted = list[PoppedMessage](), list[PoppedMessage]()
    tags = subscription.tags
    for message in messages:
        if message.receipt is None:
            log.error("%r: the record cannot be read and is passed over: %s", message, message.decode_error)
        elif not tags or message.tags in tags:
            wanted.append(message)
        else:
            unwanted.append(message)
    return wanted, unwanted


class PoppedMessage:
    """One delivery of a message by a pop; `receipt` follows changes of the invisible time."""

    __slots__ = ("receipt", "source", "stored")

    def __init__(self, stored: StoredMessage, receipt: Receipt | None, source: str) -> None:
        self.stored = stored
        self.source = source  # the topic that was popped: requests about the message name it
        self.receipt = receipt  # None: the record is so damaged that its lease is unknown; it can only expire

    @property
    def handle(self) -> str:
        """The receipt as text, as RocketMQ's clients know it; empty without one."""
        return "" if self.receipt is None else str(self.receipt)

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when it is delivered again."""
        stored = self.stored
        return stored.properties.get(RETRY_TOPIC, stored.topic) if is_retry_topic(stored.topic) else stored.topic

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
        return f"PoppedMessage({self.topic}, {stored.broker_name}/{stored.queue_id}, {stored.queue_offset})"


def receipt_of(message: PoppedMessage) -> Receipt:
    """Return the receipt of a message that is to be settled; ValueError when it has none."""
    if message.receipt is None:
        raise ValueError(f"{message!r}: its record is damaged and it has no receipt; its lease can only expire")
    return message.receipt
