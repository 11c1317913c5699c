"""Which queues a member of a consumer group gets from the broker, exactly as RocketMQ allocates them.

A client that leaves balancing to the server asks one broker (QUERY_ASSIGNMENT, 400) which queues of a topic it has.
All brokers of the topic have to give the same answer, Java brokers too: so both lists are sorted, and the rules below
are RocketMQ's.

    AVG               neighbouring queues, distributed evenly; the first members get one more
    AVG_BY_CIRCLE     every n-th queue

    pull              a queue belongs to one member
    pop, shared by    all: an entry with queue id -1 for each broker, "any queue of that broker"
                      some: a member has its own share and those of the next N members; with more members than queues
                      each has one queue

None means that there is no answer, and the client keeps what it has.  An empty list means that it has no queue, and it
gives up what it has: so it is returned only when the lists are known and this member is not among the group's, or
comes behind the last queue.

Source: RocketMQ's `QueryAssignmentProcessor`, `AllocateMessageQueueAveragely` and `-ByCircle`; facts 9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gantry.model.route import MessageQueue

PULL, POP = "PULL", "POP"
ANY_QUEUE = -1

Allocate = Callable[[int, int, Sequence[MessageQueue]], list[MessageQueue]]
"""From a member's place, the number of members and all queues to the member's queues."""


class Mode(NamedTuple):
    """How a group reads a topic; `share_queues`: with how many other members a member shares its queues when it pops,
    0 or less means with all.
    """

    mode: str = PULL
    share_queues: int = 0


def share_of(
    member: str, members: Sequence[str], queues: Sequence[MessageQueue], strategy: str, mode: Mode
) -> list[MessageQueue] | None:
    """Return the queues of one member of a group; None when there is no answer.

    members: the client ids of the group; queues: all of the topic, on all brokers.
    """
    allocate = _STRATEGIES.get(strategy)
    places, ordered = sorted(set(members)), sorted(queues)
    if allocate is None or not places or not ordered or not member.strip():
        return None
    if mode.mode == POP and not 0 < mode.share_queues < len(places) - 1:
        return of_any_member(ordered)
    if member not in places:
        return []
    place, count = places.index(member), len(places)
    if mode.mode != POP:
        return allocate(place, count, ordered)
    if count > len(ordered):
        return [ordered[place % len(ordered)]]
    shared = [(place + number) % count for number in range(mode.share_queues + 1)]
    return sorted({queue for one in shared for queue in allocate(one, count, ordered)})


def of_any_member(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return one entry for each broker, which means any queue of it."""
    return sorted({MessageQueue(queue.topic, queue.broker_name, ANY_QUEUE) for queue in queues})


def _averagely(place: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    each, left_over = divmod(len(queues), count)
    start = place * each + min(place, left_over)
    return list(queues[start : start + each + (place < left_over)])


def _by_circle(place: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    return list(queues[place::count])


_STRATEGIES: dict[str, Allocate] = {"AVG": _averagely, "AVG_BY_CIRCLE": _by_circle}
