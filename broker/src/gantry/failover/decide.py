"""The next step for a group: a pure function from one observation to one decision, without clock, network or memory.

The caller (`coordinator`) reads the register live, asks every member, and calls `decide`.  It carries the decision out
by one compare-and-set on the version that it read, and repeats.  It may die, run twice, or act on an outdated decision:
the register refuses the write.  The seal is also sent to every member that has not answered it, without a decision.

Sealing is the only decision that can hurt a healthy group.  It is not made while the master answers as healthy and its
slaves reach it, while a silent master renews, while no member answers (then the observer is cut off), or while no other
member is electable.  Promoting is the only decision that can lose messages, so a candidate is compared with the
register that was read.  broker/docs/failover.md, sections 3 and 4, is normative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gantry.failover.standing import (
    HandOver,
    furthest,
    has_resigned,
    have_all_lost,
    heir_of_burdened,
    is_admitted,
    is_electable,
    is_healthy,
    is_same_disk,
    patience_s,
    set_of_next,
)
from gantry.replication.hastate import MemberState
from gantry.replication.members import SyncSet, format_set
from gantry.replication.record import Holder, Phase, RegisterRecord

MARGIN_S = 2.0  # beyond the lease: clocks drift, and an answer is some milliseconds old
CHOSEN_S = 10.0  # wait for the promise of the chosen member
COLLECT_S = 1.0  # wait at most this long for more answers after the first: saves messages that were not acknowledged
_COLLECT_OF_PATIENCE = 0.2  # and at most this part of the time of suspicion


@dataclass(frozen=True, slots=True)
class Forced:
    """An operator's choice of master; valid while the register is in this epoch, or sealed right after it."""

    ordinal: int
    epoch: int
    accept_split: bool = False  # a member that does not answer may still be acknowledging
    unclean: bool = False  # the chosen member need not be in sync: the messages that it lacks are lost


@dataclass(frozen=True, slots=True)
class Policy:
    """The configuration of the group that decisions depend on."""

    replicas: int
    min_in_sync: int  # the least that a member says
    is_sync_master: bool  # every member says SYNC_MASTER
    suspect_after_s: float
    preferred: int = 0  # ordinal that leads when several members are equal
    after_total_power_loss: bool = True  # when every member of the set lost its newest records: continue with the rest
    is_automatic: bool = True  # a master that is not well is sealed without an operator
    forced: Forced | None = None
    has_fast_path: bool = True  # no wait for the lease of a master that needs its slaves
    knows_size: bool = False  # `replicas` is certain: lists of the members may have places for more, as on Kubernetes

    @property
    def is_fast(self) -> bool:
        """Whether no member may acknowledge without another one, and users do not want to wait all the same."""
        return self.has_fast_path and self.is_sync_master and self.min_in_sync >= 2


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed of one ordinal; instants are seconds on the observer's monotonic clock."""

    ordinal: int
    state: MemberState | None = None  # the last answer, when the last question was answered
    sealed: MemberState | None = None  # its answer to the seal of the register's epoch
    unwell_since_s: float | None = None  # no answer, or a master that is not writable, since then
    gone_since_s: float | None = None  # since then its process is known to have ended
    sealed_s: float | None = None  # when it answered that seal


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one round of questions found."""

    record: RegisterRecord | None  # None: there is no register; one that cannot be read is handled by the caller
    unchanged_since_s: float  # the register has had this version since then
    members: tuple[Observed, ...]  # every ordinal of the group
    policy: Policy
    former: Holder | None = None  # who led before the seal, if the observer saw it
    first_answer_s: float | None = None  # when the first answer to this epoch's seal came
    lease_s: int = 0  # the longest lease that the observer saw: a serving lease may be older than a shorter setting
    tried: Mapping[int, int] = field(default_factory=dict)  # masterships per ordinal since a master served
    cut_off_since_s: float | None = None  # the master renews, but cannot reach slaves that could go on without it
    burdened_since_s: float | None = None  # by a full or slow disk; None again for a while after a handover
    quiet_since_s: float | None = None  # of a reading, if there was one, or shortly, before `unchanged_since_s`
    restarts: int = 0  # of the master's process in a row, between which it did not serve for long


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do now. due_s: the instant at which that changes by time alone."""

    reason: str
    due_s: float = field(default=float("inf"), compare=False)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nothing can be done until a member comes back or an operator decides."""

    reason: str


@dataclass(frozen=True, slots=True)
class Seal:
    """End the epoch of the present master."""

    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make `chosen` the master of the sealed epoch; `in_sync` are members that have every acknowledged message."""

    chosen: Holder
    in_sync: SyncSet


