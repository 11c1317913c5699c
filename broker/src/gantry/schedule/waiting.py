"""How many messages of each HTTP queue wait for a time of their own.

Nothing is counted before somebody asks: a start reads only the queue entries of pending messages, and those name no
topic and no birth.  `counting` then reads the pending records once, in pieces, the cold ones by the cold reader.  From
then on the numbers follow what happens: a message is dispatched, cancelled, retimed, delivered, or dropped at the end
of its life.  While the records are read, news of those that were not read yet is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.leaves import delays
from gantry.metadata.topics import Topics
from gantry.model.population import Population
from gantry.schedule import disguise
from gantry.schedule.book import DelayBook
from gantry.schedule.places import DelayedEntries, DelayedEntry

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Entry
    from gantry.store.reading import Reader

_AT_ONCE = 128
_NOT_BEGUN, _NO_LIMIT = -1, 1 << 62

Cold = Sequence[tuple[int, int]]
"""(log offset, size) of records that have to be read from the disk."""


class WaitingCounts:
    """Populations by topic.  Loop thread only."""

    def __init__(self, reader: Reader, book: DelayBook, topics: Topics, clock: Clock) -> None:
        self._reader = reader
        self._book = book
        self._topics = topics
        self._clock = clock
        self._places = DelayedEntries(reader)
        self._by_topic: dict[str, Population] = {}
        # Queue offsets of the timer topic before the first and from the second on are counted.
        self._read_to = _NOT_BEGUN
        self._known_from = _NO_LIMIT
        self._is_stale = False  # the next count begins at the start

    def living(self, topic: str) -> int:
        """Return how many messages of this queue wait and live; after `counting`."""
        known = self._by_topic.get(topic)
        life_ms = self._topics.life_ms(topic)
        from_ms = None if life_ms is None else self._clock.now_ms() - life_ms + 1
        return 0 if known is None else known.living(from_ms)

    def counting(self) -> Iterator[Cold]:
        """Read what is pending, if that was not done yet.  Yields after each piece what has to be read from the disk
        before it goes on; nothing: it goes on in the next turn.
        """
        if self._read_to == _NOT_BEGUN or self._is_stale:
            self._is_stale = False
            self._by_topic.clear()
            self._read_to, self._known_from = self._book.first_offset, self._book.timer_end
        while self._read_to < self._known_from:
            at = self._read_to
            found = self._places.of_timer_all(range(at, min(at + _AT_ONCE, self._known_from)))
            wanted = [one for one in found if one is not None and self._is_counted(one)]
            cold = [one for one in wanted if self._reader.is_cold([(one.log_offset, one.size)])]
            if cold:
                yield [(one.log_offset, one.size) for one in cold]
                if at != self._read_to:
                    continue
                wanted = [one for one in wanted if self._is_counted(one)]
            for one in wanted:
                self._count(one)
            self._read_to = at + len(found)
            yield ()

    def _is_counted(self, place: DelayedEntry) -> bool:
        is_message = not place.is_cancel and not place.is_lease
        return is_message and self._book.timer.has(place.offset, place.due_ms)

    def _count(self, place: DelayedEntry) -> None:
        record = self._reader.record((place.log_offset, place.size, 0))
        address = None if record is None else disguise.address(record.properties)
        if record is None or address is None or self._book.cancels.has(place.due_ms, address):
            return
        if not self._reader.is_buried(address.topic, place.log_offset):
            self._add(address.topic, record.born_ms, 1)

    def came(self, entries: Sequence[Entry], codes: Sequence[int]) -> None:
        """Count timer messages that were dispatched, with the codes of their queue entries."""
        if self._read_to == _NOT_BEGUN:
            return
        for entry, code in zip(entries, codes, strict=True):
            if not code & (delays.CANCEL_BIT | delays.LEASE_BIT):
                topic = delays.last(entry.properties, delays.REAL_TOPIC).decode("utf-8", "replace")
                self._add(topic, entry.born_ms, 1)

    def went(self, offset: int, topic: str, born_ms: int) -> None:
        """Count a timer message that does not wait any more; offset: in the timer topic's queue."""
        if self._read_to != _NOT_BEGUN and (offset < self._read_to or offset >= self._known_from):
            self._add(topic, born_ms, -1)

    def recount(self) -> None:
        """Read everything again at the next count: something was cancelled by a record of another one.

        A count that is under way ends as it began, or clients that cancel all the time would keep it from its end.
        """
        self._is_stale = True

    def dropped(self, found: Iterable[tuple[int, str, int]]) -> None:
        """Count timer messages, by offset, topic and birth, that were not delivered."""
        for offset, topic, born_ms in found:
            self.went(offset, topic, born_ms)

    def delivered(self, offsets: Iterable[int], sends: Sequence[Send]) -> None:
        """Count timer messages that were delivered."""
        if self._read_to != _NOT_BEGUN:
            for offset, send in zip(offsets, sends, strict=False):
                self.went(offset, send.topic, send.born_ms)

    def forget(self, topic: str) -> None:
        """Forget the messages of a deleted topic."""
        self._by_topic.pop(topic, None)

    def _add(self, topic: str, born_ms: int, count: int) -> None:
        if not self._topics.is_http_queue(topic):
            return
        known = self._by_topic.get(topic)
        if known is None:
            known = self._by_topic[topic] = Population()
        known.add(born_ms // 1000, count)
