"""Changes of topics, groups and offsets, numbered, for slaves.

Every change gets the next number, and of each entry only the newest change is kept.  A change names *what* changed; its
value is looked up when it is sent.  So the journal is never larger than the tables, however many changes there were,
and a slave that was disconnected for long gets no more than a new one.

    topic   name                    its configuration, or null: deleted
    grave   name                    [generation, log offset]: of the topic after its last deletion, and where it begins
    group   name                    its configuration, or null
    offset  topic@group             its offsets by queue id, or null
    marks   topic@reader            by queue id the offset to which it has to move, or null (`marks`)
    resets  topic@group             by queue id the log offset of its last reset, or null (`resetplaces`)
    begin   topic@group             [log offset, ms]: since when it reads the topic, or null (`beginnings`)
    locks   group                   [[topic, queue id, client id], ...]: the owners of its queues, or null
    sink    name                    what it decided last (`transaction.decisions`), or null
    filter  topic@group             its expression, as in RocketMQ's consumerFilter.json, or null
    mode    topic@group             whether the group pulls or pops the topic, as in messageRequestMode.json, or null
    delays  ""                      how far delayed messages are delivered
    queues  ""                      by topic and queue id the next offsets of queues of which every record has expired;
                                    once a link, in as many changes as there are parts
    all     {"topic": [names], ...} the names of everything that exists, and as `logStart` where the master's log
                                    begins: generations that begin below may be forgotten; a link's first change

A grave is an entry of its own, since the topic may have been made again: the slave has to empty the queues first, and
the records below that place in the log do not belong to the new topic.

A reader may pause between two batches, because a new link is sent everything.  An entry that changes meanwhile is sent
in its old place with its present value, and later again under its new number.  So a slave that has a number has every
change up to it, or what replaced it.  The value may be of a topic's new generation, or the null of a topic that was
deleted behind another one, its retry topic: so all deletions of topics made meanwhile go before it, in their order.  An
entry that may never go before other changes (`keep_behind`) comes under its new number only.

A slave skips a batch whose number is not above that of the batch before: it takes it for a repetition.  So each batch
has a higher number than all before it, and between the numbers of two changes there is room for many.  A batch has the
number of its last change when the slave then has all changes up to it.  It has one in between while a part of an entry
is missing, or while an entry may still come whose former change has a lower number.

When a number is asked for that was forgotten (of a deleted entry, when there are too many of those), `all` comes before
the changes behind that number.  Nothing is kept on the disk: numbers begin again with the process, and so do links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

Value = Callable[[str], object]
"""Returns an entry as JSON, None when it does not exist; or an iterator over its parts, each of which is a batch."""
Change = list[object]
Batch = tuple[int, list[object]]

LOG_START = "logStart"
TOPIC, GRAVE, GROUP, OFFSET, DELAYS, QUEUES, ALL = "topic", "grave", "group", "offset", "delays", "queues", "all"
MARKS, LOCKS, FILTER, SINK, RESETS = "marks", "locks", "filter", "sink", "resets"
MODE, BEGIN = "mode", "begin"
# A record's topic, its generation and its group; everything else is up to a second old at a slave, whatever is sent.
_BEFORE_RECORDS = frozenset((TOPIC, GRAVE, GROUP))
# What one frame carries.  It has a bound (`wire.ha`), so changes are weighed: each has some hundred bytes, and so many
# parts of a thing weigh as much as one more.  The offsets of one group in a topic with 65 536 queues have some 1.6 MB.
_BATCH = 256
_PARTS = 16
# Of all names in the first change; a table with more is left out, and a slave keeps what it has of that one besides.
_NAMES_CHARS_MAX = 8 << 20
_GONE_MAX = 10_000
_STEP = 1 << 16  # from one change's number to the next one's: more batches than a pass has


class Journal:
    """The master's journal.  Loop thread only."""

    def __init__(self, log_start: Callable[[], int] = lambda: 0) -> None:
        self._log_start = log_start
        self.number = 0  # of the newest change
        self.needed = 0  # number of the newest change that slaves need before the records behind it
        self._deleted = 0  # number of the newest deletion of a topic: its grave, and then its null
        self._kept_behind: set[tuple[str, str]] = set()
        self._floor = 0  # at or below this number something may be missing
        self._values: dict[str, Value] = {}
        self._latest: dict[tuple[str, str], int] = {}  # in the order of the numbers
        self._gone: dict[tuple[str, str], None] = {}
        self._names: dict[str, dict[str, None]] = {}  # of what exists, by table
        self._chars: dict[str, int] = {}  # of these names
        self._listeners: list[Callable[[], None]] = []

    def carry(self, table: str, keys: Iterable[str], value: Value) -> None:
        """Add a table with entries of these names."""
        self._values[table] = value
        self._names.setdefault(table, {})
        self._chars.setdefault(table, 0)
        for key in keys:
            self._note(table, key)

    def keep_behind(self, table: str, key: str) -> None:
        """Never send a value of this entry before the changes that were made before it."""
        self._kept_behind.add((table, key))

    def listen(self, listener: Callable[[], None]) -> None:
        """Register a listener that is called after every change."""
        self._listeners.append(listener)

    def changed(self, table: str, key: str) -> None:
        """Give the next number to an entry that was made, changed or deleted, and call the listeners."""
        self._note(table, key)
        for listener in self._listeners:
            listener()

    def _note(self, table: str, key: str) -> None:
        self.number += _STEP
        if table in _BEFORE_RECORDS:
            self.needed = self.number
        place = (table, key)
        self._latest.pop(place, None)
        names, value = self._names[table], self._values[table](key)
        self._latest[place] = self.number
        if table == GRAVE or (table == TOPIC and value is None):
            self._deleted = self.number
        if value is not None:
            self._gone.pop(place, None)
            if key not in names:
                names[key] = None
                self._chars[table] += len(key)
            return
        if key in names:
            del names[key]
            self._chars[table] -= len(key)
        self._gone[place] = None
        if len(self._gone) > _GONE_MAX:
            forgotten = next(iter(self._gone))
            del self._gone[forgotten]
            self._floor = max(self._floor, self._latest.pop(forgotten))

    def after(self, number: int) -> Iterator[Batch]:
        """Yield the changes after this number in batches, oldest first, each with a number up to which all are told."""
        if number >= self.number:
            return
        deleted = self.number
        # Two lists, and no tuples: half a million of these would take 20 ms at once.
        places = self._newer(number) if number else zip(list(self._latest), list(self._latest.values()), strict=True)
        changes: list[object] = [self._everything()] if number <= self._floor else []
        begin = known = number - number % _STEP
        told, last, count, weight = number, number + 1, 0, len(changes)
        for place, at in places:
            count, last = count + 1, at
            if self._latest.get(place) != at:  # it changed since, or its deletion was forgotten
                if place in self._kept_behind:
                    continue
                deletions = self._deletions(deleted)
                changes += deletions
                weight += len(deletions)
                deleted = max(deleted, self._deleted)
            value = self._values[place[0]](place[1])
            for part in value if isinstance(value, Iterator) else (value,):
                if weight >= _BATCH:
                    told = max(known, told + 1)
                    yield told, changes
                    changes, weight = [], 0
                changes.append([*place, part])
                weight += _BATCH if part is not value else 1 + _weight(value)
            if at == begin + count * _STEP:  # else an entry with a lower number has another one by now
                known = at
        if changes:
            yield last, changes

    def _deletions(self, number: int) -> list[Change]:
        """Return the graves and nulls of topics after this number, oldest first."""
        if self._deleted <= number:
            return []
        newer = [place for place, _ in self._newer(number) if place[0] in (GRAVE, TOPIC)]
        changes: list[Change] = [[*place, self._values[place[0]](place[1])] for place in newer]
        return [change for change in changes if change[0] == GRAVE or change[2] is None]

    def _newer(self, number: int) -> Iterator[tuple[tuple[str, str], int]]:
        places, numbers = [], []
        for place, at in reversed(self._latest.items()):
            if at <= number:
                break
            places.append(place)
            numbers.append(at)
        return zip(reversed(places), reversed(numbers), strict=True)

    def _everything(self) -> Change:
        names = {table: list(keys) for table, keys in self._names.items()}
        if GRAVE in names:
            # Generations are forgotten without a change in this journal.
            names[GRAVE] = [name for name in names[GRAVE] if self._values[GRAVE](name) is not None]
        chars = dict(self._chars)
        while sum(chars.values()) > _NAMES_CHARS_MAX:
            largest = max(chars, key=chars.__getitem__)
            del names[largest], chars[largest]
        return [ALL, "", {**names, LOG_START: self._log_start()}]


def _weight(value: object) -> int:
    return len(value) // _PARTS if isinstance(value, dict | list) else 0
