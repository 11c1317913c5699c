"""Brings a database's tables to the present version: from nothing, or from version 1; broken off anywhere, it goes on.

Each pass is one transaction under one lock, and begins by looking at what is there.  From nothing: all tables.  From
version 1, which existed on PostgreSQL and SQLite:

    open    one pass: message_stub and message_log get other names, so that writers of version 1 are refused from
            its COMMIT on; the log becomes guarantee_log; unconfirmed and void stubs are moved; the version is 2
    move    one pass for each thousand confirmed stubs, while producers, consumers and resends work already
    end     one pass: what is left of version 1 is dropped

Nothing of version 1 is lost.  It knew one status for all groups, so a confirmed stub stays confirmed for the groups
that logged it, and is 'legacy' for the others: never sent again.  An unconfirmed stub is open for every group that is
declared for its topic or has logged any message of the topic.  Of its log rows it is not known whether they had their
effect: they become 'unknown', for a person.

A connection is any of the DB-API (PEP 249); `install` begins and ends transactions on it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from gantry.guarantee import schema
from gantry.guarantee.dialects import POSTGRESQL, SQLITE, Dialect, rendered
from gantry.guarantee.statements import statements

MOVED_MAX = 1000
_BY = "version 1"
_FIRST = f"(SELECT * FROM message_stub_v1 ORDER BY message_id LIMIT {MOVED_MAX})"
_CONTENT = "message_id, topic, body, message_keys, tags, properties"
_WAY = """COALESCE((SELECT g.resend_by FROM guarantee_group g
        WHERE g.topic = v.topic AND g.consumer_group = w.consumer_group), 'topic')"""
_STUBS = f"""
INSERT INTO guarantee_stub ({_CONTENT}, status, groups_expected, created_at_ms, changed_at_ms, changed_by)
SELECT {_CONTENT}, {{status}}, {{groups}}, created_at_ms, :now_ms, '{_BY}' FROM {{stubs}} v"""
_DELIVERY = """
INSERT INTO guarantee_delivery (message_id, consumer_group, state, resend_by, resends, next_resend_at_ms,
    copy_topic, broker, queue_id, queue_offset, created_at_ms, changed_at_ms, changed_by)
SELECT v.message_id, w.consumer_group, {state}, {way}, v.resends, v.next_resend_at_ms,
    CASE WHEN v.queue_offset IS NOT NULL THEN v.topic END, v.broker, v.queue_id, v.queue_offset,
    v.created_at_ms, :now_ms, '{by}'
