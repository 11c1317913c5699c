"""Applies a master's changes of metadata at a slave (`metadata.journal`).

A change is [table, name, value]; an invalid one raises ValueError, and the link ends.  Offsets that consumers committed
here and that the master does not have yet (`away`) are merged with the master's.

A table that is unknown here comes from a master of a newer version, in a rolling upgrade.  Its changes are skipped, its
name is returned, and all other changes are applied.  Ending the link instead would leave the group without this slave
until it is updated.

A deletion of a topic that a former master carried out and the group lost is undone: see `_Taker._bury`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
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
class AppliedTables:
    """The tables that the master's changes are applied to; `delays` stores the progress of deliveries."""

    topics: Topics
    groups: Groups
    offsets: Offsets
    merge: Callable[[str, object], None]  # takes over commits that consumers made here
    delays: Callable[[dict[str, object]], None]
    durably: Durably
    # By name of the table in the journal: returns the names of its entries, and applies one change.
    followed: Mapping[str, tuple[Callable[[], list[str]], Callable[[str, object], None]]]
    save_decisions: Callable[[], None]  # saves the decisions about sinks, which are acknowledged when durable
    # Waits until all of these are on the disk, also the progress of groups that the master answers when it is durable:
    # first offsets, begins, resets, modes, owners of queues.  Returns False when it gave up.
    save_progress: Callable[[], Awaitable[bool]]


class Taken(NamedTuple):
    """The result of applied changes.

    revivals    topics, by name, whose queues hold what is not the group's: a start has to build them again, and nothing
                that comes behind these changes may be acknowledged before
    unknown     tables that this version does not know: their changes were skipped
    """

    revivals: dict[str, Revival]
    unknown: set[str]


def take_over(changes: Iterable[object], store: Store, tables: AppliedTables, away: Away) -> Taken:
    """Apply changes in order; ValueError for an invalid one."""
    taker = _Taker(store, tables, away)
    for change in changes:
        if not isinstance(change, list) or len(change) != 3 or not all(isinstance(one, str) for one in change[:2]):
            raise ValueError(f"{str(change)[:80]} is no change")
        taker.one(change[0], change[1], change[2])
    return Taken(taker.revivals, taker.unknown)


class _Taker:
    def __init__(self, store: Store, tables: AppliedTables, away: Away) -> None:
        self._store = store
        self._tables = tables
        self._away = away
        self.revivals: dict[str, Revival] = {}
        self.unknown: set[str] = set()

    def one(self, table: str, key: str, value: object) -> None:
        """Apply one change; ValueError when it is invalid."""
        tables = self._tables
        if table == journals.ALL:
            self._forget_others(value)
        elif table == journals.GRAVE:
            self._bury(key, value)
        elif table in tables.followed:
            tables.followed[table][1](key, value)
            if table == journals.OFFSET and key in self._away:
                tables.merge(key, self._away[key])
        elif table == journals.QUEUES:
            self._begin_queues(documents.document(value, "next offsets of queues"))
        elif table == journals.DELAYS:
            if isinstance(value, dict):
                tables.delays(value)
        else:
            self.unknown.add(table[:_TABLE_CHARS])

    def _begin_queues(self, ends: documents.Document) -> None:
        """Begin queues at the master's offsets whose records were deleted before this slave joined."""
        for topic in ends:
            queues = documents.mapping(ends, topic)
            for queue_id in queues:
                self._store.begin_queue(topic, int(queue_id), documents.integer(queues, queue_id))

    def _bury(self, topic: str, value: object) -> None:
        """Apply the deletion of a topic: its messages are removed, and its next generation has the master's number.

        When our log goes beyond that offset, our queues are of a generation that only this slave and a former master
        had.
        """
        if value is None:
            return  # deleted so long ago that nothing of it is left
        if not isinstance(value, list) or len(value) != 2 or not all(isinstance(one, int) for one in value):
            raise ValueError(f"{str(value)[:80]} is no life of a topic")
        store, life = self._store, TopicGeneration(*value)
        mine, log_start = store.generations.life(topic), store.reader.log_start
        if mine == life:
            return
        if store.dispatched.offset <= max(life.begins, log_start):
            store.bury(topic, life)  # nothing after that offset is in a queue yet
            self._tables.offsets.begin_again(topic, life.generation)
        elif max(life.begins, 0 if mine is None else mine.begins) <= log_start:
            store.live_on(topic, life)
            self._tables.offsets.live_on(topic, life.generation)
        else:
            self.revivals[topic] = Revival(mine, life)

    def _revive_others(self, buried: object, log_start: object) -> None:
        """Note generations that the master does not have, unless they began before its log does."""
        if isinstance(buried, list) and isinstance(log_start, int):
            lives = self._store.generations
            for topic in set(lives.all()).difference(buried):
                mine = lives.life(topic)
                if mine is not None and mine.begins > max(log_start, self._store.reader.log_start):
                    self.revivals[topic] = Revival(mine, None)

    def _forget_others(self, value: object) -> None:
        """Remove entries that the master does not have; messages in the log stay."""
        if not isinstance(value, dict):
            raise ValueError("a list of everything that is none")
        for table, (keys, follow) in self._tables.followed.items():
            listed = value.get(table)
            if not isinstance(listed, list):
                continue  # of a master of a version without this table
            kept = {*listed, *self._away} if table == journals.OFFSET else set(listed)
            for key in keys():
                if key not in kept:
                    follow(key, None)
        self._revive_others(value.get(journals.GRAVE), value.get(journals.LOG_START))
