"""Filters on properties against a second evaluator that shares nothing with the first, and on nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantry.consume.sql92.program import compile_sql
from gantry.consume.sql92.tokens import SqlError, tokens
from gantry.leaves import properties
from testkit import referencesql
from testkit.referencesql import Expression
from testkit.sqlexpressions import MESSAGES, expressions

EXPRESSIONS = expressions()


@settings(max_examples=600, deadline=None)
@given(EXPRESSIONS, st.lists(MESSAGES, min_size=1, max_size=4))
def test_every_expression_means_what_the_reference_says(expression: Expression, messages: list[dict[str, str]]) -> None:
    text = referencesql.sql(expression)
    if not referencesql.compiles(expression):
        with pytest.raises(SqlError):
            compile_sql(text)
        return
    program = compile_sql(text)
    for pairs in messages:
        wanted = referencesql.outcome(expression, pairs)
        assert program.accepts(properties.pack(pairs)) is (wanted is True), (text, pairs, wanted)
        # False, unknown and what raises look the same from outside but for their negations.
        if expression[0] != "null":
            negated = compile_sql(f"NOT ({text})")
            assert negated.accepts(properties.pack(pairs)) is (wanted is False), (text, pairs, wanted)
        unknown = compile_sql(f"({text}) IS NULL") if expression[0] != "property" else None
        assert unknown is None or unknown.accepts(properties.pack(pairs)) is (wanted is None), (text, pairs, wanted)


WORDS = st.sampled_from(
    ["a", "b", "5", "5.5", "'x'", "AND", "or", "NOT", "(", ")", "=", "<>", ">", "-", "+", "IN", ",", "BETWEEN", "IS",
     "NULL", "TRUE", "CONTAINS", "--", "/*", "*/", "\n", "!", "LIKE"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.lists(WORDS, max_size=20).map(" ".join), st.text(max_size=40)), st.binary(max_size=60))
def test_nonsense_compiles_or_is_refused_with_a_place_and_never_raises_for_a_message(text: str, packed: bytes) -> None:
    try:
        program = compile_sql(text)
    except SqlError as error:
        assert 0 <= error.at <= len(text)
        return
    assert program.accepts(packed) in (True, False)


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS)
def test_blanks_comments_and_case_of_words_mean_nothing(expression: Expression) -> None:
    text = referencesql.sql(expression)
    words = [token.text if token.kind.startswith("a ") else token.text.lower() for token in tokens(text)[:-1]]
    again = " /* - */\n".join(words)
    assert [(token.kind, token.value) for token in tokens(again)] == [
        (token.kind, token.value) for token in tokens(text)
    ]
