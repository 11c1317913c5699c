"""How far delivery has come, as a document."""

from __future__ import annotations

import json

import pytest

from gantry.schedule.progress import DeliveryProgress, Eras, read


def test_a_document_reads_as_it_was_written() -> None:
    progress = DeliveryProgress({1: 5, 18: 0}, 40, 33, [(0, 100), (35, 90)], 4096, True)
    assert read(json.loads(json.dumps(progress.to_document()))) == progress


def test_rocketmqs_document_has_no_word_about_our_timer() -> None:
    found = read({"offsetTable": {"3": 17}, "dataVersion": {}})
    assert found == DeliveryProgress({3: 17}, log=0) and not found.has_timer


def test_no_document_is_told_from_an_empty_one() -> None:
    assert read(None).log is None and read({}).log == 0


@pytest.mark.parametrize(
    "source",
    [
        {"offsetTable": {"x": 1}},
        {"offsetTable": {"1": "x"}},
        {"offsetTable": []},
        {"gantryTimer": 5},
        {"gantryTimer": {"done": [[1]]}},
        {"gantryTimer": {"done": 1}},
        {"gantryTimer": {"log": "far"}},
    ],
)
def test_what_cannot_be_read_is_named(source: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        read(source)


def test_one_range_says_it_all_while_time_goes_forwards() -> None:
    eras = Eras()
    eras.advance(100)
    eras.came(5, 150)
    eras.advance(160)
    assert eras.shown() == [(0, 160)] and eras.is_done(5, 150) and not eras.is_done(5, 160)


def test_a_message_due_before_what_is_delivered_begins_a_range_that_ends_when_time_has_caught_up() -> None:
    eras = Eras()
    eras.advance(100)
    eras.came(5, 60)
    assert eras.is_done(4, 90) and not eras.is_done(5, 60) and eras.least_ms == 60
    eras.advance(70)
    assert eras.shown() == [(0, 100), (5, 70)]
    eras.advance(100)
    assert eras.shown() == [(0, 100)]


def test_the_number_of_ranges_is_bounded_and_then_nothing_counts_as_done_that_is_not() -> None:
    eras = Eras()
    eras.advance(10_000)
    for number in range(1000):
        eras.came(number, 9_000 - number)
    assert len(eras.shown()) <= 256
    assert not any(eras.is_done(number, 9_000 - number) for number in range(1000))
