"""The timer against a table of what is pending."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gantry.schedule.held import HeldUntil
from gantry.schedule.timer import BUCKET_MS, SLOT_MS, Timer
from testkit.counting import instructions

START_MS = 1_700_000_000_000


def run_until(timer: Timer, dues: dict[int, int], now_ms: int, count_max: int = 3) -> list[int]:
    """Everything that is due, in the order in which it comes."""
    for _ in timer.approach(now_ms + BUCKET_MS, lambda offsets: [dues.get(offset) for offset in offsets]):
        pass
    found: list[int] = []
    while True:
        slot, offsets = timer.due(now_ms, count_max)
        if not offsets:
            return found
        timer.done(slot, len(offsets))
        found += offsets


def test_a_slot_is_due_when_it_has_passed() -> None:
    timer = Timer()
    for offset, due_ms in enumerate((START_MS + 1, START_MS + 10, START_MS + 11)):
        timer.add(offset, due_ms)
    dues = {0: START_MS + 1, 1: START_MS + 10, 2: START_MS + 11}
    assert run_until(timer, dues, START_MS + 9) == []
    assert run_until(timer, dues, START_MS + 10) == [0, 1]
    assert run_until(timer, dues, START_MS + 20) == [2]


def test_what_is_no_longer_there_is_no_longer_pending() -> None:
    timer = Timer()
    for offset in range(1000):
        timer.add(offset, START_MS + offset)
    dues = {offset: START_MS + offset for offset in range(0, 1000, 2)}
    assert run_until(timer, dues, START_MS + 2000) == list(range(0, 1000, 2)) and timer.pending == 0


def test_far_ones_below_an_offset_come_in_pieces_and_may_be_removed_meanwhile() -> None:
    timer = Timer()
    far_ms = START_MS + 3_600_000
    for offset in range(10):
        timer.add(offset, far_ms + offset % 2 * BUCKET_MS)
    found = []
    for piece in timer.far_below(7, 3):
        found.append(list(piece))
        assert all(timer.remove(offset, far_ms + offset % 2 * BUCKET_MS) for offset in piece)
    assert found == [[0, 2, 4], [6, 1, 3], [5]]
    assert timer.pending == 3 and timer.first_offset() == 7 and list(timer.far_below(7, 3)) == []


def test_a_look_at_many_far_buckets_gives_way() -> None:
    timer = Timer()
    for offset in range(2500):
        timer.add(offset, START_MS + offset * BUCKET_MS)
    assert [list(piece) for piece in timer.far_below(2, 64)] == [[], [], [0, 1]]


def test_a_step_towards_near_that_was_left_half_way_is_ended_by_the_next() -> None:
    timer = Timer()
    dues = {offset: START_MS + offset % 100 for offset in range(600)}
    timer.add_all(list(dues), list(dues.values()))
    next(timer.approach(START_MS + 1, lambda offsets: [dues[offset] for offset in offsets]))
    assert sorted(run_until(timer, dues, START_MS + 200, 10)) == sorted(dues)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-5_000, 200_000)),
        st.tuples(st.just("pass"), st.integers(0, 90_000)),
        st.tuples(st.just("jump back"), st.integers(0, 50_000)),
        st.tuples(st.just("remove"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_timer_delivers_each_once_and_none_early(steps: list[tuple[str, int]]) -> None:
    timer, now_ms = Timer(), START_MS
    pending: dict[int, int] = {}
    dues: dict[int, int] = {}
    for kind, number in steps:
        if kind == "add":
            offset = len(dues)
            dues[offset] = pending[offset] = now_ms + number
            timer.add(offset, now_ms + number)
        elif kind == "remove":
            offset = number % (len(dues) + 1)
            assert timer.has(offset, dues.get(offset, now_ms)) == (offset in pending)
            assert timer.remove(offset, dues.get(offset, now_ms)) == (offset in pending)
            pending.pop(offset, None)
        else:
            now_ms += number if kind == "pass" else -number
            for offset in run_until(timer, dues, now_ms):
                assert pending.pop(offset) <= now_ms
            assert all(due_ms > now_ms - SLOT_MS for due_ms in pending.values()), "late by a slot at most"
        assert timer.pending == len(pending)
        assert timer.first_due_ms() <= min(pending.values(), default=timer.first_due_ms())
        assert timer.first_offset() is None or not pending or timer.first_offset() <= min(pending)


def test_offsets_are_removed_while_their_bucket_goes_to_near() -> None:
    for moved in (0, 1, 2):
        timer = Timer()
        dues = {offset: START_MS + offset % 100 for offset in range(600)}
        timer.add_all(list(dues), list(dues.values()))
        slices = timer.approach(START_MS + BUCKET_MS, lambda offsets: [START_MS + at % 100 for at in offsets])
        for _ in range(moved):
            next(slices)
        gone = {0, 255, 256, 300, 511, 599}
        assert all(timer.remove(offset, dues[offset]) for offset in gone)
        assert not any(timer.has(offset, dues[offset]) or timer.remove(offset, dues[offset]) for offset in gone)
        for _ in slices:
            pass
        assert timer.pending == 594
        assert set(run_until(timer, dues, START_MS + 200)) == set(dues) - gone
        assert timer.pending == 0 and not timer.has(1, dues[1])


def test_a_slot_of_which_all_was_removed_does_not_stop_the_others() -> None:
    timer = Timer()
    timer.horizon_ms = START_MS + BUCKET_MS
    for offset in range(3):
        timer.add(offset, START_MS + 100 * offset)
    assert timer.remove(1, START_MS + 100)
    assert run_until(timer, {}, START_MS + 300) == [0, 2]


def all_at_once(count: int) -> tuple[Timer, int]:
    """A timer with so many offsets in one slot that is due, and that slot."""
    timer = Timer()
    for offset in range(count):
        timer.add(offset, START_MS)
    for _ in timer.approach(START_MS, lambda offsets: [START_MS] * len(offsets)):
        pass
    return timer, timer.due(START_MS, 1)[0]


def test_holding_some_of_a_slot_back_does_not_cost_what_else_is_in_it() -> None:
    costs = []
    for count in (200, 5000):
        timer, slot = all_at_once(count)
        with instructions() as ran:
            timer.hold(slot, {}, {offset: HeldUntil(START_MS, 9) for offset in range(64)})
        costs.append(ran.calls)
        assert timer.due(START_MS, 3) == (slot, [64, 65, 66]) and timer.pending == count
    assert costs[1] <= costs[0]


def test_what_is_not_held_back_stays_in_its_order_before_the_others() -> None:
    timer, slot = all_at_once(8)
    timer.hold(slot, {1: HeldUntil(START_MS, 9)}, {4: HeldUntil(START_MS, 9)})
    assert timer.due(START_MS, 9) == (slot, [0, 2, 3, 5, 6, 7])
    timer.hold(slot, {}, {offset: HeldUntil(START_MS, 9) for offset in (0, 2, 3, 5, 6, 7)})
    assert timer.due(START_MS, 9) == (0, []) and timer.pending == 8
