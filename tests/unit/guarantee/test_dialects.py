"""How statements are rendered for drivers."""

from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import closing

import pytest

from gantry.guarantee import dialects, schema, statements

TEXT = "SELECT :body::jsonb ->> 'a:b' LIKE '5%' AND x = :x OR y = :x"


def test_parameters_are_rendered_and_casts_and_percent_signs_survive() -> None:
    assert dialects.rendered(TEXT, "named") == TEXT
    assert dialects.rendered(TEXT, "pyformat") == (
        "SELECT %(body)s::jsonb ->> 'a:b' LIKE '5%%' AND x = %(x)s OR y = %(x)s"
    )


@pytest.mark.parametrize(
    ("style", "wanted"),
    [
        ("qmark", "SELECT ?::jsonb ->> 'a:b' LIKE '5%' AND x = ? OR y = ?"),
        ("format", "SELECT %s::jsonb ->> 'a:b' LIKE '5%%' AND x = %s OR y = %s"),
        ("numeric", "SELECT :1::jsonb ->> 'a:b' LIKE '5%' AND x = :2 OR y = :3"),
        ("dollar", "SELECT $1::jsonb ->> 'a:b' LIKE '5%' AND x = $2 OR y = $3"),
    ],
)
def test_a_driver_with_places_gets_the_names_in_their_order(style: str, wanted: str) -> None:
    assert dialects.positional(TEXT, style) == (wanted, ("body", "x", "x"))


def test_every_statement_can_be_run_by_a_driver_with_places() -> None:
    named = statements.statements(dialects.SQLITE, "named")
    with closing(sqlite3.connect(":memory:")) as connection:
        for text in schema.create(dialects.SQLITE):
            connection.execute(text)
        for field in dataclasses.fields(named):
            found = getattr(named, field.name)
            for each in (found,) if isinstance(found, str) else found:
                text, names = dialects.positional(each, "qmark")
                values = ["[]" if name in ("places", "consumer_groups") else 1 for name in names]
                connection.execute(f"EXPLAIN {text}", values)


def test_a_dialect_is_found_by_its_name_and_others_are_named() -> None:
    assert dialects.dialect_of("mariadb") is dialects.MARIADB
    with pytest.raises(ValueError, match="no dialect 'oracle'; there are postgresql, sqlite, mysql, mariadb"):
        dialects.dialect_of("oracle")


@pytest.mark.parametrize("dialect", dialects.DIALECTS, ids=lambda each: each.name)
def test_statements_have_the_usual_drivers_style_or_the_given_one(dialect: dialects.Dialect) -> None:
    named = statements.statements(dialect, "named")
    assert named.confirm.count(":message_id") == 1
    usual = statements.statements(dialect).confirm
    assert usual == named.confirm if dialect.style == "named" else "%(message_id)s" in usual
    with pytest.raises(ValueError, match="parameter style 'qmark': there are named, pyformat; others by"):
        statements.statements(dialect, "qmark")
