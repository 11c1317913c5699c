"""Every instant at which a process of a transaction queue can end, what it leaves, and who repairs it.

The table of broker/docs/transaction-queue.md is this one, and the crash tests kill a process at each of these places.
A place stands between two effects: `AFTER_PREPARE` is after the server stored the message, whether its answer came or
not.  A crash of a server or of a broker's master in the middle of a request looks to the client like one of the two
places around it, because acknowledged requests are kept and unanswered ones were carried out or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Repair(Enum):
    """Who brings it to an end."""

    NOBODY = "nobody has to"
    LIFE = "the end of its life"
    CHECKER = "the checker, after the timeout"
    NEXT_CHECK = "the next check, when the operation log is visible again"
    VISIBILITY = "the visibility timeout: it is received again"


class Fate(Enum):
    """What consumers see in the end."""

    NEVER_SENT = "no message"
    NEVER_SEEN = "never visible"
    DELIVERED = "delivered"
    AS_DECIDED = "as the local transaction ended"
    AGAIN = "delivered again"


@dataclass(frozen=True, slots=True)
class CrashPlace:
    """One row: the process that ends, the last effect before it, what is left where, who repairs it, what is seen."""

    name: str
    process: str
    left: str
    repair: Repair
    fate: Fate


PLACES = (
    CrashPlace("BEFORE_PREPARE", "producer", "nothing", Repair.NOBODY, Fate.NEVER_SENT),
    CrashPlace("AFTER_PREPARE", "producer", "prepared message", Repair.LIFE, Fate.NEVER_SEEN),
    CrashPlace("AFTER_LOG", "producer", "prepared message, log", Repair.CHECKER, Fate.NEVER_SEEN),
    CrashPlace("IN_LOCAL", "producer", "prepared message, log, open transaction", Repair.CHECKER, Fate.NEVER_SEEN),
    CrashPlace("AFTER_LOCAL_COMMIT", "producer", "prepared message, log, row", Repair.CHECKER, Fate.DELIVERED),
    CrashPlace("AFTER_LOCAL_ROLLBACK", "producer", "prepared message, log", Repair.CHECKER, Fate.NEVER_SEEN),
    CrashPlace("AFTER_COMMIT", "producer", "visible message, log, row", Repair.CHECKER, Fate.DELIVERED),
    CrashPlace("AFTER_ROLLBACK", "producer", "log", Repair.CHECKER, Fate.NEVER_SEEN),
    CrashPlace("AFTER_CONFIRM", "producer", "what was decided", Repair.NOBODY, Fate.AS_DECIDED),
    CrashPlace("CHECK_RECEIVED", "checker", "leased log", Repair.NEXT_CHECK, Fate.AS_DECIDED),
    CrashPlace("CHECK_FENCED", "checker", "leased log, fence", Repair.NEXT_CHECK, Fate.NEVER_SEEN),
    CrashPlace("CHECK_COMMITTED", "checker", "visible message, leased log, row", Repair.NEXT_CHECK, Fate.DELIVERED),
    CrashPlace("CHECK_ROLLED_BACK", "checker", "leased log, fence", Repair.NEXT_CHECK, Fate.NEVER_SEEN),
    CrashPlace("CHECK_CONFIRMED", "checker", "what was decided", Repair.NOBODY, Fate.AS_DECIDED),
    CrashPlace("CONSUMER_RECEIVED", "consumer", "leased message", Repair.VISIBILITY, Fate.AGAIN),
    CrashPlace("CONSUMER_HANDLED", "consumer", "leased message, its effect", Repair.VISIBILITY, Fate.AGAIN),
    CrashPlace("CONSUMER_DELETED", "consumer", "nothing", Repair.NOBODY, Fate.DELIVERED),
)
