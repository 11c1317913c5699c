"""Which life of its name a topic is in: one number, the same on every member and after every restart.

A deleted topic that is made again begins at offset 0, while its old records stay in the log until they expire, and
consumers of the old one are still about.  Its *generation* is the number of the deletion before it, 0 for a topic that
was never deleted.  Numbers come from one counter, so that none is given twice even when a topic was forgotten in
between.

Beside the number stands where in the log the generation before ended (the gravestone of the queue-base table): anyone
who rebuilds queues from the log leaves out what stands below.  The file is in `config`, apart from everything that is
derived, because queues, index and our own folder may be thrown away and built again; RocketMQ's broker does not know it
and leaves it alone.

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
    """The table; one owner, the loop, but for `save`, which gets a document."""

    def __init__(self, last: int, lives: dict[str, TopicGeneration]) -> None:
        self._last = last
        self._lives = lives

    def of(self, topic: str) -> int:
        """The topic's generation; 0 when it was never deleted, or that is long over."""
        life = self._lives.get(topic)
        return 0 if life is None else life.generation

    def all(self) -> dict[str, int]:
        """Every topic that has a generation, whether it exists or not."""
        return {topic: life.generation for topic, life in self._lives.items()}

    def begin(self, topic: str, log_end: int, number: int | None = None) -> int:
        """The topic was deleted: what was written below log_end is no longer its; the number of what may follow, a new
        one unless a master has given it.
        """
        generation = self._last + 1 if number is None else number
        self._last = max(self._last, generation)
        self._lives[topic] = TopicGeneration(generation, log_end)
        return generation

    def take(self, topic: str, life: TopicGeneration | None) -> None:
        """The topic is in this life, as a master says; None: it was never deleted."""
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
        """A crash may have taken what stood in the log when a topic was deleted; what is written from here on is
        nobody's past.  Whether anything changed.
        """
        late = {topic: life for topic, life in self._lives.items() if life.begins > log_end}
        self._lives |= {topic: life._replace(begins=log_end) for topic, life in late.items()}
        return bool(late)

    def forget(self, log_start: int, topics: Collection[str]) -> None:
        """Forget those whose past is gone from the log, unless they are among these."""
        self._lives = {topic: life for topic, life in self._lives.items() if life.begins > log_start or topic in topics}

    def to_document(self) -> dict[str, object]:
        """What is saved."""
        return {"last": self._last, "topics": {topic: life._asdict() for topic, life in self._lives.items()}}


def save(disk: Disk, root: str, document: dict[str, object]) -> None:
    """Write the table, durably."""
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
