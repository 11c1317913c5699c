"""Sinks' decisions against a table of the truth: drivers, lost replies, aborts, ends, passes, restarts and failovers.

Two groups, the home and another one, have halves.  The home's table lives on a master and on a slave; a change reaches
the slave some time later, and only then is it confirmed and the question answered.  A failover goes on with what the
slave has.  The truth is what anybody was ever answered:

    a batch has one decision, the caller, before and after any failover
    a part that was answered to be aborted is never delivered
    what is delivered belongs to a decided part, what is dropped does not, and a batch that is done lacks nothing
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gantry.transaction.batches import BatchKey
from gantry.transaction.decisions import Decisions
from gantry.transaction.oplog import TransactionState
from gantry.transaction.sinks import Batch
from testkit.memory_state import MemoryState

_EXAMPLES = 500 if os.environ.get("CI") == "true" else 200
HOME, FAR = "home", "far"
SINK = "s"


@dataclass
class Half:
    """One of a part, in a group."""

    group: str
    batch: int
    part: str
    outcome: TransactionState = TransactionState.OPEN


class SinkMachine(RuleBasedStateMachine):
    """One sink, as many drivers as like to come."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = {name: Decisions(MemoryState(), name) for name in (HOME, FAR)}
        self.tables[HOME].touched = set()
        self.slave = Decisions(MemoryState(), HOME)
        self.halves: list[Half] = []
        self.truth: dict[int, frozenset[str]] = {}
        self.aborted: set[str] = set()
        self.done = 0
        self.names = (f"p{number}" for number in itertools.count())
        self.now_ms = 0

    def batch(self, number: int) -> Batch:
        return Batch(SINK, number, HOME)

    def parts(self, number: int) -> list[str]:
        return sorted({half.part for half in self.halves if half.batch == number})

    # -- what happens

    @rule(late=st.integers(0, 2), here=st.integers(0, 2), there=st.integers(0, 2))
    def write(self, late: int, here: int, there: int) -> None:
        """A part of the batch that is worked on, or, by a driver of yesterday, of one before it."""
        part, number = next(self.names), max(1, self.done + 1 - late)
        if number in self.truth and part in self.truth[number]:
            return
        self.halves += [Half(HOME, number, part) for _ in range(here)] + [Half(FAR, number, part) for _ in range(there)]

    @rule(data=st.data(), late=st.integers(0, 2), is_answered=st.booleans())
    def commit(self, data: st.DataObject, late: int, is_answered: bool) -> None:
        number = max(1, self.done + 1 - late)
        parts = data.draw(st.lists(st.sampled_from(self.parts(number) or ["none"]), unique=True))
        if self.tables[HOME].commit(self.batch(number), parts, self.now_ms) is not None or not is_answered:
            return
        self.answer()

    @rule(data=st.data(), is_answered=st.booleans())
    def abort(self, data: st.DataObject, is_answered: bool) -> None:
        number = self.done + 1
        parts = data.draw(st.lists(st.sampled_from(self.parts(number) or ["none"]), unique=True))
        if self.tables[HOME].abort(self.batch(number), parts, self.now_ms) is None and is_answered:
            known = self.answer()
            if known is None or known < number:
                self.aborted.update(parts)

    @rule()
    def the_slave_hears(self) -> None:
        """Without anybody waiting for it."""
        self.carry()

    @rule()
    def confirm(self) -> None:
        self.answer()

    @rule(group=st.sampled_from((HOME, FAR)))
    def end(self, group: str) -> None:
        """By a driver that was told the newest decision."""
        number = self.done + 1
        if number in self.truth:
            if group == FAR:
                assert self.tables[FAR].learn(self.batch(number), self.truth[number], self.now_ms) is None
            self.look(group)

    @rule(group=st.sampled_from((HOME, FAR)))
    def look(self, group: str) -> None:
        """The group ends what it has a verdict on."""
        for half in self.halves:
            if half.group == group and half.outcome is TransactionState.OPEN:
                key = BatchKey(SINK, half.batch, half.part, HOME)
                half.outcome = self.tables[group].verdict(key)

    @rule(is_answered=st.booleans())
    def finish(self, is_answered: bool) -> None:
        """A driver has ended all of it in both groups."""
        number = self.done + 1
        if number not in self.truth:
            return
        self.answer()
        self.end(HOME)
        self.end(FAR)
        self.tables[FAR].done(self.batch(number))
        self.tables[HOME].done(self.batch(number))
        if is_answered:
            self.answer()
            self.done = number

    @rule()
    def failover(self) -> None:
        values = {name: self.slave.value(name) for name in self.slave.keys()}  # noqa: SIM118
        self.tables[HOME] = Decisions(MemoryState({"sinks": values}), HOME)
        self.tables[HOME].touched = set()

    # -- how

    def carry(self) -> None:
        home = self.tables[HOME]
        touched, home.touched = home.touched or set(), set()
        for name in sorted(touched):
            self.slave.follow(name, home.value(name))

    def answer(self) -> int | None:
        """Every copy has it now, and anyone who asked is told; the newest decided batch."""
        home = self.tables[HOME]
        number = home.number
        self.carry()
        home.confirm(number)
        known = home.find(SINK)
        if known is None or known.batch < 0:
            return None
        if known.parts is not None:
            assert self.truth.setdefault(known.batch, known.parts) == known.parts, "another decision"
        return known.batch

    # -- what must hold

    @invariant()
    def what_is_delivered_was_decided_and_what_is_dropped_was_not(self) -> None:
        for half in self.halves:
            is_chosen = half.part in self.truth.get(half.batch, ())
            if half.outcome is TransactionState.COMMITTED:
                assert is_chosen and half.part not in self.aborted, half
            elif half.outcome is TransactionState.ROLLED_BACK:
                assert not is_chosen, half
            else:
                assert not (is_chosen and half.batch <= self.done), f"done, and not delivered: {half}"

    @invariant()
    def what_was_answered_is_known_to_the_slave(self) -> None:
        known = self.slave.find(SINK)
        for number in self.truth:
            assert known is not None and known.batch >= number


SinkMachine.TestCase.settings = settings(max_examples=_EXAMPLES, stateful_step_count=30, deadline=None)
TestDecisionsAgainstTheTruth = SinkMachine.TestCase