FROM {stubs} v {groups}"""
# Groups of a topic in version 1: declared now, or seen in its log.
_WANTED = """(SELECT topic, consumer_group FROM guarantee_group
    UNION SELECT topic, consumer_group FROM guarantee_group_v1)"""
_OPEN_STUBS = "(SELECT * FROM message_stub_v1 WHERE status <> 'confirmed')"
_HAS_LOGGED = "SELECT 1 FROM guarantee_log l WHERE l.message_id = v.message_id AND l.consumer_group = w.consumer_group"
_LOG_COLUMNS = (
    "effect TEXT NOT NULL DEFAULT 'done' CONSTRAINT guarantee_log_effect "
    "CHECK (effect IN ('processing', 'done', 'unknown', 'refused'))",
    "owner TEXT NOT NULL DEFAULT ''",
    "owner_until_ms BIGINT NOT NULL DEFAULT 0",
    "duplicates INTEGER NOT NULL DEFAULT 0",
)


class SqlCursor(Protocol):
    """What the cursors of all drivers have."""

    rowcount: int

    def execute(self, text: str, parameters: Any = ..., /) -> Any:
        """Run one statement."""

    def fetchall(self) -> Any:
        """Return the rows of the last one."""


class SqlConnection(Protocol):
    """What the connections of all drivers have."""

    def cursor(self) -> Any:
        """Open a cursor."""


class MigrationError(Exception):
    """Tables cannot be brought to the present version; nothing was changed.  The text says what to do."""


@dataclass(frozen=True, slots=True)
class GroupOfTopic:
    """A declaration: messages of `topic` are for `consumer_group`, which gets resends by 'retry', 'pop' or 'topic'."""

    topic: str
    consumer_group: str
    resend_by: str = "retry"


def check_version(version: int) -> None:
    """Raise MigrationError when tables of this version are not those of this release."""
    if version > schema.VERSION:
        raise MigrationError(
            f"the tables have version {version}, this release knows up to {schema.VERSION}; install a newer one"
        )
    if version < schema.VERSION:
        raise MigrationError(
            f"the tables have version {version}, this release works with {schema.VERSION}; migrate them first"
        )


def install(
    connection: SqlConnection,
    dialect: Dialect,
    now_ms: int,
    groups: Iterable[GroupOfTopic] = (),
    fallback_group: str = "",
    may_migrate: bool = True,
) -> int:
    """Make or migrate the tables, and declare `groups`; return how many stubs of version 1 were moved.

    `fallback_group` is the group for topics of version 1 that have unconfirmed stubs and no group at all.  Call it
    again after any failure.  Two callers at once: the second one waits, and finds everything done.  With
    `may_migrate=False` tables of version 1 are a MigrationError: a migration stops all writers of version 1.
    """
    cursor = connection.cursor()
    moved = 0
    wanted = tuple(groups)
    while True:
        _begin(cursor, dialect)
        try:
            found = found_version(cursor, dialect)
            if found[0] and not may_migrate:
                check_version(found[0])
            count = _pass(cursor, dialect, found, (wanted, fallback_group), now_ms)
        except BaseException:
            _end(cursor, dialect, "ROLLBACK")
            raise
        _end(cursor, dialect, "COMMIT")
        moved += max(count, 0)
        if count < 0:
            return moved


def found_version(cursor: SqlCursor, dialect: Dialect) -> tuple[int, bool]:
    """Return the version of the tables, 0 without any, and whether rows of an older one are left to be moved."""
    if not _has(cursor, dialect, "message_guarantee"):
        return 0, False
    cursor.execute("SELECT version FROM message_guarantee")
    rows = cursor.fetchall()
    version = rows[0][0] if rows else 0
    if version < schema.VERSION:
        return version, False
    if version > schema.VERSION:
        check_version(version)
    cursor.execute("SELECT unfinished FROM message_guarantee")
    return version, bool(cursor.fetchall()[0][0])


def _pass(
    cursor: SqlCursor,
    dialect: Dialect,
    found: tuple[int, bool],
    wanted: tuple[tuple[GroupOfTopic, ...], str],
    now_ms: int,
) -> int:
    """One transaction's work; return how many stubs it moved, -1 when nothing is left to do."""
    version, is_unfinished = found
    if is_unfinished:
        return _move(cursor, dialect, now_ms)
    if version == 1:
        return _open(cursor, dialect, wanted, now_ms)
    if version == 0:
        for statement in schema.create(dialect):
            cursor.execute(statement)
    _declare(cursor, dialect, wanted[0], now_ms)
    return -1


def _open(
    cursor: SqlCursor, dialect: Dialect, wanted: tuple[tuple[GroupOfTopic, ...], str], now_ms: int
) -> int:
    """The first pass from version 1."""
    for statement in _renamed(dialect):
        cursor.execute(statement)
    for table in (schema.STUB, schema.DELIVERY, schema.GROUP, schema.PROGRESS):
        for statement in schema.table_statements(dialect, table):
            cursor.execute(statement)
    cursor.execute("CREATE TABLE guarantee_group_v1 AS SELECT DISTINCT topic, consumer_group FROM guarantee_log")
    groups, fallback = wanted
    _declare(cursor, dialect, groups, now_ms)
    cursor.execute(
        f"SELECT DISTINCT v.topic FROM message_stub_v1 v WHERE v.status = 'unconfirmed'\n"
        f"AND NOT EXISTS (SELECT 1 FROM {_WANTED} w WHERE w.topic = v.topic) ORDER BY v.topic"
    )
    without = [str(row[0]) for row in cursor.fetchall()]
    if without and not fallback:
        raise MigrationError(
            f"topics with unconfirmed stubs and without any consumer group: {', '.join(without)};"
            " declare the groups that have to handle them"
        )
    _declare(cursor, dialect, [GroupOfTopic(topic, fallback, "topic") for topic in without], now_ms)
    count = f"(SELECT COUNT(*) FROM {_WANTED} w WHERE w.topic = v.topic)"
    status = "CASE status WHEN 'void' THEN 'void' ELSE 'open' END"
    of_topic = f"JOIN {_WANTED} w ON w.topic = v.topic"
    _run(cursor, dialect, _STUBS.format(status=status, groups=count, stubs=_OPEN_STUBS), now_ms)
    text = _DELIVERY.format(
        state=status.replace("status", "v.status"), way=_WAY, by=_BY, stubs=_OPEN_STUBS, groups=of_topic
    )
    _run(cursor, dialect, text, now_ms)
    cursor.execute(
        "UPDATE guarantee_log SET effect = 'unknown' WHERE message_id IN (\n"
        "    SELECT v.message_id FROM message_stub_v1 v WHERE v.status = 'unconfirmed')"
    )
    cursor.execute("DELETE FROM message_stub_v1 WHERE status <> 'confirmed'")
    moved = cursor.rowcount
    for statement in schema.index_statements(schema.LOG):
        cursor.execute(statement)
    cursor.execute(f"UPDATE message_guarantee SET version = {schema.VERSION}, unfinished = 1")
    return moved


