"""Search by time against a plain list: whatever the gaps, ties and expired beginnings, it is exact to the message."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.pullplay import PullPlay

GAPS = st.lists(st.sampled_from([0, 0, 1, 2, 1000, 86_400_000]), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(gaps=GAPS, asked=st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 2)), min_size=1, max_size=20))
def test_both_boundaries_are_those_of_a_plain_list(gaps: list[int], asked: list[tuple[int, int]]) -> None:
    play = PullPlay()
    times = []
    for number, gap in enumerate(gaps):
        play.clock.advance(gap)
        play.send("mine")
        if number % 3 == 0:
            play.send("another queue's", queue_id=1)
        times.append(play.clock.now_ms())
    for number, shift in asked:
        at_ms = times[number % len(times)] + shift
        lower = play.store.reader.offset_by_time("T", 0, at_ms)
        upper = play.store.reader.offset_by_time("T", 0, at_ms, upper=True)
        assert lower == bisect_left(times, at_ms), "the first one stored then or later"
        assert upper == max(bisect_right(times, at_ms) - 1, 0), "the last one stored then or before"
    play.close()
