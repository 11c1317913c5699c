"""Rates: messages per second that each group takes of each topic, over the last minute or since the start.

A sample of the counters every ten seconds; a rate is the difference between now and the oldest one.  For the tools of
RocketMQ, which show it beside a group's progress; the exact counters are in /metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gantry.clock import Clock

SAMPLE_S = 10.0
_SAMPLES = 7

Counters = Mapping[tuple[str, str], list[int]]  # (topic, group) -> messages first


class GroupRates:
    """Computes rates by sampling `counters`, which the pull handlers update."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._counters = counters
        self._clock = clock
        self._samples: deque[tuple[float, dict[tuple[str, str], int]]] = deque(maxlen=_SAMPLES)
        self.sample()

    def sample(self) -> None:
        """Take a sample; called every SAMPLE_S seconds."""
        self._samples.append((self._clock.monotonic(), {key: found[0] for key, found in self._counters.items()}))

    def per_second(self, topic: str, group: str) -> float:
        """Return the messages per second of this topic that the group took; 0 when it took none."""
        at, then = self._samples[0]
        elapsed = self._clock.monotonic() - at
        found = self._counters.get((topic, group))
        if found is None or elapsed <= 0:
            return 0.0
        return (found[0] - then.get((topic, group), 0)) / elapsed
