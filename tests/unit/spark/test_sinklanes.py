"""Which rows of a sharding key may leave, and when the sink has to wait."""

from __future__ import annotations

import random
from collections import defaultdict

from pyspark_gantrymq import sinklanes
from pyspark_gantrymq.sinkcolumns import Row
from pyspark_gantrymq.sinklanes import Lanes


def row(key: str, number: int, topic: str = "t", size: int = 1, **more: object) -> Row:
    return Row(topic, b"x" * size, b"", f"{key}-{number}", key=key, **more)  # type: ignore[arg-type]


def ids(rows: list[Row]) -> list[str]:
    return [each.message_id for each in rows]


def test_what_gathers_behind_a_row_leaves_together_when_it_is_stored() -> None:
    lanes = Lanes(3, 100)
    for number in range(6):
        lanes.add(row("k", number))
        if not number:
            first = lanes.take()
    assert ids(first) == ["k-0"] and lanes.take() == []
    lanes.done(first[0])
    second = lanes.take()
    assert ids(second) == ["k-1", "k-2", "k-3"] and lanes.take() == []
    lanes.done(second[0])
    assert ids(lanes.take()) == ["k-4", "k-5"]
    lanes.done(second[0])
    assert not lanes


def test_lanes_do_not_wait_for_each_other() -> None:
    lanes = Lanes(1, 100)
    for each in (row("a", 1), row("a", 2), row("b", 1), row("a", 1, topic="u")):
        lanes.add(each)
    assert [ids(lanes.take()) for _ in range(4)] == [["a-1"], ["b-1"], ["a-1"], []]


def test_rows_that_were_refused_together_leave_one_by_one_before_the_others() -> None:
    lanes = Lanes(3, 100)
    for number in range(5):
        lanes.add(row("k", number))
    refused = lanes.take()
    lanes.back(refused)
    left = []
    while rows := lanes.take():
        left.append(ids(rows))
        lanes.done(rows[0])
    assert left == [["k-0"], ["k-1"], ["k-2"], ["k-3", "k-4"]]


def test_a_request_has_its_bytes_and_rows_with_a_place_or_a_time_are_alone() -> None:
    lanes = Lanes(10, 100)
    given = [row("k", 0, size=60), row("k", 1, size=41), row("k", 2, queue_id=3), row("k", 3), row("k", 4, broker="b")]
    for each in (*given, row("k", 5), row("k", 6, is_delayed=True), row("k", 7, size=1000)):
        lanes.add(each)
    left = []
    while rows := lanes.take():
        left.append(ids(rows))
        lanes.done(rows[0])
    assert left == [[f"k-{number}"] for number in range(8)]


def test_it_is_full_by_rows_and_by_bytes_until_enough_has_left() -> None:
    lanes = Lanes(1, 100)
    for number in range(sinklanes.HELD_ROWS_MAX + 1):
        assert not lanes.is_full
        lanes.add(row("k", number))
    assert lanes.is_full
    lanes.take()
    assert not lanes.is_full
    lanes = Lanes(1, 100)
    lanes.add(row("k", 0, size=sinklanes.HELD_BYTES_MAX + 1))
    assert lanes.is_full
    lanes.back(lanes.take())
    assert lanes.is_full
    lanes.take()
    assert not lanes.is_full


def test_whatever_comes_back_each_key_leaves_in_its_order_and_nothing_is_lost() -> None:
    chance = random.Random(8)
    lanes, under_way, left = Lanes(4, 50), [], defaultdict(list)
    for number in range(3000):
        lanes.add(row(f"k{chance.randrange(20)}", number, size=chance.randrange(20)))
        while chance.random() < 0.6 and (rows := lanes.take()):
            under_way.append(rows)
        while under_way and chance.random() < 0.5:
            rows = under_way.pop(chance.randrange(len(under_way)))
            if len(rows) > 1 and chance.random() < 0.3:
                lanes.back(rows)
            else:
                left[rows[0].key] += [int(one.message_id.partition("-")[2]) for one in rows]
                lanes.done(rows[0])
        assert len({rows[0].key for rows in under_way}) == len(under_way), "one request of a key at a time"
    while lanes:
        under_way += iter(lanes.take, [])
        for rows in under_way:
            left[rows[0].key] += [int(one.message_id.partition("-")[2]) for one in rows]
            lanes.done(rows[0])
        under_way = []
    assert sum(map(len, left.values())) == 3000
    assert all(numbers == sorted(numbers) for numbers in left.values())
