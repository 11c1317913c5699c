"""Progress is the smallest unfinished offset, whatever the order in which messages end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.client.consuming.window import Window


def test_one_stuck_message_holds_progress_and_its_end_lets_it_jump() -> None:
    window = Window(2101)
    for offset in range(2101, 2201):
        window.put(offset, 10)
    for offset in range(2102, 2201):
        window.finish(offset)
    assert window.progress == 2101
    window.finish(2101)
    assert window.progress == 2201


def test_what_the_broker_filtered_out_counts_as_finished_when_nothing_is_in_work() -> None:
    window = Window(5)
    window.reached(40)
    assert (window.progress, window.next_offset) == (40, 40)
    window.put(41, 1)
    window.reached(90)
    assert (window.progress, window.next_offset) == (41, 90)


@given(st.permutations(range(20)))
def test_progress_never_passes_an_unfinished_message_and_never_goes_back(order: list[int]) -> None:
    window = Window(0)
    for offset in range(20):
        window.put(offset, offset + 1)
    open_offsets = set(range(20))
    last = 0
    for offset in order:
        assert window.finish(offset) == offset + 1
        open_offsets.discard(offset)
        assert window.progress == min(open_offsets, default=20)
        assert window.progress >= last
        last = window.progress
    assert (window.bytes, window.count) == (0, 0)


def test_a_second_end_of_the_same_message_changes_nothing() -> None:
    window = Window(0)
    window.put(0, 7)
    assert window.finish(0) == 7
    assert window.finish(0) == 0
    assert window.bytes == 0


def test_it_is_full_by_count_and_by_span() -> None:
    by_count = Window(0, count_max=2)
    by_count.put(0, 1)
    assert not by_count.is_full
    by_count.put(1, 1)
    assert by_count.is_full
    by_span = Window(0, span_max=10)
    by_span.put(0, 1)
    by_span.reached(11)
    assert by_span.is_full
    by_span.finish(0)
    assert not by_span.is_full


def test_after_a_move_ends_of_old_messages_do_not_count() -> None:
    window = Window(0)
    window.put(0, 5)
    window.move(100)
    assert window.finish(0) == 0
    assert (window.progress, window.bytes, window.count) == (100, 0, 0)


def test_bytes_are_those_of_unfinished_messages() -> None:
    window = Window(0)
    for offset in range(5):
        window.put(offset, 10)
    for offset in (3, 0):
        window.finish(offset)
        window.finish(offset)
    assert window.bytes == 30
    for offset in (1, 2, 4):
        window.finish(offset)
    assert window.bytes == 0
