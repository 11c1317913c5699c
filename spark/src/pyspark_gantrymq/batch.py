"""`spark.read`: what is in the queues when the query is planned, each queue by one task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from gantry.client.blocking import BlockingPuller, MessageQueue
from pyspark_gantrymq import rows

GROUP = "gantrymq-spark"
_PULL_COUNT = 1024


@dataclass
class Stretch(InputPartition):
    """Messages of one queue, `start` to `end`."""

    queue: MessageQueue
    start: int
    end: int


class BatchReader(DataSourceReader):
    """One plan's; `read` runs in executors, on a copy."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._names = tuple(names)
        for name in ("gantrymq.namesrv", "subscribe"):
            if not options.get(name):
                raise ValueError(f"option {name} is missing")
        self._nameserver = options["gantrymq.namesrv"]
        self._topics = options["subscribe"].split(",")

    def partitions(self) -> list[InputPartition]:
        """The queues and where they begin and end just now."""
        with BlockingPuller(GROUP, nameserver=self._nameserver) as puller:
            queues = [queue for topic in self._topics for queue in puller.queues(topic.strip())]
            stretches = [Stretch(queue, puller.min_offset(queue), puller.max_offset(queue)) for queue in queues]
        return [one for one in stretches if one.start < one.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one stretch."""
        return read(self._nameserver, self._names, partition)


def read(nameserver: str, names: Sequence[str], partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Every message of a stretch, or an error: queue offsets are dense, so that a hole is seen."""
    if not isinstance(partition, Stretch):
        return  # Spark's stand-in for a plan without any partition
    at = partition.start
    with BlockingPuller(GROUP, nameserver=nameserver) as puller:
        while at < partition.end:
            wanted = min(_PULL_COUNT, partition.end - at)
            found = puller.pull(partition.queue, at, count_max=wanted)
            messages = [one for one in found.messages if one.queue_offset < partition.end]
            if [one.queue_offset for one in messages] != list(range(at, at + len(messages))) or not messages:
                raise RuntimeError(f"{partition.queue}: {found.status.value} at {at}, {partition.end} was there")
            yield rows.one_by_one(messages, names)
            at += len(messages)
