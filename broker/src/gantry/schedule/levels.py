"""The delay levels: RocketMQ's table of durations, which clients name by number.

`messageDelayLevel` is a text of durations, `1s 5s 10s ... 2h`; the first is level 1.  A level above the last one
means the last one.  The queue entries of SCHEDULE_TOPIC_XXXX are derived with this table, so longer durations apply
to messages that are stored after a change.  Shorter durations apply to waiting messages, too: an entry that is due
later is handled as after the clock was set back (`lines`).

Source: RocketMQ's `ScheduleMessageService.parseDelayLevel`.
"""

from __future__ import annotations

STANDARD = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 64

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MAX_MS = 366 * 86_400_000


def parse(text: str) -> tuple[int, ...]:
    """The durations in milliseconds; ValueError naming the one that is none."""
    words = text.split()
    if not 1 <= len(words) <= LEVELS_MAX:
        raise ValueError(f"{len(words)} delay levels, expected 1 to {LEVELS_MAX}")
    return tuple(_duration_ms(word) for word in words)


def _duration_ms(word: str) -> int:
    unit = _UNITS_MS.get(word[-1:], 0)
    digits = word[:-1]
    if unit and digits.isascii() and digits.isdigit() and len(digits) <= 9:
        duration_ms = int(digits) * unit
        if duration_ms <= _DURATION_MAX_MS:
            return duration_ms
    raise ValueError(f"delay level {word[:20]!r}: expected a whole number with s, m, h or d behind it, a year at most")
