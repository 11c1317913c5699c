"""Orderly POP: one outstanding batch for each queue and group."""

from __future__ import annotations

from gantry.pop import order
from gantry.pop.order import OrderedBatch, OrderVerdict
from gantry.store import statefile


def pop(
    batch: OrderedBatch | None, found: list[int], now_ms: int = 1_000, attempt_id: str = "", count_max: int = 32
) -> OrderedBatch:
    return order.popped(batch, found, order.take(found, batch, count_max), attempt_id, now_ms, 100)


def acknowledged(batch: OrderedBatch, *offsets: int) -> OrderedBatch:
    for offset in offsets:
        batch, verdict = batch.acknowledge(offset, batch.pop_ms)
        assert verdict is OrderVerdict.TAKEN
    return batch


def test_a_batch_locks_its_queue_until_all_of_it_is_visible_or_acknowledged() -> None:
    batch = pop(None, [5, 6, 9])
    assert batch.is_locked("", 1_099) and not batch.is_locked("", 1_100)
    longer, _ = batch.change(9, 1_000, 5_000)
    assert longer.is_locked("", 4_999) and not longer.is_locked("", 5_000)
    assert not acknowledged(longer, 9).is_locked("", 1_100)
    assert not acknowledged(longer, 5, 6, 9).is_locked("", 1_000)


def test_only_the_same_attempt_gets_its_batch_again_before_that() -> None:
    batch = pop(None, [0, 1], attempt_id="a")
    assert batch.is_locked("b", 1_001) and batch.is_locked("", 1_001) and not batch.is_locked("a", 1_001)
    nameless = pop(None, [0, 1])
    assert nameless.is_locked("", 1_001)  # no attempt id is not the same attempt
    again = pop(batch, [0, 1], 1_001, "a")
    assert (again.offsets, dict(again.counts), again.tries) == ((0, 1), {}, 0)


def test_the_committed_offset_is_the_first_message_not_acknowledged_or_the_one_behind_the_last() -> None:
    batch = pop(None, [5, 6, 9])
    assert batch.committed == 5
    assert acknowledged(batch, 6).committed == 5
    assert acknowledged(batch, 6, 5).committed == 9
    assert acknowledged(batch, 6, 5, 9).committed == 10
    assert acknowledged(batch, 6, 5, 9).is_done and not acknowledged(batch, 6, 9).is_done


def test_an_acknowledged_message_is_not_delivered_again_and_those_around_it_are() -> None:
    batch = acknowledged(pop(None, [0, 1, 2, 3]), 1, 3)
    again = pop(batch, [0, 1, 2, 3, 4], 2_000, count_max=3)
    assert again.outstanding == [0, 2, 4]
    smaller = pop(batch, [0, 1, 2, 3, 4], 2_000, count_max=1)
    assert smaller.outstanding == [0] and smaller.acked == {1, 3}
    rest = acknowledged(smaller, 0)
    assert rest.committed == 2 and not rest.is_done
    assert pop(rest, [2, 3, 4], 3_000).outstanding == [2, 4]


def test_counts_grow_with_each_delivery_and_survive_a_smaller_batch() -> None:
    second = pop(pop(None, [0, 1]), [0, 1, 2], 2_000)
    assert dict(second.counts) == {0: 1, 1: 1}
    third = pop(second, [0, 1, 2], 3_000, count_max=1)
    assert third.outstanding == [0] and dict(third.counts) == {0: 2, 1: 2, 2: 1}
    assert dict(pop(acknowledged(third, 0), [1, 2], 3_050).counts) == {1: 2, 2: 1}


def test_only_the_head_uses_up_its_attempts_and_the_next_message_has_all_of_its_own() -> None:
    batch, times = pop(None, [0, 1]), 1
    while not batch.has_used_up("", 3):
        batch, times = pop(batch, [0, 1], batch.pop_ms + 100), times + 1
    assert times == 4  # once, and three times again
    batch, times = batch.give_up(), 0
    assert batch.committed == 1
    while not batch.has_used_up("", 3):
        batch, times = pop(batch, [1, 2], batch.pop_ms + 100), times + 1
    assert (times, batch.committed) == (4, 1)


