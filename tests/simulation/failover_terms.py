"""A model of who may still acknowledge alone when the next master begins: terms in the register, and leases.

`failover_model` knows no time.  Here the lease of a former master is one fact, valid or over, and nothing else is
looked at: members with configurations that differ, a few of the previous version, which neither say nor write their
terms; processes that come back with another configuration; a coordinator that hears whom it hears.

A master under SYNC_MASTER with minInSync >= 2 acknowledges while another member has promised nothing higher; any other
one while its lease is valid.  What must never be reached: a master acknowledges after one of a higher epoch did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from simulation.failover_search import Verdict, explore_states


class Config(NamedTuple):
    """Of one process."""

    needs_slaves: bool
    says_terms: bool = True  # False: of the previous version


SYNC, ASYNC, FORMER = Config(True), Config(False), Config(False, False)
CONFIGS = (SYNC, ASYNC, FORMER)


@dataclass(frozen=True, slots=True)
class TermRules:
    """How much there is of everything, and the rules as switches."""

    members: int = 3
    epochs: int = 3
    restarts: int = 1  # of a process, with any configuration

    waits: bool = True  # for the lease of a former master, unless terms say that it needs slaves
    asks_register: bool = True  # False: the terms that members answer are enough
    of_that_epoch: bool = True  # False: terms that another mastership wrote count
    unknown_is_weak: bool = True  # False: a register without terms is no reason to wait
    asks_members: bool = True  # False: the terms in the register are enough
    writes_with_lease: bool = True  # False: terms come with the first renewal, the lease before it
    names_process: bool = True  # False: another process of the promoted member may lead, on the terms of the first


class Place(NamedTuple):
    """A member."""

    config: Config
    leads: int = 0  # the epoch in which it acts as the master
    is_leased: bool = False
    promised: int = 1
    process: int = 0


class TermState(NamedTuple):
    """Everything; hashable."""

    places: tuple[Place, ...]
    epoch: int = 1
    holder: int = 0  # -1: sealed
    process: int = 0  # of the holder; no other one leads in this epoch
    former: int = -1  # who led before the seal
    terms: tuple[int, bool] | None = None  # (epoch, needs slaves), as they stand in the register
    is_lease_over: bool = False  # that of the former master, by the coordinator's clock
    restarts: int = 0
    acked: int = 0  # the highest epoch in which something was acknowledged
    wrong: str = ""


Move = tuple[str, TermState]


def begins(rules: TermRules) -> Iterator[TermState]:
    """Return member 0 leading epoch 1, whatever it and the next one are configured as; the others are SYNC_MASTERs."""
    for first, second in product(CONFIGS, repeat=2):
        others = [Place(SYNC)] * (rules.members - 2)
        terms = (1, first.needs_slaves) if first.says_terms else None
        yield TermState((Place(first, 1, True), Place(second), *others), terms=terms)


def put(state: TermState, who: int, place: Place) -> TermState:
    """Return the state with one member changed."""
    return state._replace(places=(*state.places[:who], place, *state.places[who + 1 :]))


def moves(rules: TermRules, state: TermState) -> Iterator[Move]:
    """Every next state, each with the name of what happens."""
    for who, place in enumerate(state.places):
        if place.leads:
            yield from _acknowledging(state, who)
        if state.restarts < rules.restarts:
            for config in CONFIGS:
                again = put(state, who, Place(config, promised=place.promised, process=place.process + 1))
                yield f"restart{who}", again._replace(restarts=state.restarts + 1)
        if state.holder == who:
            yield from _holding(rules, state, who)
        elif state.holder < 0 and place.promised < state.epoch:
            promised = place._replace(leads=0, is_leased=False, promised=state.epoch)
            yield f"promise{who}", put(state, who, promised)
    if state.holder >= 0 and state.epoch < rules.epochs:
        sealed = state._replace(epoch=state.epoch + 1, holder=-1, former=state.holder, is_lease_over=False)
        yield f"SEAL@{sealed.epoch}", sealed
    if state.holder < 0:
        # A serving lease is over sooner than the register's, which the coordinator waits for with a margin.
        ended = tuple(place._replace(is_leased=False) for place in state.places)
        yield "lease over", state._replace(places=ended, is_lease_over=True)
        yield from _promoting(rules, state)


def _acknowledging(state: TermState, who: int) -> Iterator[Move]:
    place = state.places[who]
    others = [other.promised for other in state.places if other is not place]
    able = max(others) <= place.leads if place.config.needs_slaves else place.is_leased
    if able:
        wrong = f"member {who} acknowledges in epoch {place.leads} after epoch {state.acked}"
        is_wrong = place.leads < state.acked
        yield f"ACK{who}", state._replace(acked=max(state.acked, place.leads), wrong=wrong if is_wrong else "")


def _holding(rules: TermRules, state: TermState, who: int) -> Iterator[Move]:
    place = state.places[who]
    epoch = state.epoch
    said = (epoch, place.config.needs_slaves) if place.config.says_terms else state.terms
    if place.leads == epoch:
        yield f"renew{who}", put(state, who, place._replace(is_leased=True))._replace(terms=said)
        return
    is_named = place.process == state.process
    if is_named or not rules.names_process:
        yield f"lead{who}@{epoch}", put(state, who, place._replace(leads=epoch, is_leased=True, promised=epoch))
    if not is_named and epoch < rules.epochs:
        epoch += 1
        led = put(state, who, place._replace(leads=epoch, is_leased=True, promised=epoch))
        said = (epoch, place.config.needs_slaves) if place.config.says_terms else state.terms
        taken = led._replace(epoch=epoch, process=place.process)
        yield f"SELF{who}@{epoch}", taken._replace(terms=said if rules.writes_with_lease else state.terms)


def _promoting(rules: TermRules, state: TermState) -> Iterator[Move]:
    answers = [place for place in state.places if place.promised == state.epoch]
    if not (state.is_lease_over or state.places[state.former] in answers or _is_fast(rules, state, answers)):
        return
    for who, place in enumerate(state.places):
        if place in answers:
            said = (state.epoch, place.config.needs_slaves) if place.config.says_terms else None
            for terms in {said, state.terms}:  # a coordinator of the previous version leaves what it finds
                yield f"PROMOTE{who}@{state.epoch}", state._replace(holder=who, process=place.process, terms=terms)


def _is_fast(rules: TermRules, state: TermState, answers: list[Place]) -> bool:
    if not rules.waits:
        return True
    if rules.asks_members and not all(place.config.needs_slaves and place.config.says_terms for place in answers):
        return False
    if not rules.asks_register:
        return True
    if state.terms is None:
        return not rules.unknown_is_weak
    epoch, needs_slaves = state.terms
    return needs_slaves and (epoch == state.epoch - 1 or not rules.of_that_epoch)


def search(rules: TermRules) -> Verdict:
    """Look at every state, or stop at the first fault."""
    return explore_states(begins(rules), partial(moves, rules), lambda state: state.wrong)


class TermCase(NamedTuple):
    """One search, and whether it has to find a fault."""

    name: str
    rules: TermRules
    is_wrong: bool


_NEEDED = {
    "nobody waits for the lease of a former master": {"waits": False},
    "the terms that members answer are enough": {"asks_register": False},
    "terms that another mastership wrote count": {"of_that_epoch": False},
    "a register without terms is no reason to wait": {"unknown_is_weak": False},
    "another process leads on the terms of the one that was promoted": {"names_process": False},
}
# The code has them too: several answers are a second look at the register's terms, and terms that come late are missing
# meanwhile, so that the election waits.
_HARMLESS = {
    "the terms in the register are enough": {"asks_members": False},
    "terms come with the first renewal": {"writes_with_lease": False},
}
CASES = [
    *(
        TermCase(f"{members} members: {name}", TermRules(members, **off), True)
        for members in (2, 3)
        for name, off in _NEEDED.items()
    ),
    *(TermCase(f"2 members: {name}", TermRules(2, **off), False) for name, off in _HARMLESS.items()),
    TermCase("2 members, all rules", TermRules(2), False),
    TermCase("3 members, two epochs, all rules", TermRules(3, epochs=2), False),
    TermCase("5 members, two epochs, no restart, all rules", TermRules(5, epochs=2, restarts=0), False),
]
FULL_CASES = [
    *(
        TermCase(f"{members} members: {name}", TermRules(members, **off), True)
        for members in (4, 5)
        for name, off in _NEEDED.items()
    ),
    TermCase("3 members, all rules", TermRules(3), False),
    *(TermCase(f"3 members: {name}", TermRules(3, **off), False) for name, off in _HARMLESS.items()),
    TermCase("4 members, two epochs, all rules", TermRules(4, epochs=2), False),
    TermCase("5 members, two epochs, all rules", TermRules(5, epochs=2), False),
    TermCase("5 members, no restart, all rules", TermRules(5, restarts=0), False),
]
