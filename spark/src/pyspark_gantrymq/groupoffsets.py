"""What a consumer group is told about a stream's progress: for tools that watch lag, and `startingOffsets=group`.

Spark's checkpoint is the truth, so a group that somebody has set further ahead is left there, unless it is forced to
where the query is.

Each queue is told for itself: a topic that was deleted stays in checkpoints, and must not hold up the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gantry.client.blocking import BlockingPuller
from gantry.errors import GantryError, OutcomeUnknownError, UnreachableError
from pyspark_gantrymq.offsets import Queue
from pyspark_gantrymq.survey import queue_of

log = logging.getLogger(__name__)


def tell(nameserver: str, group: str, positions: Mapping[Queue, int], is_forced: bool = False) -> dict[Queue, int]:
    """Commit these offsets for a group, where it is not there yet; those of which it now knows.

    What went wrong is a line in the log.  A group of brokers that does not answer for one queue is not asked for its
    others: each would cost the time of a connection that nobody takes.
    """
    told: dict[Queue, int] = {}
    errors: dict[Queue, GantryError] = {}
    silent: dict[str, GantryError] = {}  # by broker group
    with BlockingPuller(group, nameserver=nameserver) as puller:
        for name, at in sorted(positions.items()):
            if name.broker in silent:
                errors[name] = silent[name.broker]
                continue
            try:
                _tell(puller, name, at, is_forced)
            except GantryError as error:
                errors[name] = error
                if isinstance(error, UnreachableError | OutcomeUnknownError) and _is_routed(puller, name):
                    silent[name.broker] = error
            else:
                told[name] = at
    if errors:
        first = min(errors)
        log.warning("group %s was not told %d of its offsets: %s: %s", group, len(errors), first, errors[first])
    return told


def _tell(puller: BlockingPuller, name: Queue, at: int, is_forced: bool) -> None:
    queue = queue_of(name)
    committed = puller.committed(queue)
    if committed is None or committed < at or (is_forced and committed != at):
        puller.commit(queue, at)


def _is_routed(puller: BlockingPuller, name: Queue) -> bool:
    """Whether these brokers still have the topic: else nobody was asked who could be silent."""
    try:
        return name.broker in {one.broker_name for one in puller.queues(name.topic)}
    except GantryError:
        return True
