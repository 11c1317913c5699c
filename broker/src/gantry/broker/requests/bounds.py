"""How large a request may be that is not a message: looked at before its handler is.

A frame may have 16 MiB, because messages do.  Everything else is small, and a handler that reads a body, keeps a name
or repeats it in its answer must not have to think of megabytes.  Bodies of messages have a bound of their own
(`append.admit`); what this broker asked somebody itself is no request.
"""

from __future__ import annotations

from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode

# All fields of a header.  The longest one is of a message's properties, which have 32 KiB.
FIELDS_CHARS_MAX = 64 << 10
_BODY_BYTES_MAX = 16 << 10
# Reading the longest of these takes some milliseconds.
_LONGER_BODIES = {
    RequestCode.HEART_BEAT: 512 << 10,
    RequestCode.LOCK_BATCH_MQ: 512 << 10,
    RequestCode.UNLOCK_BATCH_MQ: 512 << 10,
    RequestCode.UPDATE_BROKER_CONFIG: 64 << 10,
    RequestCode.CHECK_CLIENT_CONFIG: 128 << 10,  # the longest expression, however its characters are written
    RequestCode.DECIDE_BATCH: 256 << 10,
    RequestCode.END_BATCH: 256 << 10,
}
# Messages, and hot requests whose header is wrong: they are refused for that.
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
    """Why a request is too large to be looked at; None when it is not."""
    fields = sum(map(len, command.ext)) + sum(map(len, command.ext.values()))
    if fields > FIELDS_CHARS_MAX:
        return f"the header fields have {fields} characters, {FIELDS_CHARS_MAX} are allowed"
    limit = _LONGER_BODIES.get(command.code, _BODY_BYTES_MAX)  # type: ignore[call-overload]  # an int is as good
    if len(command.body) > limit and command.code not in _MESSAGES:
        return f"the body has {len(command.body)} bytes, {limit} are allowed; ask for less at a time"
    return None
