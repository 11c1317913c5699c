"""Tables and statements of the guarantee's version 1, as releases up to November 2026 made and used them."""

from __future__ import annotations

from collections.abc import Iterable

CREATE = (
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
)
STUB = (
    "INSERT INTO message_stub"
    " (message_id, topic, body, message_keys, tags, properties, next_resend_at_ms, created_at_ms)\n"
    "VALUES (:message_id, :topic, :body, :message_keys, :tags, :properties, :next_resend_at_ms, :created_at_ms)"
)
PLACE = (
    "UPDATE message_stub SET broker = :broker, queue_id = :queue_id, queue_offset = :queue_offset\n"
    "WHERE message_id = :message_id AND (resends = 0 OR queue_offset IS NULL)"
)
LOG = (
    "INSERT INTO message_log (consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms)\n"
    "VALUES (:consumer_group, :message_id, :topic, :broker, :queue_id, :queue_offset, :received_at_ms)\n"
    "ON CONFLICT (consumer_group, message_id) DO NOTHING"
)
CONFIRM = "UPDATE message_stub SET status = 'confirmed'\nWHERE message_id = :message_id AND status = 'unconfirmed'"
VOID = "UPDATE message_stub SET status = 'void'\nWHERE message_id = :message_id AND status = 'unconfirmed'"
CLAIM = (
    "UPDATE message_stub SET resends = resends + 1, next_resend_at_ms = :next_resend_at_ms\n"
    "WHERE message_id = :message_id AND resends = :resends AND status = 'unconfirmed'"
)
MISSING = "SELECT s.message_id FROM message_stub s WHERE s.status = 'unconfirmed'"
STATEMENTS = {"stub": STUB, "place": PLACE, "log": LOG, "confirm": CONFIRM, "void": VOID, "claim": CLAIM}


def create(blob: str) -> Iterable[str]:
    """The statements that make the tables, with the database's type of bytes."""
    return [each.format(blob=blob) for each in CREATE]
