"""How old a half is: as the broker says, else as long as it is asked about; never by a wall clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gantry.client.requests.transaction_requests import read_check
from gantry.guarantee.checkages import _ASKED_MAX, CheckAges
from gantry.model.message import StoredMessage
from testkit.scriptedtransaction import check
from testkit.simclock import SKEWS_MS, SimClock


def half(message_id: str, age_ms: int | None = None) -> StoredMessage:
    command = check(message_id)
    if age_ms is not None:
        command.ext["gantryAge"] = str(age_ms)
    return read_check(command)[1].message


@pytest.mark.parametrize("skew_ms", SKEWS_MS)
def test_a_broker_that_says_the_age_is_believed_whatever_the_clocks_are(skew_ms: int) -> None:
    clock = SimClock()
    ages = CheckAges(clock)
    one = replace(half("M", 1_234), born_ms=clock.now_ms() + skew_ms)
    clock.jump(skew_ms)
    assert ages.measure_age_ms(one) == 1_234


@pytest.mark.parametrize("skew_ms", SKEWS_MS)
def test_with_another_broker_a_half_is_as_old_as_it_is_asked_about(skew_ms: int) -> None:
    clock = SimClock()
    ages = CheckAges(clock)
    assert ages.measure_age_ms(half("M")) == 0
    clock.advance(5_000)
    clock.jump(skew_ms)
    assert ages.measure_age_ms(half("N")) == 0
    clock.advance(1_000)
    assert (ages.measure_age_ms(half("M")), ages.measure_age_ms(half("N"))) == (6_000, 1_000)


def test_what_is_remembered_is_bounded_and_the_half_asked_longest_ago_is_forgotten() -> None:
    clock = SimClock()
    ages = CheckAges(clock)
    for number in range(_ASKED_MAX):
        ages.measure_age_ms(half(f"M{number}"))
    clock.advance(1_000)
    assert ages.measure_age_ms(half("M0")) == 1_000
    ages.measure_age_ms(half("new"))
    assert ages.measure_age_ms(half("M0")) == 1_000 and ages.measure_age_ms(half("M1")) == 0
