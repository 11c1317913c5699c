"""Whose cluster a watcher takes a group for, and that it goes on from there; members answer at real doors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from gantry.failover.decide import Blocked, Bootstrap, Decision, Policy, Wait
from gantry.failover.watch import Watch, Watched
from gantry.replication import operations
from gantry.replication.haapi import Answer
from gantry.replication.haproof import Keys
from gantry.replication.haserver import HaServer
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import Member
from gantry.replication.record import Holder, Phase, RegisterRecord
from gantry.replication.register import RegisterUnavailableError, Seen
from gantry.replication.registerfile import FileRegister
from gantry.replication.timers import Timers
from testkit.patience import HANG_S
from testkit.simclock import SimClock
from testkit.simdisk import SimDisk
from testkit.turning import until

KEYS = Keys(b"a secret of the whole cluster")
SOON = Timers(5.0, 15, 2.5, 0.001)
POLICY = Policy(2, 1, True, 5.0)


@dataclass
class Stub:
    """Implements `haserver.SealedMember`: promises whatever it is asked to."""

    now: MemberState

    def state(self) -> MemberState:
        return self.now

    def settings(self) -> dict[str, object]:
        return {"permission": 6}

    def more(self) -> dict[str, object]:
        return {}

    async def seal(self, epoch: int) -> Answer | None:
        self.now = replace(self.now, promise=epoch)
        return None


class Register(FileRegister):
    """One that can be out of reach."""

    is_away = False

    async def read(self) -> Seen | None:
        if self.is_away:
            raise RegisterUnavailableError("it is away")
        return await super().read()


@dataclass
class Play:
    """Two members and one watcher."""

    register: Register
    stubs: list[Stub]
    addresses: tuple[str, ...] = ()
    told: list[Decision] = field(default_factory=list)
    watching: list[asyncio.Task[None]] = field(default_factory=list)

    def watch(self, cluster_uid: str = "") -> asyncio.Task[None]:
        watched = Watched("b0", self.addresses, POLICY, SOON, cluster_uid)
        watch = Watch(watched, self.register, KEYS, SimClock(), self.told.append)
        self.watching.append(asyncio.ensure_future(watch.run()))
        return self.watching[-1]

    async def end(self) -> None:
        """Nobody asks any more, and the doors have taken every connection that somebody still made."""
        for task in self.watching:
            task.cancel()
        await asyncio.wait(self.watching)
        for host, _, port in (address.partition(":") for address in self.addresses if not address.endswith(":9")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write_eof()
            await reader.read()
            writer.close()

    async def record(self) -> RegisterRecord:
        seen = await self.register.read()
        assert seen is not None
        return seen.record


def member(ordinal: int, cluster_uid: str = "") -> Stub:
    me = Holder(Member(ordinal, 0), f"p{ordinal}")
    return Stub(MemberState(cluster_uid, "b0", f"disk{ordinal}", me, MemberRole.NONE, 0, 0, 0, 0, 0, 0, False))


@asynccontextmanager
async def playing(*stubs: Stub) -> AsyncIterator[Play]:
    doors = [HaServer(stub, KEYS, SimClock()) for stub in stubs]
    ports = [await door.start("127.0.0.1", 0) for door in doors]
    played = Play(Register("/register/b0", SimDisk()), list(stubs), tuple(f"127.0.0.1:{port}" for port in ports))
    try:
        async with asyncio.timeout(HANG_S):
            yield played
    finally:
        await played.end()
        for door in doors:
            await door.close()


async def led(played: Play) -> RegisterRecord:
    """Watch until somebody leads."""

    async def leads() -> bool:
        seen = await played.register.read()
        return seen is not None and seen.record.phase is Phase.ACTIVE

    while not await leads():  # noqa: ASYNC110  a register sends no events
        await asyncio.sleep(0)
    return await played.record()


async def test_a_new_group_gets_an_id_and_a_master() -> None:
    async with playing(member(0), member(1)) as played:
        watching = played.watch()
        record = await led(played)
        watching.cancel()
        assert len(record.cluster_uid) == 32 and record.holder == played.stubs[0].now.me
        assert isinstance(played.told[0], Bootstrap)


async def test_two_watchers_of_a_new_group_agree_about_its_id() -> None:
    """Each minted one; only one of them is in the register, and the other's watcher sees the master all the same."""

    async with playing(member(0), member(1)) as played:
        one, other = played.watch(), played.watch()
        record = await led(played)
        for stub in played.stubs:
            me = stub.now.me
            role = MemberRole.MASTER if record.holder == me else MemberRole.SLAVE
            stub.now = replace(stub.now, cluster_uid=record.cluster_uid, epoch=record.epoch, role=role)
            stub.now = replace(stub.now, is_writable=role is MemberRole.MASTER)
        told = played.told[:]
        await until(lambda: played.told[len(told) :].count(Wait("the master is well")) == 2)
        one.cancel()
        other.cancel()


async def test_a_watcher_that_was_late_follows_the_id_that_another_one_made() -> None:
    """It minted one, and before it looked again the group was made, led, and on the members' disks."""

    async with playing(member(0), member(1)) as played:
        played.addresses = (played.addresses[0], "127.0.0.1:9")  # nobody is there, so that no group can begin
        other = played.watch()
        await until(lambda: any(isinstance(one, Blocked) for one in played.told))
        record = RegisterRecord(
            "5eed", 1, Phase.ACTIVE, played.stubs[0].now.me, frozenset({played.stubs[0].now.member})
        )
        played.stubs[0].now = replace(
            played.stubs[0].now, cluster_uid="5eed", epoch=1, role=MemberRole.MASTER, is_writable=True
        )
        await played.register.create(record)
        await until(lambda: Wait("the master is well") in played.told)
        other.cancel()


async def test_a_group_of_a_known_cluster_gets_its_id() -> None:
    async with playing(member(0), member(1)) as played:
        watching = played.watch("5eed")
        assert (await led(played)).cluster_uid == "5eed"
        watching.cancel()


async def test_the_id_of_a_lost_register_is_the_members() -> None:
    async with playing(member(0, "0ld"), member(1, "0ld")) as played:
        for stub in played.stubs:
            stub.now = replace(stub.now, epoch=3, promise=3, last_epoch=3, log_end=100, confirmed=100)
        watching = played.watch()
        record = await led(played)
        watching.cancel()
        assert record.cluster_uid == "0ld" and record.epoch > 3


async def test_members_of_different_clusters_are_no_group() -> None:
    async with playing(member(0, "0ne"), member(1, "0ther")) as played:
        watching = played.watch()
        await until(lambda: len(played.told) > 1)
        watching.cancel()
        assert isinstance(played.told[0], Blocked) and "0ne, 0ther" in played.told[0].reason
        assert await played.register.read() is None


async def test_a_register_that_cannot_be_read_is_waited_for_and_told_once() -> None:
    async with playing(member(0), member(1)) as played:
        begun = operations.bootstrap("5eed", 15)
        assert isinstance(begun, RegisterRecord)
        for ordinal in (0, 1):
            admitted = operations.admit(begun, ordinal, f"disk{ordinal}")
            assert isinstance(admitted, RegisterRecord)
            begun = admitted
        await played.register.create(begun)
        played.register.is_away = True
        watching = played.watch()
        await until(lambda: bool(played.told))
        played.register.is_away = False
        assert (await led(played)).cluster_uid == "5eed"
        await until(lambda: len(played.told) > 1)
        watching.cancel()
        assert isinstance(played.told[0], Wait) and not isinstance(played.told[1], Wait)
