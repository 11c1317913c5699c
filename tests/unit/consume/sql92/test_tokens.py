from __future__ import annotations

import pytest

from gantry.consume.sql92.tokens import EXPRESSION_CHARS_MAX, WORDS_MAX, SqlError, tokens


def words(expression: str) -> list[tuple[str, object]]:
    return [(token.kind, token.value or token.text) for token in tokens(expression)][:-1]


def test_every_kind_of_word() -> None:
    assert words("a_$1 = 'x''y' and 12L<>.5E1") == [
        ("a name", "a_$1"), ("=", "="), ("a text", "x'y"), ("AND", "and"), ("an integer", 12), ("<>", "<>"),
        ("a number", 5.0),
    ]  # fmt: skip


def test_reserved_words_are_so_in_any_case_and_names_are_not() -> None:
    assert words("Not nOT a A") == [("NOT", "Not"), ("NOT", "nOT"), ("a name", "a"), ("a name", "A")]


@pytest.mark.parametrize(
    "expression", ["a /* = 'b' */ = 1", "a -- = 2\n= 1", "a\t=\r\n\f1", "a = 1 -- end", "a = 1 /***/"]
)
def test_comments_and_blanks_part_words(expression: str) -> None:
    assert words(expression) == [("a name", "a"), ("=", "="), ("an integer", 1)]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("5.", [5.0]),
        ("5E", [5, "E"]),
        ("5.5.5", [5.5, 0.5]),
        ("007", ["0", "0", 7]),
        ("1e3x", [1000.0, "x"]),
        ("0L", ["0L"]),
    ],
)
def test_the_longest_word_wins(expression: str, values: list[object]) -> None:
    assert [value for _, value in words(expression)] == values


@pytest.mark.parametrize(
    ("expression", "at", "hint"),
    [
        ("a != 1", 2, "write <>"),
        ("a = 1 && b", 6, "write AND"),
        ("a || b", 2, "write OR"),
        ('a = "x"', 4, "single quotes"),
        ("a = 'x", 4, "not closed"),
        ("a /* b", 2, "not closed"),
        ("a = 1;", 5, "';'"),
        ("ä = 1", 0, "means nothing"),
        ("a = 9223372036854775808", 4, "64 bits"),
        ("a = 0.0", 4, "without a point"),
        ("a = 1e999", 4, "double"),
        ("a = '\ud800'", 5, "surrogate"),
    ],
)
def test_what_is_no_word_is_named_with_its_place(expression: str, at: int, hint: str) -> None:
    with pytest.raises(SqlError, match=hint) as found:
        tokens(expression)
    assert found.value.at == at
    assert f"position {at}:" in str(found.value)


def test_an_expression_has_so_many_words_at_most() -> None:
    assert len(tokens("a " * WORDS_MAX)) == WORDS_MAX + 1
    with pytest.raises(SqlError, match="more than 4096 words"):
        tokens("(" * (WORDS_MAX + 1))


def test_an_expression_has_a_longest_length() -> None:
    assert tokens(" " * EXPRESSION_CHARS_MAX)
    with pytest.raises(SqlError, match="the limit is"):
        tokens(" " * (EXPRESSION_CHARS_MAX + 1))
