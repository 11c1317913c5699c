"""The tables of dead letters in PostgreSQL, and their statements: plain SQL, as in gantry.guarantee.schema.

    dead_letter        one row per death: the same message may die again after a replay, then `replays` is one higher
    dead_letter_count  deaths per window, group, topic and class; counted with the row, so that no repetition counts
    dead_letter_run    one per replay; its number is the number of its batch at the sink

States of a letter, each step by one statement with the former state in its condition:

    waiting -> approved (a person, or triage for transient ones when told so) -> sending -> sent
    waiting or approved -> rejected (a person)
    sending -> waiting    it can never be sent as it is: `refused` has the broker's remark, and a person decides
    sending -> approved   another letter of its run cannot; this one goes with the next run

`sending` is written, with the number of the run, before the first byte is sent.  An interrupted run is found by
the next one, which repeats it with the same letters under the same number; the sink knows whether it was delivered.
A letter leaves `sending` only when the sink has returned the final outcome of its run.
"""

from __future__ import annotations

from gantry.guarantee.dialects import POSTGRESQL, rendered

REPLAYS_MAX = 3

CREATE = (
    """
CREATE TABLE IF NOT EXISTS dead_letter (
    consumer_group  TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    replays         INTEGER NOT NULL,
    topic           TEXT NOT NULL,
    broker          TEXT NOT NULL,
    queue_id        INTEGER NOT NULL,
    queue_offset    BIGINT NOT NULL,
    message_keys    TEXT NOT NULL,
    tags            TEXT NOT NULL,
    body            BYTEA NOT NULL,
    properties      TEXT NOT NULL,
    error_class     TEXT NOT NULL,
    route           TEXT NOT NULL CHECK (route IN ('transient', 'poison', 'expired')),
    reconsume_times INTEGER NOT NULL,
    born_at_ms      BIGINT NOT NULL,
    died_at_ms      BIGINT NOT NULL,
    state           TEXT NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'approved', 'sending', 'sent', 'rejected')),
    approved_by     TEXT,
    run             BIGINT,
    refused         TEXT,
    PRIMARY KEY (consumer_group, message_id, replays)
)""",
    "ALTER TABLE dead_letter ADD COLUMN IF NOT EXISTS refused TEXT",
    "CREATE INDEX IF NOT EXISTS dead_letter_open ON dead_letter (state, died_at_ms)\n"
    "WHERE state IN ('approved', 'sending')",
    """
CREATE TABLE IF NOT EXISTS dead_letter_count (
    window_start_ms BIGINT NOT NULL,
    consumer_group  TEXT NOT NULL,
    topic           TEXT NOT NULL,
    error_class     TEXT NOT NULL,
    route           TEXT NOT NULL,
    letters         BIGINT NOT NULL,
    PRIMARY KEY (window_start_ms, consumer_group, topic, error_class, route)
)""",
    """
CREATE TABLE IF NOT EXISTS dead_letter_run (
    run           BIGINT PRIMARY KEY,
    started_at_ms BIGINT NOT NULL,
    is_done       BOOLEAN NOT NULL DEFAULT false
)""",
)

LETTER_COLUMNS = (
    "consumer_group, message_id, replays, topic, broker, queue_id, queue_offset, message_keys, tags, body, properties, "
    "error_class, route, reconsume_times, born_at_ms, died_at_ms"
)


def _sql(text: str) -> str:
    return rendered(text, POSTGRESQL.style)


LETTER = _sql(
    f"INSERT INTO dead_letter ({LETTER_COLUMNS})\n"
    f"VALUES ({', '.join(f':{name}' for name in LETTER_COLUMNS.split(', '))})\n"
    "ON CONFLICT (consumer_group, message_id, replays) DO NOTHING"
)
COUNT = _sql(
    "INSERT INTO dead_letter_count VALUES (:window_start_ms, :consumer_group, :topic, :error_class, :route, :letters)\n"
    "ON CONFLICT (window_start_ms, consumer_group, topic, error_class, route)\n"
    "DO UPDATE SET letters = dead_letter_count.letters + EXCLUDED.letters"
)
# The newest death of a message is the one that can be replayed.
_NEWEST = (
    "replays = (SELECT MAX(o.replays) FROM dead_letter o\n"
    "           WHERE o.consumer_group = d.consumer_group AND o.message_id = d.message_id)"
)
APPROVE = _sql(
    "UPDATE dead_letter d SET state = 'approved', approved_by = :approved_by, refused = NULL\n"
    f"WHERE message_id = :message_id AND replays < {REPLAYS_MAX} AND state = 'waiting'\n  AND {_NEWEST}"
)
REJECT = _sql("UPDATE dead_letter SET state = 'rejected', approved_by = :approved_by\n"
              "WHERE message_id = :message_id AND state IN ('waiting', 'approved')")  # fmt: skip
# One replay at a time: the sink remembers the last batch that it committed.
LOCK = "SELECT pg_advisory_lock(hashtext('dead_letter_run'))"
OPEN = "SELECT run FROM dead_letter_run WHERE NOT is_done"
NEXT = "SELECT coalesce(max(run), 0) + 1 FROM dead_letter_run"
RUN = _sql("INSERT INTO dead_letter_run (run, started_at_ms) VALUES (:run, :now_ms) ON CONFLICT (run) DO NOTHING")
# The first approved letters, of so many bytes together and at least one.  Nothing is read for its length.
CLAIM = _sql(
    "UPDATE dead_letter SET state = 'sending', run = :run\n"
    "WHERE state = 'approved' AND (consumer_group, message_id, replays) IN (\n"
    "    SELECT consumer_group, message_id, replays FROM (\n"
    "        SELECT *, sum(bytes) OVER (ORDER BY died_at_ms, message_id, consumer_group, replays) - bytes AS before\n"
    "        FROM (SELECT *, octet_length(body) + octet_length(properties) + octet_length(message_keys) AS bytes\n"
    f"              FROM dead_letter) AS d WHERE state = 'approved' AND replays < {REPLAYS_MAX}\n"
    "    ) AS a WHERE before < :bytes_max ORDER BY died_at_ms, message_id, consumer_group, replays LIMIT :rows_max)"
)
WAITS = f"SELECT 1 FROM dead_letter WHERE state = 'approved' AND replays < {REPLAYS_MAX} LIMIT 1"
# One message may have died in two groups, which hear of it by one copy.  In the order in which they died.
TAKEN = _sql(
    "SELECT message_id, topic, body, message_keys, tags, properties, replays FROM (\n"
    "    SELECT DISTINCT ON (message_id, topic) * FROM dead_letter\n"
    "    WHERE run = :run AND state = 'sending' ORDER BY message_id, topic, replays DESC) AS taken\n"
    "ORDER BY died_at_ms, queue_offset, message_id"
)
BEGAN = _sql("SELECT started_at_ms FROM dead_letter_run WHERE run = :run")
REFUSED = _sql(
    "UPDATE dead_letter SET state = 'waiting', run = NULL, refused = :why\n"
    "WHERE run = :run AND message_id = :message_id AND state = 'sending'"
)
BACK = _sql("UPDATE dead_letter SET state = 'approved', run = NULL WHERE run = :run AND state = 'sending'")
SENT = _sql("UPDATE dead_letter SET state = 'sent' WHERE run = :run AND state = 'sending'")
DONE = _sql("UPDATE dead_letter_run SET is_done = true WHERE run = :run")
