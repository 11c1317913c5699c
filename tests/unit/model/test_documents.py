"""Typed look-ups in what other programs wrote."""

from __future__ import annotations

import pytest

from gantry.model import documents


@pytest.mark.parametrize("value", [5, "5", "+5", "005"])
def test_a_number_may_be_its_text(value: object) -> None:
    assert documents.integer({"n": value}, "n") == 5


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_a_number_has_64_bits(value: int) -> None:
    assert documents.integer({"n": value}, "n") == value
    assert documents.integer({"n": str(value)}, "n") == value


@pytest.mark.parametrize("value", [True, 5.0, "5.0", "", "x", [], {}, 2**63, "9223372036854775808"])
def test_anything_else_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match="n is not a 64-bit integer"):
        documents.integer({"n": value}, "n")


@pytest.mark.parametrize(
    ("value", "truth"), [(True, True), (False, False), ("TRUE", True), ("1", True), ("0", False), (1, True), (0, False)]
)
def test_a_truth_has_many_spellings(value: object, truth: bool) -> None:
    assert documents.boolean({"b": value}, "b") is truth


@pytest.mark.parametrize("value", [1.5, [], {}])
def test_a_truth_is_no_container_and_no_fraction(value: object) -> None:
    with pytest.raises(ValueError, match="b is neither"):
        documents.boolean({"b": value}, "b")


def test_a_number_stands_for_its_digits_where_a_text_is_meant() -> None:
    assert documents.text({"t": 5}, "t") == "5"
    values: tuple[object, ...] = (True, 1.5, [], {})
    for value in values:
        with pytest.raises(ValueError, match="t is not a text"):
            documents.text({"t": value}, "t")


def test_what_is_missing_or_null_has_its_default() -> None:
    for source in ({}, {"x": None}):
        assert documents.integer(source, "x", 7) == 7
        assert documents.boolean(source, "x", True) is True
        assert documents.text(source, "x", "d") == "d"
        assert documents.array(source, "x") == []
        assert documents.mapping(source, "x") == {}
        assert documents.texts(source, "x") == {}


def test_containers_have_to_be_what_they_should_be() -> None:
    with pytest.raises(ValueError, match="x is a JSON dict, expected an array"):
        documents.array({"x": {}}, "x")
    with pytest.raises(ValueError, match="x is a JSON list, expected an object"):
        documents.mapping({"x": []}, "x")
    with pytest.raises(ValueError, match="a route is a JSON str"):
        documents.document("x", "a route")


def test_null_texts_are_left_out() -> None:
    assert documents.texts({"x": {"a": "1", "b": None, "c": 3}}, "x") == {"a": "1", "c": "3"}
