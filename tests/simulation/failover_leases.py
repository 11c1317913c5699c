"""A model of the serving lease: time passes by a move, and masters that were replaced are looked at by the clock.

`failover_model` knows no time, and in `failover_terms` a lease is one fact.  Here a master has what
`replication.serving_lease` counts, in ticks that are left: of its renewal, of its lease, of each member's beats.  The
coordinator has the ages that `failover.decide` goes by.  A tick takes one from all that is left and adds one to all
ages; everything may happen at any time between two ticks, and messages may be as late as they like.

`Ticks` are small numbers in the order of the real times, which a test compares with the code.  Anything may be lost;
what a scenario allows beyond that is said by `Scenario`.  What must never be reached, while a master of a higher epoch
leads (`fault`):

    a former master acknowledges by itself
    a former master serves readers for longer than the scenario's bound

A renewal or a beat counts from when it was sent.  In the model that is when it was carried out or answered, which is
later and so the worse case.  Not modelled: the log (an acknowledgement that needs a slave depends on its promise only,
`failover_model`), several terms in one group (`failover_terms`), a lease that is made shorter, clocks that run apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

from simulation.failover_search import Verdict, explore_states

Ordinals = frozenset[int]


class Scenario(Enum):
    """What goes wrong, and who seals."""

    ONE_CUT = "one cut"  # a master loses the register and the coordinator at once, its slaves at once too or never
    SUSPICION = "cuts one after the other"  # anything may be cut at any time; the coordinator seals on suspicion
    ANY_SEAL = "a seal at any time"  # and check-quorum, or a person, seals at any time


class Acks(Enum):
    """When a master acknowledges without another member."""

    NEVER = "SYNC_MASTER, minInSync 2"
    ALONE_IN_SET = "SYNC_MASTER, minInSync 1"
    ALWAYS = "ASYNC_MASTER"


@dataclass(frozen=True, slots=True)
class Ticks:
    """Durations; `test_failover_leases` holds the order of the real ones against these."""

    fresh: int = 3  # a master serves after a renewal
    heard: int = 2  # and after a beat that a member answered
    alone: int = 5  # and alone in the set: two thirds of the lease
    suspicion: int = 4
    quiet_before: int = 1  # of the suspicion may lie before the reading that showed the last renewal
    unwell_before: int = 1  # and before the first question without an answer
    lease: int = 7  # and the margin


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """How much there is of everything, and the rules as switches."""

    members: int = 2
    epochs: int = 2
    scenario: Scenario = Scenario.SUSPICION
    acks: Acks = Acks.NEVER
    first_set: int = 2  # how many members are in the set at first
    changes: bool = False  # a master changes the set
    handovers: bool = False
    ticks: Ticks = field(default_factory=Ticks)

    renewal_from_sending: bool = True  # False: from its answer on, which may be as late as it likes
    beat_from_sending: bool = True
    needs_every_answer: bool = True  # False: a beat that one member answered is enough
    ended_link_counts: bool = True  # False: what a member answered counts on when its link has ended
    notes_joiner: bool = True  # who joins is one of those that have to answer from the request on
    waits_for_lease: bool = True  # where a former master may acknowledge alone
    waits_after_promise: bool = True  # for a whole suspicion, too
    handover_ends_lease: bool = True

    @property
    def bound(self) -> int:
        """How long a former master may serve readers, as broker/docs/failover.md says, section 4."""
        bounds = {Scenario.ONE_CUT: 0, Scenario.SUSPICION: self.ticks.heard, Scenario.ANY_SEAL: self.ticks.fresh}
        return bounds[self.scenario]


class Place(NamedTuple):
    """A member; from `leads` on: as a master.  What is left of a lease is in ticks."""

    promised: int = 1
    promised_ago: int = 0
    leads: int = 0
    fresh: int = 0
    lease: int = 0
    heard: tuple[int, ...] = ()  # by ordinal
    others: Ordinals = frozenset()  # who has to answer its beats
    in_sync: Ordinals = frozenset()
    asked_ago: int = -1  # a renewal was carried out and not answered; -1: there is none
    wanted: Ordinals = frozenset()  # the set in it

    @property
    def required(self) -> Ordinals:
        """Who may be in the register's set."""
        return self.in_sync | self.wanted


