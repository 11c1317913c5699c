from __future__ import annotations

import json

import pytest

from gantry.cli.output import show, show_one, table


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    assert table([{"topic": "orders", "queues": 4}, {"topic": "a", "queues": 16}]) == [
        "TOPIC   QUEUES",
        "orders       4",
        "a           16",
    ]


def test_chinese_text_takes_two_columns_a_character() -> None:
    lines = table([{"name": "订单", "n": 1}, {"name": "abcd", "n": 2}])
    assert lines[1] == "订单  1"
    assert lines[2] == "abcd  2"


def test_what_is_not_known_is_a_dash_and_a_truth_is_a_word() -> None:
    assert table([{"a": None, "b": True, "c": 1.5}])[1].split() == ["-", "yes", "1.50"]


def test_json_is_one_array_of_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"topic": "订单", "queues": 4}], "json")
    assert json.loads(capsys.readouterr().out) == [{"topic": "订单", "queues": 4}]


def test_no_rows_are_an_empty_array_for_programs_and_a_sentence_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show([], "json")
    assert json.loads(capsys.readouterr().out) == []
    show([], "table", empty="no topics")
    assert capsys.readouterr() == ("", "no topics\n")


def test_one_thing_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_one({"a": 1, "long": "x"}, "json")
    assert json.loads(capsys.readouterr().out) == {"a": 1, "long": "x"}
    show_one({"a": 1, "long": "x"}, "table")
    assert capsys.readouterr().out == "a     1\nlong  x\n"
