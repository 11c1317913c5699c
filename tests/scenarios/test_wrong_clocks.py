"""No rule goes by another machine's clock, and no duration by a clock that jumps: every play with wrong clocks.

A clock is wrong by a second, an hour or 24 years, in either direction: a client's from the begin on, the broker's while
it runs or while it is stopped.
"""

from __future__ import annotations

import pytest

from gantry.store.settings import Flush
from gantry.wire.codes import RequestCode
from testkit.delayplay import DelayPlay
from testkit.orderplay import INVISIBLE_MS, OrderPlay
from testkit.popplay import pop_request, popped
from testkit.popstoreplay import PopPlay
from testkit.simclock import HOUR_MS, SECOND_MS, SKEWS_MS
from testkit.transactionplay import TransactionPlay

BACK_MS = [skew_ms for skew_ms in SKEWS_MS if skew_ms < 0]
# A start does not know how far the clock was set forwards while nobody looked.
SET_MS = [(skew_ms, "") for skew_ms in SKEWS_MS if skew_ms > 0]


def set_clock(*stops: str) -> pytest.MarkDecorator:
    """Set the clock back, also before a start of each of these kinds, and forwards while the broker runs."""
    backwards = [(back_ms, stop) for back_ms in BACK_MS for stop in ("", *stops)]
    return pytest.mark.parametrize(("skew_ms", "stop"), [*backwards, *SET_MS])


@pytest.mark.parametrize("flush", [Flush.ASYNC, Flush.SYNC])
@pytest.mark.parametrize("ahead_ms", SKEWS_MS)
def test_the_immunity_time_does_not_depend_on_the_producer_s_clock(ahead_ms: int, flush: Flush) -> None:
    play = TransactionPlay(flush)
    play.join()
    play.half(key="k", born_ms=play.clock.now_ms() + ahead_ms)
    play.flush()
    assert play.run_pass(5_990) == []
    assert [question.key for question in play.run_pass(20)] == ["k"]
    assert play.service.state()["oldestMs"] == 6_010


@pytest.mark.parametrize("leap_ms", SKEWS_MS)
def test_the_immunity_time_does_not_depend_on_the_broker_s_wall_clock(leap_ms: int) -> None:
    play = TransactionPlay()
    play.join()
    play.half(key="k", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    play.clock.jump(leap_ms)
    assert play.run_pass(590 * SECOND_MS) == []
    assert [question.key for question in play.run_pass(100 * SECOND_MS)] == ["k"]


@pytest.mark.parametrize("back_ms", BACK_MS)
def test_a_start_with_the_clock_set_back_keeps_the_immunity_time_and_ends_it(back_ms: int) -> None:
    play = TransactionPlay(Flush.SYNC)
    play.half(key="k", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    play.flush()
    play.clock.jump(back_ms)
    play.kill()
    play.join()
    assert play.run_pass(50 * SECOND_MS) == []
    assert [question.key for question in play.run_pass(20 * SECOND_MS)] == ["k"]


def pass_durably(play: DelayPlay, milliseconds: int) -> None:
    """Let time pass on a disk that is soon done."""
    for _ in range(milliseconds // 100):
        play.pass_ms(100)
        play.flush()


DURATIONS = [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "5"}, {"TIMER_DELAY_MS": "5000"}]


@set_clock("reopen", "kill", "crash")
@pytest.mark.parametrize("pairs", DURATIONS, ids=lambda pairs: next(iter(pairs)))
def test_a_delay_lasts_as_long_when_the_clock_is_set(skew_ms: int, pairs: dict[str, str], stop: str) -> None:
    play = DelayPlay()
    play.send(b"before", **pairs)
    play.pass_ms(2 * SECOND_MS)
    play.store._flush.finish()
    play.clock.jump(skew_ms)
    if stop:
        getattr(play, stop)()
    play.send(b"behind", queue_id=1, **pairs)
    play.pass_ms(2_500)
    assert play.visible() == [], "never early"
    play.pass_ms(3_200)
    assert play.visible() == [b"before", b"behind"], "at most its duration once more, a ninth longer"


@pytest.mark.parametrize("stop", ["", "reopen", "kill"])
@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "__STARTDELIVERTIME"])
def test_a_moment_waits_for_the_wall_clock_that_is_set_back(name: str, stop: str) -> None:
    play = DelayPlay()
    begun_ms = play.clock.now_ms()
    play.send(b"plain")
    play.send(b"before", **{name: str(begun_ms + 3_000)})
    play.pass_ms(1_000)
    play.clock.jump(-10_000)
    sent = play.send(b"behind", queue_id=1, **{name: str(begun_ms + 2_000)})
    recalled = play.send(b"recalled", **{name: str(begun_ms + 2_000)})
    play.pass_ms(5_000)
    if stop:
        getattr(play, stop)()
    assert play.service.pending == 3
    play.deliver()
    assert play.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=recalled.handle).code == 0
    play.pass_ms(5_980)
    assert play.visible() == [b"plain"]
    play.pass_ms(30)
    assert play.visible() == [b"plain", b"behind"]
    assert play.ask(RequestCode.RECALL_MESSAGE, topic="orders", recallHandle=sent.handle).code == 604
    play.pass_ms(1_000)
    assert play.visible() == [b"plain", b"before", b"behind"]
    play.kill()
    play.pass_ms(20_000)
    assert play.visible() == [b"plain", b"before", b"behind"]