class LeaseState(NamedTuple):
    """Everything; hashable."""

    places: tuple[Place, ...]
    in_sync: Ordinals
    epoch: int = 1
    holder: int = 0  # -1: sealed
    former: int = -1
    written_ago: int = 0  # the last renewal was carried out
    sealed_ago: int = 0
    led_ago: int = 0  # the newest master leads
    cut_off: int = -1  # who was cut off from the register and the coordinator, where one cut is all
    cut_ago: int = 0
    is_cut_from_slaves: bool = False


Move = tuple[str, LeaseState]


def begin(rules: LeaseRules) -> LeaseState:
    """Member 0 leads epoch 1, which it has just renewed."""
    in_sync = frozenset(range(rules.first_set))
    places = [Place() for _ in range(rules.members)]
    master = _make_master(rules, places[0], 0, 1, in_sync)
    places[0] = master._replace(fresh=rules.ticks.fresh, lease=rules.ticks.alone)
    return LeaseState(tuple(places), in_sync)


def _make_master(rules: LeaseRules, place: Place, who: int, epoch: int, in_sync: Ordinals) -> Place:
    nothing = (0,) * rules.members
    return Place(epoch, place.promised_ago, epoch, heard=nothing, others=in_sync - {who}, in_sync=in_sync)


def put(state: LeaseState, who: int, place: Place) -> LeaseState:
    """Return the state with one member changed."""
    return state._replace(places=(*state.places[:who], place, *state.places[who + 1 :]))


def may_serve(rules: LeaseRules, place: Place) -> bool:
    """Return whether a master may answer readers; see `ServingLease`."""
    if not place.others:
        return place.lease > 0
    count = min if rules.needs_every_answer else max
    return max(min(place.fresh, place.lease), count(place.heard[other] for other in place.others)) > 0


def fault(rules: LeaseRules, state: LeaseState) -> str:
    """Return what is wrong with a state; empty when nothing is."""
    newest = max(place.leads for place in state.places)
    for who, place in enumerate(state.places):
        if 0 < place.leads < newest and may_serve(rules, place):
            is_able = rules.acks is Acks.ALWAYS or (rules.acks is Acks.ALONE_IN_SET and place.required == {who})
            if is_able:
                return f"master {who} of epoch {place.leads} acknowledges, and another one leads"
            if state.led_ago >= rules.bound:
                return f"master {who} of epoch {place.leads} serves readers {state.led_ago} ticks after another led"
    return ""


def moves(rules: LeaseRules, state: LeaseState) -> Iterator[Move]:
    """Every next state, each with the name of what happens."""
    yield "tick", _pass_tick(rules, state)
    for who, place in enumerate(state.places):
        if 0 < place.leads < rules.epochs:  # nobody follows a master of the last epoch
            yield from _renewal_moves(rules, state, who)
            yield from _beat_moves(rules, state, who)
        if place.leads and rules.handovers and state.holder == who and state.epoch < rules.epochs:
            yield from _handover_moves(rules, state, who)
    if rules.scenario is Scenario.ONE_CUT and state.cut_off < 0 <= state.holder:
        for is_whole in (False, True):
            cut = state._replace(cut_off=state.holder, cut_ago=0, is_cut_from_slaves=is_whole)
            yield f"cut{state.holder}{' from all' if is_whole else ''}", cut
    if state.holder >= 0:
        if state.epoch < rules.epochs and _may_seal(rules, state):
            sealed = state._replace(epoch=state.epoch + 1, holder=-1, former=state.holder, sealed_ago=0)
            yield f"SEAL@{sealed.epoch}", sealed
        return
    for who in range(rules.members):
        yield from _promise_moves(rules, state, who)
        yield from _promotion_moves(rules, state, who)


def _pass_tick(rules: LeaseRules, state: LeaseState) -> LeaseState:
    ticks = rules.ticks
    places = tuple(
        place._replace(
            promised_ago=min(place.promised_ago + 1, ticks.suspicion),
            fresh=max(0, place.fresh - 1),
            lease=max(0, place.lease - 1),
            heard=tuple(max(0, left - 1) for left in place.heard),
            asked_ago=min(place.asked_ago + 1, ticks.alone) if place.asked_ago >= 0 else -1,
        )
        for place in state.places
    )
    return state._replace(
        places=places,
        written_ago=min(state.written_ago + 1, ticks.suspicion),
        sealed_ago=min(state.sealed_ago + 1, ticks.lease) if state.holder < 0 else 0,
        led_ago=min(state.led_ago + 1, rules.bound),
        cut_ago=min(state.cut_ago + 1, ticks.suspicion) if state.cut_off >= 0 else 0,
    )


