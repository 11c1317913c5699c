"""What a coordinator remembers of silence and of promises."""

from __future__ import annotations

from dataclasses import replace

from gantry.failover.decide import Observed, Policy
from gantry.failover.notes import Notes
from gantry.replication.hastate import MemberState, Role
from gantry.replication.members import Member
from gantry.replication.record import Holder, Phase
from gantry.replication.register import Seen
from testkit.registers import ACTIVE, ME

FAST = Policy(replicas=3, min_in_sync=2, is_sync_master=True, suspect_after_s=2.0)
SEALED = replace(ACTIVE, epoch=5, phase=Phase.SEALED, holder=None)
NOBODY: frozenset[int] = frozenset()


def notes() -> Notes:
    made = Notes((0, 1, 2), FAST, had_stores=True)
    made.read(Seen(ACTIVE, "1"), 100.0)
    return made


def master(made: Notes) -> Observed:
    return made.snapshot(ACTIVE, {}).members[0]


def promised(process: str, promise: int) -> MemberState:
    me = Holder(Member(1, 0), process)
    return MemberState("1f0e7d", "b0", "77aa", me, Role.NONE, 4, promise, 4, 0, 10, 10, False)


def test_silence_began_when_the_question_was_asked_and_lasts_until_an_answer() -> None:
    made = notes()
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.0, now_s=101.5)
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.5, now_s=102.0)
    assert master(made).unwell_since_s == 101.0
    well = replace(promised("", 4), me=ME, role=Role.MASTER, is_writable=True)
    made.observe(ACTIVE, {0: well}, NOBODY, asked_s=102.0, now_s=102.1)
    assert master(made).unwell_since_s is None


def test_an_observer_that_stood_still_itself_suspects_nobody_for_one_question() -> None:
    made = notes()
    made.observe(ACTIVE, {}, NOBODY, asked_s=101.0, now_s=111.0)
    assert master(made).unwell_since_s == 110.5


def test_who_comes_back_as_another_process_without_its_promise_is_asked_again() -> None:
    made = notes()
    made.read(Seen(SEALED, "2"), 103.0)
    made.answered_seal(promised("p1", 5), 103.1)
    assert made.unsealed() == [0, 2]
    made.observe(SEALED, {1: promised("p2", 5)}, NOBODY, 103.0, 103.2)
    assert made.unsealed() == [0, 2], "its promise is on the disk"
    made.observe(SEALED, {1: promised("p3", 4)}, NOBODY, 103.4, 103.5)
    assert made.unsealed() == [0, 1, 2]
