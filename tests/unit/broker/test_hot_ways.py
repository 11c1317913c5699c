"""What a message of the hot ways costs, in calls of Python functions; `make gate` counts instructions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import hotfigures
from testkit.hotways import RUN, WAYS, Ground, Way
from testkit.stillworld import still_broker

BY_NAME = {way.name: way for way in WAYS}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A broker in this process that has not served yet."""
    with still_broker(tmp_path) as still:
        made = Ground(still)
        yield made
        made.stop()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_message_takes_no_more_calls_than_its_committed_figure_allows(way: Way, ground: Ground) -> None:
    found = {way.name: hotfigures.calls(way, ground)}
    faults = hotfigures.too_much(found, hotfigures.load()["calls"][hotfigures.leaves()], "calls")
    assert not faults, "\n".join(faults)


def test_the_figures_are_of_the_ways_that_there_are() -> None:
    figures = hotfigures.load()
    builds = [one for of_key in figures["instructions"].values() for one in of_key]
    assert {leaves: list(ways) for leaves, ways in figures["calls"].items()} == {
        "compiled leaves": list(BY_NAME),
        "pure leaves": list(BY_NAME),
    }
    assert [set(one) for one in builds] == [{"yardstick", *BY_NAME}] * len(builds) != []


def test_of_messages_that_come_together_python_looks_at_none_by_itself(ground: Ground) -> None:
    assert hotfigures.calls(BY_NAME["send-run"], ground) < 1.0
    assert hotfigures.calls(BY_NAME["send-compressed"], ground) < 1.0
    assert hotfigures.calls(BY_NAME["transaction-run"], ground) < 3.0  # a half, a reply, an end and a reply


def test_a_message_of_a_batch_costs_less_than_a_tenth_of_one_that_is_sent_alone(ground: Ground) -> None:
    alone, in_a_batch = (hotfigures.calls(BY_NAME[name], ground) for name in ("send", "batch"))
    assert in_a_batch < alone / 10


def test_the_same_replay_makes_the_same_calls_again(ground: Ground) -> None:
    way = BY_NAME["send"]
    assert hotfigures.calls(way, ground) == hotfigures.calls(way, ground) > RUN / 2


def test_a_way_is_refused_when_it_costs_more_than_the_margin_or_was_never_measured() -> None:
    within, beyond = 10.0 * (1 + hotfigures.MARGIN), 10.0 * (1 + hotfigures.MARGIN) + 0.1
    assert not hotfigures.too_much({"send": within}, {"send": 10.0}, "calls")
    (fault,) = hotfigures.too_much({"send": beyond}, {"send": 10.0}, "calls")
    assert fault.startswith("send: 11.1 calls a message, 10.0 are committed: 11 % more")
    (missing,) = hotfigures.too_much({"new": 1.0}, {"send": 10.0}, "calls")
    assert missing.startswith("new: 1.0 calls a message, and no figure is committed")
