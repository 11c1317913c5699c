"""Delayed messages from the send to the delivery: never early, once, and through every kind of stop."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gantry.leaves import properties
from gantry.model import names
from gantry.model.topic import TopicConfig
from gantry.schedule.rules import DelayRules
from gantry.store.settings import Flush
from testkit.delayplay import DelayPlay
from testkit.keyed import query

SECOND_MS = 1000
DAY_MS = 86_400_000


def test_a_level_is_delivered_when_its_duration_has_passed_and_not_before() -> None:
    play = DelayPlay()
    assert play.send(b"one", queue_id=3, DELAY="1").code == 0
    assert play.visible() == []
    play.pass_ms(990)
    assert play.visible() == []
    play.pass_ms(10)
    (record,) = play.records()
    assert (record.body, record.queue_id) == (b"one", 3)
    assert properties.parse(record.properties)["REAL_TOPIC"] == "orders"


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME", "TIMER_DELAY_MS"])
def test_a_time_is_kept_to_ten_milliseconds(name: str) -> None:
    play = DelayPlay()
    base = 0 if name == "TIMER_DELAY_MS" else play.clock.now_ms()
    play.send(b"later", **{name: str(base + 1234)})
    play.pass_ms(1230)
    assert play.visible() == []
    play.pass_ms(10)
    assert play.visible() == [b"later"]


def test_the_order_of_a_level_is_the_order_of_sending() -> None:
    play = DelayPlay()
    for number in range(300):
        play.send(b"%d" % number, DELAY="2")
    play.pass_ms(5 * SECOND_MS)
    assert play.visible() == [b"%d" % number for number in range(300)]


def test_what_is_due_takes_nothing_along_that_is_not() -> None:
    play = DelayPlay()
    for number in range(3):
        play.send(b"%d" % number, DELAY="1")
        play.pass_ms(100)
    play.pass_ms(700)
    assert play.visible() == [b"0"]
    play.pass_ms(200)
    assert play.visible() == [b"0", b"1", b"2"]


def test_of_messages_that_are_due_together_those_that_were_recalled_are_left_out() -> None:
    play = DelayPlay()
    for name in ("a", "b", "c"):
        play.send(name.encode(), UNIQ_KEY=name, TIMER_DELAY_MS="1500")
    assert play.ask(24012, id="b", operator="me").code == 0
    play.pass_ms(2000)
    assert play.visible() == [b"a", b"c"] and play.service.counts.cancelled == 1


def test_times_far_ahead_wait_far_away_and_come_in_their_order() -> None:
    play = DelayPlay()
    for hours in (50, 2, 70, 1):
        play.send(b"%d" % hours, TIMER_DELAY_SEC=str(hours * 3600))
    seen = 0
    for _ in range(71 * 60):
        play.clock.advance(60_000)
        play.deliver()
        assert len(play.visible()) - seen in (0, 1)
        seen = len(play.visible())
    assert play.visible() == [b"1", b"2", b"50", b"70"] and play.service.pending == 0


@pytest.mark.parametrize("flush", [Flush.ASYNC, Flush.SYNC])
@pytest.mark.parametrize("stop", ["reopen", "kill", "crash"])
def test_nothing_is_lost_or_delivered_twice_over_a_stop(flush: Flush, stop: str) -> None:
    play = DelayPlay(flush)
    for number in range(100):
        play.send(b"t%02d" % number, TIMER_DELAY_MS=str(20 * number))
        play.send(b"l%02d" % number, DELAY="1")
    play.flush()
    for _ in range(12):
        play.pass_ms(170)
        play.flush()
        play.tick()
        play.store._flush.finish()
        play.flush()
        getattr(play, stop)()
    play.pass_ms(2 * SECOND_MS)
    play.flush()
    assert sorted(play.visible()) == sorted([b"t%02d" % n for n in range(100)] + [b"l%02d" % n for n in range(100)])


def test_two_kills_in_a_row_repeat_nothing() -> None:
    play = DelayPlay()
    # What waits stands before what is delivered: the first that is pending says nothing about it.
    play.send(b"far", TIMER_DELAY_MS="90000")
    play.send(b"near", TIMER_DELAY_MS="100")
    play.pass_ms(100)
    assert play.visible() == [b"near"]
    play.kill()
    play.clock.jump(-200)
    for _ in range(3):
        play.tick()
        play.store._flush.finish()
    assert play.disk.exists("/store/config/delayOffset.json")
    play.kill()
    play.pass_ms(1000)
    assert play.visible() == [b"near"]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_in_the_middle_of_a_storm_loses_nothing_acknowledged_and_repeats_only_what_it_took(
    seed: int,
) -> None:
    rng = random.Random(seed)
    play = DelayPlay(Flush.SYNC)
    acknowledged = []
    for number in range(60):
        pairs = {"DELAY": "1"} if rng.random() < 0.5 else {"TIMER_DELAY_MS": str(rng.randint(1, 1500))}
        play.send(b"%03d" % number, **pairs)
        if rng.random() < 0.7:
            play.flush()
            acknowledged = [b"%03d" % one for one in range(number + 1)]
    for _ in range(rng.randint(1, 120)):
        play.pass_ms(10)
        if rng.random() < 0.5:
            play.background.step()
        if rng.random() < 0.1:
            play.tick()
    before = play.visible()
    play.crash(rng)
    assert set(before) <= set(play.visible()), "a consumer saw it: it is there"
    play.pass_ms(3 * SECOND_MS)
    for _ in range(10):
        play.flush()
        play.pass_ms(100)
    play.flush()
    seen = play.visible()
    assert len(seen) == len(set(seen)), "under SYNC_FLUSH what is visible is durable, and so is that it was delivered"
    assert set(acknowledged) <= set(seen)


def test_a_delivery_is_progress_only_when_it_is_confirmed() -> None:
    play = DelayPlay(Flush.SYNC)
    play.send(b"x", DELAY="1")
    play.flush()
    play.pass_ms(1000)
    line = play.service.book.lines[1]
    assert (line.next, line.kept) == (1, 0) and play.visible() == []
    play.flush()
    assert line.kept == 1 and play.visible() == [b"x"]


def test_setting_the_clock_back_delivers_nothing_early_and_no_level_much_later() -> None:
    play = DelayPlay()
    play.send(b"before", DELAY="2")
    play.pass_ms(1000)
    play.clock.jump(-3_600_000)
    play.send(b"after", DELAY="2")
    play.pass_ms(3_900)
    assert play.visible() == []
    play.pass_ms(2_000)
    assert play.visible() == [b"before", b"after"]


@pytest.mark.parametrize("jump_ms", [0, -60_000])
def test_a_cancel_counts_until_its_message_had_its_turn_also_when_that_is_late(jump_ms: int) -> None:
    play = DelayPlay()
    play.send(b"taken back", UNIQ_KEY="k", DELAY="1")
    play.send(b"timed", TIMER_DELAY_MS="1500")
    assert play.ask(24012, id="k", operator="me").code == 0
    play.service._deliver_line = lambda *late: False  # type: ignore[method-assign]  # as when too much is under way
    play.pass_ms(3000)
    play.clock.jump(jump_ms)
    play.reopen()
    play.pass_ms(5000)
    assert b"taken back" not in play.visible()
    play.pass_ms(-jump_ms)
    assert play.visible() == [b"timed"]


def test_a_moment_is_the_wall_clocks_also_when_that_is_set_back() -> None:
    play = DelayPlay()
    play.send(b"old", TIMER_DELIVER_MS=str(play.clock.now_ms() + 5000))
    play.pass_ms(6000)
    assert play.visible() == [b"old"]
    play.clock.jump(-60_000)
    play.send(b"new", TIMER_DELIVER_MS=str(play.clock.now_ms() + 3000))
    play.pass_ms(2000)
    assert play.visible() == [b"old"]
    play.tick()
    play.tick()
    play.kill()
    play.pass_ms(1000)
    assert play.visible() == [b"old", b"new"]
    play.pass_ms(70_000)
    play.kill()
    play.pass_ms(1000)
    assert play.visible() == [b"old", b"new"]


def test_setting_the_clock_forwards_delivers_moments_and_a_start_then_also_durations() -> None:
    play = DelayPlay()
    play.send(b"level", DELAY="18")
    play.send(b"time", TIMER_DELAY_SEC="172800")
    play.send(b"moment", TIMER_DELIVER_MS=str(play.clock.now_ms() + 2 * DAY_MS))
    play.clock.jump(3 * DAY_MS)
    play.pass_ms(100)
    assert play.visible() == [b"moment"]
    play.kill()
    play.pass_ms(100)
    assert sorted(play.visible()) == [b"level", b"moment", b"time"]


def test_a_topic_that_only_delayed_messages_were_sent_to_survives_a_crash_before_it_was_saved() -> None:
    play = DelayPlay()
    play.send(b"x", topic="young", DELAY="1")
    play.store._flush.finish()
    play.crash()
    assert play.topics.get("young") is None
    play.pass_ms(2000)
    assert play.visible("young") == [b"x"] and play.topics.get("young") is not None


def test_what_was_sent_before_its_topic_was_deleted_does_not_come_into_the_new_one() -> None:
    play = DelayPlay()
    play.send(b"old", DELAY="1")
    play.send(b"old", TIMER_DELAY_MS="500")
    play.topics.delete("orders")
    play.store.tick(play.clock.now_ms())
    play.send(b"new", DELAY="1")
    play.pass_ms(2000)
    assert play.visible() == [b"new"] and play.service.counts.discarded == 2


def test_a_queue_that_is_gone_when_the_time_has_come_is_replaced_by_another() -> None:
    play = DelayPlay()
    play.send(b"x", queue_id=3, DELAY="1")
    assert play.send(b"y", queue_id=0).code == 0
    config = play.topics.get("orders")
    assert config is not None
    topics = play.topics._table
    topics["orders"] = type(config)("orders", read_queues=2, write_queues=2)
    play.pass_ms(1500)
    assert sorted((record.body, record.queue_id) for record in play.records()) == [(b"x", 1), (b"y", 0)]


def test_a_full_disk_holds_deliveries_back_and_room_lets_them_go() -> None:
    play = DelayPlay()
    for number in range(10):
        play.send(b"%d" % number, TIMER_DELAY_MS="100")
        play.send(b"%d" % number, DELAY="1")
    play.store.retention.seen = play.store.retention.seen._replace(used=3.0)
    play.pass_ms(500)
    assert play.visible() == [] and play.send(b"no").code == 14
    play.store.retention.seen = play.store.retention.seen._replace(used=0.0)
    play.gate.reopen("disk full")
    play.pass_ms(1000)
    assert sorted(play.visible()) == sorted([b"%d" % number for number in range(10)] * 2)


def test_more_levels_than_the_table_had_are_delivered_all_the_same() -> None:
    play = DelayPlay(rules=DelayRules(levels_ms=(1000, 2000, 3000)))
    play.send(b"x", DELAY="3")
    play.rules = DelayRules(levels_ms=(1000,))
    play.reopen()
    play.pass_ms(4000)
    assert play.visible() == [b"x"]


def test_a_message_is_found_under_its_key_when_it_is_delivered() -> None:
    play = DelayPlay()
    sent = play.send(b"x", TIMER_DELAY_MS="50")
    play.pass_ms(100)
    assert len(query(play.store.reader, "orders", sent.key, 5, 0, 1 << 60)) == 1


def test_without_its_document_the_log_says_what_was_delivered() -> None:
    play = DelayPlay()
    for number in range(20):
        play.send(b"%d" % number, DELAY="1")
        play.send(b"t%d" % number, TIMER_DELAY_MS=str(100 * number))
    play.pass_ms(1000)
    play.close()
    for suffix in ("", ".bak"):
        play.disk.unlink(f"/store/config/delayOffset.json{suffix}")
    play.open()
    play.pass_ms(3000)
    assert len(play.visible()) == 40 == len(set(play.visible()))


def test_what_lies_far_behind_is_read_from_the_disk_before_it_is_due() -> None:
    play = DelayPlay(warm_bytes=1000)
    asked: list[int] = []
    real = play.store.bring_in

    def bring_in(places: list[tuple[int, int]], done: Callable[[], None]) -> None:
        asked.append(len(places))
        real(places, done)

    play.store.bring_in = bring_in  # type: ignore[method-assign,assignment]
    for number in range(10):
        play.send(b"%d" % number, TIMER_DELAY_MS="60000")
    play.send(bytes(5000))
    play.clock.advance(51_000)
    play.deliver()
    assert asked == [10], "with one look, and before they are due"
    play.clock.advance(10_000)
    play.deliver()
    assert len(play.visible()) == 11


def test_the_timer_topic_cannot_be_written_by_a_producer() -> None:
    assert DelayPlay().send(b"x", topic=names.TIMER_TOPIC, TIMER_OUT_MS="5").code == 16


def test_who_rests_as_long_as_he_is_told_is_not_late_and_hears_of_earlier_work() -> None:
    play, chosen = DelayPlay(), random.Random(1)
    told: list[int] = []
    play.service.on_earlier = lambda: told.append(play.clock.now_ms())
    runs = 0
    for _ in range(40):
        due_ms = play.clock.now_ms() + chosen.randrange(20, 3000)
        play.deliver()
        assert play.service.rest_s() > 0
        before = len(play.visible())
        play.send(b"later", TIMER_DELIVER_MS=str(due_ms))
        assert told.pop() == play.clock.now_ms() and play.service.rest_s() == 0
        play.deliver()
        while len(play.visible()) == before:
            runs += 1
            play.clock.advance(max(1, round(1000 * play.service.rest_s())))
            play.deliver()
        assert due_ms <= play.clock.now_ms() <= due_ms + 10
    assert runs < 40 * 40, "ten a second, and not one every ten milliseconds"


def test_what_becomes_due_while_others_are_delivered_is_delivered_in_the_same_run() -> None:
    play = DelayPlay()
    now_ms = play.clock.now_ms()
    for number in range(20):
        play.send(b"%d" % number, TIMER_DELIVER_MS=str(now_ms + 100 + 10 * number))
    play.send(b"level", DELAY="1")
    play.clock.advance(100)
    for _ in play.service.deliver() or ():
        play.clock.advance(50)
    assert sorted(play.visible()) == sorted([b"%d" % number for number in range(20)] + [b"level"])


def test_that_time_passes_is_nothing_to_be_saved() -> None:
    play = DelayPlay()
    play.send(b"later", TIMER_DELAY_SEC="3600")
    play.pass_ms(15 * SECOND_MS)
    play.disk.faults.trace.clear()
    play.pass_ms(10 * SECOND_MS)
    assert not [line for line in play.disk.faults.trace if "delayOffset" in line]
    play.kill()
    play.pass_ms(3600 * SECOND_MS)
    assert play.visible() == [b"later"]


def test_a_message_for_a_dead_letter_topic_is_not_delayed_whatever_came_before_it() -> None:
    play = DelayPlay()
    play.topics.put(TopicConfig("%DLQ%g", read_queues=1, write_queues=1))
    assert [play.send(b"%d" % number, "%DLQ%g", DELAY="5").code for number in range(3)] == [0, 0, 0]
    assert play.visible("%DLQ%g") == [b"0", b"1", b"2"]
