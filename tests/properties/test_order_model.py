"""Orderly POP against the simplest model that can be right: a list of messages, and who was given which of them when.

Pops of several clients with batches of all sizes, repeated attempts, acknowledgements and changes with handles of any
age, messages that match nobody's filter, a clock that is set back, and a restart with the saved document after any
step.  The rules never deliver an acknowledged message, never two batches of one queue at the same time, and never pass
a message that was neither acknowledged nor given up.
"""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gantry.pop import order
from gantry.pop.order import OrderedBatch, OrderVerdict

INVISIBLE_MS, TIMES_MAX = 100, 2


class Queue(RuleBasedStateMachine):
    """One queue and one group."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000  # no clock shows a time below zero
        self.stored: list[bool] = []  # by offset, whether the group's filter takes the message
        self.committed = 0
        self.batch: OrderedBatch | None = None
        # The model: what was delivered last, who asked for it, when each of it is visible, and what is over.
        self.pop_ms = 0
        self.attempt = ""
        self.visible_ms: dict[int, int] = {}
        self.over: set[int] = set()
        self.as_head: dict[int, int] = {}  # how often a message was delivered as the first
        self.handles: list[tuple[int, int]] = []

    @rule(takes=st.lists(st.booleans(), min_size=1, max_size=5))
    def messages_come(self, takes: list[bool]) -> None:
        self.stored += takes

    @rule(ms=st.sampled_from([1, 50, 100, 1_000, -500]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(attempt=st.sampled_from(["", "a", "b"]), count=st.integers(1, 5))
    def somebody_pops(self, attempt: str, count: int) -> None:
        held = [ms for offset, ms in self.visible_ms.items() if offset not in self.over]
        is_repeated = bool(attempt) and attempt == self.attempt
        is_locked = any(self.now_ms < ms for ms in held) and not is_repeated
        batch = self.batch
        # A batch that is over may be forgotten, and its attempt with it: then nothing is locked either.
        assert (batch is not None and batch.is_locked(attempt, self.now_ms)) == is_locked
        if is_locked:
            return
        if batch is not None and batch.has_used_up(attempt, TIMES_MAX):
            head = batch.committed
            assert self.as_head[head] == 1 + TIMES_MAX
            self.over.add(head)
            batch = batch.give_up()
            self.committed = batch.committed
        found = [offset for offset in range(self.committed, len(self.stored)) if self.stored[offset]]
        taken = order.take(found, batch, count)
        wanted = [offset for offset in found if offset not in self.over]
        assert taken == wanted[:count]
        if not taken:
            if batch is not None:
                self.batch = order.passed(batch, len(self.stored))
            self.committed = len(self.stored)
            return
        if not (is_repeated and taken[0] in self.as_head):
            self.as_head[taken[0]] = self.as_head.get(taken[0], 0) + 1
        self.batch = order.popped(batch, found, taken, attempt, self.now_ms, INVISIBLE_MS)
        assert self.batch.outstanding == taken
        assert self.batch.pop_ms > self.pop_ms or batch is None
        self.pop_ms, self.attempt = self.batch.pop_ms, attempt
        self.visible_ms = dict.fromkeys(taken, self.pop_ms + INVISIBLE_MS)
        self.committed = self.batch.committed
        self.handles += [(offset, self.pop_ms) for offset in taken]

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def somebody_acknowledges(self, data: st.DataObject) -> None:
        offset, pop_ms = data.draw(st.sampled_from(self.handles[-12:]))
        if self.batch is None:
            return
        self.batch, verdict = self.batch.acknowledge(offset, pop_ms)
        assert verdict is self.expected(offset, pop_ms)
        if verdict is OrderVerdict.TAKEN:
            self.over.add(offset)
            if (head := self.batch.committed) in self.visible_ms:
                self.as_head[head] = max(1, self.as_head.get(head, 0))
        self.committed = self.batch.committed

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), ms=st.sampled_from([0, 10, 500]))
    def somebody_changes_the_invisible_time(self, data: st.DataObject, ms: int) -> None:
        offset, pop_ms = data.draw(st.sampled_from(self.handles[-12:]))
        if self.batch is None:
            return
        self.batch, verdict = self.batch.change(offset, pop_ms, self.now_ms + ms)
        assert verdict is self.expected(offset, pop_ms)
        if verdict is OrderVerdict.TAKEN:
            self.visible_ms[offset] = self.now_ms + ms

    def expected(self, offset: int, pop_ms: int) -> OrderVerdict:
        if offset in self.over:
            return OrderVerdict.DONE
        return OrderVerdict.TAKEN if pop_ms == self.pop_ms and offset in self.visible_ms else OrderVerdict.STALE

    @rule()
    def the_broker_starts_again(self) -> None:
        if self.batch is not None:
            self.batch = order.from_json(json.loads(json.dumps(self.batch.to_json())), "the batch")

    @invariant()
    def nothing_is_passed(self) -> None:
        below = {offset for offset in range(self.committed) if self.stored[offset]}
        assert below <= self.over

    @invariant()
    def the_window_is_bounded(self) -> None:
        if self.batch is not None:
            assert len(self.batch.acked | set(self.batch.offsets)) <= order.WINDOW_MAX


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
