"""No rule goes by another machine's clock, and no duration by a clock that jumps: every play with wrong clocks.

A clock is wrong by a second, an hour or 24 years, in either direction: a client's from the begin on, the broker's while
it runs or while it is stopped.
"""

from __future__ import annotations

import pytest

from gantry.store.settings import Flush
from testkit.simclock import SECOND_MS, SKEWS_MS
from testkit.transactionplay import TransactionPlay

BACK_MS = [skew_ms for skew_ms in SKEWS_MS if skew_ms < 0]


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
