"""A clock that stands still until a test moves it; implements `gantry.clock.Clock`."""

from __future__ import annotations

# Some afternoon; a test that depends on the value is wrong.
_START_MS = 1_700_000_000_000

SECOND_MS, HOUR_MS, YEARS_MS = 1000, 3_600_000, 24 * 365 * 86_400_000
# By how much a clock is wrong: a little, a time zone, an empty battery.
SKEWS_MS = (-YEARS_MS, -HOUR_MS, -SECOND_MS, SECOND_MS, HOUR_MS, YEARS_MS)


class SimClock:
    """Both times move together unless a test lets the wall clock jump."""

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._wall_ms

    def monotonic(self) -> float:
        """Seconds since the test began."""
        return self._monotonic_ms / 1000

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        assert milliseconds >= 0, "time passes forwards; use jump for the wall clock"
        self._wall_ms += milliseconds
        self._monotonic_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forwards or back, as an administrator or NTP does."""
        self._wall_ms += milliseconds
