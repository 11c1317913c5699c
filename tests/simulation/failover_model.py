"""A model of the failover protocol of one group, small enough to look at every interleaving.

What the protocol is stands in broker/docs/failover.md.  Here it is a set of moves on one value, `State`: any member
may crash, lose its tail or its disk, come back, follow, acknowledge, lead; masters change the in-sync set by
compare-and-set whose answers get lost; coordinators seal, ask and promote, forget everything in between, and may do
so at any time.  Moves are made one at a time in every order (`failover_search`); `Rules` says how much of everything
there is, and has a switch for each rule of the protocol.  With all rules on nothing bad can be reached; each rule that
is needed leads to a counterexample when it is switched off (`failover_cases`).

What must never be reached (`fault`):
    an in-sync member, with the incarnation that the register names, lacks an acknowledged message
    a master lacks an acknowledged message
    after fewer losses of disks than minInSync no whole copy is electable
    something is confirmed with fewer electable copies than minInSync
    a planned handover drops what was written
    a consumer's offset points behind the end of the new master's log

What a person gave up by FORCE counts as never acknowledged; everything that is acknowledged afterwards counts.

Not modelled: time (leases and beats), so neither "no two masters acknowledge at one instant" nor stale reads;
bytes and their damage; who is preferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

Message = int
Record = tuple[int, Message]  # (epoch, message)
Log = tuple[Record, ...]
Members = frozenset[tuple[int, int]]  # (ordinal, incarnation)


class Phase(IntEnum):
    """Of the register."""

    ACTIVE = 0
    SEALED = 1
    GONE = 2  # deleted by hand, or never made over disks that were kept
    LOST_SET = 3  # made again and sealed; nobody knows who was in sync


@dataclass(frozen=True, slots=True)
class Rules:
    """How much there is of everything, which variant, and the protocol's rules as switches."""

    members: int = 3
    messages: int = 2
    epochs: int = 3
    crashes: int = 1
    disk_losses: int = 0
    register_losses: int = 0
    forces: int = 0  # how often a person chooses who leads
    handovers: bool = False
    handover_leaves: bool = False  # a master that hands over may leave S with the same write
    leaves: bool = False
    consumers: bool = False
    is_written: bool = False  # everybody begins with message 0, which is acknowledged: to keep large groups small
    spontaneous_shrink: bool = True  # False: only who leaves is shrunk, to keep small cases small

    min_in_sync: int = 2
    async_flush: bool = False  # a crash may lose the newest record; that makes another incarnation
    self_epoch: bool = False  # a restarted master takes the next epoch by itself instead of going on in its own
    set_of_one: bool = False  # after a promotion S is the new master alone
    set_of_equals: bool = False  # after a promotion S is all who are equal to the new master, else every candidate
    keeps_unheard: bool = True  # where these are fewer than minInSync, all of the sealed S that may have its disk stay

    promise_fences: bool = True  # members refuse epochs below their promise
    promise_is_durable: bool = True
    shrink_after_register: bool = True  # who leaves S counts until the register agrees
    join_before_register: bool = True  # who joins S counts before the register is asked
    seal_freezes_set: bool = True
    elect_from_set: bool = True
    elect_most_advanced: bool = True
    elect_on_live_set: bool = True  # False: on S as it was at the seal
    elect_on_newest_set: bool = True  # False: on S as it was one change ago
    elect_incarnation: bool = True
    force_waits: bool = True  # until each other member of S promised or is known to be gone
    ack_by_all: bool = True  # False: ASYNC_MASTER, the master's word is enough
    ack_incarnation: bool = True
    confirmed_is_monotone: bool = True
    epoch_start_rule: bool = True
    truncate: bool = True
    shrink_bound: bool = True  # S never shrinks below minInSync
    replace_rule: bool = True  # REPLACE only past the mark that a joiner has to reach
    replace_counts_both: bool = True  # old and new are required while the outcome is unknown
    leave_after_register: bool = True
    freeze: bool = True  # nothing is confirmed with a set below minInSync
    freeze_counts_recorded: bool = True  # a joiner whose admission is not settled does not lift the freeze
    handover_in_set: bool = True  # the target is in S
    handover_waits: bool = True  # until the target is equal
    handover_stops_writes: bool = True
    handover_promise: bool = True  # the target promises before the register is asked
    handover_by_version: bool = True  # a late request fails when the register was written meanwhile
    bootstrap_needs_all: bool = True  # every ordinal answered with an empty disk
    recover_needs_all: bool = True
    recover_most_advanced: bool = True
    recover_after_promises: bool = True  # logs are compared when nobody can acknowledge any more
    recover_above_promises: bool = True  # the new epoch is above every promise
    clamp: bool = True  # offsets are cut to the log's end when a member leads or cuts its log
    counts_acked: bool = True  # False where all of S may lose its newest records: only offsets are looked at then