def test_a_moment_that_waits_for_the_wall_clock_comes_when_that_is_corrected() -> None:
    play = DelayPlay()
    play.clock.jump(-HOUR_MS)
    play.send(b"x", TIMER_DELIVER_MS=str(play.clock.now_ms() + 2_000))
    play.pass_ms(1_000)
    play.clock.jump(HOUR_MS)
    play.pass_ms(100)
    assert play.visible() == [b"x"]


def test_messages_that_wait_for_the_wall_clock_do_not_keep_their_segment() -> None:
    play = DelayPlay(segment_bytes=1 << 16)
    play.send(b"x", TIMER_DELIVER_MS=str(play.clock.now_ms() + 1_000))
    play.clock.jump(-600_000)
    play.pass_ms(2_000)
    for _ in range(8):
        play.send(b"y" * 20_000, topic="filling")
    play.store._flush.finish()
    play.store.retention._wanted = play.store.reader.log_start + (1 << 16)
    for _ in range(5):
        play.tick()
    assert play.service.counts.carried == 1 and play.service.pending == 1
    play.store.retention._wanted = 0
    play.clock.jump(600_000)
    play.pass_ms(1_000)
    assert play.visible() == [b"x"]


def test_a_message_of_a_level_is_carried_on_for_no_longer_than_its_level() -> None:
    """It is stored by a clock that was a year ahead, in a folder of a broker that knew only the wall clock."""
    play = DelayPlay(segment_bytes=1 << 16)
    play.send(b"x", DELAY="5")
    play.service.places.of_line = (  # type: ignore[method-assign]
        lambda line, count, real=play.service.places.of_line: [  # type: ignore[misc]
            one._replace(due_ms=one.due_ms + 365 * 24 * HOUR_MS) for one in real(line, count)
        ]
    )
    for _ in range(8):
        play.send(b"y" * 20_000, topic="filling")
    play.store._flush.finish()
    play.store.retention._wanted = play.store.reader.log_start + (1 << 16)
    play.tick()
    assert play.service.counts.carried == 1
    play.pass_ms(61_000)
    assert play.visible() == [b"x"]


@set_clock("reopen", "kill", "crash")
def test_a_lease_lasts_as_long_when_the_clock_is_set(skew_ms: int, stop: str) -> None:
    play = PopPlay(Flush.SYNC)
    play.send(b"x")
    play.flush()
    reply = play.ask_now(pop_request(invisible_ms=3_000))
    assert [one.body for one in popped(reply)] == [b"x"]
    play.pass_ms(1_000)
    play.clock.jump(skew_ms)
    if stop:
        getattr(play, stop)()
    pass_durably(play, 1_500)
    assert play.ask_now(pop_request()).code != 0, "the lease is open"
    pass_durably(play, 2_400)
    assert [one.body for one in popped(play.ask_now(pop_request()))] == [b"x"]


@pytest.mark.parametrize("leap_ms", SKEWS_MS)
def test_retention_deletes_in_time_when_the_clock_is_set(leap_ms: int) -> None:
    play = DelayPlay(segment_bytes=1 << 16)
    for number in range(8):
        play.send(b"%d" % number * 20_000)
    play.store._flush.finish()
    _retain(play)
    play.clock.advance(71 * HOUR_MS)
    play.steady.look()
    play.clock.jump(leap_ms)
    _retain(play)
    assert play.store.reader.log_start == 0
    play.clock.advance(2 * HOUR_MS)
    _retain(play)
    assert play.store.reader.log_start > 0, "nor late"


