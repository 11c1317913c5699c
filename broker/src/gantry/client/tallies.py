"""A consumer's statistics of the last minutes by topic, for RocketMQ's tools (`ConsumeStatus` in request 307).

    pulls       received messages, and the duration of pulls that returned messages
    listeners   successful calls, calls that raised or asked for a retry, and their duration

Rates are of the last whole minute, or of the present one while there is no other; `consumeFailedMsgs` counts an hour.
For a consumer without a listener only pulls are counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from gantry.clock import Clock

_MINUTE_S = 60.0
_MINUTES = 61


@dataclass(slots=True)
class _Minute:
    number: int
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    good: int = 0
    failed: int = 0
    consume_s: float = 0.0


class Tallies:
    """Counts by topic and minute; used on one loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, deque[_Minute]] = {}

    def pulled(self, topic: str, count: int, took_s: float) -> None:
        """Count a pull that returned `count` messages."""
        minute = self._minute(topic)
        minute.pulls += 1
        minute.pulled += count
        minute.pull_s += took_s

    def consumed(self, topic: str, is_good: bool, took_s: float) -> None:
        """Count a finished call of a listener."""
        minute = self._minute(topic)
        minute.good += is_good
        minute.failed += not is_good
        minute.consume_s += took_s

    def now_s(self) -> float:
        """Return seconds of the monotonic clock, to measure durations."""
        return self._clock.monotonic()

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return RocketMQ's `ConsumeStatus` of every topic; times in milliseconds."""
        return {topic: self._status(minutes) for topic, minutes in self._topics.items()}

    def _minute(self, topic: str) -> _Minute:
        minutes = self._topics.get(topic)
        if minutes is None:
            minutes = self._topics[topic] = deque(maxlen=_MINUTES)
        number = int(self._clock.monotonic() // _MINUTE_S)
        if not minutes or minutes[-1].number != number:
            minutes.append(_Minute(number))
        return minutes[-1]

    def _status(self, minutes: deque[_Minute]) -> dict[str, float]:
        now_s = self._clock.monotonic()
        number = int(now_s // _MINUTE_S)
        found = {minute.number: minute for minute in minutes}
        seen, over_s = found.get(number - 1, _Minute(number - 1)), _MINUTE_S
        if minutes[0].number == number:
            seen, over_s = minutes[0], max(now_s % _MINUTE_S, 1.0)
        calls = seen.good + seen.failed
        return {
            "consumeFailedMsgs": sum(minute.failed for minute in minutes if number - minute.number < _MINUTES),
            "consumeFailedTPS": round(seen.failed / over_s, 2),
            "consumeOKTPS": round(seen.good / over_s, 2),
            "consumeRT": round(seen.consume_s * 1000 / calls, 2) if calls else 0.0,
            "pullRT": round(seen.pull_s * 1000 / seen.pulls, 2) if seen.pulls else 0.0,
            "pullTPS": round(seen.pulled / over_s, 2),
        }
