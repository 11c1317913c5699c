"""The book of transactions against a dictionary: random halves, ends, puts back, crossings, clocks and restarts.

The model keeps what a person would write down: for every transaction where it stands and what became of it, and the
records of both queues in the order of the log.  After every step the book says the same as the model, and so does a
book that is read back from the saved positions.  The rules about time are written down a second time here, the long
way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gantry.transaction.checker import Book, CheckAction, CheckPolicy, OpenHalf, decide
from gantry.transaction.half import HalfFacts
from gantry.transaction.oplog import Settled, TransactionState

_EXAMPLES = 800 if os.environ.get("CI") == "true" else 300
_START_MS = 1_000_000_000
_RULES = CheckPolicy(
    immunity_ms=6_000, checks_max=3, age_max_ms=3_600_000, settled_behind_max=4, settled_behind_factor=1
)
_FINAL = (TransactionState.COMMITTED, TransactionState.ROLLED_BACK)


@dataclass
class Known:
    """What the model knows of one transaction."""

    root: int
    current: int
    since_ms: int
    immunity_s: int | None
    checks: int = 0
    outcome: TransactionState = TransactionState.OPEN
    asked_at: int = -1


HalfEvent = tuple[str, int, Known, int, int, bool]


class CheckerMachine(RuleBasedStateMachine):
    """One broker's transactions."""

    roots = Bundle("roots")

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = _START_MS
        self.book = Book()
        self.known: dict[int, Known] = {}
        self.log: list[tuple[str, int, object]] = []  # ("half" | "op", queue offset, contents)
        self.halves = 0
        self.ops = 0
        self.saved = (0, 0)
        self.log_end = 0

    # -- what happens

    @rule(target=roots, immunity_s=st.one_of(st.none(), st.integers(0, 100)))
    def half(self, immunity_s: int | None) -> int:
        root = self.halves
        known = Known(root, root, self.now_ms, immunity_s)
        self.known[root] = known
        self._append_half(known, is_rearmed=False)
        self._dispatch(self.log[-1:])
        return root

    @rule(root=roots, is_commit=st.booleans())
    def settle(self, root: int, is_commit: bool) -> None:
        known = self.known[root]
        outcome = TransactionState.COMMITTED if is_commit else TransactionState.ROLLED_BACK
        answered = self.book.outcome(root)
        if known.outcome in _FINAL:
            assert answered in (known.outcome, None), "a final outcome stays, or is looked up in the index"
            return
        self._append_op([known], outcome)
        self._dispatch(self.log[-1:])

    @rule(roots=st.lists(roots, min_size=1, max_size=5, unique=True))
    def settle_together(self, roots: list[int]) -> None:
        open_ones = [self.known[root] for root in roots if self.known[root].outcome is TransactionState.OPEN]
        if open_ones:
            self._append_op(open_ones, TransactionState.COMMITTED)
            self._dispatch(self.log[-1:])

    @rule(root=roots)
    def put_back(self, root: int) -> None:
        known = self.known[root]
        if known.outcome is TransactionState.OPEN:
            known.current = self.halves
            self._append_half(known, is_rearmed=False)
            self._dispatch(self.log[-1:])

    @rule(root=roots, is_swapped=st.booleans())
    def put_back_crossed_by_a_commit(self, root: int, is_swapped: bool) -> None:
        """Both are written before either is dispatched; the dispatcher may bring the two queues in any order."""
        known = self.known[root]
        if known.outcome is not TransactionState.OPEN:
            return
        before = known.current
        known.current = self.halves
        self._append_half(known, is_rearmed=False)
        self._append_op([known], TransactionState.COMMITTED, before)
        crossed = self.log[-2:]
        self._dispatch(crossed[::-1] if is_swapped else crossed)

    @rule(root=roots)
    def give_up(self, root: int) -> None:
        if self.known[root].outcome is TransactionState.OPEN:
            self._append_op([self.known[root]], TransactionState.GIVEN_UP)
            self._dispatch(self.log[-1:])

    @rule(root=roots)
    def arm_again(self, root: int) -> None:
        known = self.known[root]
        if known.outcome is TransactionState.GIVEN_UP:
            known.outcome, known.current, known.checks = TransactionState.OPEN, self.halves, 0
            known.since_ms = self.now_ms
            self._append_half(known, is_rearmed=True)
            self._dispatch(self.log[-1:])

    @rule(milliseconds=st.integers(0, 4_000_000))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @rule(has_channel=st.booleans())
    def look_at_all(self, has_channel: bool) -> None:
        for half in list(self.book.open.values()):
            known = self.known[half.root]
            decision = decide(half, self.now_ms - half.since_ms, _RULES)
            assert decision is self._expected(known), (decision, known)
            if decision is CheckAction.ASK and has_channel:
                half.checks += 1
                known.checks += 1
            elif decision is CheckAction.GIVE_UP or (decision is CheckAction.UNANSWERED and has_channel):
                self._append_op([known], TransactionState.GIVEN_UP)
                self._dispatch(self.log[-1:])

    @rule()
    def move(self) -> None:
        """Puts back what the rules want to be put back, until they want nothing."""
        for _ in range(50):
            wanted = list(islice(self.book.must_move(_RULES, 0), 3))
            if not wanted:
                break
            for half in wanted:
                settled_behind = sum(
                    1 for at in range(half.current + 1, self.halves) if at not in self.book.open
                )
                assert settled_behind >= 3, "a half moves only for what is settled behind it"
                known = self.known[half.root]
                known.current = self.halves
                self._append_half(known, is_rearmed=False)
                self._dispatch(self.log[-1:])

    @rule(limit=st.integers(0, 100))
    def segment_goes(self, limit: int) -> None:
        """Nothing open stays below the log offset that retention wants, which lies below the end of the log."""
        limit = min(limit, self.log_end)
        for half in list(self.book.must_move(CheckPolicy(settled_behind_max=1 << 40), limit)):
            assert half.log_offset < limit
            known = self.known[half.root]
            known.current = self.halves
            self._append_half(known, is_rearmed=False)
            self._dispatch(self.log[-1:])
        assert all(half.log_offset >= limit for half in self.book.open.values())

    @rule()
    def save(self) -> None:
        position = self.book.half_offset, self.book.op_offset
        assert position >= self.saved and position[1] >= self.saved[1], "positions never go back"
        self.saved = position

    @rule()
    def restart(self) -> None:
        self._restart(*self.saved)

    @rule()
    def restart_with_a_newer_op_position(self) -> None:
        """It passes no op that stands behind the first half that is read again."""
        named = [event[:2] for event in self.log]
        first = ("half", self.saved[0])
        behind = self.log[named.index(first) :] if first in named else []
        behind_at = next((offset for kind, offset, _ in behind if kind == "op"), self.ops)
        self._restart(self.saved[0], min(self.book.op_offset, behind_at))

    def _restart(self, half_at: int, op_at: int) -> None:
        checks = {half.root: half.checks for half in self.book.open.values()}
        self.book.begin(half_at, op_at)
        for kind, offset, contents in self.log:
            if offset >= (half_at if kind == "half" else op_at):
                self._enter(kind, offset, contents)
        for half in self.book.open.values():
            assert half.checks <= checks[half.root], "only what the copies carry is known after a start"
            self.known[half.root].checks = half.checks

    # -- what must hold

    @invariant()
    def the_book_says_what_the_model_says(self) -> None:
        open_ones = {known.root: known for known in self.known.values() if known.outcome is TransactionState.OPEN}
        found = {half.root: half for half in self.book.open.values()}
        assert found.keys() == open_ones.keys(), "nothing is skipped, nothing comes back"
        for root, known in open_ones.items():
            half = found[root]
            assert half.current == known.current and self.book.find(root) is half
            assert half.since_ms == known.since_ms
        for known in self.known.values():
            assert self.book.outcome(known.root) in (known.outcome, None)
            if known.root >= self.book.map.base:
                assert self.book.outcome(known.root) is known.outcome
        assert list(self.book.open) == sorted(self.book.open)
        assert sum(self.book.topics.values()) == len(open_ones)

    @invariant()
    def positions_pass_only_what_is_done(self) -> None:
        book = self.book
        assert all(offset >= book.half_offset for offset in book.open)
        assert book.half_offset == min(book.open, default=self.halves)
        for kind, offset, contents in self.log:
            if kind == "op" and offset < book.op_offset:
                assert isinstance(contents, list)
                assert all(at < book.half_offset for one in contents for at in (one.root, *one.copies))

    # -- how

    def _expected(self, known: Known) -> CheckAction:
        age_ms = self.now_ms - known.since_ms
        immunity_ms = 6_000 if known.immunity_s is None else known.immunity_s * 1000
        if age_ms <= immunity_ms:
            return CheckAction.WAIT
        if age_ms > 3_600_000:
            return CheckAction.GIVE_UP
        return CheckAction.UNANSWERED if known.checks >= 3 else CheckAction.ASK

    def _append_half(self, known: Known, is_rearmed: bool) -> None:
        text = b"PGROUP\x01g\x02REAL_TOPIC\x01t\x02"
        if known.immunity_s is not None:
            text += b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01%d\x02" % known.immunity_s
        if self.halves != known.root:
            text += b"TRAN_PREPARED_QUEUE_OFFSET\x01%d\x02TRANSACTION_CHECK_TIMES\x01%d\x02" % (
                known.root,
                known.checks,
            )
            text += b"GANTRY_TX_SINCE_MS\x01%d\x02" % known.since_ms
            if is_rearmed:
                text += b"GANTRY_TX_REARMED\x011\x02"
        self.log.append(("half", self.halves, (text, self.log_end, self.now_ms)))
        self.halves += 1
        self.log_end += 1

    def _append_op(self, ones: list[Known], outcome: TransactionState, *more: int) -> None:
        settled = []
        for known in ones:
            copies = tuple(at for at in dict.fromkeys((known.current, *more)) if at != known.root)
            settled.append(Settled(known.root, outcome, copies))
            known.outcome = outcome
        self.log.append(("op", self.ops, settled))
        self.ops += 1
        self.log_end += 1

    def _dispatch(self, events: list[tuple[str, int, object]]) -> None:
        for event in events:
            self._enter(*event)

    def _enter(self, kind: str, offset: int, contents: object) -> None:
        if kind == "op":
            assert isinstance(contents, list)
            self.book.add_op(offset, contents)
            return
        assert isinstance(contents, tuple)
        text, log_offset, store_ms = contents
        facts = HalfFacts(text, offset)
        self.book.add_half(OpenHalf(offset, (log_offset, 1), facts, store_ms), facts.is_rearmed)


CheckerMachine.TestCase.settings = settings(max_examples=_EXAMPLES, stateful_step_count=30, deadline=None)
TestTheBookAgainstADictionary = CheckerMachine.TestCase
