"""Pulls that found nothing and wait for messages.

A pull is held by its queue until one of four things happens: a message that matches its filter arrives,
its time is over, its topic is deleted, or the broker stops.  Then the pull is removed and handed to `wake`, or to
`expire` when its time is over; both always answer.  When its connection closes, the pull is dropped.

Pulls that are answered together are sent together: one write for each connection, and at most so many answers between
two turns of the loop.

What is held is bounded, in pulls and in the bytes of their expressions, and shared: a connection, and a queue, may hold
as much as is still free, so one alone gets half and leaves the other half to others.  Frequent operations are cheap:
new messages of a queue without held pulls cost one look-up in a table, and the sweep visits only the slots of time that
have passed since the last one.  Pulls of one queue that wait for the same are looked at together, however many they
are.  Many that are woken together are answered in slices.

The store reports new messages at the end of a dispatch, when the queue already has the new entries.  RocketMQ
wakes by the same rule (`PullRequestHoldService.notifyMessageArriving`): the queue's end lies behind the
offset that was asked for, and the filter, by tags or by properties, accepts an arriving message.

Messages that do not match the filter do not wake the pull, and it stores how far it has examined them.  When it is
woken it begins there, so that a filter that keeps one message in a million does not examine the million again.  When
examining new messages would take too long, the pull is woken instead and examines them in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gantry.consume.filter import Wanted
from gantry.consume.sql92.program import Program

if TYPE_CHECKING:
    from gantry.leaves.frames import Pull
    from gantry.leaves.records import Entry
    from gantry.transport.connection import Connection

# A waiting client cannot tell a quarter of a second from none, and four slots a second make a sweep trivial.
_SLOTS_PER_S = 4
# Messages, or nodes of expressions, that are looked at after one dispatch: a few milliseconds.
_STEPS_MAX = 50_000
# Answers in one slice: half a millisecond, and two of them where messages came.
_EXPIRED_AT_ONCE = 16
_WOKEN_AT_ONCE = 64
_DROPPED_AT_ONCE = 1000
# Filters, groups and offsets of one queue that are looked at one by one.
_ALIKE_MAX = 1024
# An expression takes twenty times its characters in memory, for tags of three characters; a pull without one some 1 KB.
_CHARS_PER_PULL = 64


class _Alike:
    """Pulls of a queue that wait for the same: filter, group, and the offset before which no message matches."""

    __slots__ = ("key", "members", "passed", "wanted")

    def __init__(self, key: _Kind) -> None:
        self.key = key  # what distinguishes it from others of its queue
        self.wanted, _, self.passed = key
        # Dicts serve as sets that keep the order of arrival: the pull that waits longest is answered first.
        self.members: dict[HeldPull, None] = {}

    def pass_by(self, offset: int) -> None:
        """Note that no message before this offset matches."""
        self.passed = offset
        self.key = self.wanted, self.key[1], offset


_Kind = tuple[Wanted, str, int]


class _OfQueue(dict[_Kind, _Alike]):
    """What a queue holds, and as how many pulls it counts."""

    __slots__ = ("queue", "units")

    def __init__(self, queue: tuple[str, int]) -> None:
        self.queue = queue
        self.units = 0


class _OfConnection(dict["HeldPull", None]):
    """What a connection holds, and as how many pulls it counts; stays until the connection closes."""

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = 0


class HeldPull:
    """One held pull: its connection and request, and those that wait for the same, with the filter it had when it came.

    It knows the tables that it is in, so that taking it out looks nothing up.
    """

    __slots__ = ("alike", "connection", "kinds", "pull", "siblings", "slot", "units")

    def __init__(
        self,
        connection: Connection,
        pull: Pull,
        alike: _Alike,
        kinds: _OfQueue,
        siblings: _OfConnection,
        slot: dict[HeldPull, None],
        units: int,
    ) -> None:
        """slot: those whose time is over together with this one's; units: as how many pulls it counts."""
        self.connection = connection
        self.pull = pull
        self.alike = alike
        self.kinds = kinds
        self.siblings = siblings
        self.slot = slot
        self.units = units
        alike.members[self] = siblings[self] = slot[self] = None
        kinds.units += units
        siblings.units += units

    def joins(self, alike: _Alike) -> None:
        """Wait with others from now on."""
        self.alike = alike
        alike.members[self] = None


