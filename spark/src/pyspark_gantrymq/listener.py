"""Commits a query's progress for a consumer group, batch by batch, the last one included.

    spark.streams.addListener(GantryMQOffsetListener("127.0.0.1:9876", "billing", query="orders"))

A source is told that a batch is finished when the next one is planned: never for the last batch of `availableNow` or of
a stopped query.  A listener is called after every batch, when it is committed to the checkpoint.  So the group may be
behind the checkpoint, but is never ahead of it.  Calls come in order, from a thread of the driver.

A group that was set further ahead is left there; with `force=True` it is set back to where the query is.

A broker that does not answer is logged, and the next batch commits its queues again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from gantry.client.settings import check_group
from pyspark_gantrymq import groupoffsets, offsets
from pyspark_gantrymq.offsets import Queue

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent


class GantryMQOffsetListener(StreamingQueryListener):
    """Listens to the query of this name; without one to every query of the session that reads from GantryMQ."""

    def __init__(self, nameserver: str, group: str, query: str = "", force: bool = False) -> None:
        check_group(group)
        self._nameserver = nameserver
        self._group = group
        self._query = query
        self._is_forced = force
        self._told: dict[str, dict[Queue, int]] = {}  # by query, while it runs

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Do nothing: no batch is finished yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commit the offsets of a finished batch."""
        progress = event.progress
        if self._query and progress.name != self._query:
            return
        reached: dict[Queue, int] = {}
        for source in progress.sources:
            reached |= positions(source.endOffset)
        self._tell(str(progress.runId), reached)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the query; its last batch was committed before."""
        self._told.pop(str(event.runId), None)

    def _tell(self, run: str, reached: dict[Queue, int]) -> None:
        told = self._told.setdefault(run, {})
        news = {queue: at for queue, at in reached.items() if told.get(queue) != at}
        if news:
            told |= groupoffsets.tell(self._nameserver, self._group, news, self._is_forced)


def positions(text: str | None) -> dict[Queue, int]:
    """Read the end offset of a batch from Spark's progress; empty for another source, and without one."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(found, dict) or found.get("v") != offsets.VERSION or not isinstance(found.get("q"), dict):
        return {}
    return offsets.positions(found)
