"""A slave that is far behind gets what producers leave, and a floor in any case."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.replication.catch_up_pacing import FLOOR_BYTES_S, GAIN, LOOK_S, CatchUpPacing, Ration

MIB = 1 << 20
CHUNK = 256 << 10


class Master:
    """A loop of which a share is used, a log that grows, and a slave that takes all that it may have."""

    def __init__(self) -> None:
        self.now_s = self.wanted_s = 100.0
        self.written = 0.0
        self.catch_up_pacing = CatchUpPacing(lambda: self.wanted_s)
        self.ration = Ration(self.catch_up_pacing)
        self.sent = 0
        self.may_send(10 * LOOK_S)  # it knows what goes on

    def pass_by(self, seconds: float, share: float, append_bytes_s: float, takes_bytes_s: float = 4e8) -> int:
        """Time in hundredths of a second; how many bytes were sent meanwhile."""
        before = self.sent
        for _ in range(round(seconds * 100)):
            self.now_s += 0.01
            self.wanted_s += 0.01 * share
            self.written += 0.01 * append_bytes_s
            self.may_send(0.01 * takes_bytes_s)
        return self.sent - before

    def may_send(self, takes: float) -> None:
        self.catch_up_pacing.look(self.now_s, int(self.written))
        while takes > 0 and not self.ration.is_used_up(self.now_s, int(self.written)):
            self.ration.took(CHUNK)
            self.sent += CHUNK
            takes -= CHUNK


def test_nothing_is_counted_while_nobody_produces_however_busy_the_loop_is() -> None:
    master = Master()
    master.pass_by(3.0, share=1.0, append_bytes_s=0)
    assert master.catch_up_pacing.is_plenty


def test_producers_that_leave_time_cost_a_slave_nothing() -> None:
    master = Master()
    master.pass_by(3.0, share=0.5, append_bytes_s=60 * MIB)
    assert master.catch_up_pacing.is_plenty


def test_a_busy_master_gives_way_down_to_the_floor_within_half_a_second() -> None:
    master = Master()
    master.pass_by(0.6, share=1.0, append_bytes_s=100 * MIB)
    assert master.catch_up_pacing.extra == 0
    sent = master.pass_by(10.0, share=1.0, append_bytes_s=100 * MIB)
    assert abs(sent / 10 - (GAIN * 100 * MIB + FLOOR_BYTES_S)) < MIB


def test_when_producers_stop_all_of_it_comes_back_in_little_more_than_a_second() -> None:
    master = Master()
    master.pass_by(3.0, share=1.0, append_bytes_s=100 * MIB)
    master.pass_by(1.3, share=1.0, append_bytes_s=0)
    assert master.catch_up_pacing.is_plenty


def test_between_busy_and_easy_it_stays_as_it_is() -> None:
    master = Master()
    master.pass_by(0.2, share=1.0, append_bytes_s=100 * MIB)
    extra = master.catch_up_pacing.extra
    assert not master.catch_up_pacing.is_plenty and extra > 0
    master.pass_by(5.0, share=0.7, append_bytes_s=100 * MIB)
    assert master.catch_up_pacing.extra == extra


def test_what_was_not_taken_for_a_long_time_is_not_sent_all_at_once() -> None:
    master = Master()
    master.pass_by(2.0, share=1.0, append_bytes_s=100 * MIB)
    master.pass_by(10.0, share=1.0, append_bytes_s=100 * MIB, takes_bytes_s=0)
    assert master.pass_by(0.01, share=1.0, append_bytes_s=0) <= 5 * MIB


def test_who_looks_after_a_long_pause_learns_nothing_of_what_was_before() -> None:
    master = Master()
    master.now_s += 60.0
    master.wanted_s += 60.0
    master.written += MIB
    master.catch_up_pacing.look(master.now_s, int(master.written))
    assert master.catch_up_pacing.is_plenty


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 1.5), st.floats(0, 250 * MIB)), min_size=1, max_size=6))
def test_a_slave_comes_nearer_by_the_floor_at_least_whatever_happens(seconds: list[tuple[float, float]]) -> None:
    master = Master()
    for share, append_bytes_s in seconds:
        master.pass_by(1.0, share, append_bytes_s)
    nearer = master.sent - master.written
    assert nearer >= FLOOR_BYTES_S * len(seconds) - 2 * CHUNK