class Replica(NamedTuple):
    """A member.  From `view` on: what it knows as a master, gone with the process."""

    up: bool
    promised: int  # on disk before anything else happens in that epoch
    role: int  # > 0: acts as the master of this epoch
    log: Log
    incarnation: int
    link: tuple[int, int] | None  # (master, epoch) after handshake and cut
    led: int  # the last epoch that it led
    offset: int  # a consumer's, in messages
    view: Members | None = None
    pend: Members | None = None  # the set that it asked for, outcome unknown
    match: tuple[tuple[int, int, int], ...] = ()  # (ordinal, incarnation, records) as last heard of each disk
    start: int = 0  # records when it took the epoch
    confirmed: int = 0
    target: int = -1  # >= 0: hands over to this member and takes no more writes
    asked: tuple[int, Members] | None = None  # HANDOVER was sent: to whom, and what S was; outcome unknown


class State(NamedTuple):
    """Everything; hashable."""

    epoch: int
    holder: int  # -1: nobody
    phase: Phase
    in_sync: Members
    replicas: tuple[Replica, ...]
    answers: tuple[tuple[int, tuple[int, int, int, int]], ...]  # (who, (last epoch, records, incarnation, promise))
    acked: frozenset[Message]
    sent: int
    crashes: int
    disk_losses: int
    register_losses: int
    forces: int
    narrowed: bool  # a promotion left S below minInSync: one more loss is one too many
    cached: Members | None  # what a coordinator with a stale view takes for S
    wrong: str = ""  # a move itself broke a promise


def begin(rules: Rules) -> State:
    """Member 0 leads epoch 1, all are in sync, nothing is written, or message 0."""
    everybody = frozenset((who, 0) for who in range(rules.members))
    log: Log = ((1, 0),) if rules.is_written else ()
    slave = Replica(True, 1, 0, log, 0, (0, 1), 0, 0)
    known = range(rules.members if rules.is_written else 1)
    match = tuple((who, 0, len(log)) for who in known)
    master = slave._replace(role=1, link=None, led=1, view=everybody, match=match, confirmed=len(log))
    replicas = (master, *(slave for _ in range(rules.members - 1)))
    acked = frozenset(message for _, message in log)
    return State(1, 0, Phase.ACTIVE, everybody, replicas, (), acked, len(log), 0, 0, 0, 0, False, None)


def put(state: State, who: int, replica: Replica) -> State:
    """The state with one member changed."""
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:who], replica, *replicas[who + 1 :]))


def last_epoch(log: Log) -> int:
    """Of the newest record."""
    return log[-1][0] if log else 0


def common_records(one: Log, other: Log) -> int:
    """How many records two logs share from their beginning."""
    for count, (record, counterpart) in enumerate(zip(one, other, strict=False)):
        if record != counterpart:
            return count
    return min(len(one), len(other))


