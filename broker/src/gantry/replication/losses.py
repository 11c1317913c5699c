"""How many messages this member has lost because its log was cut, over all its starts: `gantry/losses.json`.

Under ASYNC_MASTER a master acknowledges messages that no slave has yet.  When another member leads after it, the former
master cuts its log where the two logs begin to differ, and the messages behind that offset are lost.  They are counted
before they are cut.

The count is durable before the log is cut and names the cut as under way, so that an interrupted start does not count
the same messages twice; `settle` removes that mark when the cut is done.

What is not counted:

    - messages of a member whose disk is gone, because no copy is left to count
    - cuts under SYNC_MASTER, which acknowledges nothing behind the cut; where a member was forced to lead, or the group
      was ASYNC_MASTER when the messages were stored, some may have been acknowledged, and only a log line tells
    - a log that is begun further on, because the master no longer has what this member would need to catch up

Two members that cut the same messages both count them, so the largest count of a group is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gantry.clock import Clock
from gantry.model import documents
from gantry.store import filenames, statefile
from gantry.store.background import InlineBackground
from gantry.store.disk import Disk
from gantry.store.logscan import LogScan
from gantry.store.segments import Segments

_NONE_UNDER_WAY = -1


@dataclass(frozen=True, slots=True)
class Losses:
    """Totals of this folder, and what the last cut took; under_way: where the log is being cut, -1: nowhere."""

    messages: int = 0
    bytes: int = 0
    cuts: int = 0
    last_messages: int = 0
    last_bytes: int = 0
    under_way: int = _NONE_UNDER_WAY


def load(disk: Disk, root: str) -> Losses:
    """Return what was lost so far; StoreError when the file cannot be read."""
    source = statefile.read_object(disk, filenames.losses(root)) or {}
    return Losses(
        documents.integer(source, "messages"),
        documents.integer(source, "bytes"),
        documents.integer(source, "cuts"),
        documents.integer(source, "lastMessages"),
        documents.integer(source, "lastBytes"),
        documents.integer(source, "underWay", _NONE_UNDER_WAY),
    )


def behind(disk: Disk, root: str, at: int, segment_bytes: int, clock: Clock) -> Iterator[tuple[int, int]]:
    """Count the whole records behind a log offset of a closed store. Yields (records, bytes) so far after each slice.

    A slice takes some 10 ms: there may be gigabytes, and the process answers no requests during a slice.
    """
    segments = Segments(disk, root, segment_bytes, clock, InlineBackground().housekeeper)
    try:
        segments.load()
        if not segments.start <= at < segments.end:
            return
        scan, size = LogScan(segments, at), 0
        for found in scan.entries():
            size += sum(entry.size for entry in found)
            yield scan.count, size
    finally:
        segments.close()


def count(disk: Disk, root: str, at: int, found: tuple[int, int]) -> Losses:
    """Add (messages, bytes) that are about to be cut at this offset. Durable when it returns."""
    known = load(disk, root)
    if known.under_way == at:
        return known  # counted by the previous start, which was interrupted
    messages, size = found
    lost = Losses(known.messages + messages, known.bytes + size, known.cuts + 1, messages, size, at)
    _save(disk, root, lost)
    return lost


def settle(disk: Disk, root: str) -> Losses:
    """Note that no cut is under way any more. Return the totals."""
    known = load(disk, root)
    if known.under_way != _NONE_UNDER_WAY:
        known = replace(known, under_way=_NONE_UNDER_WAY)
        _save(disk, root, known)
    return known


def _save(disk: Disk, root: str, losses: Losses) -> None:
    table = {
        "messages": losses.messages,
        "bytes": losses.bytes,
        "cuts": losses.cuts,
        "lastMessages": losses.last_messages,
        "lastBytes": losses.last_bytes,
        "underWay": losses.under_way,
    }
    statefile.replace(disk, filenames.losses(root), statefile.to_bytes(table))
