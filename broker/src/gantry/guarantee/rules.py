"""Decisions that the statements' rows leave to the program, as pure functions; the same for every language.

A consumer asks in this order, inside of one transaction.  `log`: 1 row, else `judge` what `look` shows.  `confirm` (or
`begin`): 1 row, else `may_have_effect` for what `verdict` shows, and `refuse` when it may not.  Only then the effect is
carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from gantry.guarantee.schema import BROKER_CHARACTERS_MAX, KEY_CHARACTERS_MAX

BACKOFF_DOUBLINGS_MAX = 10  # a thousand times the first backoff


class LogFinding(enum.Enum):
    """What a log row that was there already means for the message that came."""

    DONE = "done"  # a duplicate: confirm (a crash may have come in between) and acknowledge
    HELD = "held"  # another process works on it: deliver it again later, never acknowledge
    UNKNOWN = "unknown"  # `suspect`, then ask whether the effect happened: `finish`, or `take` and begin
    REFUSED = "refused"  # it had no effect, and shall have none until a person rearms it: acknowledge


def judge(effect: str, owner_until_ms: int, now_ms: int) -> LogFinding:
    """Return what a row of `look` means; `now_ms` and `owner_until_ms` are epoch milliseconds."""
    if effect == "processing":
        return LogFinding.HELD if now_ms < owner_until_ms else LogFinding.UNKNOWN
    return LogFinding(effect)


def may_have_effect(verdict: Sequence[Sequence[object]]) -> bool:
    """Return whether a message that was logged now may have its effect, though `confirm` changed no row.

    `verdict` are the rows of the statement of that name.  Without a stub here, or without a delivery for this group
    (which was not declared), nothing speaks against it but a withdrawal.  A confirmed delivery had its effect; its log
    row was deleted.
    """
    if not verdict:
        return True
    ((status, state),) = verdict
    return status != "void" and state not in ("confirmed", "void", "closed")


def next_resend_ms(now_ms: int, attempts: int, backoff_ms: int, backlog_ms: int = 0) -> int:
    """Return when a delivery is due again after its `attempts`-th resend: always later than now."""
    doublings = min(max(attempts - 1, 0), BACKOFF_DOUBLINGS_MAX)
    return now_ms + max(1, backlog_ms + (backoff_ms << doublings))


def check_texts(**texts: str) -> None:
    """Raise ValueError for a text that some of the four databases does not hold: too long for a key, or with a NUL.

    Call it with the columns of a row: `message_id=..., topic=..., consumer_group=..., broker=..., message_keys=...`.
    """
    keys = ("message_id", "topic", "copy_topic", "consumer_group", "owner", "changed_by")
    for name, text in texts.items():
        limit = BROKER_CHARACTERS_MAX if name == "broker" else KEY_CHARACTERS_MAX
        if name in (*keys, "broker") and len(text) > limit:
            raise ValueError(f"{name} has {len(text)} characters, {limit} are allowed; shorten it")
        if "\0" in text:
            raise ValueError(f"{name} has a NUL at character {text.index(chr(0))}; databases do not store it in a text")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{name} is no Unicode text: {error.reason}; replace its lone surrogates") from error
