"""`spark.readStream`: new messages since the last batch, planned on the driver, read by tasks.

Spark keeps one reader in a process of its own on the driver while the query runs, asks it for offsets and partitions,
and sends copies to executors, where only `read` runs.  An exception in latestOffset ends the query; so failed requests
are repeated a few times before one is raised (`survey`).  `offsets` describes the format of offsets, `standing` which
ones are valid.

A broker group that is away delays only its own queues, for maxOutage at most; `latestOffset` in the progress names it.
A stream that begins, and one that ends by itself (availableNow), does not wait: it would begin, or end, too early.

Spark calls commit(end) once the batch after it is planned, so a groupId's offset is one batch behind (`listener` is
not).  The checkpoint counts, so a failure to commit for the group is only logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_gantrymq import groupoffsets, limits, offsets, planning, standing, survey
from pyspark_gantrymq.offsets import Offset, Queue
from pyspark_gantrymq.options import EARLIEST, Commits, Options
from pyspark_gantrymq.pulls import Task, read
from pyspark_gantrymq.standing import Ends, Outage, Seen

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._target: dict[Queue, int] | None = None
        self._waiting_since = time.monotonic()
        self._outage = Outage(options.outage_s)
        self._seen = Seen()
        self._done: set[str] = set()
        self._cut: set[Queue] = set()
        self._last: dict[Queue, int] = {}

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """Return the sentinel; the first latestOffset resolves it, and is logged with it."""
        return offsets.sentinel("earliest" if self._options.start.otherwise == EARLIEST else "latest")

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options; with two limits the engine gets one, and latestOffset uses both."""
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        return ReadMaxBytes(self._options.bytes_max) if self._options.bytes_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store the present ends of the queues: the query ends there."""
        self._target = {queue: one.last for queue, one in survey.whole(self._options).ends.items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch; `start` itself when there is nothing new."""
        seen = self._look(start)
        known = standing.known(start, seen, self._options.is_strict, self._last)
        self._last |= {queue: one.last for queue, one in seen.ends.items()}
        new = self._beginnings(start, standing.unknown(start, known, seen), seen)
        at = {**known, **new}
        # Messages that retention deleted are skipped here, and counted by the task that finds them missing.
        there = {queue: max(at[queue], seen.ends[queue].first) for queue in at.keys() & seen.ends.keys()}
        backlog = {queue: max(0, self._end(queue, seen.ends[queue], at[queue]) - there[queue]) for queue in there}
        shares = self._limited(backlog, limit, there)
        reached = {queue: there[queue] + share for queue, share in shares.items() if there[queue] + share > at[queue]}
        end = offsets.end(known, new, reached, standing.whose(start, seen, at))
        if offsets.is_sentinel(start):
            return end
        if (not new and not reached) or self._is_too_little(sum(backlog.values())):
            return start
        self._waiting_since = time.monotonic()
        return end

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the ends of the queues, and which groups are away; Spark's progress shows it with the batch's end."""
        if not self._last:
            return None
        return offsets.end(self._last, {}, {}) | ({"away": sorted(self._seen.away)} if self._seen.away else {})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a batch: each reads as many queues as fit."""
        bins = planning.bins(offsets.stretches(start, end), self._options.plan)
        return [Task(one, offsets.identity(end)) for one in bins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task, in an executor."""
        return read(self._options, self._names, partition)

    def commit(self, end: Offset) -> None:
        """Commit the end of a batch for the group, if there is one; the next batch tries failed queues again."""
        if not self._options.group or self._options.commits is Commits.FALSE:
            return
        is_forced, reached = self._options.commits is Commits.FORCE, offsets.positions(end)
        groupoffsets.tell(self._options.nameserver, self._options.group, reached, is_forced)

    def stop(self) -> None:
        """Do nothing: no connection stays open between two calls."""

    def _look(self, start: Offset) -> Seen:
        """Ask the brokers; RuntimeError when one has been away for too long."""
        is_patient = self._target is None and not offsets.is_sentinel(start)
        expected = sorted(offsets.positions(start))
        # A group that is away is not asked again at once: the next trigger does.
        options = replace(self._options, retries=0) if self._outage.is_on else self._options
        self._seen = survey.look(options, expected, self._done)
        away = survey.away_of(self._options, self._seen)
        if not self._options.is_strict:
            self._part_with(start)
        if away and not is_patient:
            name, why = min(away.items())
            raise RuntimeError(f"{name} is away: {why}")
        self._outage.note(away, time.monotonic())
        return self._seen

    def _part_with(self, start: Offset) -> None:
        gone = self._seen.gone
        for name in sorted(gone.keys() - self._done):
            unread = standing.unread(name, start, self._last, self._seen)
            log.warning("%s is done with: %s; at least %d messages of it were not read", name, gone[name], unread)
        for queue, text in standing.cut_text(offsets.positions(start), self._seen).items():
            if queue not in self._cut:
                log.warning("%s; going on without", text)
        self._cut = set(self._seen.cut)
        for name in sorted(self._done - gone.keys()):
            log.warning("%s is there again", name)
        self._done = set(gone)

    def _end(self, queue: Queue, ends: Ends, at: int) -> int:
        """Return how far this query reads in a queue, given its present position."""
        return ends.last if self._target is None else min(ends.last, self._target.get(queue, at))

    def _limited(self, backlog: dict[Queue, int], limit: ReadLimit, at: Mapping[Queue, int]) -> dict[Queue, int]:
        if isinstance(limit, ReadAllAvailable):
            return backlog
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        shares = limits.by_rows(backlog, rows_max) if rows_max else backlog
        if bytes_max and any(shares.values()):
            shares = limits.by_bytes(shares, survey.sizes(self._options, shares, at), bytes_max)
        return shares

    def _is_too_little(self, backlog: int) -> bool:
        waited_s = time.monotonic() - self._waiting_since
        return self._target is None and backlog < self._options.rows_min and waited_s < self._options.delay_s

    def _beginnings(self, start: Offset, new: dict[Queue, Ends], seen: Seen) -> dict[Queue, int]:
        if not offsets.is_sentinel(start):
            return standing.beginnings(new, seen, self._options.is_strict)
        return survey.bound(self._options, self._options.start, new)
