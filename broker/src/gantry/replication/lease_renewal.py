"""A master's writes to the register: renewals, changes of the in-sync set, and the handover.

There is one write at a time, on the version that the former write left (or on a new reading).  So a write that succeeds
proves that no older request of ours can take effect any more.  Every renewal carries the pending change of the set.
The in-sync tracker is told only what a *successful* write left in the register.

    renewed      the serving lease is extended from the moment at which the renewal was sent
    conflict     another process wrote: read, and try again at once
    no answer    the register is read again while the write is under way (`register_writer`), and after its time-out;
                 until then the outcome is unknown: the change stays pending, `insync` counts both outcomes.  A reading
                 with another version than the one that was written on proves that no request of ours can take effect
                 any more: what it shows is settled.  Each renewal has a time of its own (`renewed_ms`); if the reading
                 shows that of an open request, the serving lease is extended from when that one was sent, or from when
                 the last reading was sent that still showed the old version: it was carried out after that
    other holder, or sealed    `is_lost`
    no register  nothing to renew: the serving lease ends by itself, or continues while the slaves answer

A handover is such a write as well.  While its outcome is unknown it counts as done; a renewal that succeeds afterwards
proves that it was not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from gantry.clock import Clock
from gantry.errors import OutcomeUnknownError
from gantry.replication import operations
from gantry.replication.in_sync_tracker import InSyncTracker
from gantry.replication.insync import InSyncChange
from gantry.replication.members import SyncSet
from gantry.replication.operations import Denied
from gantry.replication.record import Holder, RegisterRecord
from gantry.replication.register import RegisterConflictError, RegisterError, Seen
from gantry.replication.register_writer import RegisterWriter, Written
from gantry.replication.serving_lease import ServingLease
from gantry.replication.terms import LeaderTerms

_CONFLICTS_MAX = 8
_OPEN_MAX = 16  # requests on one version; older ones give no serving lease any more


class Handed(Enum):
    """The outcome of a handover."""

    DONE = "done"
    REFUSED = "refused"  # nothing was written
    UNKNOWN = "unknown"


class LeaseRenewal:
    """The register's view of one epoch of this master; loop thread only.

    seen: the register as it was when this epoch began.
    settled: called with the set that the register holds for certain, and that no open request can change any more.
    """

    def __init__(
        self,
        writer: RegisterWriter,
        me: Holder,
        tracker: InSyncTracker,
        serving_lease: ServingLease,
        clock: Clock,
        seen: Seen | None,
        settled: Callable[[SyncSet], None],
    ) -> None:
        self.is_lost = False
        self.why = ""  # the register does not answer, or says no
        self._settled = settled
        self._writer = writer
        self._me = me
        self._tracker = tracker
        self._serving_lease = serving_lease
        self._clock = clock
        self._seen = seen
        self._renewed_ms = 0
        self._open_on = ""  # the version of the requests whose outcome is unknown
        self._open: dict[int, tuple[float, int]] = {}  # of these by `renewed_ms`: when sent, and the lease
        self._unchanged_s = 0.0  # when the last reading was sent that showed their version
        self._open_change: InSyncChange | None = None  # that one of them carries
        self._turn = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the outcome of a renewal is unknown, so that the register should be read soon."""
        return bool(self._open_on)

    async def renew(self) -> None:
        """Renew the lease and write the pending change of the set. The outcome is in `is_lost` and `why`."""
        async with self._turn:
            for _ in range(_CONFLICTS_MAX):
                if self.is_lost or not await self._renew_once():
                    return

    async def look(self) -> None:
        """Read whether this member still leads, without a renewal, so that the lease runs out."""
        async with self._turn:
            self._seen = None
            try:
                seen = await self._read()
                if seen is not None:
                    self._look(seen.record)
            except (RegisterError, OutcomeUnknownError) as error:
                self.why = str(error)

    async def hand_over(self, target: Holder, is_leaving: bool = False) -> Handed:
        """Make `target` the holder; call it when writes have stopped and the target has promised the next epoch.

        is_leaving: this member stops afterwards. It leaves the set with the same write, or the target would wait for
        it.
        """
        keep = max(1, self._tracker.rules.min_in_sync) if is_leaving else 0
        async with self._turn:
            self._seen = None
            for _ in range(_CONFLICTS_MAX):
                try:
                    return await self._hand_over_once(target, keep)
                except RegisterConflictError as error:
                    self.why = str(error)
                except OutcomeUnknownError as error:
                    self.why = str(error)
                    return Handed.UNKNOWN
                except RegisterError as error:
                    self.why = str(error)
                    break
            return Handed.REFUSED

    async def _hand_over_once(self, target: Holder, keep: int) -> Handed:
        seen = await self._read()
        if seen is None:
            return Handed.REFUSED
        wanted = operations.hand_over(seen.record, self._me, self._tracker.epoch, target, keep)
        if isinstance(wanted, Denied):
            self.why = wanted.reason
            self._look(seen.record)
            return Handed.REFUSED
        written = await self._writer.write(wanted, seen.version)
        if written.seen.record.holder != target or written.seen.record.epoch != wanted.epoch:
            raise RegisterConflictError("another process wrote while the handover was under way")
        self.is_lost = True
        return Handed.DONE

    async def _read(self) -> Seen | None:
        asked_s = self._clock.monotonic()
        seen = await self._writer.register.read()
        if seen is None:
            self.why = "there is no register any more"
        elif seen.version == self._open_on:
            self._note_unchanged(asked_s)
        return seen

    def _note_unchanged(self, asked_s: float) -> None:
        self._unchanged_s = asked_s

    async def _renew_once(self) -> bool:
        """Try one renewal. Return whether to try again at once."""
        seen, self._seen = self._seen, None
        try:
            seen = seen or await self._read()
            if seen is None or self._look(seen.record):
                return False
            self.why = ""
            self._resolve(seen)
            change, sent_s = self._tracker.insync.change, self._clock.monotonic()
            wanted = self._wanted(seen.record, change)
            written = await self._send(wanted, seen.version, sent_s, change)
        except RegisterConflictError as error:
            self.why = str(error)
            return True
        except (RegisterError, OutcomeUnknownError) as error:
            self.why = str(error)
            return False
        self._seen = written.seen
        if not written.is_answered:
            return self._is_more_to_write(written.seen)
        self._forget()
        self._serving_lease.renewed(sent_s, wanted.lease_duration_s)
        if self._tracker.insync.change == change:
            self._settled(wanted.in_sync)
            return False
        return True  # another change is pending by now

    async def _send(self, wanted: RegisterRecord, version: str, sent_s: float, change: InSyncChange | None) -> Written:
        """Write, and remember the request where no answer came."""
        self._serving_lease.limit(sent_s, wanted.lease_duration_s)
        try:
            written = await self._writer.write(wanted, version, self._note_unchanged)
        except OutcomeUnknownError:
            self._remember(wanted, version, sent_s, change)
            raise
        if not written.is_answered:
            self._remember(wanted, version, sent_s, change)
        return written

    def _remember(self, wanted: RegisterRecord, version: str, sent_s: float, change: InSyncChange | None) -> None:
        self._open_on, self._open_change = version, change or self._open_change
        self._open[wanted.renewed_ms] = sent_s, wanted.lease_duration_s
        if len(self._open) > _OPEN_MAX:
            del self._open[next(iter(self._open))]

    def _is_more_to_write(self, seen: Seen) -> bool:
        """Settle by a reading what became of the write that was not answered. Return whether to write again at once."""
        if self._look(seen.record):
            return False
        is_ours = self._resolve(seen)
        return not is_ours or self._tracker.insync.change is not None

    def _resolve(self, seen: Seen) -> bool:
        """Settle what became of the requests without an answer, if this reading proves that they are over. Return
        whether one of them was carried out.
        """
        if self._open_on in ("", seen.version):
            return False
        carried_out = self._open.get(seen.record.renewed_ms)
        if carried_out is not None:
            sent_s, lease_s = carried_out
            self._serving_lease.renewed(max(sent_s, self._unchanged_s), lease_s)
        is_settled = self._open_change is not None  # a change that was never sent stays
        self._forget()
        if is_settled:
            self._settled(seen.record.in_sync)
        return carried_out is not None

    def _forget(self) -> None:
        self._open_on, self._open_change, self._unchanged_s = "", None, 0.0
        self._open.clear()

    def _look(self, record: RegisterRecord) -> bool:
        """Set `is_lost` when another member leads, or none, and return it."""
        self.is_lost = record.holder != self._me or record.epoch != self._tracker.epoch
        return self.is_lost

    def _wanted(self, record: RegisterRecord, change: InSyncChange | None) -> RegisterRecord:
        tracker = self._tracker
        rules = tracker.rules
        said = LeaderTerms(tracker.epoch, rules.is_sync, rules.min_in_sync, record.lease_duration_s)
        # Every renewal differs from all others, whatever the clock does.
        self._renewed_ms = max(self._clock.now_ms(), self._renewed_ms + 1, record.renewed_ms + 1)
        renewed = operations.renew(record, self._me, tracker.epoch, tracker.confirmed, self._renewed_ms, said)
        assert isinstance(renewed, RegisterRecord), "looked at before"
        if change is None or record.in_sync != change.base:
            return renewed
        least = tracker.rules.min_in_sync
        changed = operations.change_set(renewed, self._me, tracker.epoch, change.base, change.target, least)
        if isinstance(changed, Denied):
            self.why = changed.reason
            return renewed
        return changed