def _renewal_moves(rules: LeaseRules, state: LeaseState, who: int) -> Iterator[Move]:
    """The register carries out a renewal, which may ask for another set; its answer comes later, or never."""
    place = state.places[who]
    if place.asked_ago >= 0:
        if state.cut_off != who:
            yield f"renewed{who}", put(state, who, _take_renewal(rules, place, who))
        return
    if state.holder != who or state.epoch != place.leads:
        return
    wanted = [place.in_sync]
    if rules.changes:
        wanted += [place.in_sync ^ {other} for other in range(rules.members) if other != who]
    for target in wanted:
        others = (place.in_sync | target) - {who} if rules.notes_joiner else place.others
        asking = put(state, who, place._replace(asked_ago=0, wanted=target, others=others))
        name = f"renew{who}" if target == place.in_sync else f"renew{who} with {sorted(target)}"
        yield name, asking._replace(in_sync=target, written_ago=0)


def _take_renewal(rules: LeaseRules, place: Place, who: int) -> Place:
    ago = place.asked_ago if rules.renewal_from_sending else 0
    return place._replace(
        fresh=max(place.fresh, rules.ticks.fresh - ago),
        lease=max(place.lease, rules.ticks.alone - ago),
        others=place.wanted - {who},
        in_sync=place.wanted,
        wanted=frozenset(),
        asked_ago=-1,
    )


def _beat_moves(rules: LeaseRules, state: LeaseState, who: int) -> Iterator[Move]:
    """A member answers a beat.  An answer that comes later is worth less, unless it counts from when it comes."""
    place = state.places[who]
    if state.cut_off == who and state.is_cut_from_slaves:
        return
    is_late_harmless = rules.beat_from_sending or rules.scenario is Scenario.ONE_CUT  # the link is known to be over
    for other, member in enumerate(state.places):
        if other == who or (member.promised > place.leads and is_late_harmless):
            continue
        if place.heard[other] < rules.ticks.heard:
            told = _set_heard(place, other, rules.ticks.heard)
            yield f"beat{other}->{who}", put(state, who, told._replace(others=place.required - {who}))


def _set_heard(place: Place, other: int, left: int) -> Place:
    return place._replace(heard=(*place.heard[:other], left, *place.heard[other + 1 :]))


def _handover_moves(rules: LeaseRules, state: LeaseState, who: int) -> Iterator[Move]:
    place = state.places[who]
    for heir in sorted(place.in_sync - {who}):
        if state.places[heir].promised == place.leads and place.asked_ago < 0 and state.cut_off != who:
            stopped = put(state, who, place._replace(leads=0)) if rules.handover_ends_lease else state
            handed = _begin_to_lead(rules, stopped._replace(epoch=state.epoch + 1), heir, state.in_sync)
            yield f"handed{who}->{heir}", handed


def _may_seal(rules: LeaseRules, state: LeaseState) -> bool:
    ticks = rules.ticks
    is_quiet = state.written_ago + ticks.quiet_before >= ticks.suspicion
    if rules.scenario is Scenario.ANY_SEAL:
        return True
    if rules.scenario is Scenario.SUSPICION:
        return is_quiet
    is_unwell = state.cut_ago + ticks.unwell_before >= ticks.suspicion
    return is_quiet and is_unwell and state.cut_off == state.holder


def _promise_moves(rules: LeaseRules, state: LeaseState, who: int) -> Iterator[Move]:
    """A member promises, and its links to former masters end; where nothing else is cut, these notice it at once."""
    if state.places[who].promised >= state.epoch or state.cut_off == who:
        return
    places = list(state.places)
    places[who] = Place(state.epoch, 0)
    if rules.scenario is Scenario.ONE_CUT and not state.is_cut_from_slaves and rules.ended_link_counts:
        for other, place in enumerate(places):
            if place.leads:
                places[other] = _set_heard(place, who, 0)
    yield f"promise{who}", state._replace(places=tuple(places))


def _promotion_moves(rules: LeaseRules, state: LeaseState, who: int) -> Iterator[Move]:
    promised = frozenset(other for other, place in enumerate(state.places) if place.promised == state.epoch)
    if who in promised & state.in_sync and (state.former in promised or _is_silent(rules, state, promised)):
        yield f"PROMOTE{who}@{state.epoch}", _begin_to_lead(rules, state, who, promised & state.in_sync)


