"""Tells a consumer group how far a query is, batch by batch, the last one included.

    spark.streams.addListener(GantryMQOffsetListener("127.0.0.1:9876", "billing", query="orders"))

A source hears that a batch is finished when the next one is planned: never for the last batch of `availableNow` or of a
query that was stopped.  Spark's own news of a finished batch comes for each, after it is committed to the checkpoint;
so the group may be behind the checkpoint, and never ahead of it.  News comes in order, from a thread of the driver.

A group that somebody has set further ahead is left there; with `force=True` it is set back to where the query is.

A broker that does not answer costs a line in the log, and the next batch tells its queues again.
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
    """For the query of this name; without one for every query of the session that reads from GantryMQ."""

    def __init__(self, nameserver: str, group: str, query: str = "", force: bool = False) -> None:
        check_group(group)
        self._nameserver = nameserver
        self._group = group
        self._query = query
        self._is_forced = force
        self._told: dict[str, dict[Queue, int]] = {}  # by query, while it lives

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing is finished yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is finished, or nothing was there to be done."""
        progress = event.progress
        if self._query and progress.name != self._query:
            return
        reached: dict[Queue, int] = {}
        for source in progress.sources:
            reached |= positions(source.endOffset)
        self._tell(str(progress.runId), reached)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Its last batch was told before."""
        self._told.pop(str(event.runId), None)

    def _tell(self, run: str, reached: dict[Queue, int]) -> None:
        told = self._told.setdefault(run, {})
        news = {queue: at for queue, at in reached.items() if told.get(queue) != at}
        if news:
            told |= groupoffsets.tell(self._nameserver, self._group, news, self._is_forced)


def positions(text: str | None) -> dict[Queue, int]:
    """Where the end of a batch stands, as Spark's progress has it; empty for another source's, and for none."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(found, dict) or found.get("v") != offsets.VERSION or not isinstance(found.get("q"), dict):
        return {}
    return offsets.positions(found)
