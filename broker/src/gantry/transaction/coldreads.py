"""Records that are no longer in memory, read without a page fault on the event loop.

Administration reads old transactions, and a page fault on the loop would make every producer wait for the disk.  So a
record further behind the end of the log than the warm window is brought in by the cold reader first, as for a pull
(`store.bring_in`): its head, which holds its size, then all of it.  Before the key index is used, the records of all
its hits are brought in.  Records are used right after that, so they are still in memory unless the machine is very
short of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry.leaves import records
from gantry.model import names
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settle import Settling

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from gantry.store.store import Store

_HEAD_BYTES = records.RECORD_BYTES_MIN
_FOREVER_MS = 1 << 62


class ColdReads:
    """Reads records and outcomes for administration, old ones by the cold reader."""

    def __init__(self, store: Store, settling: Settling) -> None:
        self._store = store
        self._settling = settling

    async def bring_in(self, places: list[tuple[int, int]]) -> None:
        """Wait until these (log offset, size) are in memory; warm ones are already."""
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

    async def outcome(self, root: int) -> TransactionState | None:
        """Return how a transaction ended, or OPEN; also of one whose outcome is only in the log."""
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