@dataclass(frozen=True, slots=True)
class Force:
    """Make `chosen` the only in-sync member and master, although it may lack acknowledged messages."""

    chosen: Holder
    log_end: int


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Create the first register, with these stores admitted in this order."""

    stores: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """Create the register again with an epoch above every promise in `states`; every member answered."""

    reason: str
    states: tuple[MemberState, ...]


Decision = Wait | Blocked | Seal | Promote | Force | Bootstrap | Recover | HandOver


def decide(seen: Snapshot, now_s: float) -> Decision:
    """Return the next step for the group. now_s: seconds on the observer's monotonic clock."""
    record = seen.record
    if record is None:
        return _without_register(seen)
    states = _states(seen)
    if any(max(state.epoch, state.last_epoch) > record.epoch or state.promise > record.epoch + 1 for state in states):
        # A promise of the next epoch alone means that a handover is being prepared.
        return _recover(seen, f"members have acted beyond epoch {record.epoch}: the register went back")
    chosen = _forced(seen, record, now_s)
    if chosen is not None and not isinstance(chosen, str):
        return chosen
    decision = _by_phase(seen, record, now_s)
    if chosen and isinstance(decision, Wait | Blocked):
        return replace(decision, reason=f"{decision.reason}; the failover that was asked for: {chosen}")
    return decision


def _by_phase(seen: Snapshot, record: RegisterRecord, now_s: float) -> Decision:
    if record.phase is Phase.ACTIVE:
        return _active(seen, record, now_s)
    if record.phase is Phase.SEALED:
        return _sealed(seen, record, now_s)
    return _without_set(seen, record)


def _forced(seen: Snapshot, record: RegisterRecord, now_s: float) -> Decision | str | None:
    """Return the decision that the operator's choice leads to, or why it cannot be done; None without a choice."""
    wanted = seen.policy.forced
    if wanted is None:
        return None
    target = next((each.state for each in seen.members if each.ordinal == wanted.ordinal and each.state), None)
    if record.phase is Phase.ACTIVE and record.epoch == wanted.epoch:
        if record.holder is not None and record.holder.member.ordinal == wanted.ordinal:
            return None  # it leads already
        if target is None:
            return f"member {wanted.ordinal} does not answer"
        is_able = is_electable(target, record) or (wanted.unclean and is_admitted(target, record))
        return Seal(f"member {wanted.ordinal} was chosen to lead next") if is_able else _unclean(wanted)
    if record.phase is Phase.SEALED and record.epoch in (wanted.epoch, wanted.epoch + 1):
        return _forced_of_sealed(seen, record, wanted, now_s)
    return None


def _forced_of_sealed(seen: Snapshot, record: RegisterRecord, wanted: Forced, now_s: float) -> Decision | str:
    answers = _promised(seen, record)
    target = next((state for state in answers if state.member.ordinal == wanted.ordinal), None)
    if target is None:
        is_there = any(each.ordinal == wanted.ordinal and each.state for each in seen.members)
        if is_there and (seen.first_answer_s is None or now_s - seen.first_answer_s < CHOSEN_S):
            return Wait(f"member {wanted.ordinal}, who was chosen, has not promised yet")
        return f"member {wanted.ordinal} has not promised epoch {record.epoch}"
    if is_electable(target, record):
        if not wanted.accept_split and not _is_old_master_silent(seen, record, answers, now_s):
            return Wait("the former master may still hold its serving lease")
        able = [each for each in answers if is_electable(each, record)]
        return Promote(target.me, set_of_next(record, able, _states(seen), seen.policy.min_in_sync))
    if not wanted.unclean:
        return _unclean(wanted)
    if not is_admitted(target, record):
        return f"the store of member {wanted.ordinal} is not the one that the register knows"
    heard = {each.member.ordinal for each in answers}
    heard |= {each.ordinal for each in seen.members if each.gone_since_s is not None}
    left = sorted({each.ordinal for each in record.in_sync} - heard)
    if left and not wanted.accept_split:
        return f"members {left} have not promised and are not known to be gone: they may still be acknowledging"
    return Force(target.me, target.log_end)


def _unclean(wanted: Forced) -> str:
    return f"member {wanted.ordinal} may lack acknowledged messages, and unclean failover is refused"


def _states(seen: Snapshot) -> list[MemberState]:
    return [member.state for member in seen.members if member.state is not None]


