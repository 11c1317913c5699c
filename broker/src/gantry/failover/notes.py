"""What a coordinator remembers between rounds: since when a member is unwell, which one led, which ones promised.

All of it is lost when the coordinator ends, and only waiting times depend on it.  A new coordinator suspects no member
before it has watched for the whole time of suspicion itself, and it asks for promises again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gantry.failover.decide import Observed, Policy, Snapshot
from gantry.failover.standing import (
    PATIENCE_S_MAX,
    is_burdened,
    is_cut_off,
    is_healthy,
    is_linked_late,
    is_refusing,
    is_serving,
    patience_s,
)
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.record import Holder, RegisterRecord
from gantry.replication.register import Seen

QUESTIONS_MIN = 4  # so many questions have to fail before a member is suspected
# A renewal is at most this part of a suspicion older than the reading that shows it, however long none succeeded: what
# a master serves after a renewal lasts 0.15 of a suspicion less (`replication.timers`).
RENEWED_BEFORE = 0.125
# For so long after a seal a round does not wait for members that were silent for a whole suspicion.  Later it does: one
# that is only slow may be the only candidate.
_HURRY_S = 1.0
HAND_OVER_AGAIN_S = 30.0  # a handover costs producers a pause, even when it is given up


class Notes:
    """The memory of one coordinator for one group; instants are seconds on a monotonic clock."""

    def __init__(self, ordinals: tuple[int, ...], policy: Policy) -> None:
        self._ordinals = ordinals
        self.policy = policy  # of the present round
        self._version: str | None = None
        self._unchanged_since_s: float | None = None
        self._quiet_since_s: float | None = None
        self._read_s: float | None = None  # when the register was last read
        self._asked_s: float | None = None  # when the members were last asked
        self._epoch = 0
        self._former: Holder | None = None
        self._first_answer_s: float | None = None
        self._lease_s = 0
        self._unwell_since_s: dict[int, float] = {}
        self._silent_since_s: dict[int, float] = {}
        self._gone_since_s: dict[int, float] = {}
        self._sealed: dict[int, MemberState] = {}
        self._sealed_s: dict[int, float] = {}
        self._led_epoch = 0  # the last one that had a master
        self._tried: dict[int, int] = {}  # masterships per ordinal since a master was seen to serve
        self._restarts = 0  # of the master's process in a row, between which it did not serve for long
        self._serving_since_s: float | None = None
        self._cut_off_since_s: float | None = None
        self._burdened_since_s: float | None = None
        self._is_linked_late = False  # the master of this epoch is to be sealed for its late links
        self._late_again_s = 0.0  # no master is sealed for late links before
        self._late_pause_s = HAND_OVER_AGAIN_S
        self._burdened_s = 0.0  # when the master's disk was last seen to be full or slow
        self._hand_over_again_s = 0.0

    def read(self, seen: Seen | None, now_s: float) -> None:
        """Note what the register held at `now_s`. seen: None when there is no register."""
        version = None if seen is None else seen.version
        if version != self._version or self._unchanged_since_s is None:
            self._version, self._unchanged_since_s, self._quiet_since_s = version, now_s, self._read_s
            if self._read_s is not None:
                self._quiet_since_s = max(self._read_s, now_s - RENEWED_BEFORE * self.policy.suspect_after_s)
        self._read_s = now_s
        epoch = 0 if seen is None else seen.record.epoch
        was_sealed = epoch == self._epoch  # when the epoch has a master now and had none before
        if epoch != self._epoch:
            if self._is_linked_late:
                self._pause_lateness(now_s)
            self._epoch, self._first_answer_s = epoch, None
            self._cut_off_since_s = self._burdened_since_s = self._serving_since_s = None
            self._sealed.clear()
        if seen is not None and seen.record.holder is not None:
            if epoch != self._led_epoch:
                self._led_epoch = epoch
                self._count(seen.record.holder.member.ordinal, was_sealed)
            self._former = seen.record.holder
            self._lease_s = max(self._lease_s, seen.record.lease_duration_s)

    def _pause_lateness(self, now_s: float) -> None:
        """Let the next master stay for a while, whatever its links: twice as long each time, 5 minutes at most."""
        if now_s - self._late_again_s >= PATIENCE_S_MAX:
            self._late_pause_s = HAND_OVER_AGAIN_S
        self._is_linked_late, self._late_again_s = False, now_s + self._late_pause_s
        self._late_pause_s = min(PATIENCE_S_MAX, 2 * self._late_pause_s)

    def _count(self, ordinal: int, was_sealed: bool) -> None:
        """Count a new mastership: the member was elected, was handed the group, or its process was started again."""
        tried = self._tried.get(ordinal, 0)
        if self._former is None or self._former.member.ordinal != ordinal or was_sealed:
            self._restarts, self._tried[ordinal] = 0, tried + 1
        else:
            # It claimed the epoch itself, so it does not start slowly: the waiting time does not grow.
            self._restarts, self._tried[ordinal] = self._restarts + 1, max(1, tried)

    def answered_seal(self, state: MemberState, now_s: float) -> None:
        """Note that a member promised the register's epoch."""
        if state.promise == self._epoch:
            self._sealed[state.member.ordinal] = state
            self._sealed_s[state.member.ordinal] = now_s
            self._first_answer_s = now_s if self._first_answer_s is None else self._first_answer_s

    def unsealed(self) -> list[int]:
        """Return the ordinals that have not answered the seal."""
        return [ordinal for ordinal in self._ordinals if ordinal not in self._sealed]

    def silent(self) -> frozenset[int]:
        """Return the ordinals that did not answer the last round."""
        return frozenset(self._silent_since_s)

    def not_waited_for(self, now_s: float) -> frozenset[int]:
        """Return the ordinals whose answers a round of a sealed group does not wait for."""
        if self._unchanged_since_s is None or now_s - self._unchanged_since_s >= _HURRY_S:
            return frozenset()
        silent = self._silent_since_s.items()
        return frozenset(each for each, since_s in silent if now_s - since_s >= self.policy.suspect_after_s)

    def observe(
        self,
        record: RegisterRecord | None,
        states: Mapping[int, MemberState],
        gone: frozenset[int],
        asked_s: float,
        now_s: float,
    ) -> None:
        """Note the answers to the questions of `asked_s`. gone: ordinals whose process is known to have ended."""
        # Silence began with the last question that was answered, not with the time-out of this one.  This process may
        # have been paused meanwhile, so a single unanswered question raises no suspicion.
        last_s, self._asked_s = asked_s if self._asked_s is None else self._asked_s, asked_s
        silent_since_s = max(last_s, now_s - self.policy.suspect_after_s / QUESTIONS_MIN)
        for ordinal in self._ordinals:
            state, sealed = states.get(ordinal), self._sealed.get(ordinal)
            _note(self._unwell_since_s, ordinal, not _is_well(state, record), silent_since_s)
            _note(self._silent_since_s, ordinal, state is None, silent_since_s)
            _note(self._gone_since_s, ordinal, ordinal in gone, now_s)
            if state is not None and state.role is MemberRole.NONE and state.is_short:
                self._tried.setdefault(ordinal, 1)  # it was sealed while its slaves could not reach it
            if state is None or sealed is None or state.promise >= self._epoch:
                continue
            if (state.me, state.store_uid) != (sealed.me, sealed.store_uid):
                del self._sealed[ordinal]  # another process or disk that has not promised: asked again
        if record is not None and record.holder is not None:
            self._judge(record, record.holder.member.ordinal, states.values(), now_s)

    def handed_over(self, now_s: float) -> None:
        """Note that a handover was asked for; the next one is asked for after `HAND_OVER_AGAIN_S` at the earliest."""
        self._hand_over_again_s = now_s + HAND_OVER_AGAIN_S

    def _judge(self, record: RegisterRecord, leader: int, states: Collection[MemberState], now_s: float) -> None:
        """Note whether the master serves, or is cut off from slaves that could continue without it."""
        if any(is_burdened(state, record) for state in states):
            self._burdened_s = now_s
            if any(state.is_disk_late for state in states):  # the master has measured it for long enough
                self._burdened_since_s = now_s - self.policy.suspect_after_s
            elif self._burdened_since_s is None:
                self._burdened_since_s = now_s
        elif now_s - self._burdened_s >= self.policy.suspect_after_s:
            self._burdened_since_s = None  # not earlier: a full disk still takes a message now and then
        if any(is_refusing(state, record) for state in states):
            self._tried.setdefault(leader, 1)  # the next master should be another member, even if this log is longest
        policy = self.policy
        self._is_linked_late = now_s >= self._late_again_s and is_linked_late(record, states, policy.min_in_sync)
        if self._is_linked_late:
            # The master has measured it for long enough, however often it led without success.
            tried = self._tried.setdefault(leader, 1)
            self._cut_off_since_s = now_s - patience_s(policy.suspect_after_s, tried, self._restarts)
        elif not is_cut_off(record, states, policy.min_in_sync, policy.replicas if policy.is_sync_master else 0):
            self._cut_off_since_s = None
            if is_serving(record, states, self.policy.min_in_sync):
                self._serves(leader, now_s)
            else:
                self._serving_since_s = None
        elif self._cut_off_since_s is None:
            self._cut_off_since_s = now_s
            self._tried.setdefault(leader, 1)

    def _serves(self, leader: int, now_s: float) -> None:
        if self._serving_since_s is None:
            self._serving_since_s = now_s
        elif now_s - self._serving_since_s >= self.policy.suspect_after_s:
            self._restarts = 0
        self._tried.clear()
        if self._restarts:
            self._tried[leader] = 1  # its process may soon end again

    def snapshot(
        self, record: RegisterRecord | None, states: Mapping[int, MemberState], now_s: float = 0.0
    ) -> Snapshot:
        """Return what is known now, as the input of `decide`."""
        members = tuple(
            Observed(
                ordinal,
                states.get(ordinal),
                self._sealed.get(ordinal),
                self._unwell_since_s.get(ordinal),
                self._gone_since_s.get(ordinal),
                self._sealed_s.get(ordinal) if ordinal in self._sealed else None,
            )
            for ordinal in self._ordinals
        )
        assert self._unchanged_since_s is not None, "the register is read first"
        return Snapshot(
            record,
            self._unchanged_since_s,
            members,
            self.policy,
            self._former,
            self._first_answer_s,
            self._lease_s,
            dict(self._tried),
            self._cut_off_since_s,
            None if now_s < self._hand_over_again_s else self._burdened_since_s,
            self._quiet_since_s,
            restarts=self._restarts,
        )


def _is_well(state: MemberState | None, record: RegisterRecord | None) -> bool:
    if state is None:
        return False
    # Another process or disk under the master's ordinal is not the master that the register names.
    if record is None or record.holder is None or record.holder.member.ordinal != state.member.ordinal:
        return True
    return is_healthy(state, record)


def _note(since_s: dict[int, float], ordinal: int, is_so: bool, now_s: float) -> None:
    if is_so:
        since_s.setdefault(ordinal, now_s)
    else:
        since_s.pop(ordinal, None)
