"""Transaction checks of brokers, held until the user's checker has answered each.

    broker --check--> held (2000 at most) --> one of a few tasks calls the checker --> END_TRANSACTION, same connection

The broker repeats a check without an answer.  So every failure here has the same effect, no answer or UNKNOWN, and only
costs time: too many held checks (the check is dropped and counted), a checker that raises or takes too long, a lost
connection, an end that the broker refuses.

A new check of a half replaces the one that waits: it names the newest copy.  The answer for a half whose local
transaction still runs in this process is UNKNOWN, without a call of the checker.  The checker would not find the row
yet, and would roll back a transaction that is about to commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from gantry.client.requests.transaction_requests import Check, Outcome, end, read_check
from gantry.client.settings import check_numbers
from gantry.errors import OutcomeUnknownError, RefusedError, RemoteProtocolError, UnreachableError
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.transport.connection import Connection

Checker = Callable[[StoredMessage], Awaitable[Outcome]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How many checks are held and answered at a time, and how long one may take."""

    held_max: int = 2000  # RocketMQ's checkRequestHoldMax
    held_bytes_max: int = 64 << 20  # a check carries its whole message
    concurrency: int = 8  # checkers running at the same time; RocketMQ's client has one thread
    timeout_s: float = 10.0  # then the outcome is unknown
    answer_timeout_s: float = 3.0  # for the broker to confirm an end

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that are not above 0."""
        check_numbers(self, above_zero=("held_max", "held_bytes_max", "concurrency", "timeout_s", "answer_timeout_s"))


@dataclass(slots=True)
class CheckCounts:
    """Counts of the checks so far; one that was replaced while it waited counts as received only."""

    received: int = 0
    dropped: int = 0  # too many were held
    malformed: int = 0  # invalid, or for another group
    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0  # the checker returned UNKNOWN, raised, or took too long
    unanswered: int = 0  # the outcome did not reach the broker, or the broker refused it


class Checks:
    """Holds and answers checks; its owner runs `work` in as many tasks as the settings name."""

    def __init__(
        self, group: str, checker: Checker, settings: CheckSettings, is_open: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._group = group
        self._is_open = is_open  # whether the local transaction of a message id still runs here
        self._checker = checker
        self._settings = settings
        self._counts = CheckCounts()
        self._held: OrderedDict[str, tuple[Connection, Check]] = OrderedDict()
        self._held_bytes = 0
        self._ready = asyncio.Semaphore(0)  # its value is the number of held checks

    @property
    def counts(self) -> CheckCounts:
        """A copy of the present counts."""
        return replace(self._counts)

    def offer(self, connection: Connection, command: Command) -> None:
        """Take a check from a broker, or drop it."""
        self._counts.received += 1
        try:
            group, check = read_check(command)
        except RemoteProtocolError as error:
            self._counts.malformed += 1
            log.warning("%s: a check from %s cannot be read: %s", self._group, connection.peer, error)
            return
        if group != self._group:
            self._counts.malformed += 1
            log.warning("%s: a check from %s is for group %s", self._group, connection.peer, group)
            return
        self._hold(connection, check)

    def _hold(self, connection: Connection, check: Check) -> None:
        key = check.half.message_id
        former = self._held.get(key)
        more = check.message.size - (0 if former is None else former[1].message.size)
        is_full = len(self._held) >= self._settings.held_max and former is None
        if is_full or self._held_bytes + more > self._settings.held_bytes_max:
            self._counts.dropped += 1
            if self._counts.dropped & (self._counts.dropped - 1) == 0:  # log only the 1st, 2nd, 4th, 8th ...
                log.warning("%s: %d checks dropped so far, the checker is too slow", self._group, self._counts.dropped)
            return
        self._held[key] = connection, check
        self._held_bytes += more
        if former is None:
            self._ready.release()

    async def work(self) -> None:
        """Answer one check after the other; when it is cancelled, so is a checker, and the broker asks others."""
        while True:
            await self._ready.acquire()
            _, (connection, check) = self._held.popitem(last=False)
            self._held_bytes -= check.message.size
            await self._answer(connection, check, await self._outcome(check))

    async def _outcome(self, check: Check) -> Outcome:
        if self._is_open(check.half.message_id):
            return Outcome.UNKNOWN
        # A separate task: any exception of the checker is a value here.
        task = asyncio.ensure_future(_call(self._checker, check.message))
        try:
            await asyncio.wait((task,), timeout=self._settings.timeout_s)
        finally:
            is_late = not task.done()
            task.cancel()
        if is_late:
            log.warning("%s: %s: no outcome within %g s", self._group, check.half.message_id, self._settings.timeout_s)
            return Outcome.UNKNOWN
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            log.error("%s: %s: the checker failed", self._group, check.half.message_id, exc_info=error)
            return Outcome.UNKNOWN
        outcome = task.result()
        if not isinstance(outcome, Outcome):
            log.error("%s: the checker gave %.80r, expected an Outcome", self._group, outcome)
            return Outcome.UNKNOWN
        return outcome

    async def _answer(self, connection: Connection, check: Check, outcome: Outcome) -> None:
        question = end(self._group, check.half, outcome, from_check=True)
        if outcome is Outcome.UNKNOWN:
            self._counts.unknown += 1
            if not connection.closed:
                connection.send_oneway(question.command)  # RocketMQ: brokers have no answer to it
            return
        try:
            question.read(await connection.invoke(question.command, self._settings.answer_timeout_s))
        except RefusedError as error:
            self._counts.unanswered += 1
            log.warning("%s: %s: %s after a check: %s", self._group, check.half.message_id, outcome.name, error)
        except (UnreachableError, OutcomeUnknownError) as error:
            self._counts.unanswered += 1
            log.info("%s: %s: %s after a check: %s", self._group, check.half.message_id, outcome.name, error)
        else:
            if outcome is Outcome.COMMIT:
                self._counts.committed += 1
            else:
                self._counts.rolled_back += 1


async def _call(checker: Checker, message: StoredMessage) -> object:
    return await checker(message)
