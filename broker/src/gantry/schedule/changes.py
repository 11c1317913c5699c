"""What happens to a pending message before its time: it is cancelled, or gets another time.

Each is one record.  It takes effect when it is appended, and is final when the log is confirmed up to its end.  So of a
cancel, another time and the delivery the first one in the log counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.append.writing import append_copies
from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.model import names
from gantry.schedule import disguise, retimes
from gantry.schedule.book import DelayBook
from gantry.schedule.counts import DelayCounts
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record
    from gantry.schedule.disguise import Address
    from gantry.schedule.places import DelayedEntry
    from gantry.store.store import Store

_WITHOUT_KEY = Refusal(
    ResponseCode.ILLEGAL_OPERATION,
    "the message has no UNIQ_KEY, by which a cancel would name it; it will be delivered",
)


class PendingChanges:
    """Appends the records and changes the book.  Loop thread only."""

    def __init__(
        self,
        book: DelayBook,
        counts: DelayCounts,
        store: Store,
        gate: WriteGate,
        clock: Clock,
        went: Callable[[int, str, int], object],
    ) -> None:
        """went: told of each message that does not wait any more: its offset in the timer topic, topic and birth.
        """
        self._book = book
        self._counts = counts
        self._store = store
        self._gate = gate
        self._clock = clock
        self._went = went

    def cancel(self, record: Record, address: Address, due_ms: int, host: bytes) -> Refusal | None:
        """Cancel a pending message that is due at this time; return why that is not possible, else None."""
        if not address.unique_key:
            return _WITHOUT_KEY
        cancel = disguise.cancel(address.topic, address.unique_key, due_ms, (self._clock.now_ms(), host))
        written = append_copies(self._store, self._gate, [cancel])
        if isinstance(written, Refusal):
            return written
        self._book.cancels.add(due_ms, disguise.cancel_key(address.topic, address.unique_key))
        self._counts.recalls += 1
        if record.topic == names.TIMER_TOPIC:
            self._went(record.queue_offset, address.topic, record.born_ms)
        return None

    def retime(self, record: Record, place: DelayedEntry, new_due_ms: int) -> Send | Refusal:
        """Give a pending message another time; return the record that replaces it, or why that is not possible."""
        send = retimes.replacement(record, place.offset, place.due_ms, new_due_ms)
        if send is None:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the properties of the message have no room for another time")
        written = append_copies(self._store, self._gate, [send])
        if isinstance(written, Refusal):
            return written
        self._book.timer.remove(place.offset, place.due_ms)
        self._counts.retimed += 1
        address = disguise.address(record.properties)
        if address is not None:
            self._went(place.offset, address.topic, record.born_ms)
        return send
