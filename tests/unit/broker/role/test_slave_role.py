"""A member's promise against a master below it: what is looked at before anything is kept, and again behind the disk.

A seal may come while the disk works for a welcome.  Nothing of a lower epoch's master is written behind the promise,
nothing begins below it, and what the member says about the epochs in which it has been does not go back.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gantry.append.admit import WriteGate
from gantry.broker.durably import Durably
from gantry.broker.role.membership import Membership
from gantry.broker.role.promise_writer import PromiseWriter
from gantry.broker.role.slave_role import MemberFolder, SlaveHooks, SlaveRole
from gantry.errors import StoreError
from gantry.replication import member_files, term_promise
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Step, Welcome
from gantry.replication.haproof import Keys
from gantry.replication.member_files import Plan, StoreIdentity
from gantry.replication.term_promise import TermPromise
from gantry.store.background import InlineBackground
from testkit.simdisk import SimDisk

ROOT = "/store"
FOLLOWED = table_of([(1, 0), (2, 100)])  # it followed epoch 2, which has written nothing yet
LOWER = Welcome("cluster", 1, table_of([(1, 0)]), Step.FOLLOW, 100)


class Slave:
    """A slave whose disk works when it is told to."""

    def __init__(self, has_register: bool, promise: int, cluster_uid: str = "cluster") -> None:
        self.disk = SimDisk()
        self.background = InlineBackground(at_once=False)
        identity = StoreIdentity(cluster_uid, "store")
        member_files.save_identity(self.disk, ROOT, identity)
        member_files.save_epochs(self.disk, ROOT, FOLLOWED)
        term_promise.save(self.disk, ROOT, TermPromise(1, promise=promise))
        self.member = Membership(
            Keys(b"a secret for tests"),
            identity,
            FOLLOWED,
            TermPromise(1, promise=promise),
            place=1,
            has_register=has_register,
        )
        self.promise_writer = PromiseWriter(self.member, self.disk, ROOT, self.background.housekeeper)
        self.restarts: list[str] = []
        self.answers: list[str] = []
        store = SimpleNamespace(reader=SimpleNamespace(log_start=0))
        self.following = SlaveRole(
            store,  # type: ignore[arg-type]
            self.member,
            self.promise_writer,
            MemberFolder(self.disk, ROOT, self.background.housekeeper, "broker-a"),
            SimpleNamespace(offsets=None, durably=Durably(1.0), save_progress=None),  # type: ignore[arg-type]
            WriteGate(),
            SlaveHooks(lambda: "", lambda: "", lambda: None, self.restarts.append, lambda: None),
        )

    def welcome(self, welcome: Welcome) -> None:
        self.following.adopt(welcome, self._answered)

    def _answered(self, error: StoreError | None) -> None:
        self.answers.append("" if error is None else str(error))

    def work(self) -> None:
        while self.background.step():
            pass


@pytest.mark.parametrize("has_register", [False, True])
def test_of_a_master_below_the_promise_nothing_is_kept(has_register: bool) -> None:
    slave = Slave(has_register, promise=2, cluster_uid="")
    before = slave.disk.files()
    slave.welcome(LOWER)
    slave.work()
    assert len(slave.answers) == 1 and "promised epoch 2, the master is in 1" in slave.answers[0]
    assert slave.disk.files() == before, "a power cut must not find anything of that master's"
    # A coordinator sees by this that its register went back: nobody else may know of epoch 2.
    assert slave.member.epochs == FOLLOWED and slave.member.known(100).last_epoch == 2
    assert slave.member.identity.cluster_uid == ""


def test_behind_a_promise_that_comes_while_the_welcomes_epoch_is_promised_nothing_of_it_is_kept() -> None:
    slave = Slave(True, promise=2)
    table = table_of([(1, 0), (3, 100)])
    slave.welcome(Welcome("cluster", 3, table, Step.FOLLOW, 100))
    slave.promise_writer.promise(9, lambda error: slave.answers.append("sealed"))
    slave.work()
    assert sorted(slave.answers)[0] == "sealed"
    assert any("promised epoch 9, the master is in 3" in answer for answer in slave.answers)
    assert slave.member.term_promise.promise == 9 and slave.member.epochs == FOLLOWED
    kept, promise = member_files.load_epochs(slave.disk, ROOT), term_promise.load(slave.disk, ROOT)
    assert kept == FOLLOWED and promise is not None and promise.promise == 9


@pytest.mark.parametrize("has_register", [False, True])
def test_nobody_is_followed_below_a_promise_that_comes_while_the_table_is_written(has_register: bool) -> None:
    slave = Slave(has_register, promise=3)
    slave.welcome(Welcome("cluster", 3, table_of([(1, 0), (3, 100)]), Step.FOLLOW, 100))
    assert not slave.answers, "its table is on its way to the disk"
    slave.promise_writer.promise(9, lambda error: slave.answers.append("sealed"))
    assert slave.background.step()
    # The promise is not on the disk yet, and already counts: what begins now would be acknowledged beside the seal.
    assert len(slave.answers) == 1 and "promised epoch 9, the master is in 3" in slave.answers[0]
    slave.work()
    assert slave.answers[1:] == ["sealed"]
    assert member_files.load_epochs(slave.disk, ROOT) == slave.member.epochs == table_of([(1, 0), (3, 100)])


@pytest.mark.parametrize("has_register", [False, True])
def test_a_master_in_the_promised_epoch_or_a_higher_one_is_followed(has_register: bool) -> None:
    for epoch in (3, 4):
        slave = Slave(has_register, promise=3)
        table = table_of([(1, 0), (epoch, 100)])
        slave.welcome(Welcome("cluster", epoch, table, Step.FOLLOW, 100))
        slave.work()
        assert slave.answers == [""] and slave.member.epochs == member_files.load_epochs(slave.disk, ROOT) == table
        assert slave.member.term_promise.promise == (epoch if has_register else 3)


def test_a_log_is_cut_for_no_master_below_the_promise() -> None:
    cut = Welcome("cluster", 1, table_of([(1, 0)]), Step.CUT, 50)
    slave = Slave(True, promise=2)
    before = slave.disk.files()
    slave.following.reshape(cut)
    slave.work()
    assert slave.disk.files() == before and not slave.restarts and not slave.following.is_reshaping
    slave = Slave(True, promise=1)
    slave.promise_writer.promise(2, lambda error: None)  # it is being given
    slave.following.reshape(cut)
    slave.work()
    assert member_files.load_plan(slave.disk, ROOT) is None and not slave.restarts
    slave = Slave(True, promise=1)
    slave.following.reshape(cut)
    slave.work()
    assert member_files.load_plan(slave.disk, ROOT) is not None and slave.restarts, "or this test proves nothing"


def test_a_plan_that_the_disk_does_not_take_lets_the_slave_follow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreError("no room")

    slave, said = Slave(True, promise=1), list[StoreError | None]()
    monkeypatch.setattr(member_files, "save_plan", fails)
    slave.following.plan(Plan(Step.CUT, 50, FOLLOWED), "it is cut", said.append)
    assert slave.following.is_reshaping, "nobody is followed meanwhile"
    slave.work()
    assert [str(error) for error in said] == ["no room"]
    assert not slave.following.is_reshaping and not slave.restarts
