"""What a coordinator remembers from one round of questions to the next: since when, and who led.

All of it is lost when the coordinator dies, and nothing depends on it but patience: a new one suspects nobody before it
has watched for the whole time of suspicion itself, and asks for promises again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gantry.failover.decide import Observed, Policy, Snapshot
from gantry.failover.standing import is_cut_off, is_healthy, is_refusing, is_serving
from gantry.replication.hastate import MemberState, Role
from gantry.replication.record import Holder, Record
from gantry.replication.register import Seen

QUESTIONS_MIN = 4  # that have to fail before anybody is suspected
HAND_OVER_AGAIN_S = 30.0  # a planned change costs producers a pause, also one that is given up


class Notes:
    """One object for each watched group; instants are seconds on a clock that never goes back."""

    def __init__(self, ordinals: tuple[int, ...], policy: Policy, had_stores: bool) -> None:
        self._ordinals = ordinals
        self._policy = policy
        self._had_stores = had_stores
        self._version: str | None = None
        self._unchanged_since_s: float | None = None
        self._quiet_since_s: float | None = None
        self._read_s: float | None = None  # the register, last
        self._asked_s: float | None = None  # the members, last
        self._epoch = 0
        self._former: Holder | None = None
        self._first_answer_s: float | None = None
        self._lease_s = 0
        self._unwell_since_s: dict[int, float] = {}
        self._gone_since_s: dict[int, float] = {}
        self._sealed: dict[int, MemberState] = {}
        self._led_epoch = 0  # the last one that had a master
        self._tried: dict[int, int] = {}  # masterships per ordinal since a master was seen to serve
        self._restarts = 0  # of the master's process in a row, between which it did not serve for long
        self._serving_since_s: float | None = None
        self._cut_off_since_s: float | None = None
        self._full_since_s: float | None = None
        self._full_s = 0.0  # when the master's disk was last seen to be full
        self._hand_over_again_s = 0.0

    def read(self, seen: Seen | None, now_s: float) -> None:
        """The register was read."""
        version = None if seen is None else seen.version
        if version != self._version or self._unchanged_since_s is None:
            self._version, self._unchanged_since_s, self._quiet_since_s = version, now_s, self._read_s
        self._read_s = now_s
        epoch = 0 if seen is None else seen.record.epoch
        was_sealed = epoch == self._epoch  # if somebody leads it now who did not before
        if epoch != self._epoch:
            self._epoch, self._first_answer_s = epoch, None
            self._cut_off_since_s = self._full_since_s = self._serving_since_s = None
            self._sealed.clear()
        if seen is not None and seen.record.holder is not None:
            if epoch != self._led_epoch:
                self._led_epoch = epoch
                self._count(seen.record.holder.member.ordinal, was_sealed)
            self._former = seen.record.holder
            self._lease_s = max(self._lease_s, seen.record.lease_duration_s)

    def _count(self, ordinal: int, was_sealed: bool) -> None:
        """Somebody leads an epoch: it was elected, the group was handed over to it, or it was started again."""
        tried = self._tried.get(ordinal, 0)
        if self._former is None or self._former.member.ordinal != ordinal or was_sealed:
            self._restarts, self._tried[ordinal] = 0, tried + 1
        else:
            # It claimed the epoch itself: it is no slow member, so it is not waited for any longer than before.
            self._restarts, self._tried[ordinal] = self._restarts + 1, max(1, tried)

    def answered_seal(self, state: MemberState, now_s: float) -> None:
        """A member promised the register's epoch."""
        if state.promise == self._epoch:
            self._sealed[state.member.ordinal] = state
            self._first_answer_s = now_s if self._first_answer_s is None else self._first_answer_s

    def unsealed(self) -> list[int]:
        """Who has not answered the seal."""
        return [ordinal for ordinal in self._ordinals if ordinal not in self._sealed]

    def observe(
        self,
        record: Record | None,
        states: Mapping[int, MemberState],
        gone: frozenset[int],
        asked_s: float,
        now_s: float,
    ) -> None:
        """The answers to what was asked at `asked_s`; `gone` are ordinals whose process is known to be terminated."""
        # Silence began with the last question that was answered, not when we stopped to wait for this one.  We may
        # have stood still ourselves meanwhile, so one question alone makes nobody suspect.
        last_s, self._asked_s = asked_s if self._asked_s is None else self._asked_s, asked_s
        silent_since_s = max(last_s, now_s - self._policy.suspect_after_s / QUESTIONS_MIN)
        for ordinal in self._ordinals:
            state, sealed = states.get(ordinal), self._sealed.get(ordinal)
            _note(self._unwell_since_s, ordinal, not _is_well(state, record), silent_since_s)
            _note(self._gone_since_s, ordinal, ordinal in gone, now_s)
            if state is not None and state.role is Role.NONE and state.is_short:
                self._tried.setdefault(ordinal, 1)  # it was sealed as a master that its slaves cannot reach
            if state is None or sealed is None or state.promise >= self._epoch:
                continue
            if (state.me, state.store_uid) != (sealed.me, sealed.store_uid):
                del self._sealed[ordinal]  # it came back as somebody who has not promised: asked again
        if record is not None and record.holder is not None:
            self._judge(record, record.holder.member.ordinal, states.values(), now_s)

    def handed_over(self, now_s: float) -> None:
        """A planned change was asked for; if the same master goes on, it is asked again after a while only."""
        self._hand_over_again_s = now_s + HAND_OVER_AGAIN_S

    def _judge(self, record: Record, leader: int, states: Collection[MemberState], now_s: float) -> None:
        """Note whether the master serves, or is cut off from slaves that could go on without it."""
        if any(is_healthy(state, record) and state.is_disk_full for state in states):
            self._full_s = now_s
            self._full_since_s = now_s if self._full_since_s is None else self._full_since_s
        elif now_s - self._full_s >= self._policy.suspect_after_s:
            self._full_since_s = None  # not before: a full disk takes a message now and then
        if any(is_refusing(state, record) for state in states):
            self._tried.setdefault(leader, 1)  # the master next should be another one, although it may be furthest
        policy = self._policy
        if not is_cut_off(record, states, policy.min_in_sync, policy.replicas if policy.is_sync_master else 0):
            self._cut_off_since_s = None
            if is_serving(record, states, self._policy.min_in_sync):
                self._serves(leader, now_s)
            else:
                self._serving_since_s = None
        elif self._cut_off_since_s is None:
            self._cut_off_since_s = now_s
            self._tried.setdefault(leader, 1)

    def _serves(self, leader: int, now_s: float) -> None:
        if self._serving_since_s is None:
            self._serving_since_s = now_s
        elif now_s - self._serving_since_s >= self._policy.suspect_after_s:
            self._restarts = 0
        self._tried.clear()
        if self._restarts:
            self._tried[leader] = 1  # it may end again in a moment

    def snapshot(self, record: Record | None, states: Mapping[int, MemberState], now_s: float = 0.0) -> Snapshot:
        """All that is known now."""
        members = tuple(
            Observed(
                ordinal,
                states.get(ordinal),
                self._sealed.get(ordinal),
                self._unwell_since_s.get(ordinal),
                self._gone_since_s.get(ordinal),
            )
            for ordinal in self._ordinals
        )
        assert self._unchanged_since_s is not None, "the register is read first"
        return Snapshot(
            record,
            self._unchanged_since_s,
            members,
            self._policy,
            self._former,
            self._first_answer_s,
            self._had_stores,
            self._lease_s,
            dict(self._tried),
            self._cut_off_since_s,
            None if now_s < self._hand_over_again_s else self._full_since_s,
            self._quiet_since_s,
            restarts=self._restarts,
        )


def _is_well(state: MemberState | None, record: Record | None) -> bool:
    if state is None:
        return False
    holder = record.holder if record is not None else None
    if holder is None or holder.member.ordinal != state.member.ordinal:
        return True
    # Somebody else under the master's ordinal, its next process or another disk, is no master that is well.
    return state.me == holder and state.role is Role.MASTER and state.is_writable


def _note(since_s: dict[int, float], ordinal: int, is_so: bool, now_s: float) -> None:
    if is_so:
        since_s.setdefault(ordinal, now_s)
    else:
        since_s.pop(ordinal, None)
