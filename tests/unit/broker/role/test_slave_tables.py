"""What a slave makes of its master's word about a topic's life: bury, live on, or have the queues built again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gantry.broker.role.forwarded_commits import part_of
from gantry.broker.role.slave_tables import take_over
from gantry.metadata.journal import ALL, GRAVE, LOG_START
from gantry.metadata.offsets import Offsets
from gantry.store.background import InlineBackground
from gantry.store.generations import TopicGeneration
from gantry.store.reviving import Revival
from gantry.store.statefile import JsonState
from gantry.wire import ha
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import message, opened, small

MESSAGES = 200  # so many fill some segments
OURS = 16384 * 2  # where our log begins when the first two of them are gone


class Slave:
    """A store with a log of `orders` and what a slave keeps beside it."""

    def __init__(self, log_start: int = 0) -> None:
        self.disk, self.clock = SimDisk(), SimClock()
        self.background = InlineBackground()
        self.store = opened(small("/s"), self.clock, self.background, self.disk)
        for _ in range(MESSAGES):
            self.store.append([message()])
        while self.store.reader.log_start < log_start:
            self.clock.advance(1100)
            list(self.store.tick(0))
            self.store.retention.dropping.drop_first()
        assert self.store.reader.log_start == log_start
        self.end = self.store.dispatched.offset
        state = JsonState("/s/config/consumerOffset.json", self.disk, InlineBackground().housekeeper)
        self.offsets = Offsets(state, self.clock)
        self.tables = SimpleNamespace(offsets=self.offsets, followed={})

    def lives(self, life: TopicGeneration | None) -> None:
        self.store.generations.take("orders", life)
        if life is not None:
            self.store._table.gravestones["orders"] = life.begins

    def told(self, *changes: object) -> dict[str, Revival]:
        return take_over(changes, self.store, self.tables, {}).revivals  # type: ignore[arg-type]

    @property
    def has_queue(self) -> bool:
        return self.store.queue_range("orders", 0) is not None


def everything(log_start: object, *buried: str) -> list[object]:
    return [ALL, "", {GRAVE: list(buried), LOG_START: log_start}]


@pytest.mark.parametrize(
    ("ours", "masters", "log_start", "wanted"),
    [
        (TopicGeneration(1, 500), 0, 0, True),
        (TopicGeneration(1, 500), 499, 0, True),
        (TopicGeneration(1, 500), 500, 0, False),  # it may have forgotten it
        (TopicGeneration(1, OURS), 0, OURS, False),  # hides nothing
        (TopicGeneration(1, OURS + 1), 0, OURS, True),
        (None, 0, 0, False),
        (TopicGeneration(1, 500), None, 0, False),  # a master of an older version does not say where its log begins
    ],
)
def test_a_life_that_the_master_does_not_have_is_taken_back_where_it_hides_something(
    ours: TopicGeneration | None, masters: int | None, log_start: int, wanted: bool
) -> None:
    slave = Slave(log_start)
    slave.lives(ours)
    assert slave.told(everything(masters)) == ({"orders": Revival(ours, None)} if wanted else {})
    assert slave.told(everything(masters, "orders")) == {}
    assert slave.has_queue and slave.store.generations.life("orders") == ours, "a start does it"


@pytest.mark.parametrize("ours", [None, TopicGeneration(1, 500), TopicGeneration(7, 10_000)])
def test_a_life_that_begins_behind_our_log_buries_what_is_there(ours: TopicGeneration | None) -> None:
    slave = Slave()
    slave.lives(ours)
    life = TopicGeneration(8, slave.end)
    assert slave.told([GRAVE, "orders", [*life]]) == {}
    assert not slave.has_queue and slave.store.generations.life("orders") == life


@pytest.mark.parametrize("ours", [
    None, TopicGeneration(2, 500), TopicGeneration(1, 501), TopicGeneration(3, 10_000), TopicGeneration(1, 100)
])
def test_another_life_that_begins_within_our_log_has_the_queues_built_again(ours: TopicGeneration | None) -> None:
    slave = Slave()
    slave.lives(ours)
    assert slave.told([GRAVE, "orders", [1, 500]]) == {"orders": Revival(ours, TopicGeneration(1, 500))}
    assert slave.has_queue and slave.store.generations.life("orders") == ours
    slave.lives(TopicGeneration(1, 500))
    assert slave.told([GRAVE, "orders", [1, 500]]) == {}


@pytest.mark.parametrize("ours", [None, TopicGeneration(2, 400)])
def test_lives_that_begin_before_our_log_differ_by_their_number_only(ours: TopicGeneration | None) -> None:
    slave = Slave(OURS)
    slave.lives(ours)
    slave.offsets.commit("readers", "orders", 0, 7)
    assert slave.told([GRAVE, "orders", [3, 500]]) == {}
    assert slave.offsets.query("readers", "orders", 0) == 7
    assert slave.offsets.catch_up({"orders": 3}, lambda _: True) == [], "they are of that life"
    assert slave.has_queue and slave.store.generations.life("orders") == TopicGeneration(3, 500)
    slave.store.close()
    again = opened(small("/s"), slave.clock, InlineBackground(), slave.disk)
    assert again.generations.of("orders") == 3 and again.queue_range("orders", 0) is not None


def test_where_ours_begins_within_our_log_and_the_masters_before_it_queues_are_built_again() -> None:
    slave = Slave(OURS)
    slave.lives(TopicGeneration(4, OURS + 1000))
    assert slave.told([GRAVE, "orders", [3, 500]]) == {
        "orders": Revival(TopicGeneration(4, OURS + 1000), TopicGeneration(3, 500))
    }


def test_a_table_of_a_newer_master_is_skipped_and_named_and_the_rest_is_taken_over() -> None:
    slave, taken = Slave(), []
    slave.tables.followed["filter"] = (list, lambda key, value: taken.append((key, value)))
    everything_else = {GRAVE: [], LOG_START: 0, "of tomorrow": ["a"], "filter": ["f"]}
    changes = [[ALL, "", everything_else], ["of tomorrow", "a", {"x": 1}], ["filter", "f", 2]]
    found = take_over(changes, slave.store, slave.tables, {})  # type: ignore[arg-type]
    assert found.unknown == {"of tomorrow"} and taken == [("f", 2)]
    with pytest.raises(ValueError, match="is no change"):
        slave.told([["no name"], "a", None])


@pytest.mark.parametrize(("topics", "queues"), [(1, 65_536), (3000, 1), (500, 128)])
def test_commits_go_to_the_master_in_frames_that_it_takes_however_many_queues_there_are(
    topics: int, queues: int
) -> None:
    offsets = {str(queue): 2**63 - 1 - queue for queue in range(queues)}
    away = {f"{number:0255d}@{'g' * 120}": dict(offsets) for number in range(topics)}
    while away:
        part = part_of(away)
        assert len(ha.frame(ha.FrameType.COMMITS, ha.dumps(part))) < ha.TALK_BYTES_MAX
        for key, sent in part.items():
            assert sent and sent.items() <= away[key].items()
            away[key] = {queue: offset for queue, offset in away[key].items() if queue not in sent}
            if not away[key]:
                del away[key]
