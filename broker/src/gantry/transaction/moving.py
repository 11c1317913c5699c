"""Putting halves back: a copy replaces a half whose segment is about to go, or with too many settled ones behind it.

Records that are not in memory are brought in by the cold reader, a batch at a time.  A half of which no copy can be
made is passed over, so that it keeps no other from moving; it stays, and is asked about until it ends.  Where the log
takes no copy, mostly because the disk has no room, all that wait are counted and named with the reason, and it is tried
again a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from gantry.clock import Clock
from gantry.errors import Refusal
from gantry.store.coldsteps import ColdSteps, Places
from gantry.transaction import half as halves
from gantry.transaction.checker import CheckPolicy, OpenHalf
from gantry.transaction.settle import Settling

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from gantry.store.store import Store

_BATCH = 64
_LOOKED_AT = 4096  # those whose copy is not confirmed are among them
_COUNTED_AT_ONCE = 5000
_NAMED_A_LINE = 50
_NAMED_MAX = 1000


class HalfMoves:
    """Puts halves back.  Loop thread only."""

    def __init__(
        self, store: Store, settling: Settling, rules: CheckPolicy, clock: Clock, say: Callable[[str, str], object]
    ) -> None:
        # Roots of open halves of which no copy can be made: an older version or another broker left no room in them, or
        # they cannot be read.
        self.unmovable: set[int] = set()
        self.book = settling.book
        self.counts = settling.counts
        self.settling = settling
        self.rules = rules
        self._store = store
        self._clock = clock
        self._say = say
        self._steps = ColdSteps(store, self._move)

    def go_on(self) -> Iterator[None]:
        """Put back what has to move, in slices; called every second."""
        self.unmovable = {root for root in self.unmovable if self.book.find(root) is not None}
        return self._steps.go_on()

    def is_still(self, half: OpenHalf) -> bool:
        """Return whether nothing has happened to a half while its record was read."""
        return self.book.open.get(half.current) is half and not self.settling.is_moving(half.root)

    def _move(self) -> Iterator[Places]:
        """Put back the halves that have to move, until none is left or a copy is refused."""
        while True:
            limit = self._store.retention.carry_below()
            must_move = self.book.must_move(self.rules, limit, self._clock.now_ms(), self.unmovable)
            resting = (half for half in islice(must_move, _LOOKED_AT) if not self.settling.is_moving(half.root))
            batch = list(islice(resting, _BATCH))
            if not batch:
                self.counts.stuck = 0
                return
            yield [(half.log_offset, half.size) for half in batch]
            for half in batch:
                refused = self.put_back(half) if self.is_still(half) else None
                if refused is not None:
                    yield from self._report_stuck(limit, refused)
                    return

    def put_back(self, half: OpenHalf) -> Refusal | None:
        """Put a half back, unless that will never be possible; return why it is not possible now."""
        record = self.movable(half)
        if record is None:
            return None
        refused = self.settling.put_back(half.root, record, half.checks, half.since_ms)
        self.counts.put_back += refused is None
        return refused

    def _report_stuck(self, limit: int, refused: Refusal) -> Iterator[Places]:
        """Count and log the transactions that have to be copied, of which one was refused; their segment stays."""
        count, named = 0, list[str]()
        offsets = iter(list(self.book.open))
        while part := list(islice(offsets, _COUNTED_AT_ONCE)):
            found = [half for offset in part if (half := self.book.open.get(offset)) is not None]
            below = list(takewhile(lambda half: half.log_offset < limit, found))
            roots = [str(half.root) for half in below if half.root not in self.unmovable]
            count += len(roots)
            named += roots[: _NAMED_MAX - len(named)]
            if len(below) < len(found):
                break
            yield ()
        self.counts.stuck = count
        for at in range(0, len(named), _NAMED_A_LINE):
            self._say(
                f"stuck transactions {at}",
                f"{count} open transactions cannot be copied to the log's end, and their segment stays: "
                f"{refused.remark}; remove the reason or settle them by `gantry tx`: "
                f"{', '.join(named[at : at + _NAMED_A_LINE])}",
            )

    def movable(self, half: OpenHalf) -> Record | None:
        """Return the half's record if a copy of it can be stored; else None: it stays, and is checked until it ends."""
        record = self.record(half)
        if record is not None and halves.has_room(record.properties):
            return record
        self.unmovable.add(half.root)
        if record is None:
            return None
        self._say(
            "half without room",
            f"transaction {half.root} of {half.group!r} for {half.topic} has {len(record.properties)} bytes of "
            "properties, which leave no room for the broker's: it cannot be put back or given up, and its segment "
            "stays until it ends; commit or rollback it by `gantry tx`",
        )
        return None

    def record(self, half: OpenHalf) -> Record | None:
        record = self._store.reader.record((half.log_offset, half.size, 0))
        if record is None:
            self.counts.unreadable += 1
            self._say(
                "unreadable half",
                f"transaction {half.root} of {half.group!r} for {half.topic}: the half message at log offset "
                f"{half.log_offset} cannot be read, and its segment stays; roll it back by `gantry tx`",
            )
        return record
