from __future__ import annotations

import pytest

from gantry.consume.filter import codes_of, is_tag_filter
from gantry.errors import Refusal
from gantry.wire.codes import ResponseCode


@pytest.mark.parametrize("expression", [None, "", "*"])
@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_no_expression_and_a_star_mean_every_message(expression: str | None, expression_type: str | None) -> None:
    assert codes_of(expression_type, expression) is None


def test_tags_become_the_hashes_of_their_trimmed_texts() -> None:
    assert codes_of("TAG", " A || B||  C D ") == frozenset({65, 66, 67 * 961 + 32 * 31 + 68})


def test_a_hash_is_signed_as_it_stands_in_the_queue() -> None:
    codes = codes_of("TAG", "polygenelubricants")  # the classic text whose Java hash is the smallest integer
    assert codes == frozenset({-(2**31)})


@pytest.mark.parametrize("expression", ["||", " || || ", "   "])
def test_separators_alone_do_not_parse(expression: str) -> None:
    refusal = codes_of("TAG", expression)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_another_language_without_an_expression_does_not_parse() -> None:
    refusal = codes_of("SQL92", "")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_another_language_is_refused_by_name() -> None:
    refusal = codes_of("SQL92", "a > 5")
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert "SQL92" in refusal.remark


def test_the_language_is_exactly_tag_or_not_said() -> None:
    assert [is_tag_filter(text) for text in (None, "", "TAG", "tag", "SQL92")] == [True, True, True, False, False]
