"""`spark.readStream`: what came since the last batch, planned on the driver, read by tasks.

Spark keeps one of these in a process of its own on the driver for as long as the query lives, asks it for offsets and
partitions, and sends copies to executors, where only `read` runs.  An exception in latestOffset ends the query; so what
a broker says is asked again a few times before it becomes one.  What an offset is stands in `offsets`.

    subscribe, subscribePattern   topics, comma separated; or a regular expression (%DLQ%.* too), matched at each batch
    startingOffsets               latest or earliest: for queues of the first batch; later ones from their beginning on
    maxOffsetsPerTrigger          messages of one batch at most, shared over the queues by their backlog

A range that is gone when a task reads it (retention) fails the query; nothing is passed over in silence.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from gantry.client.admin import Admin
from gantry.client.blocking import BlockingPuller, MessageQueue
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from pyspark_gantrymq import offsets
from pyspark_gantrymq.batch import GROUP, Stretch, read
from pyspark_gantrymq.offsets import Offset, Queue

_ATTEMPTS = 5
_PAUSE_S = 0.5
T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._nameserver = options["gantrymq.namesrv"]
        self._topics = [topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()]
        self._pattern = options.get("subscribepattern", "")
        self._mode = options.get("startingoffsets", "latest")
        self._rows_max = int(options.get("maxoffsetspertrigger", "0"))
        self._target: dict[Queue, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (Spark's name)
        """The sentinel: what it means is resolved by the first latestOffset, and logged with it."""
        return offsets.sentinel(self._mode)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As the options say."""
        return ReadMaxRows(self._rows_max) if self._rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """This query ends where the queues end now."""
        _, self._target = self._ask(self._survey)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes; `start` itself when there is nothing new."""
        known = offsets.positions(start)
        first, last = self._ask(self._survey)
        if self._target is not None:
            last = {queue: min(at, self._target.get(queue, known.get(queue, 0))) for queue, at in last.items()}
        new = {queue: self._beginning(start, first[queue], last[queue]) for queue in last if queue not in known}
        at = {**known, **new}
        gone_back = [queue for queue, end in last.items() if end < at[queue] and self._target is None]
        if gone_back:
            raise RuntimeError(f"{gone_back[0]} ends at {last[gone_back[0]]}, {at[gone_back[0]]} was read; made anew?")
        backlog = {queue: max(0, end - at[queue]) for queue, end in last.items()}
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlog.values())
        shares = offsets.shares(backlog, max(1, rows_max))
        reached = {queue: at[queue] + share for queue, share in shares.items() if share}
        if not new and not reached and not offsets.is_sentinel(start):
            return start
        return offsets.end(known, new, reached)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A task per queue that has something new."""
        return [
            Stretch(MessageQueue(one.queue.topic, one.queue.broker, one.queue.number), one.start, one.end)
            for one in offsets.stretches(start, end)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one stretch; in an executor."""
        return read(self._nameserver, self._names, partition)

    def commit(self, end: Offset) -> None:
        """The checkpoint is the truth; nothing is kept elsewhere."""

    def stop(self) -> None:
        """Nothing is open between two questions."""

    def _beginning(self, start: Offset, first: int, last: int) -> int:
        if not offsets.is_sentinel(start):
            return first  # a queue that appeared meanwhile
        return first if self._mode == "earliest" else last

    def _survey(self, puller: BlockingPuller) -> tuple[dict[Queue, int], dict[Queue, int]]:
        """First and next offset of every queue."""
        topics = self._topics or asyncio.run(self._matching())
        queues = [queue for topic in topics for queue in puller.queues(topic)]
        named = {Queue(queue.topic, queue.broker_name, queue.queue_id): queue for queue in queues}
        first = {name: puller.min_offset(queue) for name, queue in named.items()}
        return first, {name: puller.max_offset(queue) for name, queue in named.items()}

    async def _matching(self) -> list[str]:
        pattern = re.compile(self._pattern)
        async with Admin(nameserver=self._nameserver) as admin:
            return sorted(topic for topic in await admin.topics() if pattern.fullmatch(topic))

    def _ask(self, question: Callable[[BlockingPuller], T]) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with BlockingPuller(GROUP, nameserver=self._nameserver) as puller:
                    return question(puller)
            except (UnreachableError, OutcomeUnknownError, RefusedError):
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE_S * attempt)
        raise AssertionError("unreachable")
