"""Expressions for `referencesql`, and messages for them, as Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

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


def grown(inner: st.SearchStrategy[Expression], with_parts: bool) -> st.SearchStrategy[Expression]:
    """One node more."""
    found = [
        st.tuples(st.sampled_from(["and", "or", "=", "<>", "<", "<=", ">", ">="]), inner, inner),
        st.tuples(
            st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), NAMES.map(lambda name: ("property", name)), NUMBERS
        ),
        st.tuples(st.sampled_from(["not", "minus"]), inner),
        st.tuples(st.just("null?"), inner, st.booleans()),
        st.tuples(st.just("between"), inner, inner, inner, st.booleans()),
        st.tuples(st.just("in"), NAMES, st.lists(TEXTS, min_size=1, max_size=3), st.booleans()),
    ]
    if with_parts:
        found.append(st.tuples(st.sampled_from(["contains", "startswith", "endswith"]), inner, TEXTS, st.booleans()))
    return st.one_of(found)



def expressions(with_parts: bool = True) -> st.SearchStrategy[Expression]:
    """All kinds of them, or without CONTAINS and its kin, which RocketMQ has since 5.2."""
    return st.recursive(LEAVES, lambda inner: grown(inner, with_parts), max_leaves=12)


MESSAGES = st.dictionaries(NAMES, VALUES.filter(bool), max_size=5)
