"""What has to be read from the disk before queue entries and their records are looked at.

Entries come before records: only they say where the records are.  Who asks brings the answer in (`Store.bring_in`) and
asks again, a bounded number of times: where memory is short, what was brought in may be gone again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from gantry.store.coldrange import ColdRange

if TYPE_CHECKING:
    from gantry.store.keysearch import Begin
    from gantry.store.store import Places, Store


def cold_at(store: Store, topic: str, queue_id: int, offset: int, count: int) -> Places | ColdRange | None:
    """Return what of at most `count` entries from a queue offset on, and of their records, is not in memory: a place of
    the queue's file, or (log offset, size) of the records; None: nothing.
    """
    reader = store.reader
    cold = reader.cold_entries(topic, queue_id, offset, count)
    if cold is not None:
        return cold
    found = reader.places(topic, queue_id, offset, count)
    if not found or store.dispatched.offset - found[0][0] <= store.settings.warm_bytes:
        return None  # those behind it are nearer to the end
    places = [place[:2] for place in found if reader.is_place(*place[:2])]
    return places if places and reader.is_cold(places) else None


def begins_at(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Return where in the log the record at a queue offset begins, for what keeps it from retention; None without one.

    Where its entry is not in memory that is read, and meanwhile the answer is the log's start: nothing may go.
    """
    look = partial(store.reader.entry, topic, queue_id, offset)
    entry = store.reader.look(look, ())
    if isinstance(entry, ColdRange):
        store.bring_in(entry, _ignore)
        entry = store.reader.look(look, ())
    if isinstance(entry, ColdRange):
        return store.reader.log_start
    return None if entry is None else entry[0]


def _ignore() -> None:
    """The next question finds what was read."""


def stored_ms_if_read(
    store: Store, topic: str, queue_id: int, offset: int
) -> Generator[Begin, None, int | None]:
    """Return the store time of the record at a queue offset; None when there is none, or it is not read yet.

    For callers that do not wait for a slow disk: going on before a read is over makes the result None.
    """
    for _ in ("entry", "record"):
        cold = cold_at(store, topic, queue_id, offset, 1)
        if cold is not None and not (yield from _brought(store, cold)):
            return None
    return store.reader.store_time(topic, queue_id, offset)


def _brought(store: Store, cold: Places | ColdRange) -> Generator[Begin, None, bool]:
    """Bring something in; return whether it is there."""
    is_there = False

    def begin(go_on: Callable[[], None]) -> None:
        def came() -> None:
            nonlocal is_there
            is_there = True
            go_on()

        store.bring_in(cold, came)

    yield begin
    return is_there
