"""Databases that hold the guarantee's tables, and how their SQL differs.

Statements are written once, with parameters `:name`.  A `Dialect` names what differs between databases: types, indexes,
locks, and how a JSON text becomes rows.  A parameter style of the DB-API (PEP 249) is how a driver writes parameters;
`rendered` and `positional` translate into it.

Keys are compared byte for byte, in every database: on MySQL and MariaDB by a binary collation that does not ignore
trailing spaces, so two ids that differ only in case or in a trailing space stay two ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
# How a driver writes a parameter.  `named`: sqlite3, aiosqlite, SQLAlchemy's text(); `pyformat`: psycopg, PyMySQL,
# mysqlclient, MySQL Connector, aiomysql.
STYLES = {"named": r":\1", "pyformat": r"%(\1)s"}
POSITIONAL_STYLES = ("qmark", "format", "numeric", "dollar")


@dataclass(frozen=True, slots=True)
class Dialect:
    """A database: its column types and the pieces of SQL that differ."""

    name: str
    key: str  # text of at most 255 characters, in keys
    word: str  # a name of ours: states
    broker: str  # like `key`, but shorter: MySQL's keys have at most 3072 bytes
    text: str
    blob: str
    table_options: str
    is_partial: bool  # has indexes with WHERE, and DDL that is part of a transaction
    on_conflict: str  # end of an INSERT that changes nothing when the row exists; see Statements.log
    share_lock: str  # end of a SELECT whose rows must not change before the transaction's end
    groups: str  # rows `g(consumer_group)` from the JSON array :consumer_groups
    groups_count: str  # its length
    places: str  # rows `p(message_id, copy_topic, broker, queue_id, queue_offset)` from the JSON array :places
    style: str  # the usual driver's parameter style
    now_ms: str  # the database's clock
    due_ms: str  # when a stub is due: not later by the database's clock, for a producer whose clock is ahead
    # End of a SELECT of deliveries `d` that takes only rows nobody else has locked.  None for MySQL and MariaDB: they
    # lock what they read before they sort, so that others find nothing and consumers wait.
    skip_locked: str = ""
    # What begins and ends a limit for transactions that stand still; none on SQLite, whose locks are the process's.
    idle_limit: tuple[str, ...] = ()


_PLACE_COLUMNS = ("message_id", "copy_topic", "broker", "queue_id", "queue_offset")


_POSTGRESQL_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
_SQLITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_MYSQL_NOW = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_IDLE_S = 60  # of a transaction between two statements


def _due(least: str, now_ms: str) -> str:
    return f"{least}(:next_resend_at_ms, {now_ms} + :next_resend_at_ms - :now_ms)"


def _mysql(name: str, collation: str) -> Dialect:
    text = f"CHARACTER SET utf8mb4 COLLATE {collation}"
    place_types = (f"VARCHAR(255) {text}", f"VARCHAR(255) {text}", f"VARCHAR(127) {text}", "INTEGER", "BIGINT")
    columns = ", ".join(
        f"{column} {kind} PATH '$.{column}'" for column, kind in zip(_PLACE_COLUMNS, place_types, strict=True)
    )
    return Dialect(
        name,
        key=f"VARCHAR(255) {text}",
        word=f"VARCHAR(16) {text}",
        broker=f"VARCHAR(127) {text}",
        text=f"MEDIUMTEXT {text}",
        blob="LONGBLOB",
        table_options=" ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
        is_partial=False,
        on_conflict="ON DUPLICATE KEY UPDATE duplicates = duplicates + 1",
        share_lock="\nLOCK IN SHARE MODE",
        groups=f"JSON_TABLE(:consumer_groups, '$[*]' COLUMNS (consumer_group VARCHAR(255) {text} PATH '$')) AS g",
        groups_count="JSON_LENGTH(:consumer_groups)",
        places=f"JSON_TABLE(:places, '$[*]' COLUMNS ({columns})) AS p",
        style="pyformat",
        now_ms=_MYSQL_NOW,
        due_ms=_due("LEAST", _MYSQL_NOW),
        # Of the connection: also one that is idle in a transaction.
        idle_limit=(f"SET SESSION wait_timeout = {_IDLE_S}", "SET SESSION wait_timeout = DEFAULT"),
    )


POSTGRESQL = Dialect(
    "postgresql",
    key="TEXT",
    word="TEXT",
    broker="TEXT",
    text="TEXT",
    blob="BYTEA",
    table_options="",
    is_partial=True,
    on_conflict="ON CONFLICT (consumer_group, message_id) DO NOTHING",
    share_lock="",
    groups="jsonb_array_elements_text(CAST(:consumer_groups AS jsonb)) AS g(consumer_group)",
    groups_count="jsonb_array_length(CAST(:consumer_groups AS jsonb))",
    places="jsonb_to_recordset(CAST(:places AS jsonb)) AS "
    "p(message_id text, copy_topic text, broker text, queue_id integer, queue_offset bigint)",
    style="pyformat",
    now_ms=_POSTGRESQL_NOW,
    due_ms=_due("LEAST", _POSTGRESQL_NOW),
    idle_limit=(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_S}s'",),
    skip_locked="\nFOR UPDATE OF d SKIP LOCKED",
)
SQLITE = Dialect(
    "sqlite",
    key="TEXT",
    word="TEXT",
    broker="TEXT",
    text="TEXT",
    blob="BLOB",
    table_options="",
    is_partial=True,
    on_conflict="ON CONFLICT (consumer_group, message_id) DO NOTHING",
    share_lock="",
    groups="(SELECT value AS consumer_group FROM json_each(:consumer_groups)) AS g",
    groups_count="json_array_length(:consumer_groups)",
    places="(SELECT "
    + ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in _PLACE_COLUMNS)
    + " FROM json_each(:places)) AS p",
    style="named",
    now_ms=_SQLITE_NOW,
    due_ms=_due("MIN", _SQLITE_NOW),
)
MYSQL = _mysql("mysql", "utf8mb4_0900_bin")
MARIADB = _mysql("mariadb", "utf8mb4_nopad_bin")
DIALECTS = (POSTGRESQL, SQLITE, MYSQL, MARIADB)


def dialect_of(name: str) -> Dialect:
    """Return the dialect of this name; a ValueError names those that exist."""
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    raise ValueError(f"there is no dialect {name!r}; there are {', '.join(each.name for each in DIALECTS)}")


def rendered(text: str, style: str) -> str:
    """Return a statement with parameters `:name` in a style of STYLES; `::type` stays a cast."""
    escaped = text.replace("%", "%%") if style == "pyformat" else text
    return _PARAMETER.sub(STYLES[style], escaped)


def positional(text: str, style: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement in a style of POSITIONAL_STYLES, and the names of its parameters in the order of their places.

    A name stands as often as the statement uses it: `?` of JDBC (`qmark`), `%s` (`format`), `:1` (`numeric`), `$1` of
    asyncpg (`dollar`).
    """
    names = tuple(_PARAMETER.findall(text))
    count = iter(range(1, len(names) + 1))
    marks = {"qmark": "?", "format": "%s", "numeric": ":{}", "dollar": "${}"}
    escaped = text.replace("%", "%%") if style == "format" else text
    return _PARAMETER.sub(lambda _: marks[style].format(next(count)), escaped), names
