"""Coordinators in the failover model, and what members answer them; see `failover_model`.

A coordinator keeps nothing that a move depends on but the answers of the current epoch, and it may ask again.  Several
of them are the same as one that is restarted: each write is a compare-and-set on one register.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.failover_model import Members, Phase, Rules, State, last_epoch, put

Move = tuple[str, State]
Answer = tuple[int, int, int, int]  # last epoch, records, incarnation, promise


def answers(rules: Rules, state: State, who: int) -> Iterator[Move]:
    """A member is told of the seal, or only asked how it is when there is no register."""
    replica = state.replicas[who]
    has_answered = any(other == who for other, _ in state.answers)
    if state.phase is Phase.GONE:
        if not has_answered:
            yield f"ask{who}", _with_answer(state, who)
    elif state.phase is not Phase.ACTIVE and replica.promised <= state.epoch:
        if replica.promised == state.epoch:
            if not has_answered:
                yield f"seal{who}@{state.epoch}", _with_answer(state, who)
            return
        if rules.promise_fences:
            sealed = replica._replace(role=0, link=None, view=None, pend=None, match=(), start=0, confirmed=0)
            replica = sealed._replace(target=-1, asked=None)
        promised = put(state, who, replica._replace(promised=state.epoch))
        yield f"seal{who}@{state.epoch}", _with_answer(promised, who)


def _with_answer(state: State, who: int) -> State:
    replica = state.replicas[who]
    others = [entry for entry in state.answers if entry[0] != who]
    answer = (last_epoch(replica.log), len(replica.log), replica.incarnation, replica.promised)
    return state._replace(answers=tuple(sorted([*others, (who, answer)])))


def coordinator(rules: Rules, state: State) -> Iterator[Move]:
    """Seal at any time, promote when enough is known, begin again when the register is gone."""
    if state.phase is Phase.GONE:
        yield from _beginning_again(rules, state)
        return
    if state.register_losses < rules.register_losses:
        lost = state._replace(epoch=0, holder=-1, phase=Phase.GONE, in_sync=frozenset(), answers=(), cached=None)
        yield "register lost", lost._replace(register_losses=state.register_losses + 1)
    if state.phase is Phase.LOST_SET:
        yield from _recovering(rules, state)
        return
    if state.epoch < rules.epochs:
        cached = state.cached
        if not rules.elect_on_live_set and cached is None:
            cached = state.in_sync
        sealed = state._replace(epoch=state.epoch + 1, holder=-1, phase=Phase.SEALED, answers=(), cached=cached)
        yield f"SEAL@{state.epoch + 1}", sealed
    if state.phase is Phase.SEALED:
        yield from _electing(rules, state)
        if state.forces < rules.forces:
            yield from _choosing(rules, state)


def _electing(rules: Rules, state: State) -> Iterator[Move]:
    in_sync = state.in_sync if state.cached is None else state.cached
    ordinals = {who for who, _ in in_sync}
    candidates = {}
    for who, answer in state.answers:
        is_member = (who, answer[2]) in in_sync if rules.elect_incarnation else who in ordinals
        if is_member or not rules.elect_from_set:
            candidates[who] = answer
    yield from _promotions(rules, state, candidates, rules.elect_most_advanced)


def _choosing(rules: Rules, state: State) -> Iterator[Move]:
    """A person chooses somebody: one of the set as any election may, anybody else by giving up what he lacks."""
    of_set = {who: answer for who, answer in state.answers if (who, answer[2]) in state.in_sync}
    for name, after in _promotions(rules, state, of_set, only_best=False):
        yield f"chosen {name}", after._replace(forces=state.forces + 1)
    settled = {who for who, _ in state.answers} | {who for who, other in enumerate(state.replicas) if not other.up}
    if rules.force_waits and {who for who, _ in state.in_sync} - settled:
        return
    for who, (_, records, incarnation, _) in state.answers:
        if who in of_set:
            continue
        kept = frozenset(message for _, message in state.replicas[who].log[:records])
        forced = state._replace(
            holder=who, phase=Phase.ACTIVE, in_sync=frozenset({(who, incarnation)}), answers=(),
            cached=None, acked=state.acked & kept, forces=state.forces + 1, narrowed=rules.min_in_sync > 1,
        )  # fmt: skip
        yield f"FORCE{who}@{state.epoch}", forced


def _promotions(
    rules: Rules, state: State, candidates: dict[int, Answer], only_best: bool, are_in_sync: bool = True
) -> Iterator[Move]:
    """are_in_sync: each candidate is of S, so it has everything that was acknowledged."""
    best = max((answer[:2] for answer in candidates.values()), default=None)
    for who, answer in candidates.items():
        if only_best and answer[:2] != best:
            continue
        others = set(candidates)
        if rules.set_of_one:
            others = {who}
        elif rules.set_of_equals or not are_in_sync:
            others = {other for other, its in candidates.items() if its[:2] == answer[:2]}
        in_sync = frozenset((other, candidates[other][2]) for other in others)
        kept = in_sync if len(in_sync) >= rules.min_in_sync else in_sync | _not_lost(state)
        promoted = state._replace(holder=who, phase=Phase.ACTIVE, answers=(), cached=None)
        chosen = kept if rules.keeps_unheard and are_in_sync else in_sync
        narrowed = len(kept if are_in_sync else in_sync) < rules.min_in_sync
        yield f"PROMOTE{who}@{state.epoch}", promoted._replace(in_sync=chosen, narrowed=narrowed)


def _not_lost(state: State) -> Members:
    """Those of the sealed set who are not known to have another disk, or a shorter log, by now."""
    now = {who: answer[2] for who, answer in state.answers}
    return frozenset(member for member in state.in_sync if now.get(member[0], member[1]) == member[1])


def _beginning_again(rules: Rules, state: State) -> Iterator[Move]:
    known = dict(state.answers)
    if not known:
        return
    has_all = len(known) == rules.members
    if all(records == 0 and promise == 0 for _, records, _, promise in known.values()):
        if has_all or not rules.bootstrap_needs_all:
            first = min(known)
            in_sync = frozenset({(first, known[first][2])})
            begun = state._replace(epoch=1, holder=first, phase=Phase.ACTIVE, in_sync=in_sync, answers=())
            yield f"BOOTSTRAP{first}", begun._replace(narrowed=rules.min_in_sync > 1)
    if not has_all and rules.recover_above_promises:
        return
    epoch = max(promise for _, _, _, promise in known.values()) + 1
    if epoch > rules.epochs:
        return
    if rules.recover_after_promises:
        yield f"RECREATE@{epoch}", state._replace(epoch=epoch, phase=Phase.LOST_SET, answers=())
    else:
        remade = state._replace(epoch=epoch)
        yield from _promotions(rules, remade, known, rules.recover_most_advanced, are_in_sync=False)


def _recovering(rules: Rules, state: State) -> Iterator[Move]:
    known = dict(state.answers)
    if len(known) == rules.members or (known and not rules.recover_needs_all):
        yield from _promotions(rules, state, known, rules.recover_most_advanced, are_in_sync=False)
