"""Producer, broker, two consumer groups, resend workers and people over the guarantee's statements, in any order.

Each step may fail at each of its points.  At all times a group has at most one effect of a message, and none of what
was rolled back or withdrawn.  In the end, when nothing fails any more, every committed message has exactly one effect
in each group, or was settled by a person, or is listed for one.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gantry.guarantee import dialects, migration, rules, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = ("packing", "billing")
RESENDS_MAX = 3
BACKOFF_MS, STUCK_MS = 10, 50
WHO = st.sampled_from(GROUPS)
NTH = st.integers(0, 3)
FATES = st.sampled_from(["good", "good", "dies", "no ack", "skips", "refused"])
OFTEN = st.sampled_from([True, True, True, False])


class CrashError(Exception):
    """The process died; what it had not committed is undone."""


class Guarantee(RuleBasedStateMachine):
    """A broker in memory, and everybody else over one database."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.say = statements.statements(dialects.SQLITE)
        groups = [migration.GroupOfTopic("Orders", group) for group in GROUPS]
        migration.install(self.database, dialects.SQLITE, 0, groups)
        self.database.execute("CREATE TABLE effects (message_id TEXT, consumer_group TEXT)")
        self.now = 0
        self.made = 0
        self.queues: dict[str, list[str]] = {"Orders": [], **{retry(group): [] for group in GROUPS}}
        self.consumed = Counter[tuple[str, str]]()  # by group and topic: the next offset
        self.undone: set[str] = set()
        self.void: set[str] = set()
        self.by_hand: set[tuple[str, str]] = set()

    def teardown(self) -> None:
        try:
            self.everything_ends_well()
        finally:
            self.database.close()

    # What the database is asked.

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except CrashError:
            self.database.execute("ROLLBACK")
        else:
            self.database.execute("COMMIT")

    def run(self, text: str | tuple[str, ...], **parameters: object) -> int:
        changed = -1
        for each in (text,) if isinstance(text, str) else text:
            changed = self.database.execute(each, {"now_ms": self.now, "changed_by": "test", **parameters}).rowcount
        return changed

    def ask(self, text: str, **parameters: object) -> list[tuple[Any, ...]]:
        return self.database.execute(text, {"now_ms": self.now, **parameters}).fetchall()

    def listed(self, name: str, group: str) -> list[str]:
        given = {"consumer_group": group, "resends_max": RESENDS_MAX, "rows_max": 99, "before_ms": self.now - STUCK_MS}
        return [row[0] for row in self.ask(getattr(self.say, name), **given)]

    # The producer.

    @rule(commits=OFTEN, copies=st.sampled_from([1, 1, 2, 0]), knows=OFTEN)
    def send(self, commits: bool, copies: int, knows: bool) -> None:
        """Its transaction commits or not; it sends never, once or twice; it learns the place or not."""
        self.made += 1
        name = f"m{self.made}"
        content = {"topic": "Orders", "body": b"", "message_keys": "", "tags": "", "properties": "{}"}
        with self.transaction():
            assert self.run(self.say.stub, message_id=name, next_resend_at_ms=self.now + BACKOFF_MS, **content) == 2
            if not commits:
                self.undone.add(name)
                raise CrashError
        places = [self.store("Orders", name) for _ in range(copies * commits)]
        if places and knows:
            self.run(self.say.place, message_id=name, **places[-1])

    def store(self, topic: str, name: str) -> dict[str, object]:
        self.queues[topic].append(name)
        return {"copy_topic": topic, "broker": "b", "queue_id": 0, "queue_offset": len(self.queues[topic]) - 1}

    @rule(nth=NTH)
    def withdraw(self, nth: int) -> None:
        name = f"m{max(1, self.made - nth)}"
        with self.transaction():
            if self.run(self.say.void, message_id=name) != 1:
                raise CrashError
            self.void.add(name)

    # Consumers.

    @rule(group=WHO, is_topic=OFTEN, fate=FATES)
    def consume(self, group: str, is_topic: bool, fate: str) -> None:
        """The next message of a queue; `skips`: it is acknowledged unseen, as by a consumer with a fault."""
        topic = "Orders" if is_topic else retry(group)
        at = self.consumed[group, topic]
        if at >= len(self.queues[topic]):
            return
        name = self.queues[topic][at]
        if fate != "skips":
            with self.transaction():
                self.handle(group, name, topic, at, is_refused=fate == "refused")
                if fate == "dies":
                    raise CrashError
        if fate not in ("dies", "no ack"):
            self.consumed[group, topic] += 1

    def handle(self, group: str, name: str, topic: str, at: int, is_refused: bool) -> None:
        this = {"message_id": name, "consumer_group": group}
        place = {"topic": topic, "broker": "b", "queue_id": 0, "queue_offset": at, "received_at_ms": self.now}
        if self.run(self.say.log, **this, **place) != 1:
            ((effect, _, until),) = self.ask(self.say.look, **this)
            if rules.judge(effect, until, self.now) is rules.LogFinding.DONE:
                self.run(self.say.confirm, **this)
            return
        is_ours = self.run(self.say.confirm, **this) == 1
        if not is_ours and not rules.may_have_effect(self.ask(self.say.verdict, **this)):
            assert self.run(self.say.refuse, **this) == 1
            return
        if is_refused:
            assert self.run(self.say.revert, **this) == 1
            assert self.run(self.say.refuse, **this) == 1
            return
        self.database.execute("INSERT INTO effects VALUES (?, ?)", (name, group))

    # Resends.

    @rule(by=st.integers(1, 60))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(group=WHO, fate=st.sampled_from(["good", "claims", "sends"]), workers=st.integers(1, 2))
    def resend(self, group: str, fate: str, workers: int) -> None:
        """Workers that see the same, one after the other; `fate`: after what each dies."""
        given = {"consumer_group": group, "resends_max": RESENDS_MAX, "rows_max": 99}
        seen = [dict(zip(statements.MISSING_COLUMNS, row, strict=True)) for row in self.ask(self.say.missing, **given)]
        sent = Counter[str]()
        for row in seen * workers:
            this = {"message_id": row["message_id"], "consumer_group": group}
            due = rules.next_resend_ms(self.now, row["attempts"] + 1, BACKOFF_MS)
            if self.run(self.say.claim, **this, resends=row["resends"], next_resend_at_ms=due) != 1 or fate == "claims":
                continue
            sent[row["message_id"]] += 1
            place = self.store(retry(group), row["message_id"])
            if fate == "good":
                self.run(self.say.moved, **this, resends=row["resends"] + 1, **place)
        assert all(count == 1 for count in sent.values())

    @rule(group=WHO)
    def tell_progress(self, group: str) -> None:
        for topic in ("Orders", retry(group)):
            where = {"consumer_group": group, "topic": topic, "broker": "b", "queue_id": 0}
            self.run(self.say.progress, **where, consumed_to=self.consumed[group, topic])

    # People and housekeeping.

    @rule(group=WHO, nth=NTH, what=st.sampled_from(["rearm", "close", "confirm_by_hand"]))
    def settle(self, group: str, nth: int, what: str) -> None:
        this = {"message_id": f"m{max(1, self.made - nth)}", "consumer_group": group}
        if what == "rearm":
            self.run(self.say.unrefuse, **this)
        if self.run(getattr(self.say, what), **this) == 1:
            (self.by_hand.discard if what == "rearm" else self.by_hand.add)((this["message_id"], group))

    @rule(group=WHO)
    def forget(self, group: str) -> None:
        self.run(self.say.forget, consumer_group=group, before_ms=self.now - STUCK_MS)

    # What holds.

    @invariant()
    def effects_happen_once(self) -> None:
        effects = Counter(self.ask("SELECT message_id, consumer_group FROM effects"))
        assert all(count == 1 for count in effects.values()), effects
        assert not {name for name, _ in effects} & (self.undone | self.void)
        states = self.states()
        for key in effects:
            assert states[key] == "confirmed", key

    def states(self) -> dict[tuple[str, str], str]:
        rows = self.ask("SELECT message_id, consumer_group, state FROM guarantee_delivery")
        return {(row[0], row[1]): row[2] for row in rows}

    def everything_ends_well(self) -> None:
        for _ in range(4 + 2 * RESENDS_MAX):
            self.now += BACKOFF_MS << (RESENDS_MAX + 2)
            for group in GROUPS:
                self.tell_progress(group)
                self.resend(group, "good", 2)
                for topic in ("Orders", retry(group)):
                    while self.consumed[group, topic] < len(self.queues[topic]):
                        self.consume(group, topic == "Orders", "good")
            self.effects_happen_once()
        effects = set(self.ask("SELECT message_id, consumer_group FROM effects"))
        states = self.states()
        assert len(states) == 2 * (self.made - len(self.undone))
        people = {
            (name, group) for group in GROUPS for kind in ("exhausted", "stuck") for name in self.listed(kind, group)
        }
        for key, state in states.items():
            if key[0] in self.void or key in self.by_hand:
                continue
            assert (state == "confirmed" and key in effects) or key in people, (key, state)


def retry(group: str) -> str:
    return f"%RETRY%{group}"


@pytest.mark.parametrize(
    "examples", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="many")]
)
def test_every_message_has_one_effect_in_each_group_or_a_person_knows(examples: int) -> None:
    run_state_machine_as_test(
        Guarantee, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None)
    )