def _begin_to_lead(rules: LeaseRules, state: LeaseState, who: int, in_sync: Ordinals) -> LeaseState:
    """Return the state with a new master, which acts as one at once; it serves when it has renewed."""
    led = put(state, who, _make_master(rules, state.places[who], who, state.epoch, in_sync))
    return led._replace(holder=who, in_sync=in_sync, former=-1, written_ago=0, led_ago=0)


def _is_silent(rules: LeaseRules, state: LeaseState, promised: Ordinals) -> bool:
    """Return whether the former master acknowledges nothing any more, as far as the coordinator knows."""
    if rules.acks is Acks.NEVER or not rules.waits_for_lease:
        return True
    longest_ago = max(state.places[who].promised_ago for who in promised & state.in_sync)
    is_unheard = longest_ago >= rules.ticks.suspicion or not rules.waits_after_promise
    return is_unheard and state.sealed_ago >= rules.ticks.lease


def search(rules: LeaseRules) -> Verdict:
    """Look at every state, or stop at the first fault."""
    return explore_states([begin(rules)], partial(moves, rules), partial(fault, rules))


class LeaseCase(NamedTuple):
    """One search, and whether it has to find a fault."""

    name: str
    rules: LeaseRules
    is_wrong: bool


def _cases_without(name: str, **off: object) -> list[LeaseCase]:
    """One rule that is off, in each scenario that it is needed in."""
    scenarios = off.pop("scenarios", tuple(Scenario))
    assert isinstance(scenarios, tuple)
    return [
        LeaseCase(f"{name}; {scenario.value}", LeaseRules(scenario=scenario, **off), True)  # type: ignore[arg-type]
        for scenario in scenarios
    ]


_CUTS = (Scenario.SUSPICION, Scenario.ANY_SEAL)
_ONE = (Scenario.ONE_CUT,)
_NEEDED = [
    *_cases_without("a renewal counts from its answer", scenarios=_CUTS, renewal_from_sending=False),
    *_cases_without("a beat counts from its answer", scenarios=_CUTS, beat_from_sending=False),
    *_cases_without("one member's answers are enough", members=3, first_set=3, needs_every_answer=False),
    *_cases_without("answers count when their link has ended", scenarios=_ONE, ended_link_counts=False),
    *_cases_without(
        "who joins has to answer when it has joined", scenarios=_ONE, first_set=1, changes=True, notes_joiner=False
    ),
    *_cases_without("nobody waits for the lease", scenarios=_CUTS, acks=Acks.ALWAYS, waits_for_lease=False),
    *_cases_without("nobody waits after a promise", scenarios=_CUTS, acks=Acks.ALWAYS, waits_after_promise=False),
    *_cases_without("a handover leaves the lease", acks=Acks.ALWAYS, handovers=True, handover_ends_lease=False),
    *_cases_without("a renewal counts for longer than the suspicion", scenarios=_ONE, ticks=Ticks(fresh=4)),
    *_cases_without("a beat counts for longer than the suspicion", scenarios=_ONE, ticks=Ticks(heard=4)),
    *_cases_without("silence counts from long before the cut", scenarios=_ONE, ticks=Ticks(unwell_before=3)),
]
# A master that is alone in its set has nobody who could be elected, and as soon as somebody joins it counts as others
# do; so nothing but the wait after the promise is needed.  The code waits for the lease as well: a master of the
# previous version learns only later that somebody joins.
_HARMLESS = [
    LeaseCase("the lease that is waited for is shorter", LeaseRules(acks=Acks.ALWAYS, ticks=Ticks(lease=2)), False),
    LeaseCase("a master that is alone serves for longer", LeaseRules(changes=True, ticks=Ticks(alone=9)), False),
]


def _cases_with_all(members: int, epochs: int) -> list[LeaseCase]:
    return [
        LeaseCase(
            f"{members} members, {epochs - 1} elections, {acks.value}; {scenario.value}",
            LeaseRules(members, epochs, scenario, acks, members, changes=True, handovers=True),
            False,
        )
        for scenario in Scenario
        for acks in Acks
        if epochs == 2 or scenario is not Scenario.ONE_CUT
    ]


CASES = [*_NEEDED, *_HARMLESS, *_cases_with_all(2, 2)]
FULL_CASES = [*_cases_with_all(3, 2), *_cases_with_all(2, 3)]