def _renamed(dialect: Dialect) -> list[str]:
    """Statements after which no table has a name of version 1 but message_guarantee."""
    add = [f"ALTER TABLE guarantee_log ADD COLUMN {column}" for column in _LOG_COLUMNS]
    # In the order in which consumers of version 1 lock them; who asked for them first goes first.
    lock = ["LOCK TABLE message_log, message_stub IN ACCESS EXCLUSIVE MODE"] if dialect is POSTGRESQL else []
    pkey = "ALTER TABLE guarantee_log RENAME CONSTRAINT message_log_pkey TO guarantee_log_pkey"
    return [
        *lock,
        "ALTER TABLE message_stub RENAME TO message_stub_v1",
        "ALTER TABLE message_log RENAME TO guarantee_log",
        *([pkey] if dialect is POSTGRESQL else []),
        "DROP INDEX message_log_queue",
        "DROP INDEX message_log_age",
        *add,
        "ALTER TABLE message_guarantee ADD COLUMN unfinished INTEGER NOT NULL DEFAULT 0",
    ]


def _move(cursor: SqlCursor, dialect: Dialect, now_ms: int) -> int:
    """Move the next confirmed stubs; after the last one drop the tables of version 1."""
    by_group = f"JOIN (SELECT DISTINCT consumer_group FROM guarantee_group_v1) w ON EXISTS ({_HAS_LOGGED})"
    not_logged = f"JOIN guarantee_group w ON w.topic = v.topic AND NOT EXISTS ({_HAS_LOGGED})"
    unknown = "(SELECT COUNT(*) FROM guarantee_group w WHERE w.topic = v.topic)"
    _run(cursor, dialect, _STUBS.format(status="'legacy'", groups=unknown, stubs=_FIRST), now_ms)
    for state, groups in (("'confirmed'", by_group), ("'legacy'", not_logged)):
        text = _DELIVERY.format(state=state, way=_WAY, by=_BY, stubs=_FIRST, groups=groups)
        # A consumer of this very message may commit its log row between the two.
        _run(cursor, dialect, f"{text}\nWHERE true\nON CONFLICT (message_id, consumer_group) DO NOTHING", now_ms)
    cursor.execute(f"DELETE FROM message_stub_v1 WHERE message_id IN (SELECT message_id FROM {_FIRST} first)")
    moved = cursor.rowcount
    if not moved:
        cursor.execute("DROP TABLE message_stub_v1")
        cursor.execute("DROP TABLE guarantee_group_v1")
        cursor.execute("UPDATE message_guarantee SET unfinished = 0")
    return moved


def _declare(cursor: SqlCursor, dialect: Dialect, groups: Iterable[GroupOfTopic], now_ms: int) -> None:
    declare = statements(dialect).declare
    for each in groups:
        parameters = {"topic": each.topic, "consumer_group": each.consumer_group, "resend_by": each.resend_by}
        cursor.execute(declare, {**parameters, "now_ms": now_ms, "changed_by": "install"})


def _run(cursor: SqlCursor, dialect: Dialect, text: str, now_ms: int) -> None:
    cursor.execute(rendered(text, dialect.style), {"now_ms": now_ms})


def _begin(cursor: SqlCursor, dialect: Dialect) -> None:
    """Begin a transaction that excludes other installations."""
    if dialect is SQLITE:
        cursor.execute("BEGIN IMMEDIATE")
    elif dialect is POSTGRESQL:
        cursor.execute("BEGIN")
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('message_guarantee'))")
    else:
        cursor.execute("SELECT GET_LOCK('message_guarantee', 3600)")
        ((got,),) = cursor.fetchall()
        if got != 1:
            raise MigrationError("another process has been making the tables for an hour; look at its connection")


def _end(cursor: SqlCursor, dialect: Dialect, how: str) -> None:
    cursor.execute(how)
    if not dialect.is_partial:
        cursor.execute("SELECT RELEASE_LOCK('message_guarantee')")
        cursor.fetchall()


def _has(cursor: SqlCursor, dialect: Dialect, table: str) -> bool:
    if dialect is POSTGRESQL:
        cursor.execute(f"SELECT to_regclass('{table}')")
        return cursor.fetchall()[0][0] is not None
    where = (
        f"sqlite_master WHERE type = 'table' AND name = '{table}'"
        if dialect is SQLITE
        else f"information_schema.tables WHERE table_schema = DATABASE() AND table_name = '{table}'"
    )
    cursor.execute(f"SELECT COUNT(*) FROM {where}")
    return bool(cursor.fetchall()[0][0])
