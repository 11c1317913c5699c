"""Another time for a delayed message: one record of the timer topic replaces another one.

The record is the message with its new time in TIMER_OUT_MS.  Its property GANTRY_RETIMED names the place that it
replaces: `queue offset, due time in ms, how often the message got another time`.  So the change is atomic: a log that
has the record has the new time only, any other log the old one.

A record that replaces another one stands behind it in the queue and in the log.  So a start that finds the old one
finds the new one too, delivered or not: its queue entry has RETIME_BIT, and retention removes the old one first.  The
old place leaves the timer when the new record is appended.

The last number is in the recall handle of the new time.  So handles of former times are void, also when two times are
equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry.leaves import delays, fields
from gantry.leaves.records import PROPERTIES_BYTES_MAX
from gantry.model import names
from gantry.schedule import disguise

if TYPE_CHECKING:
    from gantry.leaves.frames import Send
    from gantry.leaves.records import Record

_NUMBERS = 3
# Not how often it was rolled: a start without our document keeps the copy that was rolled most often.
_REWRITTEN = frozenset({delays.OUT_MS, delays.CARRIED, delays.RETIMED})


class Replaced(NamedTuple):
    """The place that a record replaces; times: how often the message got another time, this one included."""

    offset: int
    due_ms: int
    times: int


def replaced_by(text: bytes) -> Replaced | None:
    """Return what a record with these properties replaces; None for one that replaces nothing."""
    numbers = [fields.integer(word) for word in delays.last(text, delays.RETIMED).decode("ascii", "replace").split(" ")]
    known = [number for number in numbers if number is not None and number >= 0]
    return Replaced(*known) if len(known) == len(numbers) == _NUMBERS else None


def times_of(text: bytes) -> int:
    """Return how often a message with these properties got another time."""
    found = replaced_by(text)
    return 0 if found is None else found.times


def replacement(record: Record, offset: int, due_ms: int, new_due_ms: int) -> Send | None:
    """Return the record by which a message gets another time; None when its properties have no room for that.

    offset, due_ms: its place in the timer topic and its time until now.
    """
    text = delays.without(record.properties, _REWRITTEN)
    text += b"%b\x01%d\x02" % (delays.OUT_MS, new_due_ms)
    text += b"%b\x01%d %d %d\x02" % (delays.RETIMED, offset, due_ms, times_of(record.properties) + 1)
    if len(text) > PROPERTIES_BYTES_MAX:
        return None
    send = disguise.delivery(record, names.TIMER_TOPIC, 0)
    send.properties = text
    return send
