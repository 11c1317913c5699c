"""What a consumer did in the last minutes, by topic, as RocketMQ's tools show it (`ConsumeStatus` in request 307).

    pulls       messages that came, and how long a pull that brought some took
    listeners   calls that ended well, that raised or wanted their message again, and how long they took

Rates are of the last whole minute, or of the minute under way while there is no other; `consumeFailedMsgs` counts an
hour.  Who takes messages by iterating is not seen finishing them: only its pulls are counted.
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
    """By topic and minute; bounded by the subscription.  One loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, deque[_Minute]] = {}

    def pulled(self, topic: str, count: int, took_s: float) -> None:
        """A pull brought so many."""
        minute = self._minute(topic)
        minute.pulls += 1
        minute.pulled += count
        minute.pull_s += took_s

    def consumed(self, topic: str, is_good: bool, took_s: float) -> None:
        """A listener has ended with a message."""
        minute = self._minute(topic)
        minute.good += is_good
        minute.failed += not is_good
        minute.consume_s += took_s

    def now_s(self) -> float:
        """For who measures."""
        return self._clock.monotonic()

    def to_json(self) -> dict[str, dict[str, float]]:
        """RocketMQ's `ConsumeStatus` of every topic; times in milliseconds."""
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
