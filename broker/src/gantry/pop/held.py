"""Requests of POP that found nothing and wait for messages: POP_MESSAGE and NOTIFICATION (long polling).

A place is (kind, topic, group, queue id); queue id -1 waits for any queue.  The requests of one place with the same
filter are a line.  They are tried again in the order in which their time ends, until one finds nothing: the next ones
would find nothing either.  So a message wakes one request of each group, not all of them.

A line is tried when
- a message that matches its filter arrives in the topic (of a queue that it waits for),
- a message arrives in a retry topic of group and topic, V1 or V2; RocketMQ does not wake for V1,
- `wake` says that messages became visible in another way: a lease ended, an orderly batch was completed.
RocketMQ: a queue offset that is a multiple of 800 wakes without the filter, so that a group whose filter takes nothing
gets on in the queue (`PopLongPollingService`); the same here.

Trying is put off to the next turn of the loop, and done in slices.  So all messages of a turn are seen together, and
nothing is appended while records are dispatched.  A request whose peer does not read its answers is not tried, because
its messages would stay invisible for nothing.  The work for filters in one turn is bounded, however many of them wait
for a topic: lines beyond it are tried without.

A held request ends in one of these ways: `retry` returned True (it was answered, or another part answers it), its time
is over, its topic or this broker's mastership ended (`give_up`), or its connection closed, which frees its place.

The numbers are bounded, of all and of each place.  A message of a topic for which nobody waits costs one look-up, and
nothing before the first request has waited: `on_first` is called then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from gantry.consume.filter import Wanted
from gantry.consume.sql92.program import Program
from gantry.pop import handle

if TYPE_CHECKING:
    from gantry.leaves.records import Entry
    from gantry.transport.connection import Connection

_Key = TypeVar("_Key")
_Member = TypeVar("_Member")

POP, NOTIFICATION = "pop", "notification"
ANY_QUEUE = -1

# RocketMQ: popLongPollingForceNotifyInterval.
_LOOKED_AT_EVERY = 800
# RocketMQ answers so long before the client's time is over (`PopRequest`).
_EARLY_MS = 50
# A client's wish does not hold a request longer; clients ask for 15 to 30 s.
_POLL_MS_MAX = 60_000
# A waiting client cannot tell a quarter of a second from none, and four slots a second make a sweep trivial.
_SLOTS_PER_S = 4
# Tries in one turn of the loop: a millisecond.
_TRIED_AT_ONCE = 16
# Nodes of expressions evaluated in one turn, of all lines together: a few milliseconds.
_STEPS_MAX = 50_000
# Places and filters of a topic: each is looked at when a message of the topic comes.
_LINES_PER_TOPIC_MAX = 4096


class PollKey(NamedTuple):
    """What a request waits for."""

    kind: str
    topic: str
    group: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class HeldLimits:
    """How many requests may wait."""

    held_max: int = 100_000  # `pop.held_max`; RocketMQ: maxPopPollingSize
    per_place_max: int = 1024  # `pop.held_per_queue_max`; RocketMQ: popPollingSize


class HeldCounts:
    """Counters since the start; read by the metrics."""

    __slots__ = ("answered", "expired", "full", "gone", "tried")

    def __init__(self) -> None:
        self.tried = 0
        self.answered = 0
        self.expired = 0
        self.gone = 0  # their connection closed
        self.full = 0


class HeldRequest:
    """One waiting request: how to try it again, and how to answer that there is nothing."""

    __slots__ = ("connection", "give_up", "is_held", "line", "number", "retry", "slot", "until")

    def __init__(
        self, connection: Connection, retry: Callable[[], bool], give_up: Callable[[], None], until: float, number: int
    ) -> None:
        self.connection = connection
        self.retry = retry
        self.give_up = give_up
        self.until = until  # monotonic seconds
        self.number = number  # in order of arrival
        self.slot = 0
        self.line: _Line
        self.is_held = False


class _Line:
    """The requests that wait at one place with one filter."""

    __slots__ = ("place", "waiting", "wanted")

    def __init__(self, place: PollKey, wanted: Wanted) -> None:
        self.place = place
        self.wanted = wanted
        self.waiting: dict[HeldRequest, None] = {}

    def in_order(self) -> list[HeldRequest]:
        """Return the requests, the one whose time ends first at the beginning."""
        return sorted(self.waiting, key=lambda held: (held.until, held.number))

    def waits_for(self, topic: str, queue_id: int) -> bool:
        """Return whether it waits for messages of this queue."""
        return topic != self.place.topic or self.place.queue_id in (ANY_QUEUE, queue_id)

    def filter_for(self, topic: str) -> Wanted:
        """Return its filter; None for a retry topic: its messages were once chosen by the filter."""
        return self.wanted if topic == self.place.topic else None


def waiting_s(until_ms: int, now_ms: int) -> float:
    """Return for how many seconds a request may be held whose client waits until then; 0: it may not."""
    return max(0, min(until_ms - now_ms, _POLL_MS_MAX) - _EARLY_MS) / 1000


class HeldRequests:
    """All held requests of POP, by topic, by place, by connection and by time.  Loop thread only."""

    def __init__(
        self, limits: HeldLimits, soon: Callable[[Callable[[], None]], object], may_serve: Callable[[], bool]
    ) -> None:
        """soon: calls a function in the next turn of the loop; may_serve: whether this broker may pop now."""
        self.limits = limits
        self.counts = HeldCounts()
        self.on_first: Callable[[], object] = lambda: None  # called once, before the first request is held
        self._had_any = False
        self._soon = soon
        self._may_serve = may_serve
        self._number = 0
        self._count = 0
        self._swept_slot: int | None = None
        self._is_due_soon = False
        self._steps = 0  # of filters, in this turn
        # Dicts serve as sets that keep the order of arrival.  By topic: also by the names of both retry topics.
        self._by_topic: dict[str, dict[_Line, None]] = {}
        self._lines: dict[PollKey, dict[Wanted, _Line]] = {}
        self._by_connection: dict[Connection, dict[HeldRequest, None]] = {}
        self._by_slot: dict[int, dict[HeldRequest, None]] = {}
        self._due: dict[_Line, None] = {}

    def __len__(self) -> int:
        return self._count

    def at(self, place: PollKey) -> int:
        """Return how many requests wait at this place: `pollingNum` of POLLING_INFO."""
        return sum(len(line.waiting) for line in self._lines.get(place, {}).values())

    def by_kind(self) -> dict[str, int]:
        """Return how many requests of each kind wait; for metrics."""
        found = {POP: 0, NOTIFICATION: 0}
        for place, lines in self._lines.items():
            found[place.kind] += sum(len(line.waiting) for line in lines.values())
        return found

    def hold(
        self,
        connection: Connection,
        place: PollKey,
        wanted: Wanted,
        until: float,
        retry: Callable[[], bool],
        give_up: Callable[[], None],
    ) -> bool:
        """Keep a request until `until` (monotonic seconds) at the latest; False, and nothing is kept, when it is full.

        retry: answers the request if there is something for it now; False, and nothing was sent, when there is not.
        give_up: answers it with "nothing".
        """
        if self._is_full(connection, place, wanted):
            self.counts.full += 1
            return False
        if not self._had_any:
            self._had_any = True
            self.on_first()
        self._number += 1
        held = HeldRequest(connection, retry, give_up, until, self._number)
        held.slot = int(until * _SLOTS_PER_S) + 1
        if self._swept_slot is not None and held.slot <= self._swept_slot:
            held.slot = self._swept_slot + 1
        held.line = self._line(place, wanted)
        held.line.waiting[held] = None
        held.is_held = True
        self._by_connection.setdefault(connection, {})[held] = None
        self._by_slot.setdefault(held.slot, {})[held] = None
        self._count += 1
        return True

    def _is_full(self, connection: Connection, place: PollKey, wanted: Wanted) -> bool:
        """Return whether too many wait in all, at this place, or for this topic, or as many of this connection as
        are left for others.
        """
        free = self.limits.held_max - self._count
        return (
            free <= 0
            or self.at(place) >= self.limits.per_place_max
            or len(self._by_connection.get(connection, ())) >= free
            or (
                len(self._by_topic.get(place.topic, ())) >= _LINES_PER_TOPIC_MAX
                and wanted not in self._lines.get(place, {})
            )
        )

    def on_dispatched(self, topic: str, queue_id: int, _: int, entries: list[Entry]) -> None:
        """Try the lines that wait for one of these new messages in the next turn."""
        lines = self._by_topic.get(topic)
        if lines is None:
            return
        waiting = [line for line in lines if line not in self._due and line.waits_for(topic, queue_id)]
        self._try_soon([line for line in waiting if self._is_wanted(line.filter_for(topic), entries)])

    def _is_wanted(self, wanted: Wanted, entries: Sequence[Entry]) -> bool:
        if wanted is None or self._steps > _STEPS_MAX:
            return True
        if isinstance(wanted, Program):
            self._steps += wanted.cost * len(entries)
            is_wanted = self._steps > _STEPS_MAX or any(wanted.accepts(entry.properties) for entry in entries)
        else:
            self._steps += len(entries)
            is_wanted = any(entry.tags_code in wanted for entry in entries)
        return is_wanted or _is_looked_at(entries)

    def wake(self, topic: str, group: str, queue_id: int = ANY_QUEUE) -> None:
        """Try what the group waits for in this queue of the topic (ANY_QUEUE: in all): more is visible by now."""
        self._try_soon(
            [
                line
                for line in self._by_topic.get(topic, ())
                if line.place.group == group and (queue_id == ANY_QUEUE or line.place.queue_id in (ANY_QUEUE, queue_id))
            ]
        )

    def wake_topic(self, topic: str) -> None:
        """Try all that waits for this topic, because it was changed or deleted."""
        self._try_soon([line for line in self._by_topic.get(topic, ()) if line.place.topic == topic])

    def wake_group(self, group: str) -> None:
        """Try all that the group waits for, because the group was changed or deleted."""
        lines = [line for at_place in self._lines.values() for line in at_place.values()]
        self._try_soon([line for line in lines if line.place.group == group])

    def sweep(self, now: float) -> Iterator[None]:
        """Answer requests whose time is over at `now` (monotonic seconds) with "nothing", in slices."""
        current = int(now * _SLOTS_PER_S)
        if self._swept_slot is None or current - self._swept_slot > len(self._by_slot):
            due = sorted(slot for slot in self._by_slot if slot <= current)
        else:
            due = list(range(self._swept_slot + 1, current + 1))
        self._swept_slot = current
        return self._expire(due)

    def release_all(self) -> None:
        """Answer all requests with "nothing": the broker stops, or another one leads by now."""
        for slot in list(self._by_slot):
            for held in list(self._by_slot.get(slot, ())):
                self._give_up(held)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the requests of a closed connection."""
        for held in list(self._by_connection.get(connection, ())):
            self.counts.gone += self._take_out(held)

    def _line(self, place: PollKey, wanted: Wanted) -> _Line:
        lines = self._lines.setdefault(place, {})
        line = lines.get(wanted)
        if line is None:
            line = lines[wanted] = _Line(place, wanted)
            for topic in _topics(place):
                self._by_topic.setdefault(topic, {})[line] = None
        return line

    def _try_soon(self, lines: Sequence[_Line]) -> None:
        for line in lines:
            self._due[line] = None
        if (self._due or self._steps) and not self._is_due_soon:
            self._is_due_soon = True
            self._soon(self._try_due)

    def _try_due(self) -> None:
        """Try what is due, some of each line in turn, and the rest in the next turn."""
        self._is_due_soon, self._steps = False, 0
        if not self._may_serve():
            self._due.clear()
            self.release_all()
            return
        tried = 0
        try:
            while self._due and tried < _TRIED_AT_ONCE:
                line = next(iter(self._due))
                del self._due[line]
                tried += self._try(line, _TRIED_AT_ONCE - tried)
        finally:
            self._try_soon(())

    def _try(self, line: _Line, tries_max: int) -> int:
        """Try the requests of a line until one finds nothing; return how many were tried."""
        tried = 0
        for held in line.in_order():
            if tried >= tries_max:
                self._due[line] = None
                break
            if not held.is_held:
                continue  # an answer before it closed its connection
            tried += 1
            self.counts.tried += 1
            if not held.connection.is_writable:
                self._give_up(held)
            elif not self._is_answered(held):
                break
        return tried

    def _is_answered(self, held: HeldRequest) -> bool:
        """Try a request; it is taken out when it was answered, also when that failed: it must not block the others."""
        is_answered = True
        try:
            is_answered = held.retry()
        finally:
            if is_answered:
                self.counts.answered += self._take_out(held)
        return is_answered

    def _expire(self, slots: Sequence[int]) -> Iterator[None]:
        for slot in slots:
            # Nothing is added to a slot that was swept; answers that close connections only remove some.
            for number, held in enumerate(list(self._by_slot.get(slot, ())), 1):
                self.counts.expired += held.is_held
                self._give_up(held)
                if number % _TRIED_AT_ONCE == 0:
                    yield

    def _give_up(self, held: HeldRequest) -> None:
        if self._take_out(held):
            held.give_up()

    def _take_out(self, held: HeldRequest) -> bool:
        """Remove a request; False when it was removed before."""
        if not held.is_held:
            return False
        held.is_held = False
        line = held.line
        del line.waiting[held]
        if not line.waiting:
            self._drop(line)
        _discard(self._by_connection, held.connection, held)
        _discard(self._by_slot, held.slot, held)
        self._count -= 1
        return True

    def _drop(self, line: _Line) -> None:
        lines = self._lines[line.place]
        del lines[line.wanted]
        if not lines:
            del self._lines[line.place]
        self._due.pop(line, None)
        for topic in _topics(line.place):
            _discard(self._by_topic, topic, line)


def _topics(place: PollKey) -> tuple[str, str, str]:
    """Return the topics whose messages a request of this place may get."""
    return (
        place.topic,
        handle.retry_topic(place.topic, place.group, handle.RETRY_V1),
        handle.retry_topic(place.topic, place.group, handle.RETRY_V2),
    )


def _is_looked_at(entries: Sequence[Entry]) -> bool:
    return any(entry.queue_offset % _LOOKED_AT_EVERY == 0 for entry in entries)


def _discard(table: dict[_Key, dict[_Member, None]], key: _Key, member: _Member) -> None:
    members = table[key]
    del members[member]
    if not members:
        del table[key]
