"""Redis before the database: it stores which messages are done, so that a repetition costs no write.

    <prefix>:<database>:<group>:<message id>  ->  "done", or "processing <owner>"; both expire

`claim` asks for a whole chunk in two round trips: SET NX marks ids without a mark, GET returns the marks of the others.
Only ids that are *done* are left out.  An id that is "processing" goes to the database all the same: its owner may
be dead, and the database's unique key decides which task does it.  `done` marks after the COMMIT, never before.

Redis never decides.  When it is unreachable, emptied or full, the database has more work, and nothing else changes.  A
database that lost rows which Redis has marks for (restored, failed over to a lagging replica, table truncated) has
another identity.  The identity is part of every key, so marks for the former one do not count.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

import redis

from pyspark_gantrymq.jobs.transactions import Cursor, conninfo

log = logging.getLogger(__name__)
PREFIX = "gantrymq"
DONE = b"done"
TIMEOUT_S = 1.0
UNREADABLE = (
    "the address of --redis cannot be read, and is not shown because of its password; there is "
    "redis://:password@host:port/0, where the password has %40 for @, %3A for :, %2F for / and %23 for #"
)

# Cluster, timeline (new after every promotion and restore), database, and the file of the table (new after TRUNCATE).
_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()) || '-' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    || '-' || (SELECT oid FROM pg_database WHERE datname = current_database())
    || '-' || pg_relation_filenode('guarantee_log')"""


def identity(cursor: Cursor) -> str:
    """Return a text that identifies this guarantee_log, and changes when the table or the database was set back."""
    cursor.execute(_IDENTITY)
    row = cursor.fetchone()
    assert row is not None
    return str(row[0])


def _redis(url: str) -> Any:
    try:
        return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
    except ValueError:
        raise ValueError(UNREADABLE) from None


class Prefilter:
    """The pre-filter of one task; after its first failure it filters nothing.  `url` may be @FILE, as of a database."""

    def __init__(self, url: str, group: str, expiry_s: int) -> None:
        self._group = group
        self._expiry_s = expiry_s
        self._owner = f"processing {uuid.uuid4()}".encode()
        self._redis: Any = _redis(conninfo(url))

    def claim(self, database: str, ids: Sequence[str]) -> set[str]:
        """Mark new ids as "processing", and return the ids that are done."""
        keys = [self._key(database, each) for each in ids]
        marked = self._all([("SET", key, self._owner, "NX", "EX", self._expiry_s) for key in keys])
        others = [(each, key) for each, key, was_free in zip(ids, keys, marked, strict=False) if not was_free]
        values = self._all([("GET", key) for _, key in others])
        return {each for (each, _), value in zip(others, values, strict=False) if value == DONE}

    def done(self, database: str, ids: Sequence[str]) -> None:
        """Mark ids whose transaction is committed as done."""
        self._all([("SET", self._key(database, each), DONE, "EX", self._expiry_s) for each in ids])

    def close(self) -> None:
        """Close the connection."""
        if self._redis is not None:
            self._redis.close()

    def _all(self, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send these commands in one round trip and return the answers; none when Redis does not answer."""
        if self._redis is None or not commands:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            answers: list[Any] = pipeline.execute()
        except redis.RedisError as error:
            log.warning("Redis cannot be asked (%s); the database decides alone", type(error).__name__)
            self._redis.close()
            self._redis = None
            return []
        return answers

    def _key(self, database: str, message_id: str) -> str:
        return f"{PREFIX}:{database}:{self._group}:{message_id}"
