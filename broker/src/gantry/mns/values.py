"""Queues and messages as values.

A body travels as text.  `bytes` are sent as base64, as the vendor's libraries do by default; `str` is sent as it is, so
that a consumer of the same topic over another protocol finds the text itself.  A received message has both: `text` is
what travelled, `body()` its bytes when it was base64.

Units: names end in `_s` (seconds) or `_ms` (milliseconds since the epoch, by the server's clock).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

BATCH_MAX = 16
HANDLE_MAX = 512
PRIORITY_MAX = 16


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """What a program may set; None leaves an attribute as it is, at creation at the server's default."""

    delay_s: int | None = None
    size_max: int | None = None
    life_s: int | None = None
    visibility_s: int | None = None
    wait_s: int | None = None
    logging: bool | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue as the server describes it; the three counts are approximate while messages come and go."""

    name: str
    attributes: QueueAttributes
    created_s: int
    modified_s: int
    active: int
    inactive: int
    delayed: int


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Names of queues in order; `next_marker` is empty on the last page."""

    names: tuple[str, ...]
    next_marker: str


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be sent; delay and priority (1 first, 16 last) of None are the queue's and the server's defaults."""

    body: str | bytes
    delay_s: int | None = None
    priority: int | None = None

    @property
    def text(self) -> str:
        """The body as it travels."""
        return self.body if isinstance(self.body, str) else base64.b64encode(self.body).decode()


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A message that the server has stored; `handle` is empty unless the message is delayed."""

    message_id: str
    handle: str


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A message of a receive or a peek; a peek gives neither `handle` nor `next_visible_ms` (empty and 0)."""

    message_id: str
    text: str
    handle: str
    enqueued_ms: int
    next_visible_ms: int
    first_dequeued_ms: int
    dequeue_count: int
    priority: int

    def body(self) -> bytes:
        """Return the bytes of a body that was sent as bytes; ValueError when the text is no base64."""
        try:
            return base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"the body of message {self.message_id} is no base64; use its text") from error


@dataclass(frozen=True, slots=True)
class ChangedVisibility:
    """The new receipt handle of a message (empty when it has none any more), and when the message is visible again."""

    handle: str
    next_visible_ms: int


def text_md5(text: str) -> str:
    """Return the digest of a body as servers write it: upper-case hexadecimal MD5 of the text that travels."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()
