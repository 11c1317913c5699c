"""The checker of a transaction queue for programs without asyncio; everything as in `transactionchecker`.

    BlockingTransactionChecker(queue, ask).run(stop)      # stop: a threading.Event

Operation logs are settled one after the other, so a check receives LOGS_MAX of them: as many as `ask` has to answer
within the visibility timeout of the log queue.

A call of `ask` that hangs cannot be ended.  After ASK_S an error is logged, and `run` goes on in another thread, which
calls the same `ask`, until the call that hangs has answered; STAND_INS_MAX of these threads may hang as well.  What
was received with the log that hangs is visible again after the visibility timeout, and is checked there.
"""

from __future__ import annotations

import logging
import threading
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
ASK_S: Final = 300.0  # of one question to the application, as on asyncio
STAND_INS_MAX: Final = 3
_END_S: Final = 5.0  # of what a thread that went on has under way, beside its long poll


class Stop(Protocol):
    """What a threading.Event has."""

    def is_set(self) -> bool:
        """Whether the checker shall end."""

    def wait(self, timeout: float, /) -> bool:
        """Wait until it shall end, or for so many seconds."""


class _Either:
    """The end of a checker that goes on for another one."""

    def __init__(self, stop: Stop, answered: threading.Event) -> None:
        self._stop, self._answered = stop, answered

    def is_set(self) -> bool:
        return self._stop.is_set() or self._answered.is_set()

    def wait(self, timeout: float, /) -> bool:
        return self._answered.wait(timeout) or self._stop.is_set()


class BlockingTransactionChecker:
    """One checker; `run` once, or `check` as often as the program likes."""

    def __init__(self, queue: BlockingTransactionQueue, ask: Callable[[str], LocalOutcome]) -> None:
        self._queue = queue
        self._ask = ask
        self._stop: Stop | None = None  # of `run`
        self._stand_ins = STAND_INS_MAX

    def run(self, stop: Stop) -> None:
        """Check until `stop` is set; errors of the server are logged, and it goes on."""
        self._stop = stop
        while not stop.is_set():
            try:
                self.check(POLL_S)
            except GantryError as error:
                log.warning("queue %s: no check now, the next in %s s: %s", self._queue.log_name, RETRY_S, error)
                stop.wait(RETRY_S)
        self._stop = None

    def check(self, wait_s: int = 0) -> int:
        """Settle up to LOGS_MAX operation logs; the first is waited for up to `wait_s`.  Return how many there were."""
        queue = self._queue
        life_s = queue.life()
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
                asking.outcome = self._answer(settling.handle)
        settling.decided(asking.outcome)
        queue.settle(settling)

    def _answer(self, handle: str) -> LocalOutcome:
        """Ask the application, with a thread that goes on for this one if it does not answer."""
        answered = threading.Event()
        watching = threading.Timer(ASK_S, self._hangs, (handle, answered))
        watching.daemon = True
        watching.start()
        try:
            return self._ask(handle)
        finally:
            answered.set()
            watching.cancel()
            watching.join(POLL_S + _END_S)

    def _hangs(self, handle: str, answered: threading.Event) -> None:
        log.error(
            "queue %s: the application has not said within %s s whether %s is committed; set a time limit in `ask`",
            self._queue.name, ASK_S, handle,
        )
        if self._stop is not None and self._stand_ins:
            other = BlockingTransactionChecker(self._queue, self._ask)
            other._stand_ins = self._stand_ins - 1
            other.run(_Either(self._stop, answered))
