from __future__ import annotations

from gantry.client.tallies import Tallies
from testkit.simclock import SimClock


def test_rates_are_of_the_last_whole_minute_and_failures_of_an_hour() -> None:
    clock = SimClock()
    clock.advance(600_000 - int(clock.monotonic() * 1000) % 60_000)
    tallies = Tallies(clock)
    for _ in range(30):
        tallies.pulled("T", 4, 0.01)
        tallies.consumed("T", True, 0.02)
        tallies.consumed("T", False, 0.04)
    clock.advance(60_000)
    assert tallies.to_json() == {
        "T": {
            "consumeFailedMsgs": 30,
            "consumeFailedTPS": 0.5,
            "consumeOKTPS": 0.5,
            "consumeRT": 30.0,
            "pullRT": 10.0,
            "pullTPS": 2.0,
        }
    }
    clock.advance(60_000)
    quiet = tallies.to_json()["T"]
    assert (quiet["consumeFailedMsgs"], quiet["pullTPS"], quiet["consumeRT"]) == (30, 0.0, 0.0)
    clock.advance(3_600_000)
    assert tallies.to_json()["T"]["consumeFailedMsgs"] == 0


def test_the_first_minute_is_shown_while_it_runs() -> None:
    clock = SimClock()
    clock.advance(600_000 - int(clock.monotonic() * 1000) % 60_000)
    tallies = Tallies(clock)
    clock.advance(10_000)
    tallies.pulled("T", 20, 0.01)
    assert tallies.to_json()["T"]["pullTPS"] == 2.0
