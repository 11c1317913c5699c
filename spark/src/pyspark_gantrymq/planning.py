"""Planning tasks: a pure function of the stretches of a batch, so that a repeated batch has the same tasks.

A task in Python costs tens of milliseconds before it reads anything, so small stretches share one: as many bins as the
messages need at targetRowsPerPartition each, at least minPartitions, at most maxPartitions.  Nothing is split unless
minPartitions or maxRecordsPerPartition ask for it; messages of a queue that was split are in order within each piece.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyspark_gantrymq.offsets import Stretch


class Plan(NamedTuple):
    """Limits by which stretches are divided into tasks; 0: no such limit."""

    bins_min: int = 0
    bins_max: int = 0
    piece_rows_max: int = 0
    bin_rows: int = 20_000


def bins(stretches: Iterable[Stretch], plan: Plan) -> list[list[Stretch]]:
    """Return the stretches of each task, none of them empty; every message is in exactly one task."""
    wanted = [one for one in stretches if one.start < one.end]
    total = sum([one.end - one.start for one in wanted])
    if not total:
        return []
    limits = [plan.piece_rows_max] if plan.piece_rows_max else []
    if plan.bins_min:
        limits.append(-(-total // plan.bins_min))
    pieces = [piece for one in wanted for piece in _split(one, min(limits, default=total))]
    count = -(-total // plan.bin_rows)
    if plan.piece_rows_max:
        count = max(count, -(-total // plan.piece_rows_max))
    count = max(plan.bins_min, min(count, plan.bins_max) if plan.bins_max else count)
    found: list[list[Stretch]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [0] * len(found)
    # The longest first, each to the task with the least: at most a third above the optimum.
    for piece in sorted(pieces, key=lambda one: (one.start - one.end, one)):
        least = loads.index(min(loads))
        found[least].append(piece)
        loads[least] += piece.end - piece.start
    return [sorted(each) for each in found]


def _split(one: Stretch, rows_max: int) -> list[Stretch]:
    pieces = -(-(one.end - one.start) // rows_max)
    share, more = divmod(one.end - one.start, pieces)
    found, at = [], one.start
    for number in range(pieces):
        to = at + share + (number < more)
        found.append(Stretch(one.queue, at, to))
        at = to
    return found
