"""When stored messages were born, read from their records: which ones of a queue are older than a given time.

Of a record only its head is touched.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from gantry.leaves import queues
from gantry.store.fetched import Fetched, FetchStatus

if TYPE_CHECKING:
    from gantry.store.reading import Reader

_BORN = Struct(">40xq")  # see `leaves.records`


def born_ms(reader: Reader, log_offset: int, size: int) -> int:
    """Return when the message of a record that is there was born, by its producer's clock."""
    born: int = _BORN.unpack_from(reader.bytes_at(log_offset, size))[0]
    return born


def drop_older(reader: Reader, fetched: Fetched, from_ms: int) -> None:
    """Leave out of what was found the messages that were born before this time."""
    kept = queues.Places(place for place in fetched.places if born_ms(reader, *place) >= from_ms)
    if len(kept) == len(fetched.places):
        return
    fetched.places, fetched.buffers, fetched.bytes = kept, (), 0
    reader.gather(fetched)
    if not kept:
        fetched.status = FetchStatus.NO_MATCHED_MESSAGE


def behind_older(reader: Reader, topic: str, queue_id: int, offset: int, from_ms: int, count_max: int) -> int:
    """Return the queue offset behind the messages, from this offset on, that were born before this time.

    Looks at `count_max` entries at most, and ends before a message whose bytes may not be in memory.
    """
    for log_offset, size, _ in reader.places(topic, queue_id, offset, count_max):
        if reader.is_place(log_offset, size):
            if reader.is_cold(((log_offset, size),)) or born_ms(reader, log_offset, size) >= from_ms:
                break
        offset += 1
    return offset
