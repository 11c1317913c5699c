"""Records that are no longer in memory, read without a page fault on the event loop.

Administration reads old transactions, and a page fault on the loop would make every producer wait for the disk.  So a
record further behind the end of the log than the warm window is brought in by the cold reader first, as for a pull
(`store.bring_in`): its head, which holds its size, then all of it.  The key index is searched in steps
(`store.keysearch`), which bring in its hits.  Records are used right after that, so they are still in memory unless the
machine is very short of it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from gantry.errors import Refusal, RefusedError
from gantry.store import keysearch
from gantry.store.keysearch import KeyQuestion, searched
from gantry.transaction.lookups import outcome_in_log
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settle import Settling

if TYPE_CHECKING:
    from gantry.leaves.records import Record
    from gantry.store.store import Store


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

    async def entry(self, topic: str, offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tag code) at an offset of a topic's first queue whose record is still there."""
        return await searched(keysearch.looked_up(self._store, partial(self._store.reader.entry, topic, 0, offset)))

    async def record_at(self, log_offset: int) -> Record | None:
        """The dispatched record that begins at this log offset; None for anything else that stands there."""
        return await searched(keysearch.record_at(self._store, log_offset))

    async def with_key(self, topic: str, key: str) -> Record | None:
        """The newest record of a topic under this key; RefusedError when the search was too long to say so."""
        if not key:
            return None
        found, is_cut = await searched(keysearch.records_with(self._store, KeyQuestion(topic, key), 1))
        if is_cut and not found:
            raise RefusedError(*keysearch.TOO_LONG)
        return found[0] if found else None

    async def outcome(self, root: int) -> TransactionState | None:
        """Return how a transaction ended, or OPEN; also of one whose outcome is only in the log.

        RefusedError when the search in the log was too long.
        """
        if not self._settling.is_known(root):
            found = await searched(outcome_in_log(self._store, root))
            if isinstance(found, Refusal):
                raise RefusedError(*found)
            if found is not None and not self._settling.is_known(root):
                return found
        return self._settling.outcome(root)

    def _is_cold(self, log_offset: int) -> bool:
        return self._store.dispatched.offset - log_offset > self._store.settings.warm_bytes
