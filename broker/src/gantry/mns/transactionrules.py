"""The times of a transaction queue, and which attributes of its two queues are refused.

    prepared                         log visible             checked
       |<- LOG_WITHIN_S ->|<- timeout_s ->|<- check_within_s ->|  ...  end of the prepared message's life
       |<------------------------- life_s (main queue) ------------------------------->|
       |<------------------------- delay_s (main queue) -------------------------------------->|  never reached

The life of a message counts from its prepare, whether it is committed or not.  What is left of it after a commit is the
time in which consumers have to take the message.  Five rules, each against one loss:

- delay above life: a message that nobody commits would become visible.
- life above LOG_WITHIN_S + timeout + check time: a checker would commit what is not there any more.
- life of the operation log above timeout + check time: it would end before it is checked.
- timeout at least a second: the checker would be asked while the producer begins the local transaction.
- the delay of the log within the server's limit of seven days.

Defaults are those of the vendor's Java library, so that either side can settle what the other has prepared: retention
169200 s (47 h), delay 172800 s (48 h), timeout 600 s, and a log queue of the name + `-operation-log-queue`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from gantry.errors import ConfigError, OutcomeUnknownError
from gantry.mns.messagecalls import checked_handle
from gantry.mns.queuecalls import NAME_MAX, checked_name
from gantry.mns.values import QueueAttributes

LOG_SUFFIX = "-operation-log-queue"
LOG_WITHIN_S = 60  # a producer that could not store its log by then gives up
DELAY_MAX_S = 7 * 86_400
COMMIT_VISIBILITY_S = 1  # as the vendor's library; 0 is no visibility timeout


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """See the module; `check_within_s` is the longest time without a working checker that must lose nothing."""

    timeout_s: int = 600
    check_within_s: int = 86_400
    life_s: int = 169_200
    delay_s: int = 172_800

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_s <= DELAY_MAX_S:
            raise ConfigError(f"timeout_s is {self.timeout_s}: expected 1 to {DELAY_MAX_S}")
        if self.check_within_s < 1:
            raise ConfigError(f"check_within_s is {self.check_within_s}: expected 1 or more")

    @property
    def attributes(self) -> QueueAttributes:
        """What the main queue is created with; the log queue has the server's defaults."""
        return QueueAttributes(delay_s=self.delay_s, life_s=self.life_s)


def log_queue(name: str) -> str:
    """Return the name of the operation log's queue; ValueError when it would be too long."""
    checked_name(name)
    if len(name) + len(LOG_SUFFIX) > NAME_MAX:
        raise ValueError(f"queue name {name}: a transaction queue has at most {NAME_MAX - len(LOG_SUFFIX)} characters")
    return name + LOG_SUFFIX


def unsafe(name: str, times: TransactionTimes, queue: QueueAttributes, log: QueueAttributes) -> str:
    """Return every rule that the attributes of the two queues break; an empty text when they are safe."""
    delay_s, life_s, log_life_s = queue.delay_s or 0, queue.life_s or 0, log.life_s or 0
    needed_s = times.timeout_s + times.check_within_s
    found = []
    if delay_s <= life_s:
        found.append(f"delay {delay_s} s must exceed retention {life_s} s, or messages nobody commits become visible")
    if life_s <= LOG_WITHIN_S + needed_s:
        found.append(
            f"retention {life_s} s must exceed {LOG_WITHIN_S} s + timeout {times.timeout_s} s + check time "
            f"{times.check_within_s} s, or a checker commits messages whose life has ended"
        )
    if log_life_s <= needed_s:
        found.append(f"retention of {log_queue(name)}, {log_life_s} s, must exceed timeout + check time, {needed_s} s")
    return f"transaction queue {name}: {'; '.join(found)}" if found else ""


def refuse_late_log(name: str, passed_s: float) -> None:
    """Raise OutcomeUnknownError when a producer took too long from its prepare until its log is stored."""
    if passed_s > LOG_WITHIN_S:
        text = f"queue {name}: prepare and operation log took {passed_s:.0f} s, more than {LOG_WITHIN_S} s"
        raise OutcomeUnknownError(f"{text}; the message is rolled back")


def log_text(handle: str) -> str:
    """Return the body of an operation log as it travels: the receipt handle as base64."""
    return base64.b64encode(checked_handle(handle).encode()).decode()


def handle_in(text: str) -> str:
    """Return the receipt handle in the body of an operation log; ValueError when there is none."""
    try:
        return checked_handle(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the operation log {text[:80]!r} has no receipt handle as base64") from error


def ends_ms_of_log(log_enqueued_ms: int, life_s: int) -> int:
    """Return the earliest end of the life of the message that an operation log belongs to."""
    return log_enqueued_ms - LOG_WITHIN_S * 1000 + life_s * 1000
