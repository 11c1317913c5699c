"""Tables of version 1 become version 2, on SQLite and PostgreSQL: broken off at each statement, and under load."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from gantry.guarantee import dialects, migration, rules, schema, statements
from gantry.guarantee.migration import GroupOfTopic
from testkit import guaranteefirst as first
from testkit.guaranteetables import BY
from testkit.mysqlserver import running_mariadb
from testkit.patience import HANG_S
from testkit.postgres import Postgres, running_postgres

WANTED = (GroupOfTopic("Orders", "packing", "retry"), GroupOfTopic("Orders", "billing", "topic"))
NOW = 1_000
Connect = Callable[[], Any]
_NAMES = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dialects.Dialect, Callable[[], Connect]]]:
    """A dialect, and what makes an empty database of it."""
    dialect = dialects.dialect_of(request.param)
    if dialect is dialects.SQLITE:
        yield dialect, lambda: partial(sqlite3.connect, tmp_path / f"{next(_NAMES)}.db")
    else:
        server = request.getfixturevalue("server")
        yield dialect, lambda: partial(psycopg.connect, server.database())


@contextmanager
def opened(connect: Connect) -> Iterator[Any]:
    with closing(connect()) as connection:
        yield connection


def run(connection: Any, dialect: dialects.Dialect, text: str, **parameters: object) -> int:
    cursor = connection.cursor()
    cursor.execute(dialects.rendered(text, dialect.style), parameters)
    return int(cursor.rowcount)


def ask(connection: Any, text: str) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(text)
    return [tuple(row) for row in cursor.fetchall()]


def fill(connect: Connect, dialect: dialects.Dialect, confirmed: int = 3) -> None:
    """Tables of version 1, and what two groups have seen of their messages.

    `done-*` are confirmed, seen by packing, every second one by billing too, the third by nobody; `open`, `nowhere`,
    `void`; `stuck` was logged by billing and is not confirmed; `return` is of a topic that only packing has consumed.
    """
    with opened(connect) as connection:
        for statement in first.create(dialect.blob):
            run(connection, dialect, statement)
        names = [f"done-{number}" for number in range(confirmed)]
        for name in (*names, "open", "nowhere", "void", "stuck", "return"):
            topic = "Returns" if name == "return" else "Orders"
            content = {"topic": topic, "body": b"\0" + name.encode(), "message_keys": "k", "tags": "t"}
            times = {"next_resend_at_ms": 60, "created_at_ms": 5}
            run(connection, dialect, first.STUB, message_id=name, properties="{}", **content, **times)
        for name in (*names, "open", "stuck"):
            run(connection, dialect, first.PLACE, message_id=name, broker="b", queue_id=0, queue_offset=4)
        seen = [("packing", name) for name in names if name != "done-2"] + [("billing", name) for name in names[::2]]
        seen = [each for each in seen if each != ("billing", "done-2")]
        for offset, (group, name) in enumerate([*seen, ("billing", "stuck"), ("packing", "of others")]):
            place = {"topic": "Orders", "broker": "b", "queue_id": 0, "queue_offset": offset, "received_at_ms": 7}
            run(connection, dialect, first.LOG, consumer_group=group, message_id=name, **place)
        place["topic"] = "Returns"
        run(connection, dialect, first.LOG, consumer_group="packing", message_id="another", **place)
        for name in names:
            assert run(connection, dialect, first.CONFIRM, message_id=name) == 1
        assert run(connection, dialect, first.VOID, message_id="void") == 1
        assert run(connection, dialect, first.CLAIM, message_id="open", resends=0, next_resend_at_ms=90) == 1
        connection.commit()


def dump(connect: Connect) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of version 2."""
    with opened(connect) as connection:
        names = [table.name for table in schema.TABLES]
        return {name: sorted(ask(connection, f"SELECT * FROM {name}"), key=repr) for name in names}


def shape(connect: Connect, dialect: dialects.Dialect) -> list[tuple[Any, ...]]:
    """Columns, constraints and indexes of all tables."""
    with opened(connect) as connection:
        if dialect is dialects.SQLITE:
            columns = "SELECT m.name, p.name, p.type, p.\"notnull\", p.dflt_value, p.pk FROM sqlite_master m, "
            columns += "pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY m.name, p.cid"
            indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
            return [*ask(connection, columns), *ask(connection, indexes)]
        columns = "SELECT table_name, column_name, data_type, is_nullable, column_default"
        columns += " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, ordinal_position"
        constraints = "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        constraints += " WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'p') ORDER BY 1, 2"
        indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"
        return [*ask(connection, columns), *ask(connection, constraints), *ask(connection, indexes)]


def migrate(connect: Connect, dialect: dialects.Dialect) -> int:
    with opened(connect) as connection:
        return migration.install(connection, dialect, NOW, WANTED)


def emptied(connect: Connect, dialect: dialects.Dialect, database: Callable[[], Connect]) -> Connect:
    """An empty database: the same one on PostgreSQL, which takes a second to make another."""
    if dialect is dialects.SQLITE:
        return database()
    with opened(connect) as connection:
        run(connection, dialect, "DROP SCHEMA public CASCADE")
        run(connection, dialect, "CREATE SCHEMA public")
        connection.commit()
    return connect


