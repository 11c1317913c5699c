"""What one pull finds in the store: RocketMQ's status, the offsets, and the messages."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from gantry.leaves import queues
from gantry.store.coldrange import ColdRange


class FetchStatus(enum.StrEnum):
    """RocketMQ's GetMessageStatus; the value is the name, which goes into the remark of an answer.

    Texts, because those hash without a call: every pull looks its head up by it.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"  # not set here: the group's offset was reset


@dataclass(slots=True)
class Fetched:
    """The answer to one pull.

    lag_bytes: how far behind the end of the log the first record stands.
    is_cold: reading the records may wait for the disk, so none was looked at; have the cold reader bring `cold` in, and
    fetch again.
    cold_entries: queue entries that are not in memory, so that it is not known which records there are.
    places: (log offset, size) of each record; buffers: the same bytes, neighbours joined, and many small ones copied
    into one.
    """

    status: FetchStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: Sequence[memoryview | bytes] = ()
    bytes: int = 0
    lag_bytes: int = 0
    is_cold: bool = False
    places: queues.Places = field(default_factory=queues.Places)
    cold_entries: ColdRange | None = None

    @property
    def cold(self) -> queues.Places | ColdRange:
        """What has to be read from the disk before it is fetched again, if `is_cold`."""
        return self.places if self.cold_entries is None else self.cold_entries


def outside(offset: int, low: int, high: int, behind: int) -> Fetched:
    """Return the answer for an offset that a queue does not have, with where RocketMQ sends the consumer next.

    behind: where it goes from behind the end.
    """
    if high == 0:
        return Fetched(FetchStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset == high:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_BADLY, behind, low, high)
    return Fetched(FetchStatus.OFFSET_TOO_SMALL, low, low, high)
