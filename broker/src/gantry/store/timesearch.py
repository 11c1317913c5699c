"""Store times of queues, and offsets by time, without waiting on the loop for a page of the log.

A bisection reads some 25 records of a queue, most of them far behind its end.  Each one that is not in memory is
brought in by the cold reader first, and so is each page of its queue's files; then the bisection begins again, and
goes by what was read before.  The searches are steps as in `keysearch`: `searched` runs them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gantry.store.keysearch import Steps, looked_up

if TYPE_CHECKING:
    from gantry.store.reading import Reader
    from gantry.store.store import Store

Entry = tuple[int, int, int]


class _ColdError(Exception):
    """An entry's record is not in memory."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


def store_time(store: Store, topic: str, queue_id: int, offset: int) -> Steps[int | None]:
    """Return the store time in ms of the record at a queue offset; None when there is none."""
    entry = yield from looked_up(store, partial(store.reader.entry, topic, queue_id, offset))
    if entry is None:
        return None
    if _is_cold(store.reader, entry):
        yield partial(store.bring_in, [entry[:2]])
    return store.reader.stored_ms(entry)


def offset_by_time(store: Store, topic: str, queue_id: int, at_ms: int, upper: bool = False) -> Steps[int]:
    """Return the first queue offset stored at or after at_ms; upper: the last one stored at or before it."""
    read: dict[int, int | None] = {}

    def stored_ms(entry: Entry) -> int | None:
        if entry[0] not in read:
            if _is_cold(store.reader, entry):
                raise _ColdError(entry)
            read[entry[0]] = store.reader.stored_ms(entry)
        return read[entry[0]]

    while True:
        try:
            look = partial(store.reader.offset_by_time, topic, queue_id, at_ms, upper, stored_ms)
            return (yield from looked_up(store, look))
        except _ColdError as cold:
            entry = cold.entry
        yield partial(store.bring_in, [entry[:2]])
        read[entry[0]] = store.reader.stored_ms(entry)


def _is_cold(reader: Reader, entry: Entry) -> bool:
    return reader.holds(entry[0], entry[1]) and reader.is_cold([entry[:2]])
