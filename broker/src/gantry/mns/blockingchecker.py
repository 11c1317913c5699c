"""The checker of a transaction queue for programs without asyncio; everything as in `transactionchecker`.

    BlockingTransactionChecker(queue, ask).run(stop)      # stop: a threading.Event

Operation logs are settled one after the other, so a check receives LOGS_MAX of them: as many as `ask` has to answer
within the visibility timeout of the log queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from gantry.errors import GantryError
from gantry.mns import messagecalls
from gantry.mns.blockingtransaction import BlockingTransactionQueue
from gantry.mns.settling import Asking, of_log
from gantry.mns.transactionsteps import LocalOutcome
from gantry.mns.values import QueueMessage

log = logging.getLogger(__name__)
LOGS_MAX: Final = 4
POLL_S: Final = 5  # of a long poll; it ends before `stop` is looked at
RETRY_S: Final = 2.0  # after an error of the server


class Stop(Protocol):
    """What a threading.Event has."""

    def is_set(self) -> bool:
        """Whether the checker shall end."""

    def wait(self, timeout: float, /) -> bool:
        """Wait until it shall end, or for so many seconds."""


class BlockingTransactionChecker:
    """One checker; `run` once, or `check` as often as the program likes."""

    def __init__(self, queue: BlockingTransactionQueue, ask: Callable[[str], LocalOutcome]) -> None:
        self._queue = queue
        self._ask = ask

    def run(self, stop: Stop) -> None:
        """Check until `stop` is set; errors of the server are logged, and it goes on."""
        while not stop.is_set():
            try:
                self.check(POLL_S)
            except GantryError as error:
                log.warning("queue %s: no check now, the next in %s s: %s", self._queue.log_name, RETRY_S, error)
                stop.wait(RETRY_S)

    def check(self, wait_s: int = 0) -> int:
        """Settle up to LOGS_MAX operation logs; the first is waited for up to `wait_s`.  Return how many there were."""
        queue = self._queue
        life_s = queue.look()
        logs = queue.perform(messagecalls.receive_many(queue.log_name, LOGS_MAX, wait_s))
        for each in logs:
            self._check(each, life_s)
        return len(logs)

    def _check(self, message: QueueMessage, life_s: int) -> None:
        queue = self._queue
        settling = of_log(queue.name, message, life_s, queue.tally)
        if settling is None:
            return
        with Asking(queue.name, settling.handle) as asking:
            if settling.handle not in queue.open:
                asking.outcome = self._ask(settling.handle)
        settling.decided(asking.outcome)
        queue.settle(settling)
