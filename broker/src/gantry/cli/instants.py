"""Times on the command line: `2026-11-21T10:00:00Z`, `@1795255200000` (ms), or an age: `90s`, `30m`, `2h`, `3d`.

A time without a zone is in this machine's zone.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def milliseconds(text: str, flag: str, clock: Clock | None = None) -> int:
    """Return milliseconds since the epoch; ConfigError that names the flag for an invalid text."""
    number, unit = text[:-1], text[-1:]
    if text.startswith("@") and text[1:].isascii() and text[1:].isdecimal():
        return int(text[1:])
    if unit in _UNITS_S and number.isascii() and number.isdecimal():
        return (clock or SystemClock()).now_ms() - int(number) * _UNITS_S[unit] * 1000
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{flag} {text[:40]!r}: expected a moment such as 2026-11-21T10:00:00Z, @ and milliseconds since the "
            "epoch, or how long ago, such as 30m"
        ) from error


def shown(at_ms: int) -> str | None:
    """Return the time as text for a table; None for 0, which means that there is none."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds") if at_ms > 0 else None
