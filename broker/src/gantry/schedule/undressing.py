"""Making the message that consumers get of a delayed record, or finding out why it is not delivered.

Not delivered, and counted: cancelled messages, messages for a topic that was deleted since, and messages of an HTTP
queue whose life is over (`gantry.queue.life_s`).  A topic that is missing for any other reason (it was made just before
a crash, and only delayed messages were sent to it) is created again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gantry.clock import SteadyClock
from gantry.leaves import runs, zerosectors
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.metadata.topics import Topics
from gantry.model import names
from gantry.schedule import disguise
from gantry.schedule.book import DelayBook
from gantry.schedule.counts import DelayCounts

if TYPE_CHECKING:
    from gantry.leaves.delays import Place
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record
    from gantry.schedule.places import DelayedEntry
    from gantry.store.reading import Reader


_ANY_BYTES = 1 << 62


class Undressing:
    """Makes the real messages of delayed records.  Loop thread only."""

    def __init__(
        self,
        reader: Reader,
        book: DelayBook,
        topics: Topics,
        counts: DelayCounts,
        clock: SteadyClock,
        say: Callable[[str, str], object],
    ) -> None:
        self._reader = reader
        self.book = book
        self._topics = topics
        self.counts = counts
        self._clock = clock
        # Queue offset, topic and birth of each message of a run that is dropped because its life is over.
        self.expired: list[tuple[int, str, int]] = []
        self._say = say

    def run(self, found: Sequence[Place]) -> list[Send] | None:
        """Return the real messages of a run of records; None when one of them needs a closer look, by `delivery`."""
        if self.book.cancels.touches([due_ms for _, _, due_ms in found]):
            return None
        made = self._reader.deliveries(found, names.HALF_TOPIC)
        sends = [send for send in made if send is not None]
        first, _, _ = min(found)
        queues = {}
        for topic in {send.topic for send in sends}:
            config = self._topics.get(topic)
            if config is None or self._reader.is_buried(topic, first):
                return None
            queues[topic] = max(config.write_queues, config.read_queues, 1)
            if config.attributes and any(self.is_over(topic, send.born_ms) for send in sends if send.topic == topic):
                return None
        is_plain = len(sends) == len(found) == runs.plain(sends, queues, _ANY_BYTES, _ANY_BYTES, _ANY_BYTES, 0, 0)
        return sends if is_plain else None

    def delivery(self, place: DelayedEntry) -> Send | None:
        """Return the real message; None when it is not to be delivered."""
        found = self.read(place)
        if found is None:
            return None
        record, address = found
        send = disguise.delivery(record, address.topic, self._queue_of(address))
        send.properties = zerosectors.guarded(send.properties, PROPERTIES_BYTES_MAX)
        if len(send.properties) > PROPERTIES_BYTES_MAX:
            self._report_unreadable(place)
            return None
        return send

    def read(self, place: DelayedEntry) -> tuple[Record, disguise.Address] | None:
        """Return the record with its address; None when it is not to be delivered."""
        if not place.size:
            return None
        record = self._reader.record((place.log_offset, place.size, 0))
        address = None if record is None else disguise.address(record.properties)
        if record is None or address is None or address.topic == names.HALF_TOPIC:
            self._report_unreadable(place)
            return None
        if not place.is_cancel and self.book.cancels.has(place.due_ms, address):
            self.counts.cancelled += 1
            return None
        if self._reader.is_buried(address.topic, place.log_offset):
            self.counts.discarded += 1
            return None
        if not place.is_cancel and self.is_over(address.topic, record.born_ms):
            self.counts.expired += 1
            self.expired.append((place.offset, address.topic, record.born_ms))
            return None
        return record, address

    def _report_unreadable(self, place: DelayedEntry) -> None:
        self.counts.unreadable += 1
        self._say("unreadable delay", f"the delayed message at log offset {place.log_offset} cannot be delivered")

    def is_moment(self, place: DelayedEntry) -> bool:
        """Return whether a timer message waits for a moment of the wall clock, see `disguise.is_moment`."""
        record = self._reader.record((place.log_offset, place.size, 0))
        return record is not None and disguise.is_moment(record.properties)

    def stored_ms(self, place: DelayedEntry) -> int | None:
        """Return when a timer message was stored, of a copy its original; None when it is not there."""
        record = self._reader.record((place.log_offset, place.size, 0))
        return None if record is None else self.book.stored_ms.get(place.log_offset, record.store_ms)

    def is_over(self, topic: str, born_ms: int) -> bool:
        """Return whether the life of a message of this topic is over."""
        life_ms = self._topics.life_ms(topic)
        return life_ms is not None and born_ms + life_ms <= self._clock.wall_ms()

    def _queue_of(self, address: disguise.Address) -> int:
        """Return the queue that the message was sent to, or another one when the topic has fewer queues now."""
        topic = self._topics.get(address.topic)
        if topic is None:
            self._topics.adopt([(address.topic, address.queue_id)])
            self._say(f"adopted {address.topic}", f"topic {address.topic} has delayed messages: made again")
            return address.queue_id
        queues = max(topic.write_queues, topic.read_queues, 1)
        return address.queue_id if address.queue_id < queues else address.queue_id % max(topic.write_queues, 1)
