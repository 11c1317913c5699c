"""Consumer offsets: the next queue offset of every group, topic and queue.

A commit changes memory at once and the disk on the next save, every five seconds: after a crash a group may see again
what it committed since, and never misses anything.  The document is RocketMQ's `consumerOffset.json`, keyed
`topic@group`, with queue ids as integer keys; parts of it that belong to other features are carried along unread, so
that a folder can go back to Apache's broker.

A commit may also set an offset back: tools reset a group so (RocketMQ: `ConsumerOffsetManager.commitOffset` logs and
accepts it).  A deleted group keeps its offsets unless the request says otherwise.

A group that is reset while members are consuming is *marked* queue by queue (`marks`): until a member has moved,
commits there are ignored.  When a topic is deleted, its offsets are deleted, and all its readers are marked at 0.  So
none goes on in a new topic of that name where it stopped in the deleted one.  Offsets and marks belong to a generation
of the topic (`store.generations`), whose number is saved with them.  A start whose store has a later one drops them.

After a crash an offset may count messages that the crash took, because ASYNC_FLUSH shows what is not durable yet.  The
queue's next messages get those numbers again, and a group behind them would miss them: so every start of a master calls
`bound`, and saves the result before it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping

from gantry.clock import Clock
from gantry.metadata import beginnings, byqueue
from gantry.metadata.beginnings import Began, Beginnings
from gantry.metadata.byqueue import is_shared, topic_of
from gantry.metadata.firsts import FirstOffsets
from gantry.metadata.marks import ResetMarks
from gantry.metadata.offsettable import OffsetTable
from gantry.metadata.pulled import PulledOffsets
from gantry.metadata.resetplaces import ResetPlaces
from gantry.metadata.state import State
from gantry.metadata.tablefile import TableFile
from gantry.model import documents, names
from gantry.model.topic import DataVersion

NOT_COMMITTED = -1

_PASSES_MAX = 3
# Of a reader that never committed; more queues are not in use, and 65 536 are allowed.
_QUEUES_MARKED_MAX = 1024
_CARRIED_ALONG = ("pullOffsetTable",)
# Ours; RocketMQ does not read them.
_GENERATIONS, _RESETS, _BEGINS = "topicGenerations", "gantryResets", "gantryBegins"


class Offsets:
    """The committed offsets of all groups.  Loop thread only."""

    def __init__(self, state: State, clock: Clock) -> None:
        self.file = TableFile(state, "consumerOffset.json", self._to_save)
        self._clock = clock
        self._table = OffsetTable({})
        self._carried: dict[str, object] = {}
        self.marks = ResetMarks({})
        self.places = ResetPlaces({})
        self.begins = Beginnings({})
        self.pulled = PulledOffsets()
        self.firsts = FirstOffsets()
        self.log_end: Callable[[], int] = lambda: 0
        self._generations: dict[str, int] | None = None  # of the topics that have one; None: not known
        self._version = DataVersion()
        self.touched: set[str] | None = None  # `topic@group` of changed offsets, for replication; None without
        self.went_back = 0
        self.file.load(self._read)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the next offset of the group in this queue."""
        key = f"{topic}@{group}"
        if self.marks and self.marks.target(key, queue_id) is not None:
            return
        queues = self._table.get(key)
        if queues is None:
            if not self.marks.queues(key):
                self.begins.put(key, Began(self.log_end(), self._clock.now_ms()))
            queues = self._table.put(key, {})
        known = queues.get(queue_id, NOT_COMMITTED)
        if known == offset:
            return
        if offset < known:
            self.went_back += 1
        if known == NOT_COMMITTED:
            self.firsts.add(key)
        queues[queue_id] = offset
        self._table.lines.changed.add(key)
        self.file.is_changed = True
        if self.touched is not None:
            self.touched.add(key)

    def is_marked(self, topic: str) -> bool:
        """Whether any reader of the topic is marked; asked with every pull."""
        return topic in self.marks.topics

    def reset(self, group: str, topic: str, queue_id: int, offset: int, *, marks: bool) -> None:
        """Set the group's offset; with `marks` the queue is marked until its member has moved."""
        key = f"{topic}@{group}"
        self._unmark(key, queue_id)
        self.pulled.forget(group, topic, queue_id)
        self.place_reset(key, queue_id)
        self.commit(group, topic, queue_id, offset)
        if marks:
            self.marks.put(key, queue_id, offset)
            self.file.is_changed = True

    def was_told(self, group: str, topic: str, queue_id: int) -> bool:
        """Record that the queue's member got the offset by a request: a pull at that offset then means it has moved.

        False when the queue is not marked.
        """
        key = f"{topic}@{group}"
        if self.marks.target(key, queue_id) is None:
            return False
        self.marks.told(key, queue_id)
        return True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether commits of this group in this queue are ignored now."""
        return self.marks.target(f"{topic}@{group}", queue_id) is not None

    def take_reset(self, reader: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Return where a reader that pulls this queue at `pulled` has to go on instead; None when it is right."""
        key = f"{topic}@{reader}"
        target = self.marks.target(key, queue_id)
        if target is None or not self.marks.pulled(key, queue_id, pulled):
            return target
        self._unmark(key, queue_id)
        if is_shared(key):
            # Another member begins here as well, if this one goes before it commits.
            (self._table.get(key) or self._table.put(key, {})).setdefault(queue_id, target)
            self._touch(key)
        return None

    def has_moved(self, group: str, topic: str, queue_id: int) -> None:
        """Record that the group goes on at its offset in this queue: commits count again."""
        self._unmark(f"{topic}@{group}", queue_id)

    def _unmark(self, key: str, queue_id: int) -> None:
        self.file.is_changed |= self.marks.lift(key, queue_id)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, where the group has to go on if it is marked, or NOT_COMMITTED."""
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        offset = NOT_COMMITTED if queues is None else queues.get(queue_id, NOT_COMMITTED)
        if offset == NOT_COMMITTED and self.marks:
            target = self.marks.target(key, queue_id)
            return NOT_COMMITTED if target is None else target
        return offset

    def began(self, group: str, topic: str) -> Began | None:
        """Return since when the group reads the topic; None when it has no progress there."""
        key = f"{topic}@{group}"
        return self.begins.get(key) if key in self._table or self.marks.queues(key) else None

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """All committed offsets of a group in a topic, by queue id."""
        return self._table.get(f"{topic}@{group}", {})

    def all(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """Every (group, topic, offsets by queue id)."""
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            yield group, topic, queues

    def has_room(self, group: str, topic: str) -> bool:
        """Return whether the table takes offsets of this group in the topic; False when it, or their share, is full."""
        return f"{topic}@{group}" in self._table or self._table.has_room(topic, group)

    def groups_of(self, topic: str) -> list[str]:
        """The groups that ever committed an offset of this topic."""
        return self._table.groups_of(topic)

    def topics_of(self, group: str) -> list[str]:
        """The topics that the group ever committed an offset of."""
        return self._table.topics_of(group)

    def clone(self, source: str, target: str, topic: str) -> None:
        """Set the offsets of one group in a topic to those of another group."""
        for queue_id, offset in list(self.of(source, topic).items()):
            self.commit(target, topic, queue_id, offset)

    @property
    def is_numbered(self) -> bool:
        """Whether the document said to which generation of a topic its offsets belong; RocketMQ's does not."""
        return self._generations is not None

    def bound(self, end_of: Callable[[str, int], int], former: Collection[str] = ()) -> list[str]:
        """Set offsets behind the end of a queue back to the end; return the `topic@group` of those.
        former: topics whose offsets may belong to a former generation; groups that stand behind the end of such a queue
        have read nothing of it, and begin at 0.
        """
        bounded = []
        for key, queues in self._table.items():
            topic = key.partition("@")[0]
            last = key.endswith(names.REVIVE_GROUP)  # its offsets are the last handled ones
            ends = {one: end_of(topic, one) - last for one in queues}
            ahead = {queue_id: end for queue_id, end in ends.items() if queues[queue_id] > end}
            if ahead:
                queues.update(dict.fromkeys(ahead, 0) if topic in former else ahead)
                for queue_id in ahead:
                    self._unmark(key, queue_id)
                bounded.append(key)
                self._touch(key)
        self.file.is_changed = self.file.is_changed or bool(bounded)
        return bounded

    def begin_again(self, topic: str, generation: int, readers: Iterable[str] = (), queues: int = 0) -> None:
        """Delete all offsets of a topic that was deleted; a new one of its name has this generation.  Mark the queues,
        at least `queues` of them, for its readers and for all groups that had offsets.
        """
        known = {key for key in self.marks.keys() if key.startswith(f"{topic}@")}  # noqa: SIM118
        known |= {f"{topic}@{reader}" for reader in self._table.groups_of(topic)}
        every = range(min(queues, _QUEUES_MARKED_MAX))
        for key in sorted(known.union(f"{topic}@{reader}" for reader in readers)):
            for queue_id in {*every, *(self._table.take_out(key) or ()), *self.marks.queues(key)}:
                self.marks.put(key, queue_id, 0)
            self._touch(key)
        self.pulled.forget_topic(topic)
        self.live_on(topic, generation)

    def live_on(self, topic: str, generation: int) -> None:
        """Set the topic's generation and keep its offsets."""
        self._generations = {**(self._generations or {}), topic: generation}
        self.file.is_changed = True

    def catch_up(self, generations: Mapping[str, int], exists: Callable[[str], bool]) -> list[str]:
        """At a start: begin topics again that the store has in a later generation; their names.

        What the store has forgotten is forgotten here too, with the marks of topics that are gone for good.
        """
        mine = self._generations
        if mine is None:
            # There were no numbers before; RocketMQ's broker leaves them out.
            mine = dict(generations)
        late = [topic for topic, generation in generations.items() if mine.get(topic, 0) < generation]
        # A number that the store does not have belongs to a generation that was replaced (`store.reviving`).
        self._generations = {
            topic: min(number, generations[topic]) for topic, number in mine.items() if topic in generations
        }
        for topic in late:
            self.begin_again(topic, generations[topic])
        marked = self.marks.keys()
        gone = [key for key in marked if topic_of(key) not in generations and not exists(topic_of(key))]
        self.begins.remove([*gone, *(one for one in self.begins.keys() if not exists(topic_of(one)))])  # noqa: SIM118
        self.file.is_changed |= self.marks.remove(gone) or self._generations != mine
        return late

    def place_reset(self, key: str, queue_id: int = 0) -> None:
        """Note that a `topic@group` is reset here in the log, or that a group, `@group`, was deleted."""
        self.places.put(key, queue_id, self.log_end())
        self.file.is_changed = True

    def remove_group(self, group: str) -> None:
        """Delete a group's offsets in all topics; it begins like a new group."""
        marked = (key for key in self.marks.keys() if key.split("@")[1:2] == [group])  # noqa: SIM118
        keys = {*self._table.keys_of_group(group), *marked}
        for key in keys:
            self._table.take_out(key)
            self._touch(key)
        self.marks.remove(keys)
        self.begins.remove(keys)
        self.pulled.forget_group(group)
        self.file.is_changed |= bool(keys)

    def _touch(self, key: str) -> None:
        self._table.lines.changed.add(key)
        if self.touched is not None:
            self.touched.add(key)

    def value(self, key: str) -> dict[str, int] | None:
        """Return the offsets of a `topic@group` as they are sent to a slave; None when there are none."""
        return self._table.value(key)

    def keys(self) -> list[str]:
        """Return the key `topic@group` of every group with offsets in a topic."""
        return list(self._table)

    def follow(self, key: str, value: object) -> None:
        """Take over the master's offsets of this `topic@group`; None deletes them.  ValueError: neither."""
        known = self._table.get(key)
        if value is None:
            self._note_first(key, self._table.take_out(key) is not None)
            return
        queues = byqueue.numbers(value, f"offsets of {key}")
        if known != queues:
            self._table.put(key, queues)
            self.file.is_changed = True
            self._note_first(key, known is None or not queues.keys() <= known.keys())

    def follow_marks(self, key: str, value: object) -> None:
        """Take over the master's marks of this `topic@reader`; None deletes them.  ValueError: neither."""
        wanted = {} if value is None else byqueue.numbers(value, f"marks of {key}")
        self._note_first(key, self.marks.follow(key, wanted))

    def follow_places(self, key: str, value: object) -> None:
        """Take over the master's places of resets of this key; None deletes them.  ValueError: neither."""
        wanted = {} if value is None else byqueue.numbers(value, f"places of {key}")
        self._note_first(key, self.places.follow(key, wanted))

    def follow_begins(self, key: str, value: object) -> None:
        """Take over the master's begin of this `topic@group`; None removes it.  ValueError: neither."""
        self._note_first(key, self.begins.follow(key, value))

    def _note_first(self, key: str, is_first: bool) -> None:
        """Note what a master may answer when it is durable here: a first offset, a begin, a reset, a deletion."""
        if is_first:
            self.firsts.add(key)
            self.file.is_changed = True

    def head(self) -> dict[str, object]:
        """Return the document of consumerOffset.json without the tables that grow with topics and groups."""
        return {
            "dataVersion": self._version.to_json(),
            _GENERATIONS: dict(self._generations or {}),
            **{name: self._carried.get(name, {}) for name in _CARRIED_ALONG},
        }

    def tables(self) -> dict[str, Iterator[tuple[str, object]]]:
        """Return these tables of the document by name, with their entries."""
        return {name: byqueue.entries(table) for name, table, is_always in self._tables() if table or is_always}

    def _tables(self) -> Iterator[tuple[str, ResetMarks | ResetPlaces | Beginnings | OffsetTable, bool]]:
        """Yield names and tables, and whether each stands in the document when it is empty."""
        yield "resetOffsetTable", self.marks, True
        yield _RESETS, self.places, False
        yield _BEGINS, self.begins, False
        yield "offsetTable", self._table, True

    async def saved(self) -> None:
        """Encode the document in slices and save it in the background, with all changes before the call."""
        for _ in range(_PASSES_MAX):
            # Also when nothing changed: a pass that is under way may have what this call is about, and not have ended.
            self.file.is_changed = True
            if await self._save_once():
                return
        self.file.is_changed = True
        self.file.save_if_changed()

    async def _save_once(self) -> bool:
        with contextlib.closing(self.saving()) as steps:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return bool(end.value)
                await asyncio.sleep(0)

    def saving(self) -> Generator[None, None, bool]:
        """Make one attempt at `saved`, in slices that cost what has changed.  Later changes may wait for the next save.
        Return whether the document was handed over.
        """
        if not self.file.is_changed:
            self.file.save_if_changed()  # what could not be saved
            return False
        self._close_version()
        # Of before the entries: a topic that is deleted meanwhile then is one that a start finds of a later generation.
        saves, document = self.file.saves, self.head()
        return (
            yield from self.file.save_in_slices(
                self._encode(document),
                # When the table was saved meanwhile because offsets were removed, these entries are older.
                lambda: document if self.file.saves == saves else None,
            )
        )

    def _encode(self, document: dict[str, object]) -> Iterator[None]:
        """Add the tables as texts, in slices."""
        for name, table, is_always in self._tables():
            yield from table.lines.encode()
            if (texts := table.lines.lines()) or is_always:
                document[name] = texts

    def _to_save(self) -> dict[str, object]:
        """The document in one piece: it costs what changed since the last save, or everything after a start."""
        self._close_version()
        document = self.head()
        list(self._encode(document))
        return document

    def _close_version(self) -> None:
        """Begin a new data version when something changed: one version per save, not per commit."""
        if self.file.is_changed:
            self._version = self._version.next(self._clock.now_ms())

    def _read(self, source: documents.Document) -> None:
        self._version = DataVersion.from_json(source.get("dataVersion"))
        self._carried = {name: source[name] for name in _CARRIED_ALONG if name in source}
        self._table = OffsetTable(byqueue.read(source, "offsetTable"))
        self.marks = ResetMarks(byqueue.read(source, "resetOffsetTable"))
        self.places = ResetPlaces(byqueue.read(source, _RESETS))
        self.begins = beginnings.read(source, _BEGINS)
        if _GENERATIONS in source:
            table = documents.mapping(source, _GENERATIONS)
            self._generations = {topic: documents.integer(table, topic) for topic in table}
