"""What a task does: pull every message of its stretches, or say which are missing.

Queue offsets are dense, so without a filter each offset of a stretch is a message, and a hole is seen at once.  What
retention took before the task came is counted: an error, or with failOnDataLoss=false a line in the executor's log.
A broker that is away, or a slave that is behind, is asked again for PATIENCE_S; then the task fails, and Spark
repeats it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from gantry.client.blocking import BlockingPuller, PullResult, PullStatus, Sql
from gantry.errors import OutcomeUnknownError, RefusedError, UnreachableError
from pyspark_gantrymq.offsets import Stretch
from pyspark_gantrymq.options import Options
from pyspark_gantrymq.survey import GROUP, queue_of
from pyspark_gantrymq.vectors import Pulled

PATIENCE_S = 60.0
_PULL_COUNT = 1024
_PULL_BYTES = 4 << 20
_PAUSE_S = 0.2
log = logging.getLogger(__name__)


@dataclass
class Task(InputPartition):
    """One task's stretches, in the order in which it reads them."""

    stretches: list[Stretch]


def read(options: Options, names: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The messages of a task."""
    if not isinstance(partition, Task):
        return  # Spark's stand-in for a plan without any partition
    with BlockingPuller(GROUP, nameserver=options.nameserver) as puller:
        for one in partition.stretches:
            yield from _stretch(puller, options, names, one)


def _stretch(puller: BlockingPuller, options: Options, names: Sequence[str], one: Stretch) -> Iterator[pa.RecordBatch]:
    at, since = one.start, time.monotonic()
    while at < one.end:
        found = _pull(puller, options, one, at)
        first = found.min_offset if found is not None and found.status is PullStatus.OFFSET_ILLEGAL else at
        if first > at:
            to = min(first, one.end)
            _lost(options, one, at, to)
            at, since = to, time.monotonic()
            continue
        if found is None or found.next_offset <= at or found.status is PullStatus.OFFSET_ILLEGAL:
            if time.monotonic() > since + PATIENCE_S:
                said = "no answer" if found is None else f"{found.status.value}; it ends at {found.max_offset}"
                raise RuntimeError(f"{one.queue}: offset {at} did not come within {PATIENCE_S:.0f} s: {said}")
            time.sleep(_PAUSE_S)
            continue
        pulled = Pulled(found.records, one.queue.broker)
        batch = pulled.batch(names, one.end)
        count = len(batch)
        if not options.is_filtered and not np.array_equal(pulled.offsets, np.arange(at, at + count)):
            raise RuntimeError(f"{one.queue}: the answer from {at} on has a hole; offsets are dense without a filter")
        if count:
            yield batch
        at = found.next_offset if options.is_filtered or not count else at + count
        since = time.monotonic()


def _pull(puller: BlockingPuller, options: Options, one: Stretch, at: int) -> PullResult | None:
    """The answer; None when there is none just now."""
    count = min(_PULL_COUNT, one.end - at)
    wanted = Sql(options.sql) if options.sql else options.tags
    try:
        return puller.pull(queue_of(one.queue), at, tags=wanted, count_max=count, bytes_max=_PULL_BYTES, is_raw=True)
    except RefusedError as error:
        if not error.retriable and not error.stale_route:
            raise
    except (UnreachableError, OutcomeUnknownError):
        pass
    return None


def _lost(options: Options, one: Stretch, at: int, to: int) -> None:
    text = f"{one.queue}: messages {at} to {to - 1} are gone, {to - at} in all"
    if options.is_strict:
        raise RuntimeError(f"{text}; option failOnDataLoss=false passes over them")
    log.warning("%s; passed over", text)