def _without_register(seen: Snapshot) -> Decision:
    states = _states(seen)
    if len(states) == seen.policy.replicas and all(state.is_empty for state in states):
        return Bootstrap(tuple((state.member.ordinal, state.store_uid) for state in states))
    return _recover(seen, "there is no register, and disks that hold something")


def _recover(seen: Snapshot, reason: str) -> Decision:
    missing = [member.ordinal for member in seen.members if member.state is None]
    if missing or len(seen.members) < seen.policy.replicas:
        return Blocked(f"{reason}; waiting for the answers of ordinals {missing}")
    return Recover(reason, tuple(_states(seen)))


def _active(seen: Snapshot, record: RegisterRecord, now_s: float) -> Decision:
    holder = record.holder
    assert holder is not None
    master = next((member for member in seen.members if member.ordinal == holder.member.ordinal), None)
    state = master.state if master is not None else None
    after_s = patience_s(seen.policy.suspect_after_s, seen.tried.get(holder.member.ordinal, 0), seen.restarts)
    if state is not None and is_healthy(state, record):
        return _cut_off(seen, holder, record, after_s, now_s)
    if not _states(seen):
        return Blocked("no member of the group answers")
    heirs = [each for each in _states(seen) if each.member in record.in_sync and each.member != holder.member]
    if not heirs and not (seen.policy.after_total_power_loss and have_all_lost(_states(seen), record)):
        return Blocked(f"the master {holder} is not well, and nobody else of {format_set(record.in_sync)} answers")
    due_s = _suspect_at(seen, master, after_s)
    if now_s >= due_s:
        if not seen.policy.is_automatic:
            return Blocked(f"the master {holder} is not well, and who leads next is for a person to choose")
        return Seal(f"the master {holder} of epoch {record.epoch} is not well")
    return Wait(f"the master {holder} is not well, for less than {after_s:g} s", due_s)


def _cut_off(seen: Snapshot, holder: Holder, record: RegisterRecord, after_s: float, now_s: float) -> Decision:
    """Check-quorum: decide about a healthy master that its slaves cannot reach, or whose disk is full or slow."""
    since_s = seen.cut_off_since_s
    if since_s is None:
        since_s = seen.burdened_since_s
        is_due = since_s is not None and now_s - since_s >= seen.policy.suspect_after_s
        target = heir_of_burdened(record, _states(seen)) if is_due and seen.policy.is_automatic else None
        what = "full" if any(state.me == holder and state.is_disk_full for state in _states(seen)) else "too slow"
        return Wait("the master is well") if target is None else HandOver(target, f"the disk of {holder} is {what}")
    are_late = any(state.me == holder and state.are_links_late for state in _states(seen))
    what = "links to its slaves that are too slow" if are_late else "too few slaves connected"
    if now_s - since_s < after_s:
        return Wait(f"the master {holder} has {what}, for less than {after_s:g} s", since_s + after_s)
    if not seen.policy.is_automatic:
        return Blocked(f"the master {holder} has {what}; a person has to choose who leads next")
    return Seal(f"the master {holder} of epoch {record.epoch} has {what}")


def _suspect_at(seen: Snapshot, master: Observed | None, after_s: float) -> float:
    """Return the instant at which the master has been unwell, without a renewal, for long enough to be sealed."""
    if master is None:
        return seen.unchanged_since_s + after_s
    gone_s = master.gone_since_s + seen.policy.suspect_after_s if master.gone_since_s is not None else float("inf")
    if master.unwell_since_s is None:
        return gone_s
    # From the last reading that showed an older version: one period of questions is no part of the suspicion.
    quiet_s = seen.unchanged_since_s if seen.quiet_since_s is None else seen.quiet_since_s
    return min(gone_s, max(master.unwell_since_s, quiet_s) + after_s)


