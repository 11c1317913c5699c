"""A group that shares queues again again and again: no two members ever work on one queue, none stays without a worker.

Members compute their shares from lists that may be old, take and drop queues, ask for locks, work, end and give back;
all in any order, with members joining, leaving in order, and dying.  The rules are those of `client.assign`,
`client.lease` and `consume.locks`; what a member does with them is what `client.orderly` does:

    it works only while the queue is in its share, and its lease is held
    it gives a lock back only when its work on the queue has ended
    a queue that comes back while its work still ends is taken again only afterwards

When the group has come to rest and leases of the dead have ended, every queue has one worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gantry.client.consuming.assign import share_of
from gantry.client.consuming.queue_lock import Lease
from gantry.consume.locks import QueueLocks
from gantry.model.route import MessageQueue
from testkit.memory_state import MemoryState

QUEUES = [MessageQueue("T", "b", queue_id) for queue_id in range(3)]
NAMES = ("a", "b", "c", "d")
name = st.sampled_from(NAMES)
pause = st.sampled_from([0.0, 0.0, 1.0, 21.0, 31.0])


@dataclass
class Part:
    """One member's work on one queue, from taking it to giving it back."""

    lease: Lease
    is_leaving: bool = False
    is_at_work: bool = False


@dataclass
class Member:
    """A member and what it believes."""

    seen: tuple[str, ...]  # who it thinks is in the group
    parts: dict[MessageQueue, Part] = field(default_factory=dict)


class Group(RuleBasedStateMachine):
    """Up to four members, three queues, one broker."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.locks = QueueLocks(MemoryState(), 0.0)
        self.members: dict[str, Member] = {}

    @initialize()
    def begin(self) -> None:
        for who in NAMES[:2]:
            self.joins(who)

    @rule(who=name)
    def joins(self, who: str) -> None:
        if who not in self.members:
            self.members[who] = Member(())

    def looks_and_shares(self, who: str, seen: tuple[str, ...] = ()) -> None:
        member = self.members.get(who)
        if member is None:
            return
        member.seen = seen or tuple(self.members)
        share = share_of(who, member.seen, QUEUES)
        for queue, part in member.parts.items():
            part.is_leaving |= queue not in share
        for queue in share:
            member.parts.setdefault(queue, Part(Lease(30.0)))

    def asks_for_locks(self, who: str) -> None:
        member = self.members.get(who)
        for queue, part in {} if member is None else member.parts.items():
            if part.is_leaving and not part.lease.is_held(self.now):
                continue
            if self.locks.lock("g", who, (queue.topic, queue.queue_id), self.now):
                part.lease.granted(self.now)
            else:
                part.lease.refused()

    def begins_to_work(self, who: str) -> None:
        member = self.members.get(who)
        for part in [] if member is None else member.parts.values():
            part.is_at_work |= not part.is_leaving and part.lease.is_held(self.now)

    @rule(who=name, seen=st.sets(name), steps=st.sampled_from([(0,), (1,), (2,), (0, 1, 2), (0, 1, 2)]), seconds=pause)
    def does_something(self, who: str, seen: set[str], steps: tuple[int, ...], seconds: float) -> None:
        self.time_passes(seconds)
        for step in steps:
            if step == 0:
                self.looks_and_shares(who, (who, *seen))  # a list that may be old, or not yet whole
            else:
                (self.asks_for_locks, self.begins_to_work)[step - 1](who)

    @rule(who=name, queue=st.sampled_from(QUEUES))
    def ends_work(self, who: str, queue: MessageQueue) -> None:
        member = self.members.get(who)
        part = None if member is None else member.parts.get(queue)
        if member is None or part is None:
            return
        part.is_at_work = False
        if part.is_leaving:
            del member.parts[queue]
            self.locks.unlock("g", who, (queue.topic, queue.queue_id))

    @rule(who=name)
    def stops_in_order(self, who: str) -> None:
        member = self.members.get(who)
        if member is None:
            return
        for part in member.parts.values():
            part.is_leaving = True
        for queue in QUEUES:
            self.ends_work(who, queue)
        del self.members[who]

    @rule(who=name)
    def dies(self, who: str) -> None:
        self.members.pop(who, None)

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        # A listener that outlives its lease is cancelled.
        for member in self.members.values():
            for part in member.parts.values():
                part.is_at_work &= part.lease.is_held(self.now)

    @invariant()
    def one_works_at_a_time(self) -> None:
        for queue in QUEUES:
            assert len(self.workers(queue)) <= 1, (queue, self.workers(queue))

    def workers(self, queue: MessageQueue) -> list[str]:
        return [
            who for who, member in self.members.items() if queue in member.parts and member.parts[queue].is_at_work
        ]

    def teardown(self) -> None:
        """The group comes to rest."""
        if not self.members:
            return
        self.time_passes(31.0)
        self.time_passes(31.0)
        for _ in range(2):  # who still works ends first, and what comes back to it is taken again
            for step in (self.looks_and_shares, self.asks_for_locks):
                for who in self.members:
                    step(who)
            for who in self.members:
                for queue in QUEUES:
                    self.ends_work(who, queue)
        for step in (self.looks_and_shares, self.asks_for_locks, self.begins_to_work):
            for who in self.members:
                step(who)
        self.one_works_at_a_time()
        for queue in QUEUES:
            assert len(self.workers(queue)) == 1, queue


TestNeverTwoWorkers = Group.TestCase
TestNeverTwoWorkers.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
