"""`spark.readStream`: what came since the last batch, planned on the driver, read by tasks.

Spark keeps one of these in a process of its own on the driver for as long as the query lives, asks it for offsets and
partitions, and sends copies to executors, where only `read` runs.  An exception in latestOffset ends the query; so what
a broker says is asked again a few times before it becomes one (`survey`).  What an offset is stands in `offsets`.

Spark calls commit(end) once the batch after it is planned, so a groupId's offset is one batch behind; the checkpoint is
the truth, and a failure to tell the group is a line in the log.  A group's offset never goes back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from gantry.client.blocking import BlockingPuller
from gantry.errors import GantryError
from pyspark_gantrymq import offsets, planning, survey
from pyspark_gantrymq.offsets import Offset, Queue
from pyspark_gantrymq.options import EARLIEST, Options
from pyspark_gantrymq.pulls import Task, read
from pyspark_gantrymq.survey import Ends

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._target: dict[Queue, int] | None = None
        self._waiting_since = time.monotonic()
        self._last: dict[Queue, int] = {}

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """The sentinel: what it means is resolved by the first latestOffset, and logged with it."""
        return offsets.sentinel("earliest" if self._options.start.otherwise == EARLIEST else "latest")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the options say."""
        return ReadMaxRows(self._options.rows_max) if self._options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """This query ends where the queues end now."""
        self._target = {queue: one.last for queue, one in survey.ends(self._options).items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes; `start` itself when there is nothing new."""
        known = offsets.positions(start)
        ends = survey.ends(self._options)
        self._last = {queue: one.last for queue, one in ends.items()}
        for queue in known.keys() & ends.keys():
            if ends[queue].last < known[queue]:
                text = f"{queue} ends at {ends[queue].last}, {known[queue]} was read"
                raise RuntimeError(f"{text}; was the topic made anew? a new checkpoint begins a new stream")
        last = self._last
        if self._target is not None:
            last = {queue: min(at, self._target.get(queue, known.get(queue, 0))) for queue, at in last.items()}
        new = self._beginnings(start, {queue: one for queue, one in ends.items() if queue not in known})
        at = {**known, **new}
        backlog = {queue: max(0, end - at[queue]) for queue, end in last.items()}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlog.values())
        shares = offsets.shares(backlog, max(1, rows_max))
        reached = {queue: at[queue] + share for queue, share in shares.items() if share}
        if offsets.is_sentinel(start):
            return offsets.end(known, new, reached)
        if (not new and not reached) or self._is_too_little(sum(backlog.values())):
            return start
        self._waiting_since = time.monotonic()
        return offsets.end(known, new, reached)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Where the queues end: beside the end of the batch it is the lag, in Spark's own progress."""
        return offsets.end(self._last, {}, {}) if self._last else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A task for as many queues as fit."""
        return [Task(one) for one in planning.bins(offsets.stretches(start, end), self._options.plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task; in an executor."""
        return read(self._options, self._names, partition)

    def commit(self, end: Offset) -> None:
        """Tell the group, where there is one; what went wrong is told at the next batch."""
        if not self._options.group:
            return
        try:
            with BlockingPuller(self._options.group, nameserver=self._options.nameserver) as puller:
                for name, at in offsets.positions(end).items():
                    queue = survey.queue_of(name)
                    if (puller.committed(queue) or -1) < at:
                        puller.commit(queue, at)
        except GantryError as error:
            log.warning("group %s was not told its offsets: %s", self._options.group, error)

    def stop(self) -> None:
        """Nothing is open between two questions."""

    def _is_too_little(self, backlog: int) -> bool:
        waited_s = time.monotonic() - self._waiting_since
        return self._target is None and backlog < self._options.rows_min and waited_s < self._options.delay_s

    def _beginnings(self, start: Offset, new: dict[Queue, Ends]) -> dict[Queue, int]:
        if not offsets.is_sentinel(start):
            return {queue: one.first for queue, one in new.items()}  # they appeared meanwhile
        return survey.bound(self._options, self._options.start, new)
