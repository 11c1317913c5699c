"""When the operator is to be started again, and when it is ready."""

from __future__ import annotations

import dataclasses

import pytest

from gantry_operator.health import ANSWER_S_MAX, QUEUE_S_MAX, WATCH_S_MAX, Vitals

WELL = Vitals(answered_s=1, watch_s=30, has_begun=True, queue_s=0, leader="a", is_leaving=False)


def but(**changes: object) -> Vitals:
    return dataclasses.replace(WELL, **changes)  # type: ignore[arg-type]


def test_one_that_watches_and_works_is_alive_and_ready() -> None:
    assert not WELL.complaint() and not WELL.absence()


@pytest.mark.parametrize(
    ("vitals", "said"),
    [
        (but(watch_s=WATCH_S_MAX + 1), "watch has been silent"),
        (but(watch_s=WATCH_S_MAX + 1, has_begun=False), "watch has been silent"),
        (but(queue_s=QUEUE_S_MAX + 1), "waited for its pass"),
    ],
)
def test_a_part_that_stands_still_is_a_reason_to_start_again(vitals: Vitals, said: str) -> None:
    assert said in vitals.complaint() and vitals.absence()


def test_an_api_server_that_is_away_is_none() -> None:
    vitals = but(answered_s=ANSWER_S_MAX + 600, watch_s=600)
    assert not vitals.complaint() and "has not answered" in vitals.absence()


@pytest.mark.parametrize(("vitals", "said"), [(but(has_begun=False), "watch"), (but(is_leaving=True), "end")])
def test_one_that_does_not_watch_yet_or_is_about_to_go_is_alive_and_not_ready(vitals: Vitals, said: str) -> None:
    assert not vitals.complaint() and said in vitals.absence()