class BrokenError(Exception):
    """The process died."""


class Dying:
    """A connection that dies before its n-th statement; what was not committed is lost."""

    def __init__(self, connection: Any, statements_left: int) -> None:
        self._connection = connection
        self.left = statements_left
        self._is_closed = False

    def cursor(self) -> Any:
        return DyingCursor(self, self._connection.cursor())

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()


class DyingCursor:
    def __init__(self, owner: Dying, cursor: Any) -> None:
        self._owner, self._cursor = owner, cursor
        self.fetchall = cursor.fetchall

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, *given: Any) -> Any:
        if not self._owner.left:
            self._owner.close()
            raise BrokenError
        self._owner.left -= 1
        return self._cursor.execute(*given)


def test_what_version_1_knew_is_there_by_group(made: tuple[dialects.Dialect, Callable[[], Connect]]) -> None:
    dialect, database = made
    fill(connect := database(), dialect)
    assert migrate(connect, dialect) == 5 + 3
    rows = dump(connect)
    stubs = {row[0]: (row[6], bytes(row[2])) for row in rows["guarantee_stub"]}
    assert {name: status for name, (status, _) in stubs.items()} == {
        "done-0": "legacy", "done-1": "legacy", "done-2": "legacy", "open": "open", "nowhere": "open", "void": "void",
        "stuck": "open", "return": "open",
    }  # fmt: skip
    assert all(body == b"\0" + name.encode() for name, (_, body) in stubs.items())
    states = {(row[0], row[1]): row[2] for row in rows["guarantee_delivery"]}
    both = {(name, group): name for name in ("open", "nowhere", "void", "stuck") for group in ("packing", "billing")}
    assert states == {
        ("done-0", "packing"): "confirmed", ("done-0", "billing"): "confirmed",
        ("done-1", "packing"): "confirmed", ("done-1", "billing"): "legacy",
        ("done-2", "packing"): "legacy", ("done-2", "billing"): "legacy",
        ("return", "packing"): "open", **{key: "void" if name == "void" else "open" for key, name in both.items()},
    }  # fmt: skip
    ways = {(row[0], row[1]): row[3] for row in rows["guarantee_delivery"]}
    assert (ways["open", "packing"], ways["open", "billing"], ways["return", "packing"]) == ("retry", "topic", "topic")
    resent = {row[0]: (row[4], row[7], row[8:12]) for row in rows["guarantee_delivery"] if row[1] == "packing"}
    assert resent["open"] == (1, 90, ("Orders", "b", 0, 4)) and resent["nowhere"][2] == (None,) * 4
    effects = {(row[0], row[1]): row[7] for row in rows["guarantee_log"]}
    assert effects.pop(("billing", "stuck")) == "unknown" and set(effects.values()) == {"done"} and len(effects) == 5
    assert migrate(connect, dialect) == 0


def test_migrated_tables_are_like_new_ones(made: tuple[dialects.Dialect, Callable[[], Connect]]) -> None:
    dialect, database = made
    fill(old := database(), dialect)
    migrate(old, dialect)
    migrate(new := database(), dialect)
    assert shape(old, dialect) == shape(new, dialect)


def test_it_goes_on_after_it_was_broken_off_at_any_statement(
    made: tuple[dialects.Dialect, Callable[[], Connect]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "_FIRST", migration._FIRST.replace(str(migration.MOVED_MAX), "2"))
    dialect, database = made
    fill(whole := database(), dialect)
    migrate(whole, dialect)
    wanted = dump(whole)
    connect = database()
    for number in itertools.count():
        connect = emptied(connect, dialect, database)
        fill(connect, dialect)
        dying = Dying(connect(), number)
        try:
            migration.install(dying, dialect, NOW, WANTED)
        except BrokenError:
            assert not dying.left
        else:
            dying.close()
            assert number > 40
            return
        with opened(connect) as looking:
            found = migration.found_version(looking.cursor(), dialect)[0]
            looking.rollback()
            names = ("message_stub", "message_log") if found == 1 else ("guarantee_delivery", "guarantee_log")
            assert all(ask(looking, f"SELECT count(*) FROM {name}")[0][0] for name in names)
        assert migrate(connect, dialect) >= 0
        assert dump(connect) == wanted, f"after {number} statements"


def test_writers_of_version_1_are_refused_and_nothing_of_theirs_is_written(
    made: tuple[dialects.Dialect, Callable[[], Connect]],
) -> None:
    dialect, database = made
    fill(connect := database(), dialect)
    migrate(connect, dialect)
    before = dump(connect)
    values = {"message_id": "late", "topic": "Orders", "body": b"x", "message_keys": "", "tags": "", "properties": "{}"}
    values |= {"next_resend_at_ms": 1, "created_at_ms": 1, "resends": 0}
    values |= {"broker": "b", "queue_id": 0, "queue_offset": 1}
    values |= {"consumer_group": "packing", "received_at_ms": 1}
    for name, text in {**first.STATEMENTS, "missing": first.MISSING}.items():
        with opened(connect) as connection:
            with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable), match=r"message_(stub|log)"):
                run(connection, dialect, text, **values)
            connection.rollback()
            assert ask(connection, "SELECT version FROM message_guarantee") == [(2,)], name
    assert dump(connect) == before


