"""Members of the failover model are alike: two states that differ in who is who only are looked at once.

`order_members` numbers the members of a state by what each of them is and by what the others know of it.  States that
come out equal are equal but for the numbers, so nothing is missed by looking at one of them
(`test_failover_symmetry`).  Two such states may still come out different, where members are told apart only by somebody
else's link; then both are looked at.  A group that is made again after its register was lost is not alike: its first
master is the least ordinal.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulation.failover_model import Members, Replica, State


def order_members(state: State) -> State:
    """Return the state with its members in an order that depends on nothing but what they are."""
    places = range(len(state.replicas))
    masters = sorted((replica.role, who) for who, replica in enumerate(state.replicas) if replica.role)
    told = dict(state.answers)
    marks = [_describe_member(state, who, masters, told.get(who, ())) for who in places]
    order = sorted(places, key=marks.__getitem__)
    if order == [*places]:
        return state
    number = [0] * len(order)
    for place, who in enumerate(order):
        number[who] = place
    return renumber_members(state, number)


def renumber_members(state: State, number: Sequence[int]) -> State:
    """Return the state in which member `who` has the ordinal `number[who]`."""
    replicas: list[Replica] = list(state.replicas)
    for who, replica in enumerate(state.replicas):
        replicas[number[who]] = _renumber_knowledge(replica, number)
    return state._replace(
        holder=number[state.holder] if state.holder >= 0 else -1,
        in_sync=_renumber_set(state.in_sync, number),
        replicas=tuple(replicas),
        answers=tuple(sorted((number[who], answer) for who, answer in state.answers)),
        cached=None if state.cached is None else _renumber_set(state.cached, number),
    )


def _renumber_knowledge(replica: Replica, number: Sequence[int]) -> Replica:
    link, asked = replica.link, replica.asked
    return replica._replace(
        link=link and (number[link[0]], link[1]),
        view=None if replica.view is None else _renumber_set(replica.view, number),
        pend=None if replica.pend is None else _renumber_set(replica.pend, number),
        match=tuple(sorted((number[who], incarnation, records) for who, incarnation, records in replica.match)),
        target=number[replica.target] if replica.target >= 0 else -1,
        asked=asked and (number[asked[0]], _renumber_set(asked[1], number)),
    )


def _renumber_set(members: Members, number: Sequence[int]) -> Members:
    return frozenset((number[who], incarnation) for who, incarnation in members)


def _describe_member(
    state: State, who: int, masters: list[tuple[int, int]], answer: tuple[int, ...]
) -> tuple[object, ...]:
    """Return what a member is and what is known of it, without any ordinal; no two masters act in one epoch."""
    me = state.replicas[who]
    link = (me.link[1], me.link[0] == state.holder) if me.link else ()
    followers = sorted(other.link[1] for other in state.replicas if other.link and other.link[0] == who)
    known = [(role, _list_knowledge(state.replicas[master], who)) for role, master in masters]
    sets = (_incarnations(state.in_sync, who), _incarnations(state.cached, who))
    mine = (me.up, me.promised, me.role, me.log, me.incarnation, me.led, me.offset, me.start, me.confirmed)
    return mine, who == state.holder, sets, answer, link, followers, known


def _list_knowledge(master: Replica, who: int) -> tuple[object, ...]:
    heard = [(incarnation, records) for other, incarnation, records in master.match if other == who]
    target, asked = master.asked or (-1, None)
    sets = [_incarnations(members, who) for members in (master.view, master.pend, asked)]
    return heard, sets, master.target == who, target == who


def _incarnations(members: Members | None, who: int) -> list[int]:
    return sorted(incarnation for other, incarnation in members or () if other == who)
