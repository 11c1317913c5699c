"""Pulls that found nothing and wait for messages.

A pull is held by its queue until one of four things happens: a message that matches its filter arrives,
its time is over, its topic is deleted, or the broker stops.  Then the pull is removed and handed to `wake`, or to
`expire` when its time is over; both always answer.  When its connection closes, the pull is dropped.

Pulls that are answered together are sent together: one write for each connection, and at most so many answers between
two turns of the loop.

The number of held pulls is bounded.  Frequent operations are cheap: new messages of a queue without held pulls cost one
look-up in a table, and the sweep visits only the slots of time that have passed since the last one.

The store reports new messages at the end of a dispatch, when the queue already has the new entries.  RocketMQ
wakes by the same rule (`PullRequestHoldService.notifyMessageArriving`): the queue's end lies behind the
offset that was asked for, and the filter, by tags or by properties, accepts an arriving message.

Messages that do not match the filter do not wake the pull, and it stores how far it has examined them.  When it is
woken it begins there, so that a filter that keeps one message in a million does not examine the million again.  When
examining new messages would take too long, the pull is woken instead and examines them in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from gantry.consume.filter import Wanted
from gantry.consume.sql92.program import Program

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.leaves.records import Entry
    from gantry.transport.connection import Connection

_Key = TypeVar("_Key")

# A waiting client cannot tell a quarter of a second from none, and four slots a second make a sweep trivial.
_SLOTS_PER_S = 4
# Nodes of expressions evaluated after one dispatch: a few milliseconds.
_STEPS_MAX = 50_000
# Answers in one slice: half a millisecond.
_WOKEN_AT_ONCE = 16


class HeldPull:
    """One held pull: its connection, request, filter and deadline; messages before `passed` do not match."""

    __slots__ = ("connection", "passed", "pull", "queue", "slot", "wanted")

    def __init__(self, connection: Connection, pull: Pull, wanted: Wanted, slot: int) -> None:
        self.connection = connection
        self.pull = pull
        self.wanted = wanted
        self.passed = pull.queue_offset
        self.queue = (pull.topic, pull.queue_id)
        self.slot = slot


class HeldPulls:
    """All held pulls, by queue, by connection and by time."""

    def __init__(
        self, held_max: int, wake: Callable[[HeldPull], None], expire: Callable[[HeldPull], None] | None = None
    ) -> None:
        self.held_max = held_max
        self._wake = wake
        self._expire = expire or wake
        self._count = 0
        self._swept_slot: int | None = None
        # Dicts serve as sets that keep the order of arrival: the pull that waits longest is answered first.
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._by_slot: dict[int, dict[HeldPull, None]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the next pull has to be refused instead of held."""
        return self._count >= self.held_max

    def hold(self, connection: Connection, pull: Pull, wanted: Wanted, until: float) -> None:
        """Keep a pull until `until` (monotonic seconds) at the latest; the caller has asked `is_full`."""
        assert self._count < self.held_max
        slot = int(until * _SLOTS_PER_S) + 1
        if self._swept_slot is not None and slot <= self._swept_slot:
            slot = self._swept_slot + 1
        held = HeldPull(connection, pull, wanted, slot)
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_connection.setdefault(connection, {})[held] = None
        self._by_slot.setdefault(slot, {})[held] = None
        self._count += 1

    def on_dispatched(self, topic: str, queue_id: int, max_offset: int, entries: list[Entry]) -> None:
        """Wake pulls of this queue whose filter matches one of the new entries."""
        waiting = self._by_queue.get((topic, queue_id))
        if not waiting:
            return
        # Many pulls have the same filter: each filter is evaluated once.
        verdicts: dict[Wanted, bool] = {}
        due = []
        for held in waiting:
            if max_offset <= held.passed:
                continue
            verdict = verdicts.get(held.wanted)
            if verdict is None:
                verdict = verdicts[held.wanted] = _is_wanted(held.wanted, entries)
            if verdict:
                due.append(held)
            elif _is_all(entries, held.passed, max_offset):
                held.passed = max_offset
        self._wake_all(due)

    def sweep(self, now: float) -> Iterator[None]:
        """Expire pulls whose time is over at `now` (monotonic seconds), in slices."""
        current = int(now * _SLOTS_PER_S)
        if self._swept_slot is None or current - self._swept_slot > len(self._by_slot):
            due = sorted(slot for slot in self._by_slot if slot <= current)
        else:
            due = list(range(self._swept_slot + 1, current + 1))
        self._swept_slot = current
        return self._wake_slots(due)

    def _wake_slots(self, slots: Sequence[int]) -> Iterator[None]:
        for slot in slots:
            # No pull is added to a slot that was swept; answers that close connections only remove some.
            while waiting := list(islice(self._by_slot.get(slot, ()), _WOKEN_AT_ONCE)):
                self._answer_all(waiting, self._expire)
                yield

    def release_topic(self, topic: str) -> None:
        """Wake all pulls of a deleted topic."""
        for queue in [queue for queue in self._by_queue if queue[0] == topic]:
            self._wake_all(list(self._by_queue.get(queue, ())))

    def release_group(self, topic: str, queue_id: int, group: str) -> bool:
        """Wake the pulls of a group in this queue, because its offset was reset; return whether there were any."""
        waiting = [held for held in self._by_queue.get((topic, queue_id), ()) if held.pull.group == group]
        self._wake_all(waiting)
        return bool(waiting)

    def release_all(self) -> None:
        """Wake all pulls before the broker stops, while connections are still open."""
        for queue in list(self._by_queue):
            self._wake_all(list(self._by_queue.get(queue, ())))

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        for held in list(self._by_connection.get(connection, ())):
            self._take_out(held)

    def _wake_all(self, pulls: Iterable[HeldPull]) -> None:
        self._answer_all(pulls, self._wake)

    def _answer_all(self, pulls: Iterable[HeldPull], answer: Callable[[HeldPull], None]) -> None:
        corked = []
        try:
            for held in pulls:
                # An answer may close a connection and so remove other pulls while this loop runs.
                if self._take_out(held):
                    if held.connection.cork():
                        corked.append(held.connection)
                    answer(held)
        finally:
            for connection in corked:
                connection.uncork()

    def _take_out(self, held: HeldPull) -> bool:
        waiting = self._by_queue.get(held.queue)
        if waiting is None or held not in waiting:
            return False
        _discard(self._by_queue, held.queue, held)
        _discard(self._by_connection, held.connection, held)
        _discard(self._by_slot, held.slot, held)
        self._count -= 1
        return True


def _is_wanted(wanted: Wanted, entries: list[Entry]) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, Program):
        return wanted.cost * len(entries) > _STEPS_MAX or any(wanted.accepts(entry.properties) for entry in entries)
    return any(entry.tags_code in wanted for entry in entries)


def _is_all(entries: list[Entry], start: int, end: int) -> bool:
    """Whether these are all messages of their queue from start to end."""
    return bool(entries) and entries[0].queue_offset <= start and len(entries) == end - entries[0].queue_offset


def _discard(table: dict[_Key, dict[HeldPull, None]], key: _Key, held: HeldPull) -> None:
    members = table[key]
    del members[held]
    if not members:
        del table[key]