def test_an_acknowledged_head_leaves_the_next_one_as_if_it_was_delivered_once() -> None:
    batch = pop(None, [0, 1])
    for _ in range(3):
        batch = pop(batch, [0, 1], batch.pop_ms + 100)
    batch = acknowledged(batch, 0)
    assert not batch.has_used_up("", 1)
    assert pop(batch, [1], batch.pop_ms + 100).has_used_up("", 1)


def test_a_message_that_was_delivered_behind_another_begins_as_the_head_with_all_attempts() -> None:
    small = acknowledged(pop(pop(None, [0, 1]), [0, 1], 2_000, count_max=1), 0)
    assert not small.is_done  # it still knows how often the next one was delivered
    again = pop(small, [1], 3_000)
    assert (again.tries, dict(again.counts)) == (0, {1: 1})


def test_a_handle_of_a_former_batch_changes_nothing() -> None:
    first = pop(None, [0, 1])
    second = pop(first, [0, 1], 900)  # the clock was set back
    assert second.pop_ms == 1_001
    assert second.acknowledge(0, first.pop_ms) == (second, OrderVerdict.STALE)
    assert second.change(1, first.pop_ms, 99_999) == (second, OrderVerdict.STALE)
    assert second.acknowledge(7, second.pop_ms) == (second, OrderVerdict.FOREIGN)
    after = acknowledged(second, 0)
    assert after.acknowledge(0, second.pop_ms) == (after, OrderVerdict.DONE)
    assert after.acknowledge(0, first.pop_ms) == (after, OrderVerdict.DONE)


def test_what_is_not_delivered_any_more_is_passed() -> None:
    batch = acknowledged(pop(None, [0, 1, 2, 5]), 1, 2, 5)
    small = acknowledged(pop(batch, [0, 1, 2, 5], 2_000, count_max=1), 0)
    assert small.committed == 3 and order.take([3, 5], small, 32) == [3]
    left = order.passed(small, 5)  # 3 and 4 are no messages of this group's
    assert left.committed == 6 and left.is_done
    assert order.passed(small, 6).committed == 6


def test_a_batch_is_forgotten_after_a_day_without_pops_unless_a_message_would_come_again() -> None:
    batch, day_ms = pop(None, [0, 1]), 24 * 3600 * 1000
    assert not batch.is_idle(batch.visible_at_ms + day_ms) and batch.is_idle(batch.visible_at_ms + day_ms + 1)
    assert not acknowledged(batch, 1).is_idle(batch.visible_at_ms + day_ms + 1)


def test_the_document_is_rocketmqs_and_is_read_back() -> None:
    batch = acknowledged(pop(pop(None, [5, 6, 9], attempt_id="a"), [5, 6, 9, 11], 2_000), 9)
    batch, _ = batch.change(5, 2_000, 7_000)
    document = batch.to_json()
    assert document == {
        "popTime": 2_000, "i": 100, "o": [5, 1, 4, 6], "ot": {"5": 7_000}, "oc": {"5": 1, "6": 1}, "l": 2_000, "cm": 4,
        "gt": 1,
    }  # fmt: skip
    assert order.from_json(document, "q") == batch
    theirs = b'{"a":"x","cm":1,"i":60000,"l":3,"o":[7,1],"oc":{8:2},"ot":{8:99},"popTime":3}'
    read = order.from_json(statefile.parse(theirs), "q")
    assert read is not None
    assert (read.outstanding, read.committed, read.counts, read.visible_at_ms) == ([8], 8, {8: 2}, 99)
    full = pop(None, list(range(64)), count_max=64)
    assert order.from_json(acknowledged(full, 63).to_json(), "q") == acknowledged(full, 63)  # the sign bit of a long
