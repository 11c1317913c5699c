"""Records that are no longer in memory, read without a page fault on the event loop.

Anyone who administers transactions looks at old ones, and a fault on the loop would make every producer wait for the
disk. So a record further behind the end of the log than the warm window is brought in by the cold reader first, as for
a pull (`store.bring_in`): its head, which says its size, then all of it.  Where the key index is asked, the records of
all its hits come in before it is.  What comes in is read right after that, so it is in memory unless the machine is
that short.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.leaves import records
from gantry.model import names
from gantry.transaction.oplog import Outcome
from gantry.transaction.settle import Settling

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from gantry.store.store import Store

_HEAD_BYTES = records.RECORD_BYTES_MIN
_FOREVER_MS = 1 << 62


class ColdReads:
    """Reads of administration."""

    def __init__(self, store: Store, settling: Settling) -> None:
        self._store = store
        self._settling = settling

    async def bring_in(self, places: list[tuple[int, int]]) -> None:
        """Have these (log offset, size) in memory; those that are warm are."""
        cold = [place for place in places if self._is_cold(place[0])]
        if cold:
            there = asyncio.Event()
            self._store.bring_in(cold, there.set)
            await there.wait()

    async def record_at(self, log_offset: int) -> Record | None:
        """The dispatched record that begins at this log offset; None for anything else that stands there."""
        await self._bring_in_records([log_offset])
        return self._store.reader.record_at(log_offset)

    async def with_key(self, topic: str, key: str) -> Record | None:
        """The newest record of a topic under this key."""
        if not key:
            return None
        await self._bring_in_hits(topic, key)
        hits = self._store.reader.query(topic, key, 1, 0, _FOREVER_MS)
        return records.view(hits[0], 0, len(hits[0])) if hits else None

    async def outcome(self, root: int) -> Outcome | None:
        """What became of a transaction, also of one that only the log knows."""
        if not self._settling.is_known(root):
            await self._bring_in_hits(names.OP_HALF_TOPIC, str(root))
        return self._settling.outcome(root)

    async def _bring_in_hits(self, topic: str, key: str) -> None:
        await self._bring_in_records(self._store.reader.hits(topic, key))

    async def _bring_in_records(self, log_offsets: list[int]) -> None:
        reader = self._store.reader
        there = [offset for offset in log_offsets if self._is_cold(offset) and reader.holds(offset, _HEAD_BYTES)]
        await self.bring_in([(offset, _HEAD_BYTES) for offset in there])
        await self.bring_in([(offset, size) for offset in there if (size := reader.size_at(offset))])

    def _is_cold(self, log_offset: int) -> bool:
        return self._store.dispatched.offset - log_offset > self._store.settings.warm_bytes
