"""Taking messages for a pop: which queues are read, from where, and what is leased.

The order is RocketMQ's (`PopMessageProcessor`): with a small probability the group's retry topic first, then the
topic's queues from a random one on, else the topic first and the retry topic when there is room.  Each queue is read
once.  A retry topic is read under its V1 name, and under its V2 name where only that has messages.

By priority (ours, `gantryOrder`) queues are read by ascending number, and of each number the retry topics first.  A
queue whose messages are on the disk is waited for then, so that no later one overtakes it.

A message of an HTTP queue whose life is over is passed over like one that the filter does not want.

A queue is read with the code of pulls: filters by tag and by SQL, ranges without a match move the group's position,
offsets that the queue does not have are corrected.  Messages far behind the end of the log are not touched: the result
says which have to be read from the disk first, unless `Wish.may_wait`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from gantry.consume.filter import Wanted
from gantry.consume.sql92.program import Program
from gantry.errors import Refusal
from gantry.leaves.queues import Places
from gantry.model.topic import TopicConfig
from gantry.pop import handle
from gantry.pop.records import COUNT_MAX, LeaseKey
from gantry.pop.service import PopService
from gantry.store import births
from gantry.store.coldrange import ColdRange
from gantry.store.fetched import Fetched, FetchStatus

INIT_MIN, INIT_MAX = 0, 1

# Queue entries that one attempt may pass over because the filter does not want them: some 50 fetches of 800.
FETCHES_MAX = 50
SIFT_S = 0.001
_SIFTED_MAX = 800
_EXPIRED_AT_ONCE = 256
_MOVED = frozenset({FetchStatus.OFFSET_TOO_SMALL, FetchStatus.OFFSET_OVERFLOW_BADLY})
_PASSED = _MOVED | {FetchStatus.NO_MATCHED_MESSAGE, FetchStatus.MESSAGE_WAS_REMOVING}


Cold = Sequence[tuple[int, int]] | ColdRange
"""What has to be read from the disk first: (log offset, size) of messages, or queue entries."""


class Wish(NamedTuple):
    """What a pop asks for; queue_id -1: any queue; owner: the client that keeps its leases alive, or empty.

    may_wait: reading may wait for the disk, because what the cold reader brought in did not stay in memory.  pop_name:
    what the owner calls this pop.
    """

    group: str
    topic: str
    queue_id: int
    messages: int
    invisible_ms: int
    init_mode: int
    wanted: Wanted
    owner: str = ""
    is_by_priority: bool = False
    may_wait: bool = False
    pop_name: str = ""


class TakenMessages(NamedTuple):
    """Messages of one queue that are leased: `offsets` in the order of `fetched`."""

    flag: int
    topic: str
    queue_id: int
    start: int
    offsets: tuple[int, ...]
    fetched: Fetched


class Catch(NamedTuple):
    """The result of an attempt.

    taken       what was leased, with the pop time and the revive queue
    rest        messages behind the positions, in the queues that were read
    cold        places that have to be read from the disk; when nothing was taken, try again afterwards
    is_unread   a filter passed over so much that the rest was left for another attempt
    counts      of an orderly pop: how often its messages were delivered before (`handle.count_info`)
    """

    taken: Sequence[TakenMessages]
    pop_ms: int = 0
    revive_queue: int = 0
    rest: int = 0
    cold: Cold = ()
    is_unread: bool = False
    counts: Sequence[str] = ()


class Taker:
    """Takes messages for pops.  Loop thread only."""

    def __init__(self, service: PopService, chance: Random) -> None:
        self._service = service
        self._context = service.context
        self._chance = chance

    def take(self, wish: Wish) -> Catch | Refusal:
        """Lease messages for a pop, or say why there are none now."""
        taken: list[TakenMessages] = []
        room, rest, fetches = wish.messages, 0, FETCHES_MAX
        cold: Cold = ()
        until_s = self._context.clock.monotonic() + SIFT_S
        for flag, topic, queue_id in self._queues(wish):
            if room <= 0 or fetches <= 0:
                break
            found, used = self._read(wish, (flag, topic, queue_id), min(room, COUNT_MAX), fetches, until_s)
            fetches -= used
            if found is None:
                continue
            if found.fetched.is_cold:
                cold = cold or found.fetched.cold
                if wish.is_by_priority:
                    break
                continue
            rest += max(0, found.fetched.max_offset - found.fetched.next_offset)
            if found.offsets:
                taken.append(found)
                room -= len(found.offsets)
        if not taken:
            return Catch((), rest=rest, cold=cold, is_unread=fetches <= 0)
        leased = self._lease(wish, taken, rest)
        return leased if isinstance(leased, Refusal) else leased._replace(cold=cold)

    def would_find(self, wish: Wish) -> bool:
        """Return whether a pop would get on now: with a message, or past messages that its filter does not take."""
        return any(self.would_find_at(wish, at) for at in self._queues(wish))

    def would_find_at(self, wish: Wish, at: tuple[int, str, int], first: int = 0) -> bool:
        """Return the same of one queue, of which the offsets before `first` do not count."""
        flag, topic, queue_id = at
        queue = wish.group, topic, queue_id
        if self._service.book.room(queue) <= 0:
            return False
        position = self._service.positions.of(queue)
        if position is None:
            position = self._first(wish, flag, topic, queue_id)
        until_s = self._context.clock.monotonic() + SIFT_S
        if self._service.lives.from_ms(wish.topic) is not None:
            found, used = self.read_from(wish, at, max(first, position), 1, FETCHES_MAX, until_s, moves=False)
            return found is not None or used >= FETCHES_MAX
        fetched = self._fetch(wish, at, max(first, position), 1, until_s)
        return fetched.is_cold or fetched.status is FetchStatus.FOUND or fetched.status in _PASSED

    def look(self, wish: Wish) -> Catch:
        """Return what a pop would get first, without a lease; nothing of what is far behind the log's end, but by
        priority: then `cold` says what has to be read first.
        """
        taken, room, fetches = list[TakenMessages](), wish.messages, FETCHES_MAX
        until_s = self._context.clock.monotonic() + SIFT_S
        for flag, topic, queue_id in self._queues(wish):
            position = self._service.positions.of((wish.group, topic, queue_id))
            if position is None:
                position = (self._context.store.queue_range(topic, queue_id) or (0, 0))[0]
            if room <= 0 or fetches <= 0:
                break
            found, used = self.read_from(wish, (flag, topic, queue_id), position, room, fetches, until_s, moves=False)
            fetches -= used
            if found is not None and found.fetched.is_cold and wish.is_by_priority:
                return Catch(taken, self._context.clock.now_ms(), cold=() if taken else found.fetched.cold)
            if found is not None and found.offsets:
                taken.append(found)
                room -= len(found.offsets)
        return Catch(taken, self._context.clock.now_ms())

    def _queues(self, wish: Wish) -> Iterator[tuple[int, str, int]]:
        """Yield (flag, topic, queue id) in the order in which they are read."""
        if wish.is_by_priority:
            yield from self._by_priority(wish)
            return
        retries = list(self._retry_queues(wish))
        is_retry_first = bool(retries) and self._chance.random() < self._service.rules.from_retry_share
        if is_retry_first:
            yield from retries
        yield from self.of_topic(wish)
        if not is_retry_first:
            yield from retries

    def of_topic(self, wish: Wish) -> Iterator[tuple[int, str, int]]:
        """Yield (flag, topic, queue id) of the topic's own queues that the pop wants."""
        config = self._context.topics.get(wish.topic)
        if config is not None and wish.queue_id >= 0:
            yield handle.NORMAL, wish.topic, wish.queue_id
        elif config is not None:
            yield from self._turned(handle.NORMAL, config)

    def _by_priority(self, wish: Wish) -> Iterator[tuple[int, str, int]]:
        """Yield queues with messages by ascending number, of each number the retry topics first."""
        topics, found = self._context.topics, list[tuple[int, TopicConfig]]()
        for flag in (handle.RETRY_V1, handle.RETRY_V2, handle.NORMAL):
            config = topics.get(handle.real_topic(wish.topic, wish.group, flag))
            if config is not None:
                found.append((flag, config))
        count = max([config.read_queues for _, config in found], default=0)
        for queue_id in [wish.queue_id] if wish.queue_id >= 0 else range(count):
            for flag, config in found:
                if queue_id < config.read_queues and self._is_behind(wish.group, config.name, queue_id):
                    yield flag, config.name, queue_id

    def _retry_queues(self, wish: Wish) -> Iterator[tuple[int, str, int]]:
        for flag in (handle.RETRY_V1, handle.RETRY_V2):
            config = self._context.topics.get(handle.retry_topic(wish.topic, wish.group, flag))
            if config is not None and any(self._is_behind(wish.group, config.name, one) for one in _ids(config)):
                yield from self._turned(flag, config)
                return

    def _is_behind(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether the queue has messages behind the group's position."""
        end = (self._context.store.queue_range(topic, queue_id) or (0, 0))[1]
        return end > (self._service.positions.of((group, topic, queue_id)) or 0)

    def _turned(self, flag: int, config: TopicConfig) -> Iterator[tuple[int, str, int]]:
        count = config.read_queues
        first = self._chance.randrange(count) if count > 1 else 0
        for number in range(count):
            yield flag, config.name, (first + number) % count

    def _read(
        self, wish: Wish, at: tuple[int, str, int], count: int, fetches: int, until_s: float
    ) -> tuple[TakenMessages | None, int]:
        """Read one queue; return what is there, None for nothing, and how many fetches passed over something."""
        count = min(count, self._service.book.room((wish.group, at[1], at[2])))
        if count <= 0:
            return None, 0
        return self.read_from(wish, at, self.position(wish, at), count, fetches, until_s)

    def position(self, wish: Wish, at: tuple[int, str, int]) -> int:
        """Return where the group goes on in a queue, or begins."""
        flag, topic, queue_id = at
        position = self._service.positions.go_on((wish.group, topic, queue_id))
        return self._begin(wish, flag, topic, queue_id) if position is None else position

    def read_from(
        self,
        wish: Wish,
        at: tuple[int, str, int],
        position: int,
        count: int,
        fetches: int,
        until_s: float,
        moves: bool = True,
    ) -> tuple[TakenMessages | None, int]:
        """Read one queue from a position on; return what is there, None for nothing, and how many fetches passed over
        something.

        moves: what is passed over moves the group.
        """
        flag, topic, queue_id = at
        queue = wish.group, topic, queue_id
        used = 0  # a queue with nothing costs nothing: a topic may have more queues than an attempt has fetches
        while True:
            fetched = self._fetch(wish, at, position, count, until_s)
            if fetched.is_cold:
                return TakenMessages(flag, topic, queue_id, position, (), fetched), used
            self._drop_expired(wish, fetched)
            if fetched.status is FetchStatus.FOUND:
                self._fill(wish, at, count, fetched, until_s)
                offsets = self._offsets(topic, queue_id, position, fetched)
                return TakenMessages(flag, topic, queue_id, position, offsets, fetched), used
            if fetched.status not in _PASSED or fetched.next_offset == position:
                return None, used
            used += 1
            # RocketMQ: ranges that the filter passes over, and offsets that the queue does not have, move the group.
            position = self._behind_expired(wish, at, fetched.next_offset, until_s)
            if moves:
                self._service.positions.move(queue, position)
            if used >= fetches:
                return None, used
            if position > fetched.next_offset and self._context.clock.monotonic() >= until_s:
                return None, fetches

    def _begin(self, wish: Wish, flag: int, topic: str, queue_id: int) -> int:
        """Choose where a group begins that never read this queue."""
        position = self._first(wish, flag, topic, queue_id)
        self._service.positions.begin((wish.group, topic, queue_id), position)
        return position

    def _first(self, wish: Wish, flag: int, topic: str, queue_id: int) -> int:
        """Return where a group begins in a queue that it never read: as `metadata.starts` says, else at its begin, or
        with its last message.
        """
        starts = self._context.starts
        low, high = self._context.store.queue_range(topic, queue_id) or (0, 0)
        if flag != handle.NORMAL or wish.init_mode != INIT_MAX:
            return low
        given = starts.given(wish.group, topic, queue_id)
        if given is not None:
            return given
        return 0 if starts.is_young(topic, queue_id) else max(low, high - 1)

    def _fetch(self, wish: Wish, at: tuple[int, str, int], position: int, count: int, until_s: float) -> Fetched:
        _, topic, queue_id = at
        reader, bytes_max = self._context.store.reader, self._service.rules.bytes_max
        if not isinstance(wish.wanted, Program):
            return reader.fetch(topic, queue_id, position, count, bytes_max, wish.wanted, wish.may_wait)
        fetched = reader.candidates(topic, queue_id, position, _SIFTED_MAX, 4 * bytes_max, None, wish.may_wait)
        if fetched.status is FetchStatus.FOUND and not fetched.is_cold:
            clock: Callable[[], float] = self._context.clock.monotonic
            reader.sift(fetched, (topic, queue_id, position), wish.wanted, count, bytes_max, lambda: clock() >= until_s)
        return fetched

    def _fill(self, wish: Wish, at: tuple[int, str, int], count: int, found: Fetched, until_s: float) -> None:
        """Add messages of the next part of a queue: one fetch ends with a file, or where entries are in none yet."""
        room = count - len(found.places)
        if room <= 0 or found.next_offset >= found.max_offset or found.bytes >= self._service.rules.bytes_max:
            return
        more = self._fetch(wish, at, found.next_offset, room, until_s)
        self._drop_expired(wish, more)
        if more.status is FetchStatus.FOUND and not more.is_cold:
            found.buffers = [*found.buffers, *more.buffers]
            found.bytes += more.bytes
            found.places = Places([*found.places, *more.places])
            found.next_offset = more.next_offset

    def _drop_expired(self, wish: Wish, fetched: Fetched) -> None:
        """Leave out messages whose life is over; a fetch of nothing else is one without matching messages."""
        if fetched.status is not FetchStatus.FOUND or fetched.is_cold:
            return
        born_ms = self._service.lives.from_ms(wish.topic)
        if born_ms is not None:
            births.drop_older(self._context.store.reader, fetched, born_ms)

    def _behind_expired(self, wish: Wish, at: tuple[int, str, int], position: int, until_s: float) -> int:
        """Return the offset behind messages from this one on whose life is over, as far as that is known quickly."""
        born_ms = self._service.lives.from_ms(wish.topic)
        if born_ms is None:
            return position
        reader, clock, (_, topic, queue_id) = self._context.store.reader, self._context.clock, at
        while True:
            behind = births.behind_older(reader, topic, queue_id, position, born_ms, _EXPIRED_AT_ONCE)
            if behind == position or clock.monotonic() >= until_s:
                return behind
            position = behind

    def _offsets(self, topic: str, queue_id: int, start: int, fetched: Fetched) -> tuple[int, ...]:
        """Return the queue offset of each of the messages."""
        count = len(fetched.places)
        if fetched.next_offset - start == count:
            return tuple(range(start, fetched.next_offset))
        left = {log_offset for log_offset, _ in fetched.places}
        found: list[int] = []
        at = start
        while at < fetched.next_offset:
            piece = self._context.store.reader.places(topic, queue_id, at, fetched.next_offset - at)
            found += [offset for offset, one in enumerate(piece, at) if one[0] in left]
            at += len(piece)
            assert piece, "the entries of messages that were just found are there"
        assert len(found) == count, f"{count} messages, {len(found)} queue entries"
        return tuple(found)

    def _lease(self, wish: Wish, taken: list[TakenMessages], rest: int) -> Catch | Refusal:
        service, clock = self._service, self._context.clock
        now_ms = clock.now_ms()
        pop_ms = max(service.book.pop_ms((wish.group, one.topic, one.queue_id), one.start, now_ms) for one in taken)
        revive_queue = service.next_queue()
        found = []
        for one in taken:
            key = LeaseKey(wish.group, one.topic, one.queue_id, one.start, pop_ms)
            record = service.record_of(key, one.offsets, now_ms + wish.invisible_ms, wish.owner, wish.pop_name)
            found.append((record, one.fetched.places[0][0]))
        refused = service.lease(found, revive_queue)
        if refused is not None:
            return refused
        for one in taken:
            service.positions.move((wish.group, one.topic, one.queue_id), one.fetched.next_offset)
        return Catch(taken, pop_ms, revive_queue, rest)


def _ids(config: TopicConfig) -> range:
    return range(config.read_queues)
