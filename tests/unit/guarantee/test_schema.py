"""The guarantee's tables: what makes them, and the document that shows them; on databases: tests/scenarios."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from gantry.guarantee import dialects, schema, statements
from testkit.sources import ROOT, SOURCE

DOCUMENT = ROOT / "broker/docs/guarantee.md"


def test_the_guarantee_needs_nothing_but_the_standard_library() -> None:
    modules = "dialects, migration, rules, schema, statements"
    code = f"import sys; from gantry.guarantee import {modules}; "
    code += "print(*(n for n in ('psycopg', 'sqlite3', 'pymysql', 'redis') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=SOURCE, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_new_database_gets_the_tables_and_the_version() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in schema.create(dialects.SQLITE):
            connection.execute(statement)
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert names == {table.name for table in schema.TABLES}
        version = statements.statements(dialects.SQLITE).version
        assert connection.execute(version).fetchall() == [(schema.VERSION, 0)]


@pytest.mark.parametrize("dialect", [dialects.MYSQL, dialects.MARIADB], ids=lambda each: each.name)
def test_without_ddl_in_transactions_each_statement_may_be_repeated(dialect: dialects.Dialect) -> None:
    *tables, version = schema.create(dialect)
    assert all(each.startswith("CREATE TABLE IF NOT EXISTS ") for each in tables)
    assert "WHERE NOT EXISTS" in version


def test_no_key_of_mysql_is_longer_than_it_allows() -> None:
    bytes_of = {"{key}": 4 * schema.KEY_CHARACTERS_MAX + 2, "{broker}": 4 * schema.BROKER_CHARACTERS_MAX + 2}
    bytes_of |= {"{word}": 4 * 16 + 2, "BIGINT": 8, "INTEGER": 4}
    for table in schema.TABLES:
        kinds = dict(line.split()[:2] for line in table.body.split("\n") if line.startswith("    ") and " NULL" in line)
        for index in table.indexes:
            columns = (index.instead or index.columns).split(", ")
            assert sum(bytes_of[kinds[column].rstrip(",")] for column in columns) <= 3072, index.name


def test_the_document_shows_the_tables_as_they_are_made() -> None:
    made = ";\n\n".join(schema.create(dialects.POSTGRESQL)) + ";\n"
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"```sql\n{made}```" in text, f"broker/docs/guarantee.md should show\n{made}"
    sqlite = schema.create(dialects.SQLITE)
    assert sqlite == [each.replace("BYTEA", "BLOB") for each in schema.create(dialects.POSTGRESQL)]


def test_the_document_shows_the_five_conditions() -> None:
    text = statements.deliveries_where(statements.CONDITIONS.values())
    assert f"```sql\n{text};\n```" in DOCUMENT.read_text(encoding="utf-8"), text


def test_the_document_names_only_statements_that_there_are() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names = set(statements.Statements.__dataclass_fields__)
    for name in ("stub_for", "place_all", "void", "revert", "refuse", "log_begun", "suspect", "take", "tell", "told"):
        assert name in names and name in text
