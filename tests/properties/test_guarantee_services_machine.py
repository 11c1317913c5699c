"""Services over the guarantee's real steps, in any interleaving and with any faults.

A producer, a group whose effect is in the database (with keys in Redis), a group whose effect is outside of it, and
resend processes that stop at each send while others go on.  Processes die at each point, sends and answers are lost, a
COMMIT fails or its answer is lost, copies are delivered twice and again, Redis is wiped, down or remembers what the
database has lost, clocks differ.

At all times a group has at most one effect of a message, and none of what was rolled back or withdrawn.  In the end,
when nothing fails any more, every committed message has exactly one effect in each group, or is listed for a person.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gantry.errors import GantryError, OutcomeUnknownError
from gantry.guarantee import dialects, migration
from gantry.guarantee.byhand import DecisionByHand, UndoneError, settle
from gantry.guarantee.effects import BlockingOutsideEffects
from gantry.guarantee.idempotent import HeldElsewhereError, Idempotent
from gantry.guarantee.keys import RedisKeys
from gantry.guarantee.producing import OutgoingStub, StoredPlace, withdraw, write_places, write_stub
from gantry.guarantee.resending import Resender, ResendRules
from gantry.guarantee.running import run
from gantry.guarantee.statements import statements
from gantry.guarantee.units import unit
from gantry.model.message import Message
from testkit.guaranteeworld import GROUPS, Broker, Clock, Connection, CrashError, Database, Redis

INSIDE, OUTSIDE = GROUPS
SAY = statements(dialects.SQLITE)
STEPS = statements(dialects.SQLITE, "named")
RESENDS_MAX, BACKOFF_S, HOLD_S, SKEW_S, STUCK_MS = 3, 10.0, 20.0, 5.0, 60_000
WHO = st.sampled_from(GROUPS)
SKEWS = st.sampled_from([0, 0, 0, -2_000, 2_000])
NTH = st.integers(0, 3)
COMMITS = st.sampled_from(["good", "good", "good", "fails", "answer lost"])


class Services(RuleBasedStateMachine):
    """A broker in memory, and everybody else over one database."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:", factory=Connection)
        groups = [migration.GroupOfTopic("Orders", group) for group in GROUPS]
        migration.install(self.database, dialects.SQLITE, 0, groups)
        self.database.execute("CREATE TABLE business (message_id TEXT)")
        self.database.execute("CREATE TABLE effects (message_id TEXT)")
        self.database.commit()
        self.now = 1_000_000
        self.made = 0
        self.queues: dict[tuple[str, int], list[str]] = {}
        self.consumed = Counter[tuple[str, str, int]]()
        self.kept: dict[str, tuple[str, int]] = {}  # in Redis: value, and when it expires
        self.is_redis_down = False
        self.void: set[str] = set()
        self.paid = Counter[str]()
        self.paying: list[tuple[Any, str, int]] = []  # an entered block, its message, and when it is cancelled
        self.resending: list[Coroutine[Any, str, Any]] = []

    def teardown(self) -> None:
        try:
            self.everything_ends_well()
        finally:
            sqlite3.Connection.close(self.database)

    def ask(self, text: str, **values: object) -> list[tuple[Any, ...]]:
        return self.database.execute(text, {"now_ms": self.now, **values}).fetchall()

    def store(self, topic: str, name: str) -> StoredPlace:
        number = len(name) % 2
        queue = self.queues.setdefault((topic, number), [])
        queue.append(name)
        return StoredPlace(name, topic, "b", number, len(queue) - 1)

    # The producer.

    @rule(business=st.sampled_from(["good", "good", "good", "fails"]), commit=COMMITS, copies=NTH, places=st.booleans())
    def order(self, business: str, commit: str, copies: int, places: bool) -> None:
        """Business and stub are one transaction; after a good answer the message is sent, never, once or twice."""
        self.made += 1
        name = "m" * (self.made % 2) + f"m{self.made}"
        stub = OutgoingStub(name, Message("Orders", b"\xff\0"))
        self.database.fate = commit if business == "good" else "good"
        try:
            with unit(self.database):
                self.database.execute("INSERT INTO business VALUES (?)", (name,))
                run(write_stub(STEPS, stub, self.now, self.now + int(BACKOFF_S * 1000), "shop"), self.database)
                if business == "fails":
                    raise CrashError
        except (CrashError, sqlite3.OperationalError):
            return
        stored = [self.store("Orders", name) for _ in range(min(copies, 2))]
        if stored and places:
            Database(self.database).run_now(write_places(STEPS, stored[-1:]))

    @rule(nth=NTH)
    def withdraw(self, nth: int) -> None:
        number = max(1, self.made - nth)
        name = "m" * (number % 2) + f"m{number}"
        with contextlib.suppress(CrashError), unit(self.database):
            if not run(withdraw(STEPS, name, self.now, "shop"), self.database):
                raise CrashError
            self.void.add(name)

    # Consumers.

    def waiting(self, group: str, nth: int) -> tuple[str, int] | None:
        """A queue that has a message for a group."""
        own = [key for key in self.queues if key[0] in ("Orders", retry(group)) and self.next(group, *key) is not None]
        return own[nth % len(own)] if own else None

    def next(self, group: str, topic: str, queue: int) -> Any:
        at = self.consumed[group, topic, queue]
        stored = self.queues.get((topic, queue), [])
        if at >= len(stored):
            return None
        place = SimpleNamespace(topic=topic, broker_name="b", queue_id=queue)
        return SimpleNamespace(message_id=stored[at], queue=place, queue_offset=at)

    @rule(
        nth=NTH, skew=SKEWS, commit=COMMITS,
        fate=st.sampled_from(["good", "good", "good", "dies", "dies after", "fails", "no ack", "skips"]),
    )  # fmt: skip
    def pack(self, nth: int, skew: int, commit: str, fate: str) -> None:
        """The next message of a queue; `skips`: it is acknowledged unseen, as by a consumer with a fault."""
        found = self.waiting(INSIDE, nth)
        if found is None:
            return
        topic, queue = found
        message = self.next(INSIDE, topic, queue)
        if fate == "skips":
            self.consumed[INSIDE, topic, queue] += 1
            return
        client = Redis(self)
        guard = Idempotent(INSIDE, "sqlite", keys=RedisKeys(client, hold_s=HOLD_S), clock=Clock(self, skew))
        try:
            with guard.effect(self.database, message) as effect:
                if effect:
                    self.database.execute("INSERT INTO effects VALUES (?)", (message.message_id,))
                self.database.fate = commit
                client.is_dead = fate in ("dies", "dies after")
                if fate == "dies":
                    raise CrashError
                if fate == "fails":
                    raise RuntimeError("the business fails")
        except (CrashError, RuntimeError, sqlite3.OperationalError, HeldElsewhereError):
            return
        finally:
            self.database.fate = "good"
        if fate == "good":
            self.consumed[INSIDE, topic, queue] += 1
            has_effect = self.ask("SELECT 1 FROM effects WHERE message_id = :name", name=message.message_id)
            assert has_effect or message.message_id in self.void, "acknowledged without an effect"

    @rule(nth=NTH, skew=SKEWS, hook=st.sampled_from([True, True, None]), commit=COMMITS, meanwhile=st.booleans())
    def begin_payment(self, nth: int, skew: int, hook: bool | None, commit: str, meanwhile: bool) -> None:
        """Enter the block of an effect outside of the database; the acknowledgement comes with a later delivery.

        `meanwhile`: before the hook's answer arrives, another process settles the message, pays and dies.
        """
        found = self.waiting(OUTSIDE, nth)
        if found is None:
            return
        topic, queue = found
        message = self.next(OUTSIDE, topic, queue)

        def asked(message: Any) -> bool | None:
            answer = hook and self.paid[message.message_id] > 0
            if meanwhile:
                self.begin_payment(nth, 0, True, "good", False)
                self.end_payment(-1, "good", "dies after")
                self.now += int(2 * HOLD_S * 1000)
                self.begin_payment(nth, 0, None, "good", False)
            return answer

        guard = BlockingOutsideEffects(
            OUTSIDE, "sqlite", Database(self.database), asked=asked, hold_s=HOLD_S, skew_s=SKEW_S,
            clock=Clock(self, skew),
        )  # fmt: skip
        block = guard.effect(message)
        self.database.fate = commit
        try:
            effect = block.__enter__()
        except (HeldElsewhereError, sqlite3.OperationalError):
            return
        finally:
            self.database.fate = "good"
        if effect:
            self.paying.append((block, message.message_id, self.now + int(HOLD_S * 1000)))
        else:
            block.__exit__(None, None, None)
            self.consumed[OUTSIDE, topic, queue] += 1
            assert self.paid[message.message_id] or message.message_id in self.void, "acknowledged without an effect"

    @rule(
        nth=NTH, commit=COMMITS, fate=st.sampled_from(["good", "good", "dies before", "dies after", "fails", "unknown"])
    )
    def end_payment(self, nth: int, commit: str, fate: str) -> None:
        if not self.paying:
            return
        block, name, until = self.paying.pop(nth % len(self.paying))
        if fate == "dies before" or self.now > until:
            block.gen.close()
            return
        if fate == "fails":
            with contextlib.suppress(RuntimeError, sqlite3.OperationalError):
                block.__exit__(RuntimeError, RuntimeError("the bank refuses"), None)
            return
        self.paid[name] += 1
        if fate == "dies after":
            block.gen.close()
            return
        self.database.fate = commit
        error = OutcomeUnknownError("the bank does not answer") if fate == "unknown" else None
        with contextlib.suppress(OutcomeUnknownError, sqlite3.OperationalError):
            block.__exit__(type(error) if error else None, error, None)
        self.database.fate = "good"

    # Resends.

    @rule(skew=SKEWS, knows_progress=st.booleans())
    def begin_resend(self, skew: int, knows_progress: bool) -> None:
        """A pass of a resend process, up to its first send."""
        limits = ResendRules(resends_max=RESENDS_MAX, backoff_s=BACKOFF_S)
        broker = Broker(self, knows_progress)
        resender = StepwiseResender(Database(self.database), STEPS, broker, broker, Clock(self, skew), limits)  # type: ignore[arg-type]
        self.go_on(resender.one_pass(), None)

    @rule(nth=NTH, fate=st.sampled_from(["sent", "sent", "refused", "lost", "answer lost", "dies", "dies after"]))
    def resend_goes_on(self, nth: int, fate: str) -> None:
        """One send of a resend process that was begun."""
        if self.resending:
            self.go_on(self.resending.pop(nth % len(self.resending)), fate)

    def go_on(self, process: Coroutine[Any, Any, Any], fate: str | None) -> None:
        try:
            process.send(fate)
        except (StopIteration, CrashError):
            return
        self.resending.append(process)

    # The world.

    @rule(by=st.sampled_from([1, 3_000, 3_000, 15_000, 60_000]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(what=st.sampled_from(["flush", "down", "up", "done", "held"]))
    def redis_fails(self, what: str) -> None:
        """`done`: as after the database was restored; `held`: by a process that was killed, and nothing expires."""
        if what not in ("down", "up"):
            self.kept = {}
        if what in ("done", "held"):
            for number in range(max(1, self.made - 2), self.made + 3):
                for name in (f"m{number}", f"mm{number}"):
                    self.kept[f"gantry:{INSIDE}:{name}"] = (what, self.now + 10**9)
        self.is_redis_down = what == "down"

    @rule(group=WHO, nth=NTH)
    def rearm(self, group: str, nth: int) -> None:
        """A person sends a message again that is open, whatever its log row says."""
        number = max(1, self.made - nth)
        decision = DecisionByHand("rearm", "m" * (number % 2) + f"m{number}", group, self.now, "a person")
        with contextlib.suppress(UndoneError), unit(self.database):
            run(settle(STEPS, decision), self.database)

    @rule(group=WHO, is_topic=st.booleans(), queue=st.integers(0, 1))
    def deliver_again(self, group: str, is_topic: bool, queue: int) -> None:
        """A consumer's progress was not saved."""
        topic = "Orders" if is_topic else retry(group)
        self.consumed[group, topic, queue] = max(0, self.consumed[group, topic, queue] - 2)

    # What holds.

    @invariant()
    def effects_happen_once(self) -> None:
        assert not self.database.in_transaction
        effects = Counter(name for (name,) in self.ask("SELECT message_id FROM effects"))
        committed = {name for (name,) in self.ask("SELECT message_id FROM business")}
        for counts in (effects, self.paid):
            assert all(count <= 1 for count in counts.values()), counts
            assert {*(+counts)} <= committed - self.void, counts
        assert committed == {name for (name,) in self.ask("SELECT message_id FROM guarantee_stub")}

    def everything_ends_well(self) -> None:
        self.is_redis_down = False
        while self.paying:
            self.end_payment(0, "good", "dies before")
        while self.resending:
            self.resend_goes_on(0, "dies")
        for _ in range(4 + 2 * RESENDS_MAX):
            self.now += int(BACKOFF_S * 1000) << (RESENDS_MAX + 2)
            self.begin_resend(0, True)
            while self.resending:
                self.resend_goes_on(0, "sent")
            self.consume_all()
            self.effects_happen_once()
        self.check_the_end()

    def consume_all(self) -> None:
        while found := self.waiting(INSIDE, 0):
            before = self.consumed[INSIDE, *found]
            self.pack(0, 0, "good", "good")
            assert self.consumed[INSIDE, *found] == before + 1, "the group stands still"
        while found := self.waiting(OUTSIDE, 0):
            before = self.consumed[OUTSIDE, *found]
            self.begin_payment(0, 0, True, "good", False)
            self.end_payment(0, "good", "good")
            self.begin_payment(0, 0, True, "good", False)
            assert self.consumed[OUTSIDE, *found] > before, "the group stands still"

    def check_the_end(self) -> None:
        given = {"resends_max": RESENDS_MAX, "rows_max": 99, "before_ms": self.now - STUCK_MS}
        people = {
            (row[0], group)
            for group in GROUPS
            for kind in ("exhausted", "stuck")
            for row in self.ask(getattr(SAY, kind), consumer_group=group, **given)
        }
        inside = {name for (name,) in self.ask("SELECT message_id FROM effects")}
        rows = self.ask("SELECT message_id, consumer_group, state FROM guarantee_delivery")
        assert len(rows) == 2 * len(self.ask("SELECT message_id FROM business"))
        for name, group, state in rows:
            has_effect = name in (inside if group == INSIDE else {*(+self.paid)})
            is_good = state == "confirmed" and has_effect
            assert is_good or name in self.void or (name, group) in people, (name, group, state, has_effect)


class StepwiseResender(Resender):
    """One thing after the other, so that the rules decide what comes between."""

    async def together(self, work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        found: list[Any] = []
        try:
            for each in work:
                try:
                    found.append(await each)
                except (GantryError, sqlite3.Error) as error:
                    found.append(error)
        finally:
            for each in work:
                each.close()  # of a process that died
        return found


def retry(group: str) -> str:
    return f"%RETRY%{group}"


@pytest.mark.parametrize(
    "examples", [300, pytest.param(5_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="many")]
)
def test_every_committed_order_has_one_effect_in_each_group_or_a_person_knows(examples: int) -> None:
    run_state_machine_as_test(Services, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None))
