from __future__ import annotations

from gantry.schedule.held import NEVER_MS, HeldBack, HeldUntil


def test_what_is_put_back_over_and_over_is_kept_once() -> None:
    held = HeldBack()
    for offset in range(3):
        held.add(offset, HeldUntil(1000 + offset, 2000))
    for now_ms in range(2000, 2100):
        for offset, one in held.take_due(now_ms, 64):
            held.add(offset, HeldUntil(one.due_ms, now_ms + 1))
        assert held.first_due_ms() == 1000
    assert len(held.dues) == len(held._in_dues) == len(held._untils) == 3


def test_the_first_due_time_is_of_what_waits_and_nothing_of_what_went_is_kept() -> None:
    held = HeldBack()
    for offset in range(3):
        held.add(offset, HeldUntil(1000 + offset, 2000))
    held.remove(0)
    assert held.first_due_ms() == 1001
    held.add(0, HeldUntil(1000, 3000))
    assert held.first_due_ms() == 1000, "it is held again"
    assert [offset for offset, _ in held.take_due(3000, 64)] == [1, 2, 0]
    assert held.first_due_ms() == held.first_ms() == NEVER_MS
    assert not held.dues and not held._in_dues and not held._untils
