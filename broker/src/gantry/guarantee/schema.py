"""Message stub and message log: the tables and all statements of the guarantee, as plain SQL.

A broker cannot know whether the business effect of a message happened.  Two tables close the gap:

    message_stub   written by the producer in its own transaction: what was sent, and whether it is confirmed
    message_log    written by the consumer at first sight: what arrived, and how far each queue was consumed

A stub without an effect is sent again, under the same id, when all five CONDITIONS hold; each of them keeps one kind of
message from being sent again for nothing.  What the five cannot decide is listed for a person instead: `unplaced`
(where it was sent to, if at all, is not known), `exhausted` (sent as often as allowed), `stuck` (arrived long ago, no
effect).

The invariant that consumers keep: the log row and the effect are one transaction, and the effect is carried out only
if `log` inserted a row.  Then an effect happens once, no matter who delivers the message how often, and whatever
happens to the answer of a COMMIT.  `confirm` belongs into the same transaction where stub and effect share a database,
before the effect: it and `void` update the same row, so a message either has its effect or is void, whichever comes
first.

A stub holds the place to which its message was sent last.  After every resend the place is updated (`moved`).
Otherwise the fourth condition would look at a place that the group passed long ago, and a copy that waits in a backlog
would be sent once more.

Times are epoch milliseconds of one clock, given by the caller, so that a test decides what is due and two machines do
not disagree inside one query.  Parameters are written `:name` here; `statements` renders them for the drivers (psycopg
`%(name)s`, sqlite3 `:name`).  Nothing here opens a connection.  Not promised: anything about a log row that was
deleted by hand; `forget` deletes only what no open stub and no queue's greatest offset needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True, slots=True)
class Dialect:
    """A database's SQL types for the two tables; `parameter` is how its driver writes a parameter."""

    name: str
    blob: str
    parameter: str


POSTGRESQL = Dialect("postgresql", "BYTEA", r"%(\1)s")
SQLITE = Dialect("sqlite", "BLOB", r":\1")
DIALECTS = (POSTGRESQL, SQLITE)

# The statements that lead from each version to the next.  A version that was released is never edited, only followed.
_STEPS: tuple[tuple[str, ...], ...] = (
    (
        """
CREATE TABLE message_stub (
    message_id        TEXT PRIMARY KEY,
    topic             TEXT NOT NULL,
    body              {blob} NOT NULL,
    message_keys      TEXT NOT NULL DEFAULT '',
    tags              TEXT NOT NULL DEFAULT '',
    properties        TEXT NOT NULL DEFAULT '{{}}',
    status            TEXT NOT NULL DEFAULT 'unconfirmed' CHECK (status IN ('unconfirmed', 'confirmed', 'void')),
    resends           INTEGER NOT NULL DEFAULT 0 CHECK (resends >= 0),
    next_resend_at_ms BIGINT NOT NULL,
    broker            TEXT,
    queue_id          INTEGER,
    queue_offset      BIGINT,
    created_at_ms     BIGINT NOT NULL,
    CHECK ((broker IS NULL) = (queue_offset IS NULL) AND (queue_id IS NULL) = (queue_offset IS NULL))
)""",
        "CREATE INDEX message_stub_due ON message_stub (next_resend_at_ms, message_id) WHERE status = 'unconfirmed'",
        """
CREATE TABLE message_log (
    consumer_group TEXT NOT NULL,
    message_id     TEXT NOT NULL,
    topic          TEXT NOT NULL,
    broker         TEXT NOT NULL,
    queue_id       INTEGER NOT NULL,
    queue_offset   BIGINT NOT NULL,
    received_at_ms BIGINT NOT NULL,
    PRIMARY KEY (consumer_group, message_id)
)""",
        "CREATE INDEX message_log_queue ON message_log (consumer_group, topic, broker, queue_id, queue_offset)",
        "CREATE INDEX message_log_age ON message_log (consumer_group, received_at_ms)",
        "CREATE TABLE message_guarantee (version INTEGER NOT NULL)",
        "INSERT INTO message_guarantee (version) VALUES (1)",
    ),
)
assert len(_STEPS) == VERSION

_GREATEST = """(
        SELECT MAX(l.queue_offset) FROM message_log l
        WHERE l.consumer_group = :consumer_group
          AND l.topic = s.topic AND l.broker = s.broker AND l.queue_id = s.queue_id)"""
_LOGGED = """EXISTS (
        SELECT 1 FROM message_log l
        WHERE l.consumer_group = :consumer_group AND l.message_id = s.message_id{when})"""

# When a stub is sent again: all five.
CONDITIONS = {
    "unconfirmed": "s.status = 'unconfirmed'",
    "may be sent again": "s.resends < :resends_max",
    "due": "s.next_resend_at_ms <= :now_ms",
    "no backlog": f"s.queue_offset < {_GREATEST}",
    "not arrived": "NOT " + _LOGGED.format(when=""),
}

