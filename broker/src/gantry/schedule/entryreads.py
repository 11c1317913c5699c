"""Queue entries of timer messages that come near: read by the cold reader before anything looks at them.

A message may be due days after it was stored, and then the page of its queue's file has left memory.  Messages come
near ten seconds before they are due, a piece at a time (`timer.approach`); a piece waits here until its entries are
there.  A late disk makes messages late, and the event loop does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gantry.model import names
from gantry.store.coldrange import ColdRange

if TYPE_CHECKING:
    from gantry.store.store import Store

# Entries of so many neighbours are in one page, or in two.
_NEIGHBOURS = 128


class EntryReads:
    """Asks for entries of the timer's queue, and knows which have come.  Loop thread only."""

    def __init__(self, store: Store, came: Callable[[], object]) -> None:
        """came: called when entries that were asked for are there."""
        self._store = store
        self._came_to = came
        self._asked = (-1, 0)  # the piece that was asked for last: its first offset, its length
        self._coming = 0  # parts of it that are being read

    def are_there(self, offsets: Sequence[int]) -> bool:
        """Return whether the entries at these queue offsets can be read without waiting; else they are asked for.

        A piece is asked for once: where memory is so short that it is gone again, it is read all the same.
        """
        piece = offsets[0], len(offsets)
        if piece != self._asked:
            self._asked, self._coming = piece, 0
            cold = self._cold(offsets)
            self._coming = len(cold)
            for one in cold:
                self._store.bring_in(one, partial(self._came, piece))
        return not self._coming

    def _cold(self, offsets: Sequence[int]) -> list[ColdRange]:
        reader, found, looked_at = self._store.reader, list[ColdRange](), -_NEIGHBOURS
        for offset in offsets:
            if not 0 <= offset - looked_at < _NEIGHBOURS or offset == offsets[-1]:
                looked_at = offset
                cold = reader.cold_entries(names.TIMER_TOPIC, 0, offset, 1)
                if cold is not None:
                    found.append(cold)
        return found

    def _came(self, piece: tuple[int, int]) -> None:
        if piece == self._asked:
            self._coming -= 1
            if not self._coming:
                self._came_to()
