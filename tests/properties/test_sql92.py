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

NAMES = st.sampled_from(["a", "b", "c", "TAGS", "_x$1"])
TEXTS = st.sampled_from(
    ["", "x", "5", "5.0", "true", "True", "it's", "-7", "абв", "5x", "NaN", "Infinity", " 5 ", "1e3", "x5x"]
)
VALUES = st.one_of(
    TEXTS,
    st.integers(-10, 10).map(str),
    st.sampled_from(["2147483648", "9223372036854775808", "0.0", "-0.0", "+5", "5f"]),
)
NUMBERS = st.one_of(
    st.tuples(st.just("int"), st.one_of(st.integers(0, 10), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1])).map(str)),
    st.tuples(st.just("float"), st.sampled_from(["5.0", "0.5", "5.", ".5", "1E3", "7.25"])),
)
LEAVES: st.SearchStrategy[Expression] = st.one_of(
    NAMES.map(lambda name: ("property", name)),
    NAMES.map(lambda name: ("property", name)),
    TEXTS.map(lambda text: ("text", text)),
    NUMBERS,
    st.booleans().map(lambda value: ("bool", value)),
    st.just(("null",)),
)


def grown(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or", "=", "<>", "<", "<=", ">", ">="]), inner, inner),
        st.tuples(
            st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), NAMES.map(lambda name: ("property", name)), NUMBERS
        ),
        st.tuples(st.sampled_from(["not", "minus"]), inner),
        st.tuples(st.just("null?"), inner, st.booleans()),
        st.tuples(st.just("between"), inner, inner, inner, st.booleans()),
        st.tuples(st.just("in"), NAMES, st.lists(TEXTS, min_size=1, max_size=3), st.booleans()),
        st.tuples(st.sampled_from(["contains", "startswith", "endswith"]), inner, TEXTS, st.booleans()),
    )


EXPRESSIONS = st.recursive(LEAVES, grown, max_leaves=12)
PAIRS = st.dictionaries(NAMES, VALUES.filter(bool), max_size=5)


@settings(max_examples=600, deadline=None)
@given(EXPRESSIONS, st.lists(PAIRS, min_size=1, max_size=4))
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
