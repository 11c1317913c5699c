"""Tables of the guarantee, version 2: one definition for SQLite, PostgreSQL, MySQL 8 and MariaDB from 10.6 on.

A broker cannot know whether the business effect of a message happened.  These tables, in the user's own database, close
the gap:

    guarantee_stub       written by the producer in its own transaction: what was sent
    guarantee_delivery   one row per message and consumer group that has to handle it: state, place, resends, due time
    guarantee_log        written by the consumer at first sight: what arrived, and how far each queue was consumed
    guarantee_group      which groups a topic's messages are for, and by which way a group gets a resend
    guarantee_progress   how far a group consumed a queue, according to the broker: written by resend processes
    message_guarantee    the version of the tables, and whether a migration has rows left to move

The statements over them, and the invariants, stand in `statements`; how tables of version 1 become these, in
`migration`.  Times are epoch milliseconds of one clock, given by the caller.  Nothing here opens a connection.

Tables of version 1 were named message_stub and message_log.  No table has these names any more, so a program that still
writes version 1 gets an error from its database instead of writing rows that nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from gantry.guarantee.dialects import Dialect

VERSION = 2
KEY_CHARACTERS_MAX = 255  # of ids, topics, groups, owners: MySQL's keys
BROKER_CHARACTERS_MAX = 127


@dataclass(frozen=True, slots=True)
class Index:
    """An index: only of rows for which `where` holds, or of these columns where a database has no partial indexes."""

    name: str
    columns: str
    where: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: columns and constraints, with the types of a Dialect as fields."""

    name: str
    body: str
    indexes: tuple[Index, ...] = ()
    mysql_key: str = ""  # replication of MySQL wants a primary key in every table


_CHANGED = """
    changed_at_ms BIGINT NOT NULL,
    changed_by {key} NOT NULL"""
_PLACE = """
    copy_topic {key},
    broker {broker},
    queue_id INTEGER,
    queue_offset BIGINT,"""

