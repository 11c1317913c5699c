"""Members of a group that lose requests, answers, connections and time: never do two work on one queue.

A member keeps to what every client of this protocol does: it counts its own 30 s from the moment in which it *sent* the
request that was granted, asks again when it likes, and gives back only what it has stopped to work on.  Requests reach
the broker late or never, answers reach the member late or never, members die and come back, the broker restarts with
the owners it saved.  The table must never name two owners, nor one while another still works.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gantry.client.consuming.queue_lock import Lease
from gantry.consume.locks import QueueLocks
from testkit.memory_state import MemoryState

WORK_S, LEASE_S = 30.0, 60.0
MEMBERS, QUEUES = ("a", "b", "c"), (("T", 0), ("T", 1))
member, queue = st.sampled_from(MEMBERS), st.sampled_from(QUEUES)


class Group(RuleBasedStateMachine):
    """Three members, two queues, one broker."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.state = MemoryState()
        self.locks = QueueLocks(self.state, 0.0, LEASE_S)
        self.leases: dict[tuple[str, tuple[str, int]], Lease] = {}
        # What is on its way: (member, queue, sent at, life) to the broker, and granted ones back.
        self.asked: list[tuple[str, tuple[str, int], float, int]] = []
        self.granted: list[tuple[str, tuple[str, int], float, int]] = []
        self.lives: dict[tuple[str, tuple[str, int]], int] = {}  # how often a member gave a queue back

    def lease(self, who: str, what: tuple[str, int]) -> Lease:
        return self.leases.setdefault((who, what), Lease(WORK_S))

    @initialize()
    def begin(self) -> None:
        self.locks.file.save_now()

    @rule(seconds=st.sampled_from([0.1, 21.0, 29.9, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=member, what=queue)
    def asks(self, who: str, what: tuple[str, int]) -> None:
        self.asked.append((who, what, self.now, self.lives.get((who, what), 0)))

    @rule(who=member, what=queue)
    def asks_and_hears_at_once(self, who: str, what: tuple[str, int]) -> None:
        if self.locks.lock("g", who, what, self.now):
            self.lease(who, what).granted(self.now)
        list(self.locks.saving())

    @rule(data=st.data())
    def request_arrives(self, data: st.DataObject) -> None:
        if not self.asked:
            return
        request = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        who, what, _, _ = request
        if self.locks.lock("g", who, what, self.now):
            self.granted.append(request)
        list(self.locks.saving())

    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        if not self.granted:
            return
        who, what, sent_at, life = self.granted.pop(data.draw(st.integers(0, len(self.granted) - 1)))
        if life == self.lives.get((who, what), 0):
            self.lease(who, what).granted(sent_at)

    @rule(who=member, what=queue)
    def stops_and_gives_back(self, who: str, what: tuple[str, int]) -> None:
        # Answers to what it asked before no longer count for it; the requests may still reach the broker.
        self.leases.pop((who, what), None)
        self.lives[who, what] = self.lives.get((who, what), 0) + 1
        self.locks.unlock("g", who, what)
        list(self.locks.saving())

    @rule(who=member)
    def dies(self, who: str) -> None:
        self.leases = {key: lease for key, lease in self.leases.items() if key[0] != who}

    @rule()
    def sweeps(self) -> None:
        for _ in self.locks.expire(self.now):
            pass

    @rule()
    def broker_restarts(self) -> None:
        self.locks = QueueLocks(self.state, self.now, LEASE_S)

    @invariant()
    def one_works_at_a_time(self) -> None:
        for what in QUEUES:
            workers = [who for who in MEMBERS if self.lease(who, what).is_held(self.now)]
            assert len(workers) <= 1, (what, workers)
            owner = self.locks.owner("g", what, self.now)
            assert not workers or owner == workers[0], (what, workers, owner)

    @invariant()
    def the_count_is_right(self) -> None:
        document = self.locks.to_document()["lockTable"]
        assert isinstance(document, dict)
        assert len(self.locks) == sum(map(len, document.values()))


TestNeverTwoOwners = Group.TestCase
TestNeverTwoOwners.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
