"""A topic deleted and made again at any moment, a reader who only obeys, stops of the broker: nobody misses a message.

The reader is the dullest client there is: it pulls where it stands, goes where it is sent, and commits what it read,
sometimes late.  When it has come to the end it has read everything that was sent to the topic since it was last made,
in order, and nothing of the one before once it had been moved.
"""

from __future__ import annotations

import random

import pytest

from gantry.consume.handlers import PullHandlers, PullLimits
from gantry.consume.pull import PullChecks, readers_of
from gantry.metadata.commits import GroupCommits
from gantry.metadata.offsets import Offsets
from gantry.model.topic import TopicConfig
from testkit.memory_state import MemoryState
from testkit.pullplay import PullPlay, bodies_of, offsets_of

_MOVED, _FOUND = 21, 0


class Life(PullPlay):
    """A pull play whose topic may go, and whose table of offsets may come back as it was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.state = MemoryState()
        self._load()
        self.sent: list[str] = []
        self.read: list[str] = []
        self.at = 0
        self.number = 0
        self.groups.ensure("g")

    def _load(self) -> None:
        self.offsets = Offsets(self.state, self.clock)
        self.offsets.catch_up(self.store.generations.all(), lambda _: True)
        self.checks = PullChecks(self.topics, self.groups, self.clients, self.filters, "h:1")
        counts = self.pulls.counts  # a reader at work is known again with its next pull
        commits = GroupCommits(self.offsets, self.store)
        self.pulls = PullHandlers(self.store, self.checks, commits, self.clock, PullLimits(), None, lambda: True)
        self.pulls.counts.by_group.update(counts.by_group)

    def produce(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.sent.append(f"{self.number}")
            self.send(f"{self.number}")

    def step(self) -> int:
        """One pull; the code of its answer."""
        (answer,) = self.pull(self.at, count_max=3)
        if answer.code == _FOUND:
            self.read += bodies_of(answer.body)
        self.at = offsets_of(answer)[0]
        return answer.code

    def make_again(self) -> None:
        readers = readers_of("T", self.clients, self.pulls.counts.by_group)
        self.topics.delete("T")
        self.store.delete_queues("T")
        self.offsets.begin_again("T", self.store.generations.of("T"), readers, 4)
        self.offsets.file.save_if_changed()
        self.topics.put(TopicConfig("T", read_queues=4, write_queues=4))
        self.sent, self.read = [], []

    def commit(self, offset: int) -> None:
        self.offsets.commit("g", "T", 0, offset)


@pytest.mark.parametrize("seed", range(60))
def test_one_that_obeys_reads_all_of_the_new_topic_and_nothing_of_the_old(seed: int) -> None:
    rng = random.Random(seed)
    life = Life()
    late = 0
    for _ in range(60):
        match rng.choice(("produce", "produce", "step", "step", "step", "commit", "late", "again", "save", "kill")):
            case "produce":
                life.produce(rng.randint(1, 6))
            case "step":
                life.step()
            case "commit":
                late = life.at
                life.commit(late)
            case "late":
                life.commit(late)
            case "again":
                life.make_again()
                life.produce(rng.randint(0, 30))
            case "save":
                life.offsets.file.save_if_changed()
            case "kill":
                life._load()
    for _ in range(200):
        before = life.at
        life.step()
        if life.at == before and len(life.read) >= len(life.sent):
            break
    fresh = list(dict.fromkeys(life.read))
    assert fresh == life.sent, "all of it, in order, and nothing else"
