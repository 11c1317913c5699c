"""What a broker does while its disk hangs: it refuses messages and says why, and a master does not renew its lease.

The last is how another member comes to lead: the coordinator sees a master that is not writable and that does not
renew, and seals it after the time of suspicion.  Such a master would otherwise lead for as long as its disk hangs, and
every message would time out while two healthy slaves are there.

Nothing false is acknowledged when the disk answers again.  What was written before is confirmed if this member still
leads, and otherwise its producers were told that the outcome is unknown.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gantry.append.admit import WriteGate
from gantry.errors import Refusal
from gantry.wire.codes import ResponseCode

if TYPE_CHECKING:
    from gantry.broker.settings.config import BrokerConfig
    from gantry.store.stalling import Stalling

log = logging.getLogger("gantry.broker")

GATE_STALLED = "the disk does not answer"
# RocketMQ's syncFlushTimeout: by then producers that wait for the disk are told so.
FLUSH_S = 5.0
# Within a group also twice the period of renewals, which is the time of suspicion: together with that time and the
# election a group has a new master within three times the suspicion.
_FLUSH_RENEWALS = 2
# Longer, because one job may be the removal of many files or a sync of thousands of queues.
HOUSEKEEPING_S = 60.0


def patience_s(config: BrokerConfig) -> float:
    """For how long a sync of the log may make no progress."""
    replication = config.replication
    return min(FLUSH_S, _FLUSH_RENEWALS * replication.renew_every_s) if replication.register else FLUSH_S


class StalledDisk:
    """Shuts the gate of writes while the disk hangs, and opens it; loop thread only."""

    def __init__(self, stalling: Stalling, gate: WriteGate, flush_s: float) -> None:
        self.unanswered_s = 0.0  # as of the last look
        self._stalling = stalling
        self._gate = gate
        self._flush_s = flush_s

    def look(self) -> None:
        """See how long the disk has not answered; a few times a second."""
        flush_s, jobs_s = self._stalling.look()
        self.unanswered_s = max(flush_s, jobs_s)
        is_stalled = flush_s >= self._flush_s or jobs_s >= HOUSEKEEPING_S
        if is_stalled == (GATE_STALLED in self._gate.reasons):
            return
        if is_stalled:
            is_flush = flush_s >= self._flush_s
            what = f"a sync of the log for {flush_s:.0f} s" if is_flush else f"a file job for {jobs_s:.0f} s"
            why = f"the disk has not finished {what}; look at the disk of this host, writing goes on when it answers"
            log.error("no messages are taken: %s", why)
            refusal = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")
            self._gate.shut(GATE_STALLED, refusal)
        else:
            log.warning("the disk answers again")
            self._gate.reopen(GATE_STALLED)
