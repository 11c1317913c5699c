"""The life of messages of HTTP queues: when a message was born, and whether its life is over.

A message of a topic with `gantry.queue.life_s` lives so long from its birth on, by the attribute as it is now.  Then a
pop passes over it, its lease ends without a copy, and its handle is not valid any more.

Births are moments of the HTTP servers' clocks, so the wall clock judges them.  The steady clock may be ahead of it for
days, after it was wrong for a moment: then every message would be over when it comes.

A lease keeps the births of its messages, which are read when it is made: its records may be far from memory later.
"""

from __future__ import annotations

from gantry.clock import SteadyClock
from gantry.metadata.topics import Topics
from gantry.pop import handle
from gantry.pop.book import OpenLease
from gantry.store import births
from gantry.store.store import Store

UNKNOWN_MS = 1 << 62
"""The birth of a message whose record is gone: nothing is known of its life."""


class Lives:
    """Reads births and judges them.  Loop thread only."""

    def __init__(self, store: Store, topics: Topics, clock: SteadyClock) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock

    def from_ms(self, topic: str) -> int | None:
        """Return the birth of the oldest messages of a topic that live, in ms; None when they live without an end."""
        life_ms = self._topics.life_ms(topic)
        return None if life_ms is None else self._clock.wall_ms() - life_ms + 1

    def opened(self, lease: OpenLease) -> None:
        """Read the births of a lease whose messages are in memory, if its topic is an HTTP queue."""
        if not lease.births_ms and self._topics.is_http_queue(normal_topic(lease)):
            lease.births_ms = tuple([self.birth(lease, offset) for offset in lease.offsets])

    def birth(self, lease: OpenLease, offset: int) -> int:
        """Return when a message of a lease was born; UNKNOWN_MS when its record is gone."""
        if lease.births_ms:
            return lease.births_ms[lease.offsets.index(offset)]
        entry = self._store.reader.entry(lease.key.topic, lease.key.queue_id, offset)
        if entry is None or not self._store.reader.is_place(*entry[:2]):
            return UNKNOWN_MS
        return births.born_ms(self._store.reader, *entry[:2])

    def is_over(self, lease: OpenLease, offset: int) -> bool:
        """Return whether the life of a leased message is over."""
        from_ms = self.from_ms(normal_topic(lease))
        return from_ms is not None and self.birth(lease, offset) < from_ms


def normal_topic(lease: OpenLease) -> str:
    """Return the topic whose messages a lease has, also when they are in a retry topic of it."""
    return handle.normal_topic(lease.key.topic, lease.key.group)[0]
