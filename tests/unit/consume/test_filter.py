from __future__ import annotations

import pytest

from gantry.consume.filter import is_tag_filter, wanted_by
from gantry.consume.sql92.program import Program
from gantry.errors import Refusal
from gantry.wire.codes import ResponseCode


@pytest.mark.parametrize("expression", [None, "", "*"])
@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_no_expression_and_a_star_mean_every_message(expression: str | None, expression_type: str | None) -> None:
    assert wanted_by(expression_type, expression) is None


def test_tags_become_the_hashes_of_their_trimmed_texts() -> None:
    assert wanted_by("TAG", " A || B||  C D ") == frozenset({65, 66, 67 * 961 + 32 * 31 + 68})


def test_a_hash_is_signed_as_it_stands_in_the_queue() -> None:
    codes = wanted_by("TAG", "polygenelubricants")  # the classic text whose Java hash is the smallest integer
    assert codes == frozenset({-(2**31)})


@pytest.mark.parametrize("expression", ["||", " || || ", "   "])
def test_separators_alone_do_not_parse(expression: str) -> None:
    refusal = wanted_by("TAG", expression)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_another_language_without_an_expression_does_not_parse() -> None:
    refusal = wanted_by("SQL92", "")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_another_language_is_refused_by_name() -> None:
    refusal = wanted_by("JAVASCRIPT", "a > 5")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "JAVASCRIPT" in refusal.remark


def test_an_sql_expression_becomes_a_program_that_names_its_properties() -> None:
    program = wanted_by("SQL92", "a > 5 AND b = 'x' OR a < 0")
    assert isinstance(program, Program)
    assert program.names == (b"a", b"b")
    assert program.accepts(b"x\x01y\x02a\x016\x02b\x01x\x02")


def test_an_sql_expression_that_does_not_compile_is_refused_with_the_place_of_the_fault() -> None:
    refusal = wanted_by("SQL92", "a >> 5")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "position 3" in refusal.remark


def test_the_language_is_exactly_tag_or_not_said() -> None:
    assert [is_tag_filter(text) for text in (None, "", "TAG", "tag", "SQL92")] == [True, True, True, False, False]
