from __future__ import annotations

import pytest

from gantry.consume.sql92.parser import DEPTH_MAX, NODES_MAX, parse
from gantry.consume.sql92.tokens import SqlError
from gantry.consume.sql92.tree import All, Equal, IsNull, Literal, Not, Order, Property, Some, ValueType, Within

ONE = Literal(ValueType.INTEGER, 1)
A, B, C = (Equal(Property(name), ONE) for name in "abc")


@pytest.mark.parametrize(
    ("expression", "tree"),
    [
        ("a = 1 OR b = 1 AND c = 1", Some((A, All((B, C))))),
        ("(a = 1 OR b = 1) AND c = 1", All((Some((A, B)), C))),
        ("NOT a = 1", Equal(Not(Property("a")), ONE)),
        ("NOT (a = 1)", Not(A)),
        ("a <> 1", Not(A)),
        ("a > 1 = b", Equal(Order(">", Property("a"), ONE), Property("b"))),
        ("a IS NOT NULL", Not(IsNull(Property("a")))),
        ("a NOT IN ('x', 'y')", Within("a", frozenset("xy"), True)),
        (
            "a between 1 and 1 and b",
            All((All((Order(">=", Property("a"), ONE), Order("<=", Property("a"), ONE))), Property("b"))),
        ),
        ("a NOT BETWEEN 1 AND 1", Some((Order("<", Property("a"), ONE), Order(">", Property("a"), ONE)))),
        ("+a = +1", A),
    ],
)
def test_what_binds_how_tightly(expression: str, tree: object) -> None:
    assert parse(expression) == tree


@pytest.mark.parametrize(
    ("expression", "at"),
    [
        ("", 0),
        ("a = ", 4),
        ("a >", 3),
        ("= 1", 0),
        ("a = 1 b = 2", 6),
        ("a == 1", 3),
        ("a LIKE 'x%'", 2),
        ("(a = 1", 6),
        ("a = 1)", 5),
        ("a IN ()", 6),
        ("a IN ('x'", 9),
        ("a IN (1)", 6),
        ("a BETWEEN 1", 11),
        ("a NOT = 1", 2),
        ("a IS 1", 5),
        ("a CONTAINS 1", 11),
        ("a CONTAINS b", 11),
        ("not", 3),
    ],
)
def test_bad_grammar_is_told_where_it_is(expression: str, at: int) -> None:
    with pytest.raises(SqlError, match="expected") as found:
        parse(expression)
    assert found.value.at == at


@pytest.mark.parametrize(
    "expression",
    [
        "5",
        "'x'",
        "-a",
        "a AND 5",
        "'x' OR a",
        "NOT 5",
        "a = NULL",
        "NULL <> a",
        "TRUE = 5",
        "FALSE = 'x'",
        "a > 'x'",
        "TRUE < a",
        "a >= NULL",
        "(a = 1) > 2",
        "a BETWEEN 'x' AND 'y'",
        "a BETWEEN TRUE AND 5",
        "a BETWEEN NULL AND 5",
        "a BETWEEN 5 AND 1",
        "'x' BETWEEN 1 AND 2",
        "5 IN ('x')",
        "-a IN ('x')",
        "(a = 1) IN ('x')",
    ],
)
def test_what_cannot_stand_together_is_refused(expression: str) -> None:
    with pytest.raises(SqlError):
        parse(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "5 = TRUE",
        "TRUE = TRUE",
        "TRUE = (a > 5)",
        "-5 = TRUE",
        "-'x' > 5",
        "a NOT BETWEEN 5 AND 1",
        "a BETWEEN -1 AND -5",
        "NULL IS NULL",
        "5 CONTAINS 'x'",
        "NULL",
        "TRUE",
        "a",
        "a BETWEEN b AND 5",
        "1 < 2 AND a",
    ],
)
def test_what_rocketmq_lets_pass_passes(expression: str) -> None:
    parse(expression)


@pytest.mark.parametrize("link", ["({})", "NOT {}", "- {} = 1", "+{}", "{} = 1", "({} = a)"])
def test_depth_is_bounded_for_brackets_signs_and_chains(link: str) -> None:
    expression = "a"
    for _ in range(500):
        expression = link.format(expression)
    with pytest.raises(SqlError, match=f"more than {DEPTH_MAX}"):
        parse(expression)


def test_a_chain_of_and_is_long_but_not_deep_until_it_has_too_many_parts() -> None:
    assert isinstance(parse(" AND ".join(["a > 5"] * 300)), All)
    with pytest.raises(SqlError, match=f"more than {NODES_MAX}"):
        parse(" OR ".join(["a"] * 2000))


def test_a_list_may_have_a_thousand_texts() -> None:
    found = parse(f"a IN ({', '.join(repr(str(number)) for number in range(1000))})")
    assert isinstance(found, Within) and len(found.texts) == 1000


@pytest.mark.parametrize(
    "expression", ["(" * 16_000, "'" * 16_383, "/*" * 8000, "-" * 16_000, "NOT " * 4000, "a" * 16_384 + "b"]
)
def test_hostile_expressions_are_refused(expression: str) -> None:
    with pytest.raises(SqlError):
        parse(expression)  # backtracking would outlive the test's time
