"""What of a master's metadata a slave takes over, change by change (`metadata.journal`).

A change is [table, name, value]; one that cannot be raises ValueError, and its link ends.  What consumers told this
slave and its master does not have yet (`away`) counts beside what the master says.

A table that is not known here comes from a master of a newer version, in a rolling upgrade.  Its changes are skipped,
its name is returned, and everything else is taken over.  If the link ended instead, it would end again each time until
this slave is updated, and the group would be one member short.

A deletion that its master carried out and the group never had is undone on anyone who knows of it: see `_Taker._bury`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gantry.broker.durably import Durably
from gantry.metadata import journal as journals
from gantry.metadata.groups import Groups
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics
from gantry.model import documents
from gantry.store.generations import TopicGeneration
from gantry.store.reviving import Revival

if TYPE_CHECKING:
    from gantry.store.store import Store

_TABLE_CHARS = 40
Away = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Tables:
    """What the master's changes go into; `delays` keeps how far its deliveries are."""

    topics: Topics
    groups: Groups
    offsets: Offsets
    delays: Callable[[dict[str, object]], None]
    durably: Durably
    # By table of the journal: the names of its things, and what takes one over.
    followed: Mapping[str, tuple[Callable[[], list[str]], Callable[[str, object], None]]]
    save_decisions: Callable[[], None]  # of sinks: acknowledged when they are on the disk, as topics and groups


class Taken(NamedTuple):
    """What came of changes that were taken over.

    revivals    topics, by name, whose queues hold what is not the group's: a start has to build them again, and nothing
                that comes behind these changes may be acknowledged before
    unknown     tables that this version does not know: their changes were skipped
    """

    revivals: dict[str, Revival]
    unknown: set[str]


def take_over(changes: Iterable[object], store: Store, tables: Tables, away: Away) -> Taken:
    """Take changes over, in their order."""
    taker = _Taker(store, tables, away)
    for change in changes:
        if not isinstance(change, list) or len(change) != 3 or not all(isinstance(one, str) for one in change[:2]):
            raise ValueError(f"{str(change)[:80]} is no change")
        taker.one(change[0], change[1], change[2])
    return Taken(taker.revivals, taker.unknown)


class _Taker:
    def __init__(self, store: Store, tables: Tables, away: Away) -> None:
        self._store = store
        self._tables = tables
        self._away = away
        self.revivals: dict[str, Revival] = {}
        self.unknown: set[str] = set()

    def one(self, table: str, key: str, value: object) -> None:
        """Take one over."""
        tables = self._tables
        if table == journals.ALL:
            self._forget_others(value)
        elif table == journals.GRAVE:
            self._bury(key, value)
        elif table == journals.TOPIC:
            tables.topics.follow(key, value)
        elif table == journals.GROUP:
            tables.groups.follow(key, value)
        elif table == journals.OFFSET:
            tables.offsets.follow(key, value)
            if key in self._away:
                tables.offsets.merge(key, self._away[key])
        elif table in tables.followed:
            tables.followed[table][1](key, value)
        elif table == journals.QUEUES:
            self._begin_queues(documents.document(value, "next offsets of queues"))
        elif table == journals.DELAYS:
            if isinstance(value, dict):
                tables.delays(value)
        else:
            self.unknown.add(table[:_TABLE_CHARS])

    def _begin_queues(self, ends: documents.Document) -> None:
        """Queues whose records were gone before this slave came go on where the master's do."""
        for topic in ends:
            queues = documents.mapping(ends, topic)
            for queue_id in queues:
                self._store.begin_queue(topic, int(queue_id), documents.integer(queues, queue_id))

    def _bury(self, topic: str, value: object) -> None:
        """The topic was deleted on the master: what it had is gone, and its next life has the master's number.

        Where our log goes beyond that place, our queues are of a life that only we and a former master knew.
        """
        if value is None:
            return  # so long ago that nothing of that life is left
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(one, int) for one in value):
            raise ValueError(f"{str(value)[:80]} is no life of a topic")
        store, life = self._store, TopicGeneration(*value)
        mine, log_start = store.generations.life(topic), store.reader.log_start
        if mine == life:
            return
        if store.dispatched.offset <= max(life.begins, log_start):
            store.bury(topic, life)  # of what follows nothing is in a queue
            self._tables.offsets.begin_again(topic, life.generation)
        elif max(life.begins, 0 if mine is None else mine.begins) <= log_start:
            store.live_on(topic, life)
            self._tables.offsets.live_on(topic, life.generation)
        else:
            self.revivals[topic] = Revival(mine, life)

    def _revive_others(self, buried: object, log_start: object) -> None:
        """Lives that the master does not have; one that begins before its log does it may just have forgotten."""
        if isinstance(buried, list) and isinstance(log_start, int):
            lives = self._store.generations
            for topic in set(lives.all()).difference(buried):
                mine = lives.life(topic)
                if mine is not None and mine.begins > max(log_start, self._store.reader.log_start):
                    self.revivals[topic] = Revival(mine, None)

    def _forget_others(self, value: object) -> None:
        """What the master does not have is not ours either; what is in the log stays there."""
        if not isinstance(value, dict):
            raise ValueError("a list of everything that is none")
        tables = self._tables
        known = {name: set(keys) for name, keys in value.items() if isinstance(keys, list)}
        for name in tables.topics.names():
            if name not in known.get(journals.TOPIC, {name}):
                tables.topics.follow(name, None)
        for group in tables.groups.all():
            if group.name not in known.get(journals.GROUP, {group.name}):
                tables.groups.follow(group.name, None)
        for key in tables.offsets.keys():  # noqa: SIM118  a method of its own
            if key not in known.get(journals.OFFSET, {key}) and key not in self._away:
                tables.offsets.follow(key, None)
        self._revive_others(value.get(journals.GRAVE), value.get(journals.LOG_START))
        for table, (keys, follow) in tables.followed.items():
            for key in set(keys()) - known.get(table, set(keys())):
                follow(key, None)
