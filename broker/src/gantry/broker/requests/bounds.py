"""The size limits of requests that are not messages, checked before the handler is called.

A frame may have 16 MiB, because messages may.  Other requests are small, and handlers that parse a body or store a name
rely on that.  Bodies of messages have their own limit (`append.admit`); answers to this broker's requests are not
limited here.
"""

from __future__ import annotations

from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode

# Of all fields of a header together.  The longest field is a message's properties, with up to 32 KiB.
FIELDS_CHARS_MAX = 64 << 10
_BODY_BYTES_MAX = 16 << 10
# Parsing the longest of these takes some milliseconds.
_LONGER_BODIES = {
    RequestCode.HEART_BEAT: 512 << 10,
    RequestCode.LOCK_BATCH_MQ: 512 << 10,
    RequestCode.UNLOCK_BATCH_MQ: 512 << 10,
    RequestCode.UPDATE_BROKER_CONFIG: 64 << 10,
    RequestCode.CHECK_CLIENT_CONFIG: 128 << 10,  # the longest expression, however its characters are written
    RequestCode.DECIDE_BATCH: 256 << 10,
    RequestCode.END_BATCH: 256 << 10,
    RequestCode.BATCH_ACK_MESSAGE: 256 << 10,
}
# Messages; those with an invalid header are refused for that.
_MESSAGES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)


def why_too_large(command: Command) -> str | None:
    """Return why a request is too large; None when it is not."""
    fields = sum(map(len, command.ext)) + sum(map(len, command.ext.values()))
    if fields > FIELDS_CHARS_MAX:
        return f"the header fields have {fields} characters, {FIELDS_CHARS_MAX} are allowed"
    limit = _LONGER_BODIES.get(command.code, _BODY_BYTES_MAX)  # type: ignore[call-overload]  # an int is as good
    if len(command.body) > limit and command.code not in _MESSAGES:
        return f"the body has {len(command.body)} bytes, {limit} are allowed; ask for less at a time"
    return None
