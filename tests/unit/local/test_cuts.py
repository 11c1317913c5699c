"""What is cut: members, ways, and what follows from both."""

from __future__ import annotations

import json

import pytest

from gantry.local.cuts import OUTSIDE, Cuts, Way, read_cuts

A, B, C = "broker-a-0", "broker-a-1", "broker-a-2"


def test_a_member_that_is_cut_off_neither_sends_nor_hears() -> None:
    cuts = Cuts().cut_off([A])
    assert all(cuts.is_cut(way) for way in (Way(A, B), Way(B, A), Way(A, OUTSIDE), Way(OUTSIDE, A)))
    assert not cuts.is_cut(Way(B, C)) and not cuts.is_apart(B, OUTSIDE)


def test_a_way_is_cut_in_one_direction_and_keeps_the_two_apart_all_the_same() -> None:
    cuts = Cuts().cut([A], [B])
    assert cuts.is_cut(Way(A, B)) and not cuts.is_cut(Way(B, A))
    assert cuts.is_apart(B, A) and not cuts.is_apart(A, C)


def test_halves_are_every_way_between_two_sides_and_nobody_is_cut_from_himself() -> None:
    assert Cuts().cut([A, OUTSIDE], [B, C]).ways == {Way(A, B), Way(A, C), Way(OUTSIDE, B), Way(OUTSIDE, C)}
    assert Cuts().cut([A, B], [A, B]).ways == {Way(A, B), Way(B, A)}


def test_what_is_healed_is_whole_and_everything_else_stays_cut() -> None:
    ring = Cuts().cut([A], [B]).cut([B], [C]).cut([C], [A]).cut_off([C])
    assert ring.opened([A], [B]) == Cuts(frozenset({C}), frozenset({Way(B, C), Way(C, A)}))
    assert ring.healed([C]) == Cuts(frozenset(), frozenset({Way(A, B)}))
    assert ring.healed([A, B, C]) == Cuts()


def test_it_comes_back_from_json_as_it_was() -> None:
    cuts = Cuts().cut_off([C]).cut([A], [B, OUTSIDE])
    assert read_cuts(json.loads(json.dumps(cuts.to_document()))) == cuts
    assert cuts.names == {A, B, C}
    with pytest.raises(ValueError, match="no way"):
        read_cuts({"ways": [["a", "b", "c"]]})
