"""Messages and bytes in and out in the last minute, hour and day, under the names of RocketMQ's `BrokerStatsManager`.

    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE    topic             messages and bytes into it
    GROUP_GET_NUMS, GROUP_GET_SIZE    topic@group       messages and bytes that a group took
    SNDBCK_PUT_NUMS                   topic@group       messages that a group sent back, dead letters among them
    BROKER_PUT_NUMS, BROKER_GET_NUMS  cluster's name    all of them; with _WITHOUT_SYSTEM_TOPIC, those of users

Counters that exist anyway are sampled: every ten seconds for the minute, every ten minutes for the hour, every hour for
the day; a window is the difference between now and its oldest sample, so it is shorter in a young process.  `avgpt`
(the average per call) is not known here and is returned as 0.

Not counted are RocketMQ's names that no tool asks for: by queue (two keys more for each of thousands, in 39 samples),
latencies (histograms are in /metrics), what fell behind (`gantry lag`), POP's, and its internal ones.

The number of keys is bounded; further ones are not counted, and requests for them get no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from gantry.append.redelivery import RedeliveryCounts
from gantry.clock import Clock
from gantry.model import names
from gantry.store.store import Store

SAMPLE_S = 10.0
_KEYS_MAX = 20_000
# Name in the answer -> seconds between samples, and how many make the window.
_WINDOWS = {"statsMinute": (10, 7), "statsHour": (600, 7), "statsDay": (3600, 25)}
_SLICE_KEYS = 500

Key = tuple[str, str]
Read = Callable[[], Iterator[tuple[Key, int]]]


class Pulled(Protocol):
    """The counters of pulls that are used here; see `consume.handlers.PullCounts`."""

    messages: int
    by_group: dict[tuple[str, str], list[int]]


def counted(store: Store, pulled: Pulled, sent_back: RedeliveryCounts, cluster: str) -> Iterator[tuple[Key, int]]:
    """Yield all counters; a topic comes once for each of its queues.  Topics that are made or deleted meanwhile may be
    missing.
    """
    for topic, queue_id in list(store.queues()):
        count = store.next_queue_offset(topic, queue_id)
        yield ("TOPIC_PUT_NUMS", topic), count
        yield ("BROKER_PUT_NUMS", cluster), count
        if not names.is_system_topic(topic):
            yield ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", cluster), count
    for topic, size in list(store.bytes_came().items()):
        yield ("TOPIC_PUT_SIZE", topic), size
    for (topic, group), (messages, size) in list(pulled.by_group.items()):
        yield ("GROUP_GET_NUMS", f"{topic}@{group}"), messages
        yield ("GROUP_GET_SIZE", f"{topic}@{group}"), size
        if not names.is_system_topic(topic):
            yield ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", cluster), messages
    for (group, topic), count in [*sent_back.retried.items(), *sent_back.dead.items()]:
        yield ("SNDBCK_PUT_NUMS", f"{topic}@{group}"), count
    yield ("BROKER_GET_NUMS", cluster), pulled.messages


class _Sample(NamedTuple):
    at_s: float
    counters: Mapping[Key, int]


class Statistics:
    """Samples what `read` counts: ((statistic, key), value).  One owner, the loop."""

    def __init__(self, read: Read, clock: Clock, broker_name: str, address: str) -> None:
        self.broker_name = broker_name
        self.address = address
        self._read = read
        self._clock = clock
        self._now: dict[Key, int] = {}
        # Messages that are in the store at the start were counted by an earlier process.
        for _ in self._counting():
            pass
        first = _Sample(clock.monotonic(), self._now)
        self._samples = {name: deque([first], maxlen=count) for name, (_, count) in _WINDOWS.items()}

    def sampling(self) -> Iterator[None]:
        """Take a sample, in slices; a job calls it every SAMPLE_S."""
        yield from self._counting()
        now_s, counters = self._clock.monotonic(), self._now
        for name, (period_s, _) in _WINDOWS.items():
            if now_s - self._samples[name][-1].at_s >= period_s - SAMPLE_S / 2:
                self._samples[name].append(_Sample(now_s, counters))

    def _counting(self) -> Iterator[None]:
        counters: dict[Key, int] = {}
        for number, (key, value) in enumerate(self._read(), 1):
            if key in counters or len(counters) < _KEYS_MAX:
                counters[key] = counters.get(key, 0) + value
            if number % _SLICE_KEYS == 0:
                yield
        self._now = counters

    def per_second(self, statistic: str, key: str) -> float:
        """Return the rate of one key over the last minute; 0 when it is not counted."""
        return self._window("statsMinute", (statistic, key))["tps"]

    def windows(self, statistic: str, key: str) -> dict[str, dict[str, float]] | None:
        """Return RocketMQ's `BrokerStatsData` of one key; None when it was never counted."""
        if not self._now.get((statistic, key)):
            return None
        return {name: self._window(name, (statistic, key)) for name in _WINDOWS}

    def _window(self, name: str, key: Key) -> dict[str, float]:
        # The newest sample is at most SAMPLE_S old; numbers and time are both taken there.
        oldest, newest = self._samples[name][0], self._samples["statsMinute"][-1]
        total = self._now.get(key, 0) - oldest.counters.get(key, 0)
        elapsed_s = newest.at_s - oldest.at_s
        # The counter of a topic that was deleted and made again begins at 0.
        total = total if total >= 0 else self._now.get(key, 0)
        return {"avgpt": 0.0, "sum": total, "tps": round(total / elapsed_s, 2) if elapsed_s > 0 else 0.0}
