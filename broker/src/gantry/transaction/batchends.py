"""Ending the halves of a sink's batches in bulk: bounded work per turn, to be asked again until nothing is left.

A sink whose batch is decided asks each group to end its halves of the batch.  A call ends at most `PER_CALL` halves, in
runs between which other requests are handled, and returns how many are left.  Each half is ended by `settle`, like
every other, so none is ended twice.  A call may be repeated at any time, by the same process or by the next one,
after a crash or a failover.

The verdict of `decisions` on each part counts, not the request.  Halves that were acknowledged before the call are in
the log; the call waits until they are in the book.  It answers when what it wrote is confirmed and dispatched, so the
returned number is exact.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from gantry.transaction.checker import OpenHalf
from gantry.transaction.coldreads import ColdReads
from gantry.transaction.decisions import Decisions
from gantry.transaction.endruns import SettleRequest
from gantry.transaction.oplog import TransactionState
from gantry.transaction.settle import Settling
from gantry.transaction.sinks import Batch

if TYPE_CHECKING:
    from gantry.store.store import Store
    from gantry.store.watermarks import Watermark

PER_CALL = 4096
_RUN = 64
_WAIT_S = 5.0


class SettleResult(NamedTuple):
    """Result of a call; `left`: open halves of decided batches; `late`: the ends were not confirmed in time."""

    settled: int
    left: int
    late: bool = False


class BatchEnds:
    """Ends halves of decided batches in one opened store."""

    def __init__(self, settling: Settling, decisions: Decisions, store: Store) -> None:
        self._settling = settling
        self._decisions = decisions
        self._store = store
        self._cold = ColdReads(store, settling)
        self._dispatched = MarkWaits(store.dispatched)

    async def are_gathered(self) -> bool:
        """Wait until the book has all halves that are written now; False when that takes too long."""
        return await self._dispatched.reached(self._store.written.offset, _WAIT_S)

    async def end(self, sink: str) -> SettleResult:
        """End at most PER_CALL halves of a sink whose outcome is decided."""
        if not await self.are_gathered():
            return SettleResult(0, self._left(sink), late=True)
        judged = self._judged(sink)
        for at in range(0, len(judged), _RUN):
            run = judged[at : at + _RUN]
            await self._cold.bring_in([(half.log_offset, half.size) for half, _ in run])
            for half, outcome in run:
                if self._settling.book.open.get(half.current) is half:
                    self._settling.submit(SettleRequest(None, None, half, outcome))
            # Before this goes on, what was submitted is written, and other tasks had their turn.
            await asyncio.sleep(0)
        is_late = not await self._dispatched.reached(self._store.written.offset, _WAIT_S)
        settled = sum(self._settling.outcome(half.root) is outcome for half, outcome in judged)
        return SettleResult(settled, self._left(sink), is_late)

    def _judged(self, sink: str) -> list[tuple[OpenHalf, TransactionState]]:
        """Return the open halves of a sink with their outcome, without those that are not decided yet."""
        found: list[tuple[OpenHalf, TransactionState]] = []
        for part in self._settling.book.parts.parts(sink):
            outcome = self._decisions.verdict(part.key)
            if outcome is TransactionState.OPEN:
                continue
            for root in part.roots[: PER_CALL - len(found)]:
                half = self._settling.book.find(root)
                if half is not None:
                    found.append((half, outcome))
            if len(found) >= PER_CALL:
                break
        return found

    def _left(self, sink: str) -> int:
        parts = self._settling.book.parts.parts(sink)
        return sum(
            len(part.roots) for part in parts if self._decisions.verdict_to_be(part.key) is not TransactionState.OPEN
        )

    def lacks(self, batch: Batch) -> int:
        """Return how many halves of the newest decision's own parts are open; it can be done only when none is."""
        sink = self._decisions.find(batch.sink)
        if sink is None or sink.batch != batch.number or not sink.parts:
            return 0
        parts = self._settling.book.parts.parts(batch.sink)
        chosen = [part for part in parts if part.key.batch == batch.number and part.key.part in sink.parts]
        return sum(len(part.roots) for part in chosen)


class MarkWaits:
    """Coroutines that wait for a mark."""

    def __init__(self, mark: Watermark) -> None:
        self._mark = mark
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        mark.listen(self._passed)

    async def reached(self, offset: int, within_s: float) -> bool:
        """Wait until the mark is there; False when it took too long."""
        if self._mark.offset >= offset:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        try:
            async with asyncio.timeout(within_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not future]
        return True

    def _passed(self, offset: int) -> None:
        for wanted, future in self._waiting:
            if wanted <= offset and not future.done():
                future.set_result(None)
