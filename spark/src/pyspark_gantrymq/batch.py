"""`spark.read`: from one offset of each queue to another, both found when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_gantrymq import planning, survey
from pyspark_gantrymq.offsets import Stretch
from pyspark_gantrymq.options import Options
from pyspark_gantrymq.pulls import Task, read


class BatchReader(DataSourceReader):
    """The reader of one plan; `read` runs in executors, on a copy."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: each reads as many queues as fit."""
        seen = survey.whole(self._options)
        start = survey.bound(self._options, self._options.start, seen.ends)
        end = survey.bound(self._options, self._options.end, seen.ends)
        stretches = [Stretch(queue, start[queue], end[queue]) for queue in sorted(seen.ends)]
        return [Task(one, seen.whose) for one in planning.bins(stretches, self._options.plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task."""
        return read(self._options, self._names, partition)
