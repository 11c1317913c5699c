"""What a member says of itself when somebody asks for its promise, and how many may wait for its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

from gantry.append.admit import WriteGate
from gantry.broker.group.fencing import Fencing
from gantry.broker.role.master_role import GATE_SHORT
from gantry.broker.role.membership import Membership
from gantry.errors import Refusal, StoreError
from gantry.replication.epochs import table_of
from gantry.replication.haapi import Answer
from gantry.replication.haproof import Keys
from gantry.replication.hastate import MemberRole
from gantry.replication.member_files import StoreIdentity
from gantry.replication.term_promise import TermPromise
from gantry.wire.codes import ResponseCode
from testkit.simclock import SimClock

HERE = SimpleNamespace(offset=100)
STORE = SimpleNamespace(written=HERE, confirmed=HERE, failed=None, why_full="", reader=SimpleNamespace(log_start=0))


class Hanging:
    """A disk that takes no promise, until it does."""

    def __init__(self, member: Membership) -> None:
        self.member = member
        self.asked: list[tuple[int, Callable[[StoreError | None], None]]] = []

    def promise(self, epoch: int, done: Callable[[StoreError | None], None]) -> None:
        if epoch <= self.member.term_promise.promise:
            done(None)
        else:
            self.asked.append((epoch, done))

    def answer(self) -> None:
        epoch, done = self.asked.pop(0)
        self.member.term_promise = TermPromise(1, promise=epoch)
        done(None)


class Alone:
    """A slave without a master."""

    is_reshaping = False

    def status(self) -> MemberRole:
        return MemberRole.NONE

    def step_down(self, epoch: int) -> None:
        pass


def member() -> tuple[Fencing, Hanging, WriteGate]:
    """One that neither leads nor follows."""
    keys, table = Keys(b"a secret for tests"), table_of([(1, 0)])
    made = Membership(keys, StoreIdentity("cluster", "store"), table, TermPromise(1), 0, 1, True, "p")
    gate = WriteGate()
    promise_writer, role = Hanging(made), Alone()
    parts = SimpleNamespace(store=STORE, gate=gate, clock=SimClock())
    return Fencing(made, "broker-a", role, promise_writer, parts), promise_writer, gate  # type: ignore[arg-type]


async def test_while_a_disk_takes_no_promise_few_wait_for_it_and_the_others_are_sent_away() -> None:
    fencing, disk, _ = member()
    asking = [asyncio.ensure_future(fencing.seal(2)) for _ in range(100)]
    for _ in range(5):
        await asyncio.sleep(0)
    waiting, done = [each for each in asking if not each.done()], [each.result() for each in asking if each.done()]
    assert len(disk.asked) == 1 and 0 < len(waiting) < 20
    assert all(isinstance(each, Answer) and each.status == 423 for each in done)
    disk.answer()
    assert await asyncio.gather(*waiting) == [None] * len(waiting)
    late = await fencing.seal(1)
    assert late is not None and late.status == 409, "the door is open again, and knows the promise"


def test_a_master_that_was_sealed_for_want_of_slaves_says_so() -> None:
    fencing, _, gate = member()
    assert not fencing.state().is_short
    gate.shut(GATE_SHORT, Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "too few"))
    state = fencing.state()
    assert state.is_short and state.role is MemberRole.NONE and not state.is_writable
