"""Recall handles: a producer gets one with a delayed message's id, and sends it to cancel the message.

The text is base64url, padded, of `v1 <topic> <broker> <due time in ms> <unique key>`.  Source: RocketMQ 5.3's
`RecallMessageHandle`; clients treat it as opaque.  Ours: a message that got another time has ` <how often>` behind it,
so that no handle of a former time names it.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from gantry.leaves import delays, fields

_VERSION = "v1"
_CHARACTERS_MAX = 2048
_PARTS, _PARTS_MAX = 5, 6


class Handle(NamedTuple):
    """A decoded recall handle: which message, on which broker, due when."""

    topic: str
    broker: str
    due_ms: int
    unique_key: str
    times: int = 0  # how often the message got another time


def encode(handle: Handle) -> str:
    """Encode the recall handle as the text that clients receive."""
    text = f"{_VERSION} {handle.topic} {handle.broker} {handle.due_ms} {handle.unique_key}"
    text += f" {handle.times}" if handle.times else ""
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def decode(text: str) -> Handle | None:
    """Decode a recall handle; None when the text is not one."""
    if len(text) > _CHARACTERS_MAX:
        return None
    try:
        parts = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode().split(" ")
    except ValueError:  # not ASCII, not base64 or not UTF-8 inside
        return None
    if not _PARTS <= len(parts) <= _PARTS_MAX or parts[0] != _VERSION or not all(parts):
        return None
    due_ms, times = fields.integer(parts[3]), fields.integer(parts[5]) if len(parts) == _PARTS_MAX else 0
    return None if due_ms is None or times is None else Handle(parts[1], parts[2], due_ms, parts[4], times)


def of(text: bytes, broker: str) -> str:
    """Return the recall handle of a message disguised with these properties; an empty text when it has none."""
    return delays.handle(text, broker).decode("ascii")
