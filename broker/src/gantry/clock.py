"""The time, as a seam: code that asks a `Clock` runs unchanged in a simulation.

Three times exist, and a rule uses the one that fits what it keeps (the table stands in broker/docs/transactions.md,
"Which clock"):

    a moment      the wall clock (`now_ms` of a `Clock`): what people and other machines mean by a time; may jump
    a duration    the broker's steady clock (`SteadyClock.now_ms`), in ms since the epoch: leases, delays, ages
    a time-out    `monotonic`, in seconds, while the process lives

The steady clock is the wall clock as long as that goes on evenly.  Where the wall clock is set back, the steady clock
goes on from where it was, a little slower, until the wall clock has caught up.  It never begins before the last store
time of the log, so a stored time is never ahead of it, also after a start.  So what lasts three seconds by it ends
after three seconds, whatever happens to the wall clock.  Where the wall clock is set forwards, the steady clock
follows, because store times are what people look for, and remembers the leap: `elapsed_ms` and its like do not count
it.  So a duration lasts also over a leap forwards, as long as the process lives.
"""

from __future__ import annotations

import time
from typing import Protocol

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# While the steady clock is ahead of the wall clock it goes at this rate: an hour is made up in ten hours, and no
# duration becomes longer than by a ninth.
_RATE_AHEAD = 0.9
# The two clocks of a machine differ by the rounding to milliseconds; more than this, and the wall clock was set back.
_EVEN_MS = 20
# More than this is a leap forwards; less is a clock that is adjusted, or a thread that was paused between two readings.
_LEAP_MS = 500
_LEAPS_MAX = 64
_ROUNDING_MS = 0.001  # a difference of two floats may be a little less than the milliseconds that it stands for


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock; may jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed instant; never goes back."""
        ...


class SystemClock:
    """The clock of a real process; simulations implement `Clock` with virtual time."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since the machine's boot, suspension included: a serving lease must not outlive it."""
        return time.clock_gettime(_SINCE_BOOT)


class SteadyClock:
    """A broker's clock for durations; implements `Clock`.  Loop thread only, but for `monotonic`.

    `look` is to be called some ten times a second: a leap is noticed by it, or by who asks for a time that has passed.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self.monotonic = machine.monotonic
        self.wall_ms = machine.now_ms  # for moments
        self._at_s, self._at_ms = machine.monotonic(), machine.now_ms()
        self._last_ms = self._at_ms
        self.is_ahead = False  # the wall clock was set back: moments wait for it
        self._leaps: list[tuple[int, int]] = []  # (the steady time before it, ms) of each leap forwards, ascending
        self.leap_count = 0  # since the process began

    def now_ms(self) -> int:
        """Return the steady time in milliseconds since the epoch; never goes back."""
        wall_ms = self.wall_ms()
        if self.is_ahead or wall_ms < self._last_ms:
            return self.look()
        self._last_ms = wall_ms
        return wall_ms

    def look(self) -> int:
        """Compare the clocks; return the steady time."""
        # In this order: a pause between the two readings only makes the wall clock later.
        now_s = self._machine.monotonic()
        wall_ms = self._machine.now_ms()
        rate = _RATE_AHEAD if self.is_ahead else 1.0
        steady_ms = self._at_ms + int((now_s - self._at_s) * 1000 * rate + _ROUNDING_MS)
        if max(wall_ms, steady_ms) < self._last_ms - _EVEN_MS:
            # A leap forwards that was set back before this could see it: only who asked for the time did.
            self._remember(steady_ms, self._last_ms - steady_ms)
            self._at_s, self._at_ms, self.is_ahead = now_s, self._last_ms, True
        elif wall_ms >= steady_ms:
            self._remember(steady_ms, wall_ms - steady_ms)
            self._at_s, self._at_ms, self.is_ahead = now_s, wall_ms, False
        elif not self.is_ahead and steady_ms - wall_ms > _EVEN_MS:
            self._at_s, self._at_ms, self.is_ahead = now_s, steady_ms, True
        self._last_ms = max(self._last_ms, wall_ms, steady_ms)
        return self._last_ms

    def _remember(self, before_ms: int, leap_ms: int) -> None:
        if leap_ms > _LEAP_MS:
            self._leaps = [*self._leaps[1 - _LEAPS_MAX :], (before_ms, leap_ms)]
            self.leap_count += 1

    def elapsed_ms(self, since_ms: int) -> int:
        """Return how long ago a steady time of this store was, leaps of this process left out; at least 0."""
        return self.passed_ms(since_ms, self.look())

    def passed_ms(self, since_ms: int, now_ms: int) -> int:
        """Return the same for a present time that `look` returned."""
        passed_ms = now_ms - since_ms
        for before_ms, leap_ms in reversed(self._leaps):
            if before_ms < since_ms:
                break
            passed_ms -= leap_ms
        return max(0, passed_ms)

    def time_of(self, since_ms: int) -> int:
        """Return the present time for what began at this steady time: without the leaps since then."""
        return since_ms + self.elapsed_ms(since_ms)

    def left_ms(self, since_ms: int, until_ms: int) -> int:
        """Return how much is left of what began at one steady time and would end at another; 0 when it is over."""
        return max(0, until_ms - since_ms - self.elapsed_ms(since_ms))

    @property
    def has_leaps(self) -> bool:
        """Whether the wall clock was set forwards, as far as this process remembers."""
        return bool(self._leaps)

    def skipped_ms(self, lasts_ms: int, now_ms: int) -> int:
        """Return how much of the last `lasts_ms` are leaps: what lasts so long ends by so much later than it says.

        now_ms: what `look` returned.
        """
        skipped_ms = 0
        for before_ms, leap_ms in reversed(self._leaps):
            if now_ms - lasts_ms - skipped_ms >= before_ms + leap_ms:
                break
            skipped_ms += leap_ms
        return skipped_ms

    def reach(self, store_ms: int) -> None:
        """Go on from this time if it is later: the last store time of a log, by this machine's clock or another's."""
        if store_ms > self.look():
            self._at_s, self._at_ms, self._last_ms = self._machine.monotonic(), store_ms, store_ms
            self.is_ahead = True
