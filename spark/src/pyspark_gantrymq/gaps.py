"""Lost messages, found from answers to pulls: each is counted, and filtered messages are not.

Queue offsets are dense, so without a filter whatever lies between two messages of an answer, or before its first one,
is lost.  An answer without messages tells it in three ways:

    it begins later     its oldest message lies behind what was asked for; a master also calls the offset illegal, and a
                        slave asks for patience (RocketMQ: PULL_OFFSET_MOVED, PULL_RETRY_IMMEDIATELY)
    nothing in there    it goes on further ahead, though no filter left anything out: queue entries of lost messages, or
                        a log that is shorter than its queue (RocketMQ: MESSAGE_WAS_REMOVING)
    a damaged queue     it goes on further ahead, and has looked at nothing (RocketMQ: OFFSET_FOUND_NULL);
                        RocketMQ's broker passes over the rest of that queue's file

The answer may come from a slave that lacks what its master has; so `pulls` asks the master before it counts a loss.

Pure: no Spark, no broker, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gantry.client.results import PullResult, PullStatus
from gantry.errors import RemoteProtocolError
from pyspark_gantrymq.offsets import Stretch


class Judged(NamedTuple):
    """The lost messages, as stretches, and the offset to go on at; the same offset means to ask again."""

    lost: list[Stretch]
    to: int


def judged(asked: Stretch, found: PullResult, offsets: Sequence[int], is_filtered: bool) -> Judged:
    """The answer to a pull from asked.start on, whose messages have these queue offsets.

    RemoteProtocolError when those are none that could come.
    """
    if not len(offsets):
        return _without_messages(asked, found, is_filtered)
    if is_filtered:
        return Judged([], found.next_offset)
    lost, at = [], asked.start
    for offset in offsets:
        if offset < at:
            raise RemoteProtocolError(f"{asked.queue}: message {offset} came where {at} or a later one was due")
        if at < min(offset, asked.end):
            lost.append(Stretch(asked.queue, at, min(offset, asked.end)))
        at = offset + 1
    return Judged(lost, min(at, asked.end))


def _without_messages(asked: Stretch, found: PullResult, is_filtered: bool) -> Judged:
    at = asked.start
    if found.min_offset > at:
        to = min(found.min_offset, asked.end)
    elif found.next_offset <= at or found.status is PullStatus.OFFSET_ILLEGAL:
        return Judged([], at)
    elif is_filtered and found.status is PullStatus.NO_MATCH:
        return Judged([], found.next_offset)
    else:
        to = min(found.next_offset, asked.end)
    return Judged([Stretch(asked.queue, at, to)], to)