@pytest.mark.parametrize("leap_ms", SKEWS_MS)
def test_what_was_written_behind_a_leap_of_the_clock_is_kept_as_long(leap_ms: int) -> None:
    play = DelayPlay(segment_bytes=1 << 16)
    for when in ("before", "behind"):
        for number in range(8):
            play.send(b"%d" % number * 20_000, topic=when)
        play.store._flush.finish()
        _retain(play)
        if when == "before":
            play.clock.advance(40 * HOUR_MS)
            play.steady.look()
            play.clock.jump(leap_ms)
    play.clock.advance(33 * HOUR_MS)
    _retain(play)
    low, _ = play.store.queue_range("behind", 0) or (0, 0)
    assert play.store.reader.log_start > 0 and low == 0


def _retain(play: DelayPlay) -> None:
    for _ in range(3):
        play.store.retention.drop_expired()
        play.clock.advance(11 * SECOND_MS)
        play.tick()


@pytest.mark.parametrize("ahead_ms", SKEWS_MS)
def test_a_pop_gets_messages_whatever_its_client_s_clock_is(ahead_ms: int) -> None:
    play = PopPlay()
    play.send(b"x")
    reply = play.ask_now(pop_request(bornTime=play.clock.now_ms() + ahead_ms))
    assert [one.body for one in popped(reply)] == [b"x"]


@set_clock("crash")
def test_an_orderly_batch_lasts_as_long_when_the_clock_is_set(skew_ms: int, stop: str) -> None:
    play = OrderPlay()
    play.message(b"x")
    assert [one.body for one in play.taken()] == [b"x"]
    play.clock.advance(INVISIBLE_MS // 2)
    play.steady.look()
    play.clock.jump(skew_ms)
    if stop:
        getattr(play, stop)()
    play.clock.advance(INVISIBLE_MS // 2 - 100)
    assert play.taken() == []
    play.clock.advance(round(INVISIBLE_MS * 0.62) + 100)
    assert [one.body for one in play.taken()] == [b"x"]


@pytest.mark.parametrize("skew_ms", [skew_ms for skew_ms, _ in SET_MS])
def test_another_time_of_an_orderly_message_counts_from_the_change_on(skew_ms: int) -> None:
    play = OrderPlay()
    play.message(b"x")
    (one,) = play.taken()
    play.steady.look()
    play.clock.jump(skew_ms)
    play.change(one, 5_000)
    play.clock.advance(4_900)
    assert play.taken() == []
    play.clock.advance(200)
    assert [one.body for one in play.taken()] == [b"x"]


def test_a_recalled_message_of_a_level_stays_recalled_when_the_clock_is_set_forwards() -> None:
    """The cancel is due by the clock before the level's message is."""
    play = DelayPlay()
    play.send(b"kept", DELAY="9")  # 5 minutes
    key = play.send(b"recalled", DELAY="9").key
    play.clock.jump(180 * SECOND_MS)
    play.pass_ms(100)
    assert play.ask(RequestCode.CANCEL_DELAYED, id=key).code == 0
    play.pass_ms(200 * SECOND_MS)
    play.send(b"timed", TIMER_DELAY_MS="1000", queue_id=1)
    play.pass_ms(2 * SECOND_MS)
    assert play.visible() == [b"timed"], "a late level keeps up no time"
    play.store._flush.finish()
    play.kill()
    play.pass_ms(200 * SECOND_MS)
    assert play.visible() == [b"kept", b"timed"]


def test_a_held_message_can_be_cancelled_and_stays_cancelled() -> None:
    play = DelayPlay()
    key = play.send(b"x", TIMER_DELAY_SEC="600").key
    play.clock.jump(HOUR_MS)
    play.pass_ms(2 * SECOND_MS)
    assert play.service.pending == 1 and play.visible() == []
    assert play.ask(RequestCode.CANCEL_DELAYED, id=key).code == 0
    assert play.ask(RequestCode.CANCEL_DELAYED, id=key).code != 0
    play.pass_ms(5 * SECOND_MS)
    play.store._flush.finish()
    play.kill()
    play.pass_ms(700 * SECOND_MS)
    assert play.visible() == [] and play.service.pending == 0
