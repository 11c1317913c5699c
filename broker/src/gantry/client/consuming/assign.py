"""Which queues of a topic a group member consumes.

Nobody assigns: every member computes the whole distribution from the same two lists and takes its share.
It is only right when all members compute the same, so this is RocketMQ's rule to the letter
(AllocateMessageQueueAveragely): a group may mix our members with Java ones.  While lists differ, after a
member came or went, two members may hold one queue for a moment; messages may then arrive twice.

RocketMQ: Java compares strings by UTF-16 units, Python by code points; the two agree on everything that
topic names, group names and client ids may contain.
"""

from __future__ import annotations

from collections.abc import Sequence

from gantry.model.route import MessageQueue


def share_of(member: str, members: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """The queues of `member`: neighbouring ones, as evenly as it goes, the first members getting one more.

    A member that is not in `members`, because the broker has not heard of it yet, gets none.
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
