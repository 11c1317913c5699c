"""The one rule for offsets that come from outside, by whichever request.

    a client commits        UPDATE_CONSUMER_OFFSET (15); the clients of HTTP queues and gRPC commit by acknowledgements
    a client pulls          PULL_MESSAGE (11) with its progress; Java's push consumers send it with each pull
    a slave reports         commits that it received while consumers could not reach the master

An offset below 0 is none.  One beyond the end of the queue is refused, and counted: the messages between the end and
the offset would be skipped when they come.  Such an offset belongs to a deleted topic of the same name, to messages
that a crash took, or to a client that counts wrongly.  The group then reads some messages again, at most from its
former offset on.  RocketMQ stores it (docs/divergence.md, docs/adr/offsets-beyond-the-end.md).

A slave does not know the end: its log is shorter than the master's.  It checks nothing but the sign, and the master
applies the rule to what it gets from there.  What the master does not take it corrects at the slave: as the next master
the slave would go on from an offset that the group never reached.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry.metadata import byqueue
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.store.store import Store


def no_room(group: str, topic: str) -> str:
    """Return the remark of a refusal: the table takes no offsets of this group in this topic."""
    return f"no room for offsets of group {group} in {topic}: the table is full, or their share of it"


class GroupCommits:
    """Takes clients' offsets into the table.  Loop thread only."""

    def __init__(self, offsets: Offsets, store: Store, *, knows_end: bool = True) -> None:
        """knows_end: False at a slave."""
        self.beyond = 0  # offsets that were refused because they are beyond the end of their queue
        self.full = 0  # offsets of groups in topics that were refused because the table has no room for them
        self.on_first: Callable[[], object] = lambda: None  # called after a group's first offset in a queue was stored
        self.offsets = offsets
        self._store = store
        self._knows_end = knows_end

    def take(self, group: str, topic: str, queue_id: int, offset: int) -> str:
        """Store a client's offset; return why it is not stored, or "".

        Empty also for a group that was reset: its members' offsets are ignored until they have moved.
        """
        if offset < 0:
            return f"commitOffset[{offset}] is illegal"
        known = self.offsets.of(group, topic)
        if offset != known.get(queue_id, NOT_COMMITTED):
            if self._knows_end:
                end = self._store.next_queue_offset(topic, queue_id)
                if offset > end:
                    self.beyond += 1
                    return f"commitOffset[{offset}] is beyond the end of the queue, {end}"
            if not known and not self.offsets.has_room(group, topic):
                self.full += 1
                return no_room(group, topic)
            count = self.offsets.firsts.count
            self.offsets.commit(group, topic, queue_id, offset)
            if self.offsets.firsts.count != count:
                self.on_first()
        return ""

    def merge(self, key: str, value: object) -> None:
        """Take over commits of a `topic@group` that a slave received while consumers could not reach the master.

        The larger offset counts, but queues with a marked reader are left out.  ValueError: these are no offsets.
        The slave holds what it reported: where the master holds another offset, the slave is sent that one.
        """
        topic, _, group = key.partition("@")
        reported = byqueue.numbers(value, f"offsets of {key}")
        for queue_id, offset in reported.items():
            if offset > self.offsets.query(group, topic, queue_id):
                self.take(group, topic, queue_id, offset)
        touched = self.offsets.touched  # names of what is sent to slaves; None without slaves
        if self._knows_end and touched is not None and not reported.items() <= self.offsets.of(group, topic).items():
            touched.add(key)
