"""The checker of a transaction queue on asyncio: it settles what producers have left.

    async def ask(handle: str) -> LocalOutcome:
        return await asyncio.to_thread(fence, connection, sql, handle, now_ms)      # see `transactiontable`

    await TransactionChecker(queue, ask).run()      # until it is cancelled

It receives operation logs, which are visible after the timeout, asks the application, settles the message, and deletes
the log.  An unknown outcome, an error of `ask` or of the server, and a crash leave the log: it is visible again after
the log queue's visibility timeout.  Any number of checkers may run, also one of the vendor's Java library beside them.

`ask` has to take less than the visibility timeout of the log queue (30 s).  Otherwise the message is settled, but the
log is visible again already and is not deleted; `tally.unconfirmed` grows.  After ASK_S it is cancelled, and the
outcome is unknown: a database that never answers must not end all checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gantry.errors import GantryError
from gantry.mns import messagecalls
from gantry.mns.settling import Asking, of_log
from gantry.mns.transactionqueue import TransactionQueue
from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.values import BATCH_MAX, QueueMessage

log = logging.getLogger(__name__)
POLL_S: Final = 20  # of a long poll; a server may hold it for 30
RETRY_S: Final = 2.0  # after an error of the server
ASK_S: Final = 300.0  # of one question to the application


class TransactionChecker:
    """One checker; `run` once, or `check` as often as the program likes."""

    def __init__(self, queue: TransactionQueue, ask: Callable[[str], Awaitable[LocalOutcome]]) -> None:
        self._queue = queue
        self._ask = ask

    async def run(self) -> None:
        """Check until it is cancelled; errors of the server are logged, and it goes on."""
        while True:
            try:
                await self.check(POLL_S)
            except GantryError as error:
                log.warning("queue %s: no check now, the next in %s s: %s", self._queue.log_name, RETRY_S, error)
                await asyncio.sleep(RETRY_S)

    async def check(self, wait_s: int = 0) -> int:
        """Receive up to 16 operation logs, waiting for the first up to `wait_s`, and settle them; return how many."""
        queue = self._queue
        life_s = await queue.life()
        logs = await queue.perform(messagecalls.receive_many(queue.log_name, BATCH_MAX, wait_s))
        await asyncio.gather(*(self._check(each, life_s) for each in logs))
        return len(logs)

    async def _check(self, message: QueueMessage, life_s: int) -> None:
        queue = self._queue
        settling = of_log(queue.name, message, life_s, queue.tally)
        if settling is None:
            return
        with Asking(queue.name, settling.handle) as asking:
            if settling.handle not in queue.open:
                async with asyncio.timeout(ASK_S):
                    asking.outcome = await self._ask(settling.handle)
        settling.decided(asking.outcome)
        await queue.settle(settling)