def test_a_topic_with_open_stubs_and_no_group_stops_it_before_anything_is_changed(
    made: tuple[dialects.Dialect, Callable[[], Connect]],
) -> None:
    dialect, database = made
    fill(connect := database(), dialect)
    with opened(connect) as connection:
        run(connection, dialect, "UPDATE message_stub SET topic = 'Refunds' WHERE message_id = 'open'")
        connection.commit()
        with pytest.raises(migration.MigrationError, match="consumer group: Refunds; declare the groups"):
            migration.install(connection, dialect, NOW, WANTED)
        assert migration.found_version(connection.cursor(), dialect) == (1, False)
        assert ask(connection, "SELECT count(*) FROM message_stub") == [(8,)]
        connection.rollback()
        migration.install(connection, dialect, NOW, WANTED, "refunding")
        say = statements.statements(dialect)
        connection.rollback()
        assert ("Refunds", "refunding", "topic") in ask(connection, say.declared)


def test_what_is_legacy_is_never_sent_and_has_its_effect_when_a_copy_comes(
    made: tuple[dialects.Dialect, Callable[[], Connect]],
) -> None:
    dialect, database = made
    fill(connect := database(), dialect)
    migrate(connect, dialect)
    say = statements.statements(dialect)
    with opened(connect) as connection:
        cursor = connection.cursor()
        for group, wanted in (("packing", ["nowhere", "return"]), ("billing", ["nowhere"])):
            rules_of = {"consumer_group": group, "now_ms": 999, "resends_max": 9, "rows_max": 99}
            cursor.execute(say.missing, rules_of)
            assert sorted(row[0] for row in cursor.fetchall()) == wanted
        this = {"message_id": "done-1", "consumer_group": "billing"}
        cursor.execute(say.verdict, this)
        assert rules.may_have_effect(cursor.fetchall())
        cursor.execute(say.confirm, {**this, "now_ms": 1, "changed_by": BY})
        assert cursor.rowcount == 1


def test_two_who_migrate_at_once_do_it_once_while_writers_of_version_1_end_or_fail(server: Postgres) -> None:
    dialect = dialects.POSTGRESQL
    connect = partial(psycopg.connect, server.database())
    fill(connect, dialect, confirmed=3_000)
    written, refused = [], threading.Event()

    def write() -> None:
        values = {"topic": "Orders", "body": b"x", "message_keys": "", "tags": "", "properties": "{}"}
        times = {"next_resend_at_ms": 1, "created_at_ms": 1}
        with opened(connect) as connection:
            for number in itertools.count():
                try:
                    run(connection, dialect, first.STUB, message_id=f"new-{number}", **values, **times)
                    connection.commit()
                except psycopg.errors.UndefinedTable:
                    refused.set()
                    return
                written.append(f"new-{number}")

    moved: list[int] = []
    threads = [threading.Thread(target=write)]
    threads[0].start()
    threads += [threading.Thread(target=lambda: moved.append(migrate(connect, dialect))) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert refused.is_set() and sum(moved) == 3_000 + 5 + len(written)
    rows = dump(connect)
    open_ = {row[0] for row in rows["guarantee_delivery"] if row[2] == "open" and row[1] == "packing"}
    assert open_ >= set(written) and len(rows["guarantee_stub"]) == 3_005 + len(written)


def test_on_mariadb_the_tables_are_made_though_it_was_broken_off_at_any_statement() -> None:
    with running_mariadb() as server:
        for number in itertools.count():
            connect = partial(server.connect, server.database())
            dying = Dying(connect(), number)
            try:
                migration.install(dying, dialects.MARIADB, NOW, WANTED)
            except BrokenError:
                assert not dying.left
            else:
                dying.close()
                assert number > len(schema.TABLES)
                return
            with opened(connect) as connection:
                migration.install(connection, dialects.MARIADB, NOW, WANTED)
                assert migration.found_version(connection.cursor(), dialects.MARIADB) == (2, False)
                assert ask(connection, "SELECT version FROM message_guarantee") == [(2,)]
                assert len(ask(connection, "SELECT topic FROM guarantee_group")) == len(WANTED)


def test_tables_of_a_newer_release_are_refused_with_what_to_do() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE message_guarantee (version INTEGER)")
        connection.execute("INSERT INTO message_guarantee VALUES (3)")
        connection.commit()
        with pytest.raises(migration.MigrationError, match="3, this release knows up to 2; install a newer one"):
            migration.install(connection, dialects.SQLITE, NOW)
    with pytest.raises(migration.MigrationError, match="version 1, this release works with 2; migrate them first"):
        migration.check_version(1)