def required(rules: Rules, master: Replica) -> Members:
    """Whose acknowledgement a master waits for."""
    view, pend = master.view, master.pend
    assert view is not None
    if pend is None:
        return view
    if pend < view:
        return view if rules.shrink_after_register else pend
    if len(pend) == len(view):
        return view | pend if rules.replace_counts_both else view
    return view | pend if rules.join_before_register else view


def has_enough(rules: Rules, master: Replica) -> bool:
    """Whether the set is large enough to confirm anything."""
    assert master.view is not None
    if not rules.freeze_counts_recorded:
        return len(required(rules, master)) >= rules.min_in_sync
    return min(len(master.view), len(master.pend or master.view)) >= rules.min_in_sync


def heard(master: Replica, who: int, incarnation: int, records: int) -> Replica:
    """A master that has heard what a disk holds."""
    rest = [entry for entry in master.match if entry[:2] != (who, incarnation)]
    return master._replace(match=tuple(sorted([*rest, (who, incarnation, records)])))


def newest_word(master: Replica, who: int) -> tuple[int, int] | None:
    """(incarnation, records) of a member's newest disk that was heard of."""
    return next(((which, records) for other, which, records in reversed(master.match) if other == who), None)


def records_of(rules: Rules, master: Replica, member: tuple[int, int]) -> int:
    """What a master knows a member of the set to have."""
    ordinal, incarnation = member
    for who, which, records in reversed(master.match):
        if who == ordinal and (which == incarnation or not rules.ack_incarnation):
            return records
    return 0


def counted(rules: Rules, master: Replica) -> int:
    """What every required member has, as far as the master knows."""
    return min(records_of(rules, master, member) for member in required(rules, master))


def confirm(rules: Rules, state: State, who: int) -> State:
    """Move a master's confirmed point to what is counted now."""
    master = state.replicas[who]
    if not master.role or (rules.freeze and not has_enough(rules, master)):
        return state
    now = counted(rules, master)
    if rules.confirmed_is_monotone:
        now = max(now, master.confirmed)
    if now == master.confirmed:
        return state
    wrong = state.wrong
    if now > master.confirmed and is_recorded(state, who) and len(state.in_sync) < rules.min_in_sync:
        wrong = f"member {who} confirms {now} records with {len(state.in_sync)} electable copies"
    return put(state, who, master._replace(confirmed=now))._replace(wrong=wrong)


def is_recorded(state: State, who: int) -> bool:
    """Whether the register names this member master, in the epoch that it leads."""
    return state.phase is Phase.ACTIVE and state.holder == who and state.epoch == state.replicas[who].role


def fault(rules: Rules, state: State) -> str:
    """What is wrong with a state; empty when nothing is."""
    if state.wrong:
        return state.wrong
    if state.phase is Phase.ACTIVE:
        found = _fault_of_master(state, state.holder, rules)
        if found:
            return found
    if not rules.counts_acked:
        return ""
    acked, whole = state.acked, 0
    for who, incarnation in state.in_sync:
        replica = state.replicas[who]
        if replica.incarnation == incarnation:
            missing = acked - {message for _, message in replica.log}
            if missing and rules.ack_by_all:
                return f"in-sync member {who} misses acknowledged {sorted(missing)}"
            whole += not missing
    if not whole and acked and not state.narrowed and state.phase in (Phase.ACTIVE, Phase.SEALED):
        if sum(replica.incarnation for replica in state.replicas) < rules.min_in_sync:
            return "no whole copy is electable"
    return ""


def _fault_of_master(state: State, who: int, rules: Rules) -> str:
    master = state.replicas[who]
    if not any(ordinal == who for ordinal, _ in state.in_sync) and rules.elect_from_set:
        return f"the register names {who} master, who is not in sync"
    if master.role != state.epoch:
        return ""
    missing = state.acked - {message for _, message in master.log}
    if missing and rules.counts_acked:
        return f"master {who} of epoch {state.epoch} misses acknowledged {sorted(missing)}"
    return f"a consumer of master {who} would pass over what comes next" if master.offset > len(master.log) else ""
