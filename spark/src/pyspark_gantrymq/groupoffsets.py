"""What a consumer group is told about a stream's progress: for tools that watch lag, and `startingOffsets=group`.

Spark's checkpoint is the truth, so a group that somebody has set further ahead is left there, unless it is forced to
where the query is.
"""

from __future__ import annotations

from collections.abc import Mapping

from gantry.client.blocking import BlockingPuller
from pyspark_gantrymq.offsets import Queue
from pyspark_gantrymq.survey import queue_of


def tell(nameserver: str, group: str, positions: Mapping[Queue, int], is_forced: bool = False) -> None:
    """Commit these offsets for a group, where it is not there yet; GantryError when somebody does not answer."""
    with BlockingPuller(group, nameserver=nameserver) as puller:
        for name, at in sorted(positions.items()):
            queue = queue_of(name)
            committed = puller.committed(queue)
            if committed is None or committed < at or (is_forced and committed != at):
                puller.commit(queue, at)