class HeldPulls:
    """All held pulls, by queue, by connection and by time."""

    def __init__(
        self,
        held_max: int,
        wake: Callable[[HeldPull], None],
        expire: Callable[[HeldPull], None] | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """later: calls a function in another turn of the loop; without it nothing is sliced."""
        self.held_max = held_max
        self._wake = wake
        self._expire = expire or wake
        self._later = later
        self._count = 0
        self._units = 0
        self._swept_slot = -1  # those up to this one are empty
        self._by_queue: dict[tuple[str, int], _OfQueue] = {}
        self._by_connection: dict[Connection, _OfConnection] = {}
        self._by_slot: dict[int, dict[HeldPull, None]] = {}
        self._due: dict[HeldPull, None] = {}  # to be woken in the next turns
        self._gone: dict[HeldPull, None] = {}  # of closed connections, to be forgotten in the next turns
        self._woken = 0  # since the last turn that was asked for
        self._is_turn_due = False

    def __len__(self) -> int:
        return self._count

    def why_full(self, connection: Connection, pull: Pull) -> str | None:
        """Return why this pull has to be refused instead of held; None when there is room."""
        units, free = _units(pull), self.held_max - self._units
        if units > free:
            return f"{self._count} pulls are held, the limit is {self.held_max}"
        left = free - units  # for others, when this one is held
        siblings = self._by_connection.get(connection)
        if siblings is not None and siblings.units > left:
            return f"this connection holds {len(siblings)} pulls, as many as are left for others"
        kinds = self._by_queue.get((pull.topic, pull.queue_id))
        if kinds is not None:
            if kinds.units > left:
                return f"queue {pull.queue_id} of {pull.topic} has as many held pulls as are left for other queues"
            if len(kinds) >= _ALIKE_MAX:
                return f"pulls of {_ALIKE_MAX} filters and groups are held for queue {pull.queue_id} of {pull.topic}"
        return None

    def hold(self, connection: Connection, pull: Pull, wanted: Wanted, until: float) -> str | None:
        """Keep a pull until `until` (monotonic seconds) at the latest; return why it is refused instead, or None."""
        queue = pull.topic, pull.queue_id
        kinds, siblings = self._by_queue.get(queue), self._by_connection.get(connection)
        text = pull.subscription
        units = 1 if text is None or len(text) < _CHARS_PER_PULL else _units(pull)
        # Nobody has more than is left for others as long as all together have not.
        if self._units * 2 + units > self.held_max or (kinds is not None and len(kinds) >= _ALIKE_MAX):
            full = self.why_full(connection, pull)
            if full is not None:
                return full
        if kinds is None:
            kinds = self._by_queue[queue] = _OfQueue(queue)
        if siblings is None:
            siblings = self._by_connection[connection] = _OfConnection()
        kind = wanted, pull.group, pull.queue_offset
        alike = kinds.get(kind)
        if alike is None:
            alike = kinds[kind] = _Alike(kind)
        number = int(until * _SLOTS_PER_S) + 1
        if number <= self._swept_slot:
            number = self._swept_slot + 1
        slot = self._by_slot.get(number)
        if slot is None:
            slot = self._by_slot[number] = {}
        HeldPull(connection, pull, alike, kinds, siblings, slot, units)
        self._count += 1
        self._units += units
        return None

    def on_dispatched(self, topic: str, queue_id: int, max_offset: int, entries: list[Entry]) -> None:
        """Wake pulls of this queue whose filter matches one of the new entries."""
        kinds = self._by_queue.get((topic, queue_id))
        if not kinds:
            return
        # Each filter is evaluated once; without one every message is wanted.
        verdicts: dict[Wanted, bool] = {}
        left = _STEPS_MAX
        for alike in list(kinds.values()):
            # An answer may have closed the connection of those that come next.
            if max_offset <= alike.passed or not alike.members:
                continue
            wanted = alike.wanted
            if wanted is not None and wanted not in verdicts:
                left -= (wanted.cost if isinstance(wanted, Program) else 1) * len(entries)
                # A filter that cannot be asked any more examines the messages itself, in slices.
                verdicts[wanted] = left < 0 or _is_wanted(wanted, entries)
            if wanted is None or verdicts[wanted]:
                self._wake_all(alike.members)
            elif _is_all(entries, alike.passed, max_offset):
                _pass(kinds, alike, max_offset)

    def sweep(self, now: float) -> Iterator[None]:
        """Expire pulls whose time is over at `now` (monotonic seconds), in slices."""
        current = int(now * _SLOTS_PER_S)
        if current - self._swept_slot > len(self._by_slot):
            due = sorted(slot for slot in self._by_slot if slot <= current)
        else:
            due = list(range(self._swept_slot + 1, current + 1))
        self._swept_slot = current
        return self._wake_slots(due)

    def _wake_slots(self, slots: Sequence[int]) -> Iterator[None]:
        for slot in slots:
            # No pull is added to a slot that was swept; answers that close connections only remove some.
            while waiting := list(islice(self._by_slot.get(slot, ()), _EXPIRED_AT_ONCE)):
                self._answer_all(waiting, self._expire)
                yield
            self._by_slot.pop(slot, None)

    def release_topic(self, topic: str) -> None:
        """Wake all pulls of a deleted topic."""
        for kinds in [kinds for queue, kinds in self._by_queue.items() if queue[0] == topic]:
            for alike in list(kinds.values()):
                self._wake_all(alike.members)

    def release_group(self, topic: str, queue_id: int, group: str) -> bool:
        """Wake the pulls of a group in this queue, because its offset was reset; return whether there were any."""
        kinds = self._by_queue.get((topic, queue_id))
        waiting = [alike for alike in kinds.values() if alike.key[1] == group] if kinds else []
        for alike in waiting:
            self._wake_all(alike.members)
        return bool(waiting)

    def release_all(self) -> None:
        """Wake all pulls before the broker stops, while connections are still open."""
        self._later = None
        self._next_slice()
        for kinds in list(self._by_queue.values()):
            for alike in list(kinds.values()):
                self._answer_all(list(alike.members), self._wake)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        self._gone.update(self._by_connection.pop(connection, _OfConnection()))
        self._drop_gone()
        if self._gone:
            self._go_on_later()

    def _drop_gone(self) -> None:
        for held in list(islice(self._gone, _DROPPED_AT_ONCE if self._later is not None else None)):
            self._take_out(held)

    def _wake_all(self, pulls: dict[HeldPull, None]) -> None:
        """Wake these: so many at once, the others in the next turns of the loop."""
        woken = self._woken + len(pulls)
        if woken < _WOKEN_AT_ONCE or self._later is None:
            self._woken = woken
            self._answer_all(list(pulls), self._wake)
            return
        now = list(islice(pulls, max(0, _WOKEN_AT_ONCE - self._woken)))
        self._woken += len(now)
        self._answer_all(now, self._wake)
        if pulls:
            self._due.update(pulls)
            # They wait for nothing more: the next messages do not look at them.
            self._set_aside(next(iter(pulls)))
        if self._woken >= _WOKEN_AT_ONCE:
            self._go_on_later()

    def _set_aside(self, one: HeldPull) -> None:
        """Take the pulls that are alike out of their queue's table."""
        kinds = one.kinds
        del kinds[one.alike.key]
        if not kinds:
            del self._by_queue[kinds.queue]

    def _go_on_later(self) -> None:
        if not self._is_turn_due and self._later is not None:
            self._is_turn_due = True
            self._later(self._next_slice)

    def _next_slice(self) -> None:
        self._is_turn_due = False
        self._drop_gone()
        due = list(islice(self._due, _WOKEN_AT_ONCE if self._later is not None else None))
        self._woken = len(due)
        self._answer_all(due, self._wake)
        if self._due or self._gone:
            self._go_on_later()

    def _answer_all(self, pulls: list[HeldPull], answer: Callable[[HeldPull], None]) -> None:
        if len(pulls) == 1:
            if self._take_out(pulls[0]):
                answer(pulls[0])
            return
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
        """Forget a pull; return whether it is to be answered."""
        if held not in held.slot:
            return False
        del held.slot[held]
        is_gone = held in self._gone
        if is_gone:
            del self._gone[held]
        if self._due:
            self._due.pop(held, None)
        units, kinds, alike = held.units, held.kinds, held.alike
        self._count -= 1
        self._units -= units
        kinds.units -= units
        if not is_gone:
            siblings = held.siblings
            siblings.units -= units
            del siblings[held]
            if held.connection.closed and not siblings:
                self._by_connection.pop(held.connection, None)  # it was held after it had closed
        del alike.members[held]
        if not alike.members and kinds.get(alike.key) is alike:
            del kinds[alike.key]
            if not kinds:
                del self._by_queue[kinds.queue]
        return not is_gone


def _units(pull: Pull) -> int:
    """Return as how many pulls this one counts: one more for each piece of a long expression of its own."""
    return 1 + len(pull.subscription) // _CHARS_PER_PULL if pull.subscription else 1


def _pass(kinds: dict[_Kind, _Alike], alike: _Alike, offset: int) -> None:
    """Note that no message before this offset matches."""
    del kinds[alike.key]
    alike.pass_by(offset)
    other = kinds.get(alike.key)
    if other is not None:
        few, many = sorted((other, alike), key=lambda one: len(one.members))
        for held in list(few.members):
            held.joins(many)
        alike = many
    kinds[alike.key] = alike


def _is_wanted(wanted: Program | frozenset[int], entries: list[Entry]) -> bool:
    if isinstance(wanted, Program):
        return any(wanted.accepts(entry.properties) for entry in entries)
    return any(entry.tags_code in wanted for entry in entries)


def _is_all(entries: list[Entry], start: int, end: int) -> bool:
    """Whether these are all messages of their queue from start to end."""
    return bool(entries) and entries[0].queue_offset <= start and len(entries) == end - entries[0].queue_offset
