"""Rates per second for RocketMQ's tools, over its three windows of 10 s, 1 min and 10 min.

A few counters are sampled every ten seconds; a rate is the difference of two samples.  The exact numbers are in
/metrics; `mqadmin`, the dashboard and RocketMQ's exporter need "a b c" texts in GET_BROKER_RUNTIME_INFO.

It also keeps the counters at the last midnight and at the one before, by this machine's local time; those tools
subtract them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

from gantry.clock import Clock

SAMPLE_S = 10.0
_WINDOWS = (1, 6, 60)  # samples back


class Rates:
    """Samples counters by name; `read` returns their present values."""

    def __init__(self, read: Callable[[], dict[str, int]], clock: Clock) -> None:
        self.yesterday_morning: dict[str, int] = {}
        self.today_morning: dict[str, int] = {}
        self._read = read
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=max(_WINDOWS) + 1)
        self._day = self._local_day()
        self.sample()
        self.today_morning = self.yesterday_morning = self._samples[0][1]

    def sample(self) -> None:
        """Take a sample; called every SAMPLE_S."""
        counters = self._read()
        self._samples.append((self._clock.monotonic(), counters))
        day = self._local_day()
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.today_morning = self.today_morning, counters

    def in_last_minute(self, name: str) -> int:
        """Return the increase of this counter in the last minute, or since the start."""
        return self._read()[name] - self._samples[-min(_WINDOWS[1], len(self._samples))][1][name]

    def rate(self, *names: str) -> float:
        """Return the sum of these counters per second over 10 s."""
        return float(self.per_second(*names).partition(" ")[0])

    def per_second(self, *names: str) -> str:
        """Return the sum of these counters per second over 10 s, 1 min and 10 min (or since the start), as "a b c"."""
        now = self._clock.monotonic()
        total = self.total(*names)
        texts = []
        for window in _WINDOWS:
            at, counters = self._samples[-min(window, len(self._samples))]
            elapsed = now - at
            rate = (total - sum(counters[name] for name in names)) / elapsed if elapsed > 0 else 0.0
            texts.append(f"{rate:.1f}")
        return " ".join(texts)

    def total(self, *names: str) -> int:
        """Return the present sum of these counters."""
        counters = self._read()
        return sum(counters[name] for name in names)

    def _local_day(self) -> int:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone().toordinal()