_FIELDS = "s.message_id, s.topic, s.body, s.message_keys, s.tags, s.properties, s.resends"
_STUB_COLUMNS = "message_id, topic, body, message_keys, tags, properties, next_resend_at_ms, created_at_ms"
_LOG_COLUMNS = "consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms"
_PLACED = "UPDATE message_stub SET broker = :broker, queue_id = :queue_id, queue_offset = :queue_offset"
FORGOTTEN_MAX = 10_000
_FORGET = f"""
DELETE FROM message_log
WHERE (consumer_group, message_id) IN (
    SELECT o.consumer_group, o.message_id FROM message_log o
    WHERE o.consumer_group = :consumer_group
      AND o.received_at_ms < :before_ms
      AND NOT EXISTS (
            SELECT 1 FROM message_stub s WHERE s.message_id = o.message_id AND s.status = 'unconfirmed')
      AND o.queue_offset < (
            SELECT MAX(l.queue_offset) FROM message_log l
            WHERE l.consumer_group = o.consumer_group
              AND l.topic = o.topic AND l.broker = o.broker AND l.queue_id = o.queue_id)
    ORDER BY o.received_at_ms
    LIMIT {FORGOTTEN_MAX})
"""


@dataclass(frozen=True, slots=True)
class Statements:
    """All statements, in the order of a message's life; the parameters stand in each one's text."""

    version: str  # of the tables that are there; before `create` it fails
    stub: str  # the producer, in the transaction of its business
    place: str  # the producer, when the send was acknowledged; nothing once the message was sent again
    log: str  # the consumer, before the effect: one row inserted, or none, and the effect is there already
    confirm: str  # the consumer, before the effect in the same transaction; else after it
    reopen: str  # the consumer, in the transaction of `confirm`, when the effect was refused and undone
    withdrawn: str  # the consumer, after `confirm`: one row, and there must be no effect, or none
    void: str  # producer or person: one row updated, and it is neither sent nor has it an effect; none: too late
    missing: str  # what has to be sent again: stubs for which all CONDITIONS hold
    claim: str  # before it is sent again: one row updated; none: another process does it
    moved: str  # after it was sent again for the `resends`-th time: its place; none: it was sent once more since
    unplaced: str  # for a person: due, and its producer never stored where it was sent to
    exhausted: str  # for a person: due, and sent as often as it may be
    stuck: str  # for a person: arrived before `before_ms`, and not confirmed
    forget: str  # log rows received before `before_ms` that nothing above needs, FORGOTTEN_MAX at a time


def create(dialect: Dialect, found: int = 0) -> list[str]:
    """The statements, for one transaction, that bring tables of version `found` (0: there are none) to VERSION."""
    if not 0 <= found <= VERSION:
        raise ValueError(f"the tables have version {found}, this release knows up to {VERSION}; install a newer one")
    return [each.strip().format(blob=dialect.blob) for step in _STEPS[found:] for each in step]


def statements(dialect: Dialect) -> Statements:
    """Return every statement in the syntax of this dialect and its driver."""
    open_and_due = (CONDITIONS["unconfirmed"], CONDITIONS["due"], CONDITIONS["not arrived"])
    texts = {
        "version": "SELECT version FROM message_guarantee",
        "stub": _insert("message_stub", _STUB_COLUMNS),
        "place": f"{_PLACED}\nWHERE message_id = :message_id AND (resends = 0 OR queue_offset IS NULL)",
        "log": _insert("message_log", _LOG_COLUMNS) + "\nON CONFLICT (consumer_group, message_id) DO NOTHING",
        "confirm": "UPDATE message_stub SET status = 'confirmed'\n"
        "WHERE message_id = :message_id AND status = 'unconfirmed'",
        "reopen": "UPDATE message_stub SET status = 'unconfirmed'\n"
        "WHERE message_id = :message_id AND status = 'confirmed'",
        "withdrawn": "SELECT 1 FROM message_stub WHERE message_id = :message_id AND status = 'void'",
        "void": "UPDATE message_stub SET status = 'void'\nWHERE message_id = :message_id AND status = 'unconfirmed'",
        "missing": stubs_where(CONDITIONS.values()),
        "claim": "UPDATE message_stub SET resends = resends + 1, next_resend_at_ms = :next_resend_at_ms\n"
        "WHERE message_id = :message_id AND resends = :resends AND status = 'unconfirmed'",
        "moved": f"{_PLACED}\nWHERE message_id = :message_id AND resends = :resends",
        "unplaced": stubs_where([*open_and_due, "s.queue_offset IS NULL"]),
        "exhausted": stubs_where([*open_and_due, "s.resends >= :resends_max"]),
        "stuck": stubs_where([CONDITIONS["unconfirmed"], _LOGGED.format(when=" AND l.received_at_ms < :before_ms")]),
        "forget": _FORGET.strip(),
    }
    return Statements(**{name: in_words_of(dialect, text) for name, text in texts.items()})


def stubs_where(conditions: Iterable[str]) -> str:
    """The stubs (as `s`) for which all of these hold, those due longest first, at most `:rows_max`."""
    where = "\n  AND ".join(conditions)
    ordered = "ORDER BY s.next_resend_at_ms, s.message_id\nLIMIT :rows_max"
    return f"SELECT {_FIELDS}\nFROM message_stub s\nWHERE {where}\n{ordered}"


def in_words_of(dialect: Dialect, text: str) -> str:
    """A statement with parameters `:name`, as the dialect's driver takes it; `::type` stays a cast."""
    escaped = text.replace("%", "%%") if dialect is POSTGRESQL else text
    return re.sub(r"(?<![:\w]):([a-z]\w*)", dialect.parameter, escaped)


def _insert(table: str, columns: str) -> str:
    values = ", ".join(f":{column}" for column in columns.split(", "))
    return f"INSERT INTO {table} ({columns})\nVALUES ({values})"
