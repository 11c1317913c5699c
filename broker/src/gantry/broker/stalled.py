"""What a broker does while its disk hangs: it refuses messages with the reason, and a master does not renew its lease.

So another member can lead: the coordinator sees a master that is not writable and does not renew, and seals it after
the time of suspicion.  Otherwise that master would lead for as long as its disk hangs, and every message would time out
although there are healthy slaves.

No wrong acknowledgement is sent when the disk answers again.  Messages that were written before are confirmed if this
member is still the master; otherwise their producers got "outcome unknown".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.errors import Refusal
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.store.stalling import Stalling

log = logging.getLogger("gantry.broker")

GATE_STALLED = "the disk does not answer"
# Longer, because one job may remove many files or sync thousands of queues.
HOUSEKEEPING_S = 60.0


class StalledDisk:
    """Shuts the write gate while the disk hangs, and reopens it; loop thread only.

    flush_s: for how many seconds a sync of the log may make no progress.
    """

    def __init__(self, stalling: Stalling, gate: WriteGate, flush_s: float) -> None:
        self.unanswered_s = 0.0  # at the last call of look()
        self._stalling = stalling
        self._gate = gate
        self._flush_s = flush_s

    def look(self) -> None:
        """Check how long the disk has not answered; called a few times a second."""
        flush_s, jobs_s = self._stalling.look()
        self.unanswered_s = max(flush_s, jobs_s)
        is_stalled = flush_s >= self._flush_s or jobs_s >= HOUSEKEEPING_S
        if is_stalled == (GATE_STALLED in self._gate.reasons):
            return
        if is_stalled:
            is_flush = flush_s >= self._flush_s
            what = f"a sync of the log for {flush_s:.0f} s" if is_flush else f"a file job for {jobs_s:.0f} s"
            why = f"the disk has not finished {what}; check the disk of this host, writing continues when it answers"
            log.error("no messages are taken: %s", why)
            refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")
            self._gate.shut(GATE_STALLED, refusal)
        else:
            log.warning("the disk answers again")
            self._gate.reopen(GATE_STALLED)
