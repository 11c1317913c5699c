"""Committing a stream's progress for a consumer group: for tools that watch lag, and `startingOffsets=group`.

Spark's checkpoint counts, not these offsets.  So a group that was set further ahead is left there, unless `is_forced`.

Each queue is committed by itself: a deleted topic stays in checkpoints, and must not delay the others.
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
    """Commit these offsets for a group, where they are ahead of its own; return those that are committed now.

    Errors are only logged.  A broker group that does not answer for one queue is not asked for its others: each would
    wait for a connection in vain.
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
    """Return whether these brokers still have the topic; if not, no broker was asked that might not answer."""
    try:
        return name.broker in {one.broker_name for one in puller.queues(name.topic)}
    except GantryError:
        return True
