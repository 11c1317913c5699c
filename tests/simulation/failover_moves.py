"""The moves of the failover model: what may happen next; see `failover_model`.

A compare-and-set whose answer is lost is two moves: the register changes, and much later or never its sender learns of
it.  A sender that gives a request up does so by a later write of its own, which makes the old request fail: one move.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation import failover_register as register
from simulation.failover_model import (
    Phase,
    Replica,
    Rules,
    State,
    common_records,
    confirm,
    has_enough,
    heard,
    is_recorded,
    last_epoch,
    newest_word,
    put,
    records_of,
    required,
)

Move = tuple[str, State]


def moves(rules: Rules, state: State) -> Iterator[Move]:
    """Every next state, each with the name of what happens."""
    for who, replica in enumerate(state.replicas):
        if not replica.up:
            yield f"restart{who}", put(state, who, replica._replace(up=True))
            continue
        yield from _faults(rules, state, who)
        yield from register.answers(rules, state, who)
        yield from _leading(rules, state, who)
        if replica.role:
            yield from _writing(rules, state, who)
            yield from _changing_the_set(rules, state, who)
            if rules.handovers:
                yield from _handing_over(rules, state, who)
        else:
            yield from _slave_role(rules, state, who)
    yield from register.coordinator(rules, state)


def process_gone(replica: Replica) -> Replica:
    """What is left of a member when its process is."""
    return Replica(False, replica.promised, 0, replica.log, replica.incarnation, None, replica.led, replica.offset)


def _faults(rules: Rules, state: State, who: int) -> Iterator[Move]:
    replica = state.replicas[who]
    if state.crashes < rules.crashes:
        after = state._replace(crashes=state.crashes + 1)
        down = process_gone(replica)
        if not rules.promise_is_durable:
            down = down._replace(promised=last_epoch(replica.log))
        yield f"crash{who}", put(after, who, down)
        if rules.async_flush and replica.log:
            shorter = down._replace(log=replica.log[:-1], incarnation=replica.incarnation + 1)
            yield f"crashLose{who}", put(after, who, shorter)
    if state.disk_losses < rules.disk_losses:
        empty = Replica(False, 0, 0, (), replica.incarnation + 1, None, 0, 0)
        yield f"diskLost{who}", put(state, who, empty)._replace(disk_losses=state.disk_losses + 1)


def _leading(rules: Rules, state: State, who: int) -> Iterator[Move]:
    """Become master when the register says so."""
    replica = state.replicas[who]
    if state.phase is not Phase.ACTIVE or state.holder != who:
        return
    is_member = (who, replica.incarnation) in state.in_sync
    resumes = replica.led == state.epoch
    if rules.self_epoch and resumes and not replica.role and is_member and state.epoch < rules.epochs:
        yield f"SELF{who}@{state.epoch + 1}", state._replace(epoch=state.epoch + 1)
    if replica.role == state.epoch or state.epoch < replica.promised or (rules.self_epoch and resumes):
        return
    if is_member or not rules.elect_incarnation:
        yield f"lead{who}@{state.epoch}", put(state, who, _as_master(rules, state, who))


def _as_master(rules: Rules, state: State, who: int) -> Replica:
    replica = state.replicas[who]
    return replica._replace(
        promised=state.epoch,
        role=state.epoch,
        link=None,
        led=state.epoch,
        offset=min(replica.offset, len(replica.log)) if rules.clamp else replica.offset,
        view=state.in_sync,
        pend=None,
        match=((who, replica.incarnation, len(replica.log)),),
        start=len(replica.log),
        confirmed=0,
        target=-1,
        asked=None,
    )


def _slave_role(rules: Rules, state: State, who: int) -> Iterator[Move]:
    replica = state.replicas[who]
    for whom, master in enumerate(state.replicas):
        if whom == who or not master.up or not master.role or replica.link == (whom, master.role):
            continue
        if master.role >= replica.promised or not rules.promise_fences:
            kept = common_records(replica.log, master.log) if rules.truncate else len(replica.log)
            offset = min(replica.offset, kept) if rules.clamp else replica.offset
            promised = max(replica.promised, master.role)
            linked = replica._replace(promised=promised, link=(whom, master.role))
            cut = linked._replace(log=replica.log[:kept], offset=offset)
            yield f"join{who}->{whom}@{master.role}", put(state, who, cut)
    if replica.link is None:
        return
    whom, epoch = replica.link
    master = state.replicas[whom]
    if not master.up or master.role != epoch or (replica.promised > epoch and rules.promise_fences):
        return
    yield from _copying(rules, state, who, whom)
    if rules.leaves and replica.link == (whom, epoch):
        yield from _goodbye(rules, state, who, whom)


def _copying(rules: Rules, state: State, who: int, whom: int) -> Iterator[Move]:
    replica, master = state.replicas[who], state.replicas[whom]
    have = len(replica.log)
    if replica.log != master.log[:have]:
        return
    if have < len(master.log):
        yield f"copy{who}<-{whom}", put(state, who, replica._replace(log=master.log[: have + 1]))
    if (who, replica.incarnation, have) not in master.match:
        told = heard(master, who, replica.incarnation, have)
        yield f"heard{who}->{whom}", confirm(rules, put(state, whom, told), whom)
    if rules.consumers and replica.offset != master.offset:
        yield f"offset{who}<-{whom}", put(state, who, replica._replace(offset=master.offset))


def _goodbye(rules: Rules, state: State, who: int, whom: int) -> Iterator[Move]:
    """LEAVE: the slave stops in order, and its master asks the register at once."""
    replica, master = state.replicas[who], state.replicas[whom]
    member = (who, replica.incarnation)
    assert master.view is not None
    if master.pend is None and member in master.view and _may_shrink(rules, master):
        rest = master.view - {member}
        after = put(state, who, process_gone(replica))
        if rules.leave_after_register:
            yield f"leave{who}->{whom}", put(after, whom, master._replace(pend=rest))
        else:
            yield f"leave{who}->{whom}", confirm(rules, put(after, whom, master._replace(view=rest)), whom)


def _writing(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    if state.sent < rules.messages and (master.target < 0 or not rules.handover_stops_writes):
        log = (*master.log, (master.role, state.sent))
        longer = heard(master, who, master.incarnation, len(log))._replace(log=log)
        written = put(state, who, longer)._replace(sent=state.sent + 1)
        yield f"send{state.sent}@{who}", confirm(rules, written, who)
    for index, (epoch, message) in enumerate(master.log):
        if epoch == master.role and message not in state.acked and _may_acknowledge(rules, master, index):
            yield f"ACK{message}@{who}", _acknowledged(rules, state, who, index, message)
    if rules.consumers and master.offset < master.confirmed:
        yield f"consume@{who}", put(state, who, master._replace(offset=master.confirmed))


def _may_acknowledge(rules: Rules, master: Replica, index: int) -> bool:
    if not rules.ack_by_all:
        return True
    if rules.freeze and not has_enough(rules, master):
        return False
    return all(records_of(rules, master, member) > index for member in required(rules, master))


def _acknowledged(rules: Rules, state: State, who: int, index: int, message: int) -> State:
    master = state.replicas[who]
    wrong = state.wrong
    if rules.ack_by_all and is_recorded(state, who) and len(state.in_sync) < rules.min_in_sync:
        wrong = f"member {who} acknowledges {message} with {len(state.in_sync)} electable copies"
    if rules.confirmed_is_monotone:
        state = put(state, who, master._replace(confirmed=max(master.confirmed, index + 1)))
    return state._replace(acked=state.acked | {message}, wrong=wrong)


def _may_shrink(rules: Rules, master: Replica) -> bool:
    assert master.view is not None
    return not rules.shrink_bound or len(master.view) - 1 >= rules.min_in_sync


def _changing_the_set(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    assert master.view is not None
    if master.pend is not None:
        yield from _asking(rules, state, who)
        return
    if master.target >= 0:
        return  # S stays as it is during a handover
    if rules.spontaneous_shrink and _may_shrink(rules, master):
        for member in sorted(master.view):
            if member[0] != who:
                yield f"shrink{member[0]}@{who}", put(state, who, master._replace(pend=master.view - {member}))
    for joiner in range(rules.members):
        target = _joined(rules, state, who, joiner)
        if target is not None:
            name = "grow" if len(target) > len(master.view) else "replace"
            yield f"{name}{joiner}@{who}", put(state, who, master._replace(pend=target))


def _joined(rules: Rules, state: State, who: int, joiner: int) -> frozenset[tuple[int, int]] | None:
    """The set with a member taken in, if it may be asked for."""
    master, other = state.replicas[who], state.replicas[joiner]
    assert master.view is not None
    if joiner == who or not other.up or other.link != (who, master.role):
        return None
    word = newest_word(master, joiner)
    if word is None:
        return None
    incarnation, records = word if rules.ack_incarnation else (other.incarnation, word[1])
    former = {member for member in master.view if member[0] == joiner}
    if (joiner, incarnation) in former:
        return None
    mark = master.confirmed
    if rules.epoch_start_rule:
        mark = max(mark, master.start)
    if not rules.confirmed_is_monotone:
        mark = max(mark, min(records_of(rules, master, member) for member in required(rules, master)))
    if records < mark and (rules.replace_rule or not former):
        return None
    return (master.view - former) | {(joiner, incarnation)}


def _asking(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    assert master.pend is not None
    owns = is_recorded(state, who) or (not rules.seal_freezes_set and state.phase is not Phase.GONE)
    if owns and state.in_sync == master.view:
        cached = state.in_sync if not rules.elect_on_newest_set else state.cached
        narrowed = state.narrowed and len(master.pend) < rules.min_in_sync
        yield f"cas@{who}", state._replace(in_sync=master.pend, cached=cached, narrowed=narrowed)
    if owns and state.in_sync == master.pend:
        yield f"casok@{who}", confirm(rules, put(state, who, master._replace(view=master.pend, pend=None)), who)
    if is_recorded(state, who) and state.in_sync == master.view:
        yield f"abort@{who}", confirm(rules, put(state, who, master._replace(pend=None)), who)


def _handing_over(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    if state.phase is Phase.ACTIVE and state.epoch > master.role:
        yield f"stepdown{who}", put(state, who, process_gone(master)._replace(up=True))
    if master.asked is not None:
        yield from _handover_under_way(rules, state, who)
    elif master.target >= 0:
        yield from _preparing_handover(rules, state, who)
    elif master.pend is None and state.epoch < rules.epochs:
        for target in range(rules.members):
            if target != who and state.replicas[target].up:
                yield f"stop{who}for{target}", put(state, who, master._replace(target=target))


def _preparing_handover(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    heir = state.replicas[master.target]
    assert master.view is not None
    is_equal = not rules.handover_waits or heir.log == master.log
    is_member = not rules.handover_in_set or (master.target, heir.incarnation) in master.view
    if is_equal and is_member:
        if not rules.handover_promise or heir.promised == master.role + 1:
            asked = (master.target, master.view)
            yield f"HANDOVER{who}->{master.target}", put(state, who, master._replace(asked=asked))
        elif heir.up and heir.promised == master.role:
            promising = heir._replace(promised=master.role + 1, link=None)
            yield f"promise{master.target}@{master.role + 1}", put(state, master.target, promising)
    if is_recorded(state, who):
        yield f"reopen{who}", put(state, who, master._replace(target=-1))


def _handover_under_way(rules: Rules, state: State, who: int) -> Iterator[Move]:
    master = state.replicas[who]
    if not is_recorded(state, who) or master.asked is None:
        return
    target, in_sync = master.asked
    if state.in_sync == in_sync or not rules.handover_by_version:
        heir = state.replicas[target]
        dropped = len(master.log) - common_records(heir.log, master.log)
        is_heir = not rules.handover_in_set or (target, heir.incarnation) in in_sync  # on another disk it cannot lead
        wrong = f"the handover to {target} drops {dropped} records" if dropped and is_heir else ""
        handed = state._replace(epoch=master.role + 1, holder=target, wrong=wrong)
        yield f"handed{who}->{target}", handed
        others = state.in_sync - {(who, master.incarnation)}
        if rules.handover_leaves and others and (not rules.shrink_bound or len(others) >= rules.min_in_sync):
            yield f"handed{who}->{target}, left", handed._replace(in_sync=others)
    # A later write of ours goes through, and the request fails then; unless nothing but the epoch guards it.
    asked = None if rules.handover_by_version else master.asked
    if master.target >= 0:
        yield f"reopen{who}", put(state, who, master._replace(target=-1, asked=asked))
