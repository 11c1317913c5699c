"""How many messages of an HTTP queue a group can get (active) and has leased (inactive).

    active     in the topic and the group's retry topics, from the group's position on
    inactive   in open leases

Both without messages whose life is over.  The births of active messages are kept, four bytes each.  They are read from
the log when messages came, so a count reads only what came since the last one.  The births of leased messages are in
their leases; those of leases that a start read back are read by the first count.

Nothing is counted of a queue before somebody asks for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence

from gantry.model.population import Population
from gantry.pop import handle
from gantry.pop.book import OpenLease
from gantry.pop.lives import UNKNOWN_MS, normal_topic
from gantry.pop.service import PopService
from gantry.store import births

_AT_ONCE = 256
_DROPPED_AT_ONCE = 10_000  # some 2 ms
_NO_MESSAGE = 0  # a birth of an entry without a record
_SECONDS_MAX = (1 << 32) - 1

Cold = Sequence[tuple[int, int]]
"""(log offset, size) of records that have to be read from the disk."""


class _Window:
    """The births of the messages of one queue from a queue offset on, in seconds."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.births = array("I")
        self.living = Population()

    @property
    def end(self) -> int:
        return self.start + len(self.births)

    def drop_before(self, offset: int) -> bool:
        """Drop some of the messages before this offset; return whether all are dropped."""
        count = min(offset - self.start, _DROPPED_AT_ONCE)
        for born_s in self.births[:count]:
            if born_s != _NO_MESSAGE:
                self.living.add(born_s, -1)
        del self.births[:count]
        self.start += count
        return self.start == offset

    def append(self, born_s: int) -> None:
        self.births.append(born_s)
        if born_s != _NO_MESSAGE:
            self.living.add(born_s)


class QueuePopulation:
    """The messages of one queue and group.  Loop thread only."""

    def __init__(self, service: PopService, group: str, topic: str) -> None:
        self._service = service
        self._context = service.context
        self._group = group
        self._topic = topic
        self._generation = service.generation(topic)
        self._windows: dict[tuple[str, int], _Window] = {}
        self._leased = Population()
        self._unread: list[OpenLease] = []
        for queue in self._queues():
            for lease in service.book.of((group, *queue)):
                if lease.births_ms:
                    self.changed(lease, lease.open, 1)
                else:
                    self._unread.append(lease)

    @property
    def is_current(self) -> bool:
        """Return whether the topic was not deleted since."""
        return self._generation == self._service.generation(self._topic)

    def _queues(self) -> Iterator[tuple[str, int]]:
        topics = self._context.topics
        for flag in (handle.NORMAL, handle.RETRY_V1, handle.RETRY_V2):
            config = topics.get(handle.real_topic(self._topic, self._group, flag))
            for queue_id in range(0 if config is None else config.read_queues):
                yield config.name, queue_id  # type: ignore[union-attr]

    def changed(self, lease: OpenLease, bits: int, sign: int) -> None:
        """Count messages of a lease with known births that are open now (1) or not any more (-1)."""
        for number, born_ms in enumerate(lease.births_ms):
            if bits >> number & 1:
                self._leased.add(_second(born_ms), sign)

    def counts(self) -> tuple[int, int]:
        """Return how many messages are active and inactive; after `counting`."""
        from_ms = self._service.lives.from_ms(self._topic)
        active = sum(window.living.living(from_ms) for window in self._windows.values())
        return active, self._leased.living(from_ms)

    def counting(self) -> Iterator[Cold]:
        """Read what came since the last count.  Yields after each piece what has to be read from the disk before it
        goes on; nothing: it goes on in the next turn.
        """
        while self._unread:
            cold = [place for lease in self._unread[-1:] for place in self._cold_of(lease)]
            if cold:
                yield cold
            lease = self._unread.pop()
            if lease.open and not lease.births_ms:
                lease.births_ms = tuple([self._service.lives.birth(lease, offset) for offset in lease.offsets])
                self.changed(lease, lease.open, 1)
            yield ()
        for queue in self._queues():
            yield from self._catch_up(queue)

    def _cold_of(self, lease: OpenLease) -> Cold:
        reader, key = self._context.store.reader, lease.key
        entries = [reader.entry(key.topic, key.queue_id, offset) for offset in lease.offsets]
        places = [entry[:2] for entry in entries if entry is not None and reader.is_place(*entry[:2])]
        return [place for place in places if reader.is_cold([place])]

    def _catch_up(self, queue: tuple[str, int]) -> Iterator[Cold]:
        reader = self._context.store.reader
        low, high = self._context.store.queue_range(*queue) or (0, 0)
        position = self._service.positions.of((self._group, *queue))
        start = low if position is None else max(low, position)
        window = self._windows.get(queue)
        if window is None or not window.start <= start <= window.end or window.end > high:
            if start >= high:
                self._windows.pop(queue, None)
                return
            window = self._windows[queue] = _Window(start)
        while not window.drop_before(start):
            yield ()
        while window.end < high and self.is_current:
            end = window.end
            places = reader.places(*queue, end, min(_AT_ONCE, high - end))
            if not places:
                return
            cold = [place[:2] for place in places if reader.is_place(*place[:2]) and reader.is_cold([place[:2]])]
            if cold:
                yield cold
            for log_offset, size, _ in places if window.end == end else ():
                is_there = reader.is_place(log_offset, size)
                window.append(_second(births.born_ms(reader, log_offset, size)) if is_there else _NO_MESSAGE)
            if len(places) == _AT_ONCE:
                yield ()


class QueuePopulations:
    """Those that were asked for, by group and topic.  Loop thread only."""

    def __init__(self, service: PopService) -> None:
        self._service = service
        self._known: dict[tuple[str, str], QueuePopulation] = {}
        service.on_leased = self._leased

    def of(self, group: str, topic: str) -> QueuePopulation:
        """Return the messages of a queue and group."""
        known = self._known.get((group, topic))
        if known is None or not known.is_current:
            known = self._known[group, topic] = QueuePopulation(self._service, group, topic)
        return known

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget those whose group and topic are gone."""
        self._known = {key: one for key, one in self._known.items() if not is_gone(*key)}

    def _leased(self, lease: OpenLease, bits: int, sign: int) -> None:
        known = self._known.get((lease.key.group, normal_topic(lease)))
        if known is not None:
            known.changed(lease, bits, sign)


def _second(born_ms: int) -> int:
    return _SECONDS_MAX if born_ms == UNKNOWN_MS else max(1, min(born_ms // 1000, _SECONDS_MAX))
