"""Which part a life has: what the register says counts, and what was only asked of it does not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from gantry.broker.role.member_register import MemberRegister
from gantry.broker.role.membership import Membership
from gantry.broker.settings.config import BrokerConfig, Role
from gantry.replication import member_files
from gantry.replication.epochs import table_of
from gantry.replication.haproof import Keys
from gantry.replication.member_files import StoreIdentity
from gantry.replication.members import Member
from gantry.replication.record import Holder, Phase, RegisterRecord
from gantry.replication.register import Seen
from gantry.replication.register_writer import RegisterWriter
from gantry.replication.registerfile import FileRegister
from gantry.replication.term_promise import TermPromise
from testkit.brokerplay import configuration
from testkit.patience import HANG_S
from testkit.registers import ACTIVE, ME, LossyRegister
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.smallstore import opened, small

ROOT = "/store"
CONFIG = configuration(
    Path("/nowhere"),
    role="SYNC_MASTER",
    replication__secret_file="/secret",
    replication__register="file:/register",
    replication__ordinal=0,
    replication__members="a:1,b:1,c:1",
)
RECORD = replace(ACTIVE, confirm_floor=0)


class Scene:
    """Ordinal 0, which led epoch 4 in an earlier process, and a register."""

    def __init__(self, record: RegisterRecord = RECORD) -> None:
        self.disk = SimDisk()
        self.store = opened(small(ROOT), disk=self.disk)
        epochs = table_of([(4, 0)])
        term_promise = TermPromise(0, promise=4)
        keys, identity = Keys(b"a secret for tests"), StoreIdentity("1f0e7d", "8f1c")
        self.member = Membership(keys, identity, epochs, term_promise, place=0, has_register=True, process="again")
        self.register = LossyRegister(FileRegister("/register/b0", SimDisk()))
        asyncio.run(self._make(record))

    async def _make(self, record: RegisterRecord) -> None:
        await self.register.create(record)

    def choose(self) -> tuple[BrokerConfig, Seen | None]:
        writer = RegisterWriter(self.register, SimClock(), 0.1)
        register = MemberRegister(writer, self.member, self.store, SimClock())
        return asyncio.run(asyncio.wait_for(register.choose(CONFIG, self.disk), HANG_S))

    def record(self) -> RegisterRecord:
        seen = asyncio.run(self.register.read())
        assert seen is not None
        return seen.record


def test_the_next_process_of_the_master_claims_an_epoch_of_its_own() -> None:
    scene = Scene()
    config, seen = scene.choose()
    assert seen is not None and config.role is Role.SYNC_MASTER
    assert scene.record().epoch == 5 and scene.record().holder == Holder(Member(0, 0), "again")
    assert member_files.load_epochs(scene.disk, ROOT).last_epoch == 5 and scene.member.term_promise.promise == 5


def test_a_claim_that_is_carried_out_and_never_answered_gives_the_epoch() -> None:
    scene = Scene()
    scene.register.answers_never = True
    assert scene.choose()[1] is not None
    assert scene.record().epoch == 5 and scene.record().holder == Holder(Member(0, 0), "again")


def test_a_claim_that_may_still_be_on_its_way_gives_nobody_an_epoch() -> None:
    scene = Scene()
    scene.register.keeps_back = True
    config, seen = scene.choose()
    assert seen is None and config.role is Role.SLAVE
    assert member_files.load_epochs(scene.disk, ROOT).last_epoch == 0 and scene.member.term_promise.promise == 4


def test_a_claim_whose_answer_was_lost_is_found_in_the_register() -> None:
    scene = Scene()
    scene.register.loses_answers = True
    assert scene.choose()[1] is not None and scene.record().epoch == 5


def test_who_is_not_named_follows_and_nothing_is_written() -> None:
    other = replace(RECORD, holder=Holder(Member(1, 0), "p1"))
    scene = Scene(other)
    config, seen = scene.choose()
    assert seen is None and (config.role, config.id) == (Role.SLAVE, 1)
    assert scene.record() == other


def test_of_a_sealed_group_nobody_leads() -> None:
    scene = Scene(replace(RECORD, epoch=5, phase=Phase.SEALED, holder=None))
    assert scene.choose()[1] is None and ME.member == scene.member.me.member
