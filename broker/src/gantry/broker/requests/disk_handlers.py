"""Requests to delete expired data, as RocketMQ's `mqadmin` sends them, and to list it.

    DELETE_EXPIRED_COMMITLOG (329)     delete expired segments at any hour, for the next twenty passes
    CLEAN_EXPIRED_CONSUMEQUEUE (306)   delete queue and index files whose records are all deleted
    CLEAN_UNUSED_TOPIC (316)           delete queues of topics that do not exist any more
    SHOW_RETENTION (24031)             GantryMQ's: list the segments, their age, and which would be deleted

None of them deletes what retention would not delete by itself; RocketMQ: `AdminBrokerProcessor`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.metadata.offsets import Offsets
from gantry.metadata.topics import Topics
from gantry.store.retention import RetentionStatus
from gantry.store.store import Store
from gantry.wire import bodies
from gantry.wire.codes import ResponseCode
from gantry.wire.command import reply

if TYPE_CHECKING:
    from gantry.transport.connection import Connection

audit = logging.getLogger("gantry.audit")

_SEGMENTS_SHOWN_MAX = 10_000


class DiskHandlers:
    """Handlers of requests about disk space."""

    def __init__(self, store: Store, topics: Topics, offsets: Offsets) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets

    def delete_expired(self, connection: Connection, command: Command) -> Command:
        """Serve 329: start the deletion; the answer does not wait for it."""
        audit.warning("expired segments are deleted now, asked by %s", connection.peer)
        self._store.retention.drop_expired()
        return reply(command)

    def clean_queues(self, connection: Connection, command: Command) -> Command:
        """Serve 306: delete files that an earlier process left; others are deleted with their segments."""
        self._store.retention.drop_queue_files()
        return reply(command)

    def clean_topics(self, connection: Connection, command: Command) -> Command:
        """Serve 316: delete queues that belong to no topic."""
        unused = {topic for topic, _ in self._store.queues() if self._topics.get(topic) is None}
        for topic in sorted(unused):
            if not self._topics.is_system(topic):
                audit.warning("queues of the unused topic %s are deleted, asked by %s", topic, connection.peer)
                self._store.delete_queues(topic)
                self._offsets.begin_again(topic, self._store.generations.of(topic))
        return reply(command)

    async def show(self, connection: Connection, command: Command) -> Command:
        """Answer 24031 with the segments and which would be deleted. RefusedError when the disk cannot be read."""
        found: asyncio.Future[RetentionStatus | None] = asyncio.get_running_loop().create_future()

        def tell(survey: RetentionStatus | None) -> None:
            if not found.done():
                found.set_result(survey)

        self._store.retention.survey(self._store.durable_end, tell)
        survey = await found
        if survey is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "the disk could not be read; ask again")
        return reply(command, body=bodies.dumps(self._document(survey)))

    def _document(self, survey: RetentionStatus) -> dict[str, object]:
        size, retention = self._store.settings.segment_bytes, self._store.retention
        segments = [
            {
                "start": survey.log_start + number * size,
                "bytes": size,
                "lastWrittenMs": modified_ms,
                "expired": number < survey.expired,
                "goes": number < survey.going,
                "owed": survey.owed_from is not None and survey.owed_from < survey.log_start + (number + 1) * size,
            }
            for number, modified_ms in enumerate(survey.seen.modified_ms[:_SEGMENTS_SHOWN_MAX])
        ]
        return {
            "diskUsed": survey.seen.used,
            "diskBytes": survey.seen.total_bytes,
            "logStart": survey.log_start,
            "logEnd": self._store.written.offset,
            "owedFrom": -1 if survey.owed_from is None else survey.owed_from,
            "refusesWrites": retention.refuses_writes,
            "waiting": retention.waiting,
            "lingering": retention.dropping.lingering,
            "deleted": retention.dropping.segments,
            "segments": segments,
        }
