"""Which queues of a topic a group member consumes.

There is no coordinator: every member computes the whole assignment from the same two lists and takes its share.  All
members have to compute the same, and a group may mix our members with Java ones.  So this is exactly RocketMQ's rule
(AllocateMessageQueueAveragely).  While lists differ, after a member joined or left, two members may have one queue for
a moment; messages may then be delivered twice.

RocketMQ: Java compares strings by UTF-16 units, Python by code points; the two agree on everything that
topic names, group names and client ids may contain.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.model.route import MessageQueue


def share_of(member: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return the queues of `member`: neighbouring ones, distributed evenly; the first members get one more.

    A member that is not in `members`, because the broker does not know it yet, gets none.
    """
    ordered_members = sorted(set(members))
    ordered_queues = sorted(queues)
    if member not in ordered_members or not ordered_queues:
        return []
    index = ordered_members.index(member)
    each, left_over = divmod(len(ordered_queues), len(ordered_members))
    start = index * each + min(index, left_over)
    end = start + each + (1 if index < left_over else 0)
    return ordered_queues[start:end]
