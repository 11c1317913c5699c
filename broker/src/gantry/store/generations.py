"""Generations of topics: a number that tells a topic from deleted ones of its name, the same on every member.

A deleted topic that is made again begins at offset 0.  Its old records stay in the log until they expire, and
consumers of the old one may still be running.  Its *generation* is the number of the deletion before it, 0 for a topic
that was never deleted.  Numbers come from one counter, so that none is given twice even when a topic was forgotten in
between.

With the number the table keeps where in the log the generation before ended (the gravestone of the queue-base table):
when queues are rebuilt from the log, records below are left out.  The file is in `config`, apart from everything that
is derived, because queues, index and our own folder may be removed and built again; RocketMQ's broker ignores it.

A number is forgotten when all records of the generation before are gone and the topic has no queue any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gantry.errors import StoreError
from gantry.store import filenames, statefile
from gantry.store.disk import Disk
from gantry.store.queuebase import QueueBase

_FILE = "topicGenerations.json"


class TopicGeneration(NamedTuple):
    """One topic: its generation, and the log offset below which records belong to those before it."""

    generation: int
    begins: int


class Generations:
    """The table of all generations.  Loop thread only; `save` gets a copy as a document."""

    def __init__(self, last: int, lives: dict[str, TopicGeneration]) -> None:
        self._last = last
        self._lives = lives

    def of(self, topic: str) -> int:
        """Return the topic's generation; 0 when it was never deleted, or when its old records are gone from the log."""
        life = self._lives.get(topic)
        return 0 if life is None else life.generation

    def all(self) -> dict[str, int]:
        """Every topic that has a generation, whether it exists or not."""
        return {topic: life.generation for topic, life in self._lives.items()}

    def begin(self, topic: str, log_end: int, number: int | None = None) -> int:
        """Record a deletion: records below log_end no longer belong to the topic.  Return the generation of a topic of
        that name from now on, a new number unless the master has given one.
        """
        generation = self._last + 1 if number is None else number
        self._last = max(self._last, generation)
        self._lives[topic] = TopicGeneration(generation, log_end)
        return generation

    def take(self, topic: str, life: TopicGeneration | None) -> None:
        """Set the topic's generation to the master's; None: it was never deleted."""
        if life is None:
            self._lives.pop(topic, None)
        else:
            self.begin(topic, life.begins, life.generation)

    def life(self, topic: str) -> TopicGeneration | None:
        """The topic's generation and where it begins; None for a topic that was never deleted, or long ago."""
        return self._lives.get(topic)

    def gravestones(self) -> dict[str, int]:
        """Where each generation begins, by topic."""
        return {topic: life.begins for topic, life in self._lives.items()}

    def newer_than(self, base: QueueBase) -> list[str]:
        """Topics whose generation began after this table of queues was written."""
        return [
            topic
            for topic, life in self._lives.items()
            if life.begins >= base.log_offset and base.gravestones.get(topic, 0) < life.begins
        ]

    def clip(self, log_end: int) -> bool:
        """Limit all gravestones to the log's end, which a crash may have moved back; records that are written from here
        on belong to no former generation.  Return whether anything changed.
        """
        late = {topic: life for topic, life in self._lives.items() if life.begins > log_end}
        self._lives |= {topic: life._replace(begins=log_end) for topic, life in late.items()}
        return bool(late)

    def forget(self, log_start: int, topics: Collection[str]) -> None:
        """Forget generations whose former records are gone from the log, unless their topics are among these."""
        self._lives = {topic: life for topic, life in self._lives.items() if life.begins > log_start or topic in topics}

    def to_document(self) -> dict[str, object]:
        """Return the JSON document that is written to topicGenerations.json."""
        return {"last": self._last, "topics": {topic: life._asdict() for topic, life in self._lives.items()}}


def save(disk: Disk, root: str, document: dict[str, object]) -> None:
    """Replace the file by this document; it is durable when this returns."""
    disk.make_folders(f"{root}/config")
    statefile.replace(disk, filenames.config(root, _FILE), statefile.to_bytes(document))


def load(disk: Disk, root: str) -> Generations:
    """The table; an empty one where there is none.  StoreError when it is damaged: without it a topic that was made
    again could show what it was deleted for.
    """
    path = filenames.config(root, _FILE)
    table = statefile.read_object(disk, path)
    if table is None:
        return Generations(0, {})
    topics, last = table.get("topics", {}), table.get("last")
    if not isinstance(topics, dict) or not isinstance(last, int):
        raise StoreError(f"{path}: not a table of generations; restore it from its .bak")
    return Generations(last, {topic: _life(path, topic, value) for topic, value in topics.items()})


def _life(path: str, topic: str, value: object) -> TopicGeneration:
    if isinstance(value, dict):
        generation, begins = value.get("generation"), value.get("begins")
        if isinstance(generation, int) and isinstance(begins, int):
            return TopicGeneration(generation, begins)
    raise StoreError(f"{path}: {topic[:40]!r} has no generation; restore the file from its .bak")
