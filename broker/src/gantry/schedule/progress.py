"""Progress of delivery, so that a start delivers all pending messages and none twice.

One document, RocketMQ's `config/delayOffset.json`, replaced as a whole:

    offsetTable     per level the queue offset that is to be delivered next; RocketMQ's
    gantryTimer     ours; RocketMQ leaves it out when it writes the file, and then its own timer state counts
        end         queue offset of the timer topic up to which the rest applies; everything from there on is pending
        first       the lowest offset that is pending below that
        done        [[offset, ms], ...] from this offset on everything due before ms is delivered (see `Eras`)
        log         deliveries that stand in the log from here on may be missing above; they name what they delivered

The document contains only confirmed appends, and it is saved only when the log that it was derived from is durable.
A start delivers what is pending by the document, except for what the log from `log` on says was delivered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from gantry.leaves import fields
from gantry.model import documents

_ERAS_MAX = 256
_TIMER = "gantryTimer"


class Eras:
    """The due time up to which everything is delivered, by ranges of queue offsets.

    As long as the wall clock goes forwards one number suffices.  After it was set back, messages come that are due
    before what was delivered already: with them a new range begins.  The ranges become one again when the clock has
    reached its former time.
    """

    def __init__(self, done: list[tuple[int, int]] | None = None) -> None:
        self._done = done or [(0, 0)]

    def is_done(self, offset: int, due_ms: int) -> bool:
        """Whether a message at this offset, due then, is delivered."""
        at = bisect_right(self._done, offset, key=lambda era: era[0]) - 1
        return at >= 0 and due_ms < self._done[at][1]

    @property
    def newest_ms(self) -> int:
        """Return the time before which everything due is delivered at the end of the queue."""
        return self._done[-1][1]

    def came(self, offset: int, due_ms: int) -> None:
        """Take a message at the end of the queue into account; call `advance` before."""
        if due_ms < self._done[-1][1]:
            if len(self._done) < _ERAS_MAX:
                self._done.append((offset, due_ms))
            else:
                # Too many set-backs at once: a crash now would deliver some of them twice.
                self._done[-1] = (self._done[-1][0], due_ms)

    def advance(self, position_ms: int) -> None:
        """Record that everything due before this time is delivered and confirmed."""
        merged: list[tuple[int, int]] = []
        for offset, done_ms in self._done:
            done_ms = max(done_ms, position_ms)
            if not merged or merged[-1][1] != done_ms:
                merged.append((offset, done_ms))
        self._done = merged

    @property
    def least_ms(self) -> int:
        """Return the time before which everything due is delivered, at every offset."""
        return min(done_ms for _, done_ms in self._done)

    def shown(self) -> list[tuple[int, int]]:
        """Return the ranges as (first queue offset, ms), as they are saved in the document."""
        return list(self._done)


@dataclass(slots=True)
class DeliveryProgress:
    """The document as values; `log` is None where nothing is known, `has_timer` False where ours is missing."""

    levels: dict[int, int] = field(default_factory=dict)
    end: int = 0
    first: int = 0
    done: list[tuple[int, int]] = field(default_factory=list)
    log: int | None = None
    has_timer: bool = False

    def to_document(self) -> dict[str, object]:
        """Return the JSON document that is written to delayOffset.json, without the data version."""
        timer = {"end": self.end, "first": self.first, "done": [list(era) for era in self.done], "log": self.log or 0}
        return {"offsetTable": {str(level): offset for level, offset in self.levels.items()}, _TIMER: timer}


def read(source: Mapping[str, object] | None) -> DeliveryProgress:
    """Read a document that we or RocketMQ saved; ValueError naming what is wrong."""
    if source is None:
        return DeliveryProgress()
    levels: dict[int, int] = {}
    table = documents.mapping(source, "offsetTable")
    for name in table:
        level = fields.integer(name)
        if level is None:
            raise ValueError(f"offsetTable: {name[:40]!r} is no delay level")
        levels[level] = documents.integer(table, name)
    if source.get(_TIMER) is None:
        return DeliveryProgress(levels, log=0)
    timer = documents.document(source[_TIMER], _TIMER)
    done = [_era(one) for one in documents.array(timer, "done")]
    numbers = [documents.integer(timer, name) for name in ("end", "first", "log")]
    return DeliveryProgress(levels, numbers[0], numbers[1], done, numbers[2], True)


def _era(source: object) -> tuple[int, int]:
    if isinstance(source, list) and len(source) == 2 and all(isinstance(number, int) for number in source):
        return source[0], source[1]
    raise ValueError(f"done: {str(source)[:40]} is no pair of offset and time")