STUB = Table(
    "guarantee_stub",
    f"""
    message_id {{key}} NOT NULL PRIMARY KEY,
    topic {{key}} NOT NULL,
    body {{blob}} NOT NULL,
    message_keys {{text}} NOT NULL,
    tags {{text}} NOT NULL,
    properties {{text}} NOT NULL,
    status {{word}} NOT NULL,
    groups_expected INTEGER NOT NULL,
    created_at_ms BIGINT NOT NULL,{_CHANGED},
    CONSTRAINT guarantee_stub_status CHECK (status IN ('open', 'void', 'legacy')),
    CONSTRAINT declare_the_consumer_groups_of_this_topic CHECK (groups_expected > 0 OR status <> 'open')""",
    (Index("guarantee_stub_age", "created_at_ms, message_id"),),
)
DELIVERY = Table(
    "guarantee_delivery",
    f"""
    message_id {{key}} NOT NULL,
    consumer_group {{key}} NOT NULL,
    state {{word}} NOT NULL,
    resend_by {{word}} NOT NULL,
    resends INTEGER NOT NULL DEFAULT 0,
    resends_before INTEGER NOT NULL DEFAULT 0,
    is_rearmed INTEGER NOT NULL DEFAULT 0,
    next_resend_at_ms BIGINT NOT NULL,{_PLACE}
    begun_at_ms BIGINT,
    tell_after_ms BIGINT NOT NULL DEFAULT 0,
    told_at_ms BIGINT,
    created_at_ms BIGINT NOT NULL,{_CHANGED},
    PRIMARY KEY (message_id, consumer_group),
    CONSTRAINT guarantee_delivery_state CHECK (state IN ('open', 'confirmed', 'void', 'closed', 'legacy')),
    CONSTRAINT guarantee_delivery_way CHECK (resend_by IN ('topic', 'retry', 'pop')),
    CONSTRAINT guarantee_delivery_resends CHECK (resends_before >= 0 AND resends >= resends_before),
    CONSTRAINT guarantee_delivery_place CHECK (
        (copy_topic IS NULL) = (queue_offset IS NULL) AND (broker IS NULL) = (queue_offset IS NULL)
        AND (queue_id IS NULL) = (queue_offset IS NULL))""",
    (
        Index(
            "guarantee_delivery_due",
            "consumer_group, next_resend_at_ms, message_id",
            "state = 'open'",
            "consumer_group, state, next_resend_at_ms, message_id",
        ),
    ),
)
LOG = Table(
    "guarantee_log",
    """
    consumer_group {key} NOT NULL,
    message_id {key} NOT NULL,
    topic {key} NOT NULL,
    broker {broker} NOT NULL,
    queue_id INTEGER NOT NULL,
    queue_offset BIGINT NOT NULL,
    received_at_ms BIGINT NOT NULL,
    effect {word} NOT NULL DEFAULT 'done',
    owner {key} NOT NULL DEFAULT '',
    owner_until_ms BIGINT NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, message_id),
    CONSTRAINT guarantee_log_effect CHECK (effect IN ('processing', 'done', 'unknown', 'refused'))""",
    (
        Index("guarantee_log_queue", "consumer_group, topic, broker, queue_id, queue_offset"),
        Index("guarantee_log_age", "consumer_group, received_at_ms"),
        Index(
            "guarantee_log_unsettled",
            "consumer_group, owner_until_ms",
            "effect <> 'done'",
            "consumer_group, effect, owner_until_ms",
        ),
    ),
)
GROUP = Table(
    "guarantee_group",
    f"""
    topic {{key}} NOT NULL,
    consumer_group {{key}} NOT NULL,
    resend_by {{word}} NOT NULL,{_CHANGED},
    PRIMARY KEY (topic, consumer_group),
    CONSTRAINT guarantee_group_way CHECK (resend_by IN ('topic', 'retry', 'pop'))""",
)
PROGRESS = Table(
    "guarantee_progress",
    """
    consumer_group {key} NOT NULL,
    topic {key} NOT NULL,
    broker {broker} NOT NULL,
    queue_id INTEGER NOT NULL,
    consumed_to BIGINT NOT NULL,
    PRIMARY KEY (consumer_group, topic, broker, queue_id)""",
)
GUARANTEE = Table(
    "message_guarantee",
    """
    version INTEGER NOT NULL,
    unfinished INTEGER NOT NULL DEFAULT 0""",
    mysql_key=",\n    PRIMARY KEY (version)",
)
TABLES = (STUB, DELIVERY, LOG, GROUP, PROGRESS, GUARANTEE)
_FIRST = f"INSERT INTO message_guarantee (version)\nSELECT {VERSION} WHERE NOT EXISTS (SELECT 1 FROM message_guarantee)"


def create(dialect: Dialect) -> list[str]:
    """The statements that make all tables in a database that has none.

    On PostgreSQL and SQLite run them in one transaction.  On MySQL and MariaDB each is a transaction by itself; run all
    of them again after a failure: they change nothing that exists, and the version comes last.
    """
    made = [statement for table in TABLES for statement in table_statements(dialect, table)]
    return [*made, _FIRST if dialect.is_partial else _FIRST.replace("\nSELECT 2", "\nSELECT 2 FROM DUAL")]


def table_statements(dialect: Dialect, table: Table) -> list[str]:
    """The statements that make one table and its indexes."""
    body = table.body.format(
        key=dialect.key, word=dialect.word, broker=dialect.broker, text=dialect.text, blob=dialect.blob
    )
    if dialect.is_partial:
        return [f"CREATE TABLE {table.name} ({body}\n)", *index_statements(table)]
    # Without DDL in transactions an index that is made by itself could be missing after a crash.
    indexes = (f",\n    INDEX {each.name} ({each.instead or each.columns})" for each in table.indexes)
    body += table.mysql_key + "".join(indexes)
    return [f"CREATE TABLE IF NOT EXISTS {table.name} ({body}\n){dialect.table_options}"]


def index_statements(table: Table) -> list[str]:
    """The statements that make a table's indexes, where a database has partial ones."""
    return [
        f"CREATE INDEX {each.name} ON {table.name} ({each.columns})" + (f"\nWHERE {each.where}" if each.where else "")
        for each in table.indexes
    ]