def _sealed(seen: Snapshot, record: RegisterRecord, now_s: float) -> Decision:
    answers = _promised(seen, record)
    candidates = [state for state in answers if is_electable(state, record)]
    ordinals = {member.ordinal for member in record.in_sync}
    if not candidates:
        return _nobody_electable(seen, record, answers)
    gone = {member.ordinal for member in seen.members if _is_away(member, seen.policy, now_s)}
    may_come = ordinals - gone - {state.member.ordinal for state in answers}
    collect_s = min(COLLECT_S, _COLLECT_OF_PATIENCE * seen.policy.suspect_after_s)
    if may_come and (seen.first_answer_s is None or now_s - seen.first_answer_s < collect_s):
        return Wait("more answers may come")
    if not _is_old_master_silent(seen, record, answers, now_s):
        return Wait("the former master may still hold its serving lease")
    # All candidates have what was acknowledged, so one that was promoted before and never served can be passed over.
    fewest = min(seen.tried.get(state.member.ordinal, 0) for state in candidates)
    others = (state for state in _states(seen) if is_electable(state, record))
    if any(seen.tried.get(state.member.ordinal, 0) < fewest for state in others):
        if seen.first_answer_s is None or now_s - seen.first_answer_s < CHOSEN_S:
            return Wait("a member that was not given the group in vain has not promised yet")
    fresh = [state for state in candidates if seen.tried.get(state.member.ordinal, 0) == fewest]
    best = furthest(fresh, seen.policy.preferred)
    # The next master would wait for a member with a full disk, or for one that is cut off; both join later.
    able = [best, *(state for state in fresh if not state.is_disk_full)]
    return Promote(best.me, set_of_next(record, able, _states(seen), seen.policy.min_in_sync))


def _is_away(member: Observed, policy: Policy, now_s: float) -> bool:
    """Return whether its process is known to have ended, or it has not answered for as long as suspicion takes."""
    if member.gone_since_s is not None:
        return True
    is_silent = member.state is None and member.unwell_since_s is not None
    return is_silent and now_s - (member.unwell_since_s or 0.0) >= policy.suspect_after_s


def _promised(seen: Snapshot, record: RegisterRecord) -> list[MemberState]:
    """Return the present states of the members that have promised this epoch and still answer.

    The answer of a process that has ended does not count: the set could name a disk that is lost by now.
    """
    answers = []
    for member in seen.members:
        state, sealed = member.state, member.sealed
        if state is None or sealed is None or state.store_uid != sealed.store_uid:
            continue
        if state.promise == record.epoch:
            answers.append(state)
        elif state.me == sealed.me and sealed.promise == record.epoch:  # it promised after it was asked for its state
            answers.append(sealed)
    return answers


def _nobody_electable(seen: Snapshot, record: RegisterRecord, answers: list[MemberState]) -> Decision:
    needed = format_set(record.in_sync)
    if not {member.ordinal for member in record.in_sync} <= {state.member.ordinal for state in answers}:
        return Blocked(f"none of {needed} has promised epoch {record.epoch} with the log that is needed")
    if not any(is_same_disk(state.member, member) for state in answers for member in record.in_sync):
        return Blocked(f"none of {needed} has its disk any more; a person has to choose")
    if not seen.policy.after_total_power_loss:
        return Blocked(f"all of {needed} lost their newest records; a person has to choose")
    return _recover(seen, f"all of {needed} lost their newest records")


def _is_old_master_silent(seen: Snapshot, record: RegisterRecord, answers: list[MemberState], now_s: float) -> bool:
    led = record.last_led
    if led is not None and led.needs_slaves and seen.policy.is_fast:
        return True  # one promise is enough to stop its acknowledgements
    if len(answers) == seen.policy.replicas:
        return True
    former = [each for each in seen.members if seen.former is not None and each.ordinal == seen.former.member.ordinal]
    if any(each.sealed or each.gone_since_s is not None or has_resigned(each.state, seen.former) for each in former):
        return True
    lease_s = max(record.lease_duration_s, seen.lease_s, 0 if led is None else led.lease_s)
    # A member that promised answers no beats; what it answered before is over after less than a suspicion.
    promised_s = [each.sealed_s or 0.0 for each in seen.members if each.sealed and each.sealed.member in record.in_sync]
    is_unheard = now_s - min(promised_s, default=now_s) >= seen.policy.suspect_after_s
    return is_unheard and now_s - seen.unchanged_since_s >= lease_s + MARGIN_S


def _without_set(seen: Snapshot, record: RegisterRecord) -> Decision:
    """Decide while bootstrapping or recovering: the in-sync set is unknown, so every member has to answer."""
    answers = _promised(seen, record)
    missing = seen.policy.replicas - len(answers)
    if missing:
        return Blocked(f"the group is {record.phase.value}; {missing} of {seen.policy.replicas} have not promised")
    strangers = [str(state.member) for state in answers if not is_admitted(state, record)]
    if strangers:
        return Blocked(f"the stores of {strangers} are not those that the register knows")
    # Members with equal logs may have different metadata: one that has just come back may lack the latest changes.
    # The former master knows the highest confirmed offset, members that were in sync the next highest.
    best = furthest(answers, seen.policy.preferred, lambda state: -state.confirmed)
    return Promote(best.me, frozenset(state.member for state in answers if state.advance == best.advance))
