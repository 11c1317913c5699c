"""Cancels a delayed message before it is delivered.  RocketMQ: `RecallMessageHandle`, request 370.

The handle that a broker returns for a delayed message is base64url text of `v1 <topic> <broker> <time> <unique id>`.
So it names the broker to ask.  GantryMQ's brokers may add a sixth part.
"""

from __future__ import annotations

import base64
import binascii

from gantry.client.requests.question import Question, require
from gantry.leaves.frames import Command
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode
from gantry.wire.command import request

_PARTS, _PARTS_MAX = 5, 6  # the sixth: how often a message of an HTTP queue got another time


def queue_of(handle: str) -> MessageQueue:
    """Return a queue of the broker that a handle names; ValueError for an invalid handle."""
    try:
        parts = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(f"recall handle {handle[:60]!r}: not the text that a send gave") from error
    if not _PARTS <= len(parts) <= _PARTS_MAX or parts[0] != "v1":
        raise ValueError(f"recall handle {handle[:60]!r}: expected version 1 with {_PARTS} parts")
    return MessageQueue(parts[1], parts[2], 0)


def recall(group: str, handle: str, queue: MessageQueue) -> Question[str]:
    """Cancel the message; the answer is its id."""

    def read(reply: Command) -> str:
        return require(reply).ext.get("msgId", "")

    ext = {"producerGroup": group, "topic": queue.topic, "recallHandle": handle, "bname": queue.broker_name}
    return Question(request(RequestCode.RECALL_MESSAGE, ext), read)
