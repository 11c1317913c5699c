"""Where a stream stands: what a batch begins and ends at, and that equal offsets are equal texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_gantrymq import offsets
from pyspark_gantrymq.offsets import BrokerTopic, Identity, Queue, Stretch

A, B, C = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 10), Queue("orders", "broker-b", 2)


def test_the_first_end_says_where_each_queue_begins() -> None:
    end = offsets.end({}, {A: 5, B: 0}, {A: 9})
    assert offsets.stretches(offsets.sentinel("earliest"), end) == [Stretch(A, 5, 9)]
    assert offsets.positions(end) == {A: 9, B: 0}


def test_a_queue_that_appears_later_begins_where_its_batch_says() -> None:
    start = offsets.end({}, {A: 0}, {A: 9})
    end = offsets.end(offsets.positions(start), {C: 3}, {A: 9, C: 7})
    assert offsets.stretches(start, end) == [Stretch(C, 3, 7)]


def test_a_queue_that_is_away_keeps_its_position() -> None:
    start = offsets.end({}, {A: 0, C: 0}, {A: 9, C: 4})
    end = offsets.end(offsets.positions(start), {}, {A: 12})
    assert offsets.positions(end) == {A: 12, C: 4}


@given(st.permutations([A, B, C]))
def test_equal_offsets_are_equal_texts(order: list[Queue]) -> None:
    text = json.dumps(offsets.end(dict.fromkeys(order, 1), dict.fromkeys(order, 0), {}))
    assert text == json.dumps(offsets.end({A: 1, B: 1, C: 1}, {A: 0, B: 0, C: 0}, {}))


def test_offsets_of_a_later_release_are_refused() -> None:
    with pytest.raises(ValueError, match="version 2, this release reads 1"):
        offsets.stretches(offsets.sentinel("latest"), {"q": {}, "v": 2})


LIVES = {BrokerTopic("orders", "broker-b"): 3, BrokerTopic("orders", "broker-a"): 0}
WHOSE = Identity({"broker-b": "uid", "broker-a": "uid"}, LIVES)


def test_an_end_says_whose_offsets_it_has_and_sorts_that_too() -> None:
    end = offsets.end({A: 1, C: 2}, {}, {}, WHOSE)
    assert offsets.identity(end) == WHOSE
    assert json.dumps(end) == json.dumps(end, sort_keys=True)


def test_a_queue_of_a_topic_made_again_is_read_from_its_new_beginning() -> None:
    start = offsets.end({}, {A: 0}, {A: 90})
    end = offsets.end({}, {A: 0}, {A: 7})
    assert offsets.stretches(start, end) == [Stretch(A, 0, 7)]


def test_offsets_of_the_first_releases_are_nobodys() -> None:
    assert offsets.identity({"q": {}, "v": 1}) == offsets.NOBODY == Identity()
