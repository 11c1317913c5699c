from __future__ import annotations

import pytest

from gantry.consume.sql92.program import compile_sql
from gantry.leaves import properties

ONE_OF_EACH = {
    "i": "5",
    "neg": "-7",
    "d": "5.0",
    "s": "it's",
    "t": "True",
    "f": "no",
    "big": "5000000000",
    "TAGS": "A",
    "e": "abc",
}


def holds(expression: str, **pairs: str) -> bool:
    return compile_sql(expression).accepts(properties.pack(pairs or ONE_OF_EACH))


@pytest.mark.parametrize(
    "expression",
    [
        "i = 5", "i <> 6", "i = 5.0", "d = 5.0", "i = 5 AND neg = -7", "neg < 0", "i >= 5 AND i <= 5", "5 = i",
        "6 > i",
        "big > 4999999999", "s = 'it''s'", "TAGS = 'A'", "t = TRUE", "f = FALSE", "e = FALSE",
        "i BETWEEN 5 AND 6", "i BETWEEN neg AND 5.5", "i NOT BETWEEN 6 AND 7", "s IN ('x', 'it''s')",
        "s NOT IN ('x')",
        "none IS NULL", "s IS NOT NULL", "none = nothing", "NOT s", "e CONTAINS 'b'", "e STARTSWITH 'ab'",
        "e ENDSWITH 'bc'",
        "e NOT CONTAINS 'x'", "1 <> none", "none IS NULL OR broken > 5", "i > neg", "i < big", "NOT (i = 6)",
        "TRUE", "(i = 5) = TRUE",
        "(i = 5) = (d = 5.0)", "'5' = 5", "NULL IS NULL", "(none = 5) IS NULL", "-s IS NULL", "-(-5) = i",
        "TRUE OR e > 5", "5.0 = 5",
        "i = i", "5 <> TRUE",
    ],
)  # fmt: skip
def test_what_is_true(expression: str) -> None:
    assert holds(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "i = 6", "none = 5", "none <> 5", "NOT (none = 5)", "5 = none", "s", "none", "NOT none", "NULL", "FALSE",
        "NULL OR none = 5",
        "e > 5", "NOT (e > 5)", "e > 5 OR TRUE", "d = 5", "NOT (d = 5)", "big > 1", "big = 5", "NOT (big = 5)",
        "TRUE = t", "NOT (TRUE = t)",
        "none IN ('x')", "none NOT IN ('x')", "none BETWEEN 1 AND 2", "none NOT BETWEEN 1 AND 2", "none CONTAINS 'x'",
        "none NOT CONTAINS 'x'", "e CONTAINS ''", "e NOT STARTSWITH ''", "e CONTAINS 'B'", "I = 5", "i IS NULL",
        "none IS NOT NULL",
        "(i = 5) = 1", "5 = TRUE", "-s = 5", "e < i", "s = none", "none = s", "5 CONTAINS '5'",
        "(i = 5) CONTAINS 'x'",
        "FALSE AND (e > 5) OR e > 5", "t = FALSE",
    ],
)  # fmt: skip
def test_what_is_false_unknown_or_cannot_be_compared(expression: str) -> None:
    assert not holds(expression)


def test_unknown_is_neither_true_nor_false_in_and_or_not() -> None:
    values = {"TRUE": True, "FALSE": False, "none = 1": None}
    for left, first in values.items():
        for right, second in values.items():
            both = False if first is False or second is False else None if first is None or second is None else True
            either = True if first is True or second is True else None if first is None or second is None else False
            for text, wanted in ((f"({left}) AND ({right})", both), (f"({left}) OR ({right})", either)):
                assert holds(text) is (wanted is True), text
                assert holds(f"NOT ({text})") is (wanted is False), text
                assert holds(f"({text}) IS NULL") is (wanted is None), text


def test_a_comparison_that_cannot_be_made_ends_all_that_is_evaluated_and_no_more() -> None:
    assert holds("i = 5 OR e > 5")
    assert not holds("e > 5 OR i = 5")
    assert not holds("NOT (i = 6 AND e > 5) AND e > 5")
    assert holds("NOT (i = 6 AND e > 5)")


def test_the_last_of_two_properties_with_one_name_counts() -> None:
    assert compile_sql("a = 2").accepts(b"a\x011\x02b\x01x\x02a\x012")


def test_texts_are_compared_as_utf8() -> None:
    assert holds("a = 'шляпа' AND a CONTAINS 'ляп' AND a IN ('шляпа')", a="шляпа")


def test_a_program_looks_up_each_name_once_and_knows_its_cost() -> None:
    program = compile_sql("a > 1 AND (b = 'x' OR a < 100) AND TAGS IS NOT NULL")
    assert program.names == (b"a", b"b", b"TAGS")
    assert program.cost == 14


def test_infinity_and_nan_stand_above_all_numbers() -> None:
    assert holds("a > 5.0 AND a >= 5.0 AND NOT (a < 5.0) AND a <> 5.0", a="NaN")
    assert holds("a > b", a="NaN", b="Infinity")
    assert holds("a > b", a="0.0", b="-0.0")
    assert not holds("a > 5", a="NaN")  # beside an integer it is read as one
