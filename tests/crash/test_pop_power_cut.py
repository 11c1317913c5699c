"""Popped messages when the power goes at the worst moments: torn runs of copies, crashes right after a start.

Under SYNC_FLUSH the disk keeps any subset of what was not synced, so of a run of copies any beginning may be left.
"""

from __future__ import annotations

import random

import pytest

from gantry.model import names
from gantry.pop.records import REVIVE_QUEUES
from gantry.store.settings import Flush
from testkit.popplay import Popped, ack_request, batch_ack_request, change_request, changed, pop_request, popped
from testkit.popstoreplay import PopPlay

RETRY = "%RETRY%workers_orders"


def leased(count: int, invisible_ms: int = 500) -> PopPlay:
    """A broker whose messages are all popped, and durable like their lease."""
    play = PopPlay(Flush.SYNC)
    for number in range(count):
        play.send(b"m%d" % number)
    play.flush()
    assert len(popped(play.ask_now(pop_request(count, invisible_ms)))) == count
    return play


def pass_durably(play: PopPlay, milliseconds: int) -> None:
    """Let time pass on a disk that is quick."""
    for _ in range(milliseconds // 100):
        play.pass_ms(100)
        play.flush()


def everything(play: PopPlay) -> list[bytes]:
    """Pop and acknowledge until nothing comes any more."""
    found: list[bytes] = []
    for _ in range(20):
        play.pass_ms(1_500)
        play.flush()
        reply = play.ask_now(pop_request(32, 60_000))
        if reply.code == 0:
            got = popped(reply)
            found += [one.body for one in got]
            play.ask_now(batch_ack_request(got))
    return sorted(found)


@pytest.mark.parametrize("lives", [1, 2])
def test_a_torn_run_of_copies_is_completed_and_none_comes_twice(lives: int) -> None:
    is_torn = False
    for seed in range(12):
        rng = random.Random(seed)
        play = leased(6)
        play.pass_ms(600)  # the lease is delivered to the revive topic, and not durable yet
        play.flush()
        play.deliver()  # the copies are written; nothing of them is synced
        for _ in range(lives):
            play.crash(rng)
            copies = len(play.visible(RETRY))
            is_torn |= 0 < copies < 6
            play.deliver()
        assert everything(play) == [b"m%d" % number for number in range(6)], f"seed {seed}"
    assert is_torn, "no seed tears a run of copies"


def test_a_crash_right_after_the_start_after_a_crash_changes_nothing() -> None:
    for seed in range(10):
        rng = random.Random(seed)
        play = leased(6, 2_000)
        for one in popped_again(play)[:3]:
            assert play.ask_now(ack_request(one)).ext["gantryVerdict"] == "open"
        for _ in range(3):
            play.crash(rng)
        assert everything(play) == [b"m3", b"m4", b"m5"], f"seed {seed}"


def popped_again(play: PopPlay) -> list[Popped]:
    """The messages of `leased` with the handles that they get when their time is over."""
    pass_durably(play, 3_000)
    reply = play.ask_now(pop_request(32, 2_000))
    return sorted(popped(reply), key=lambda one: one.body)


def test_a_change_of_which_only_the_new_lease_was_kept_leaves_one_valid_handle() -> None:
    play = PopPlay(Flush.SYNC)
    play.send(b"m0")
    play.flush()
    (one,) = popped(play.ask_now(pop_request(1, 60_000)))
    append = play.store.append
    play.store.append = lambda sends, *how: append(sends[:1], *how)  # type: ignore[method-assign]
    newer = changed(one, play.ask_now(change_request(one, 30_000)))
    play.crash()
    assert play.ask_now(ack_request(one)).ext["gantryVerdict"] == "stale"
    assert play.ask_now(ack_request(newer)).ext["gantryVerdict"] == "open"
    assert everything(play) == []


def test_a_reset_wins_over_older_leases_after_a_crash() -> None:
    play = leased(4, 60_000)
    play.offsets.reset("workers", "orders", 0, 1, marks=False)
    play.offsets.file.save_now()
    play.crash()
    again = popped(play.ask_now(pop_request(32, 500)))
    assert [one.body for one in again] == [b"m1", b"m2", b"m3"]
    assert not play.ask_now(batch_ack_request(again)).body
    pass_durably(play, 3_000)  # nothing but the first lease is left
    play.crash()
    assert play.pops.service.book.open == 1  # of the first lease only the message that the second has not
    assert play.ask_now(pop_request()).code == 210


def test_an_offset_is_not_saved_before_its_lease() -> None:
    play = PopPlay(Flush.ASYNC)
    play.send(b"m0")
    while play.store.flushed.offset < play.store.written.offset:
        play.clock.advance(1_000)
        play.store.tick(play.clock.now_ms())
    assert play.ask_now(pop_request(1, 60_000)).code == 0
    for _ in play.offsets.saving():
        pass
    play.crash()
    assert everything(play) == [b"m0"]


def test_leases_of_deleted_topics_and_groups_are_forgotten() -> None:
    for name in ("topic", "group"):
        play = leased(3, 500)
        if name == "topic":
            play.topics.delete("orders")
            assert play.send(b"new").code in (0, -1)
            play.flush()
        else:
            play.groups.delete("workers")
        assert play.pops.service.book.open == 0
        play.pass_ms(2_000)
        play.flush()
        play.offsets.file.save_now()
        play.kill()
        assert play.pops.service.book.open == 0
        play.pass_ms(2_000)
        assert play.visible(RETRY) == []
        if name == "topic":
            assert everything(play) == [b"new"]


def test_the_revive_queues_offset_is_the_last_handled_one_as_rocketmq_has_it() -> None:
    play = leased(2, 100)
    pass_durably(play, 3_000)
    topic = play.pops.service.rules.revive_topic
    saved = [play.offsets.query(names.REVIVE_GROUP, topic, queue_id) for queue_id in range(REVIVE_QUEUES)]
    ends = [(play.store.queue_range(topic, queue_id) or (0, 0))[1] for queue_id in range(REVIVE_QUEUES)]
    assert [offset + 1 for offset in saved] == ends
    assert sum(ends) == 1
