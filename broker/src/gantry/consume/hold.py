"""Pulls that found nothing and wait for messages.

A pull is held by the queue it asked for until one of four things happens: a message that it wants arrives,
its time is over, its topic goes, or the broker stops.  Each of them takes the pull out of here and gives it
to `wake`, which looks once more and answers in any case.  When its connection closes, it just vanishes:
there is nobody to answer.

The number of held pulls is bounded; `hold` says no instead of growing.  What happens often is cheap: news
for a queue that nobody waits for is one look into a table, and the sweep visits only the slots of time
that have passed since the last one, not everybody who waits.

News is told by the store at the end of a dispatch, when the queue already shows the new entries.  RocketMQ
wakes by the same rule (`PullRequestHoldService.notifyMessageArriving`): the queue's end lies behind the
offset that was asked for, and the tag filter accepts an arriving message.  Messages that the filter does not
want leave the pull asleep; its last look, when its time is over, moves it past them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.leaves.records import Entry
    from gantry.transport.connection import Connection

_Key = TypeVar("_Key")

# A waiting client cannot tell a quarter of a second from none, and four slots a second make a sweep trivial.
_SLOTS_PER_S = 4


class HeldPull:
    """One waiting pull: who asked, what for, and until when."""

    __slots__ = ("codes", "connection", "pull", "queue", "slot")

    def __init__(self, connection: Connection, pull: Pull, codes: frozenset[int] | None, slot: int) -> None:
        self.connection = connection
        self.pull = pull
        self.codes = codes
        self.queue = (pull.topic, pull.queue_id)
        self.slot = slot


class HeldPulls:
    """Everybody who waits, found by queue, by connection and by time."""

    def __init__(self, held_max: int, wake: Callable[[HeldPull], None]) -> None:
        self.held_max = held_max
        self._wake = wake
        self._count = 0
        self._swept_slot: int | None = None
        # Dicts serve as sets that keep the order of arrival: who waits longest is answered first.
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._by_slot: dict[int, dict[HeldPull, None]] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the next pull has to be refused instead of held."""
        return self._count >= self.held_max

    def hold(self, connection: Connection, pull: Pull, codes: frozenset[int] | None, until: float) -> None:
        """Keep a pull until `until` (monotonic seconds) at the latest; the caller has asked `is_full`."""
        assert self._count < self.held_max
        slot = int(until * _SLOTS_PER_S) + 1
        if self._swept_slot is not None and slot <= self._swept_slot:
            slot = self._swept_slot + 1
        held = HeldPull(connection, pull, codes, slot)
        self._by_queue.setdefault(held.queue, {})[held] = None
        self._by_connection.setdefault(connection, {})[held] = None
        self._by_slot.setdefault(slot, {})[held] = None
        self._count += 1

    def on_dispatched(self, topic: str, queue_id: int, max_offset: int, entries: list[Entry]) -> None:
        """News from the store: wake those whom the arrived entries concern."""
        waiting = self._by_queue.get((topic, queue_id))
        if not waiting:
            return
        self._wake_all(
            held for held in list(waiting) if max_offset > held.pull.queue_offset and _is_wanted(held.codes, entries)
        )

    def sweep(self, now: float) -> None:
        """Wake those whose time is over by `now` (monotonic seconds)."""
        current = int(now * _SLOTS_PER_S)
        if self._swept_slot is None or current - self._swept_slot > len(self._by_slot):
            due = sorted(slot for slot in self._by_slot if slot <= current)
        else:
            due = list(range(self._swept_slot + 1, current + 1))
        self._swept_slot = current
        for slot in due:
            self._wake_all(list(self._by_slot.get(slot, ())))

    def release_topic(self, topic: str) -> None:
        """The topic is gone: whoever waits for one of its queues is told now."""
        for queue in [queue for queue in self._by_queue if queue[0] == topic]:
            self._wake_all(list(self._by_queue.get(queue, ())))

    def release_all(self) -> None:
        """The broker stops: everybody gets an answer while connections are still open."""
        for queue in list(self._by_queue):
            self._wake_all(list(self._by_queue.get(queue, ())))

    def connection_closed(self, connection: Connection) -> None:
        """Forget what a closed connection waited for."""
        for held in list(self._by_connection.get(connection, ())):
            self._take_out(held)

    def _wake_all(self, pulls: Iterable[HeldPull]) -> None:
        for held in pulls:
            # An answer may close a connection and so take others out while this loop runs.
            if self._take_out(held):
                self._wake(held)

    def _take_out(self, held: HeldPull) -> bool:
        waiting = self._by_queue.get(held.queue)
        if waiting is None or held not in waiting:
            return False
        _discard(self._by_queue, held.queue, held)
        _discard(self._by_connection, held.connection, held)
        _discard(self._by_slot, held.slot, held)
        self._count -= 1
        return True


def _is_wanted(codes: frozenset[int] | None, entries: list[Entry]) -> bool:
    if codes is None:
        return True
    return any(entry.tags_code in codes for entry in entries)


def _discard(table: dict[_Key, dict[HeldPull, None]], key: _Key, held: HeldPull) -> None:
    members = table[key]
    del members[held]
    if not members:
        del table[key]
