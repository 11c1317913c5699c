"""Members of a group, asked and sealed over HTTP as a coordinator does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.clock import SystemClock
from gantry.failover.asking import AskedMembers
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.replication.epochs import table_of
from gantry.replication.handshake import Step, Welcome
from gantry.replication.haproof import Keys
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.term_promise import Ending, load
from gantry.store.disk import RealDisk
from gantry.wire.codes import ResponseCode
from gantry.wire.ha import Ack
from testkit.brokerplay import bodies, configuration, peer, pull, send
from testkit.turning import until

SECRET = b"a secret for tests"


class Pair:
    """A master and a slave whose doors are open, and somebody who asks at them."""

    def __init__(self, folder: Path, names: NameServer, role: str) -> None:
        self.brokers: dict[int, Broker] = {}
        self.asked = AskedMembers("", "broker-a", self._address, Keys(SECRET), SystemClock(), 60.0)
        self._folder = folder
        self._role = role
        self._names = names
        self._ports: dict[int, int] = {}
        (folder / "secret").write_bytes(SECRET)

    def _address(self, ordinal: int) -> str:
        broker = self.brokers.get(ordinal)
        return "" if broker is None else f"127.0.0.1:{broker.member_lifecycle.ha_api_port}"

    async def start(self, ordinal: int) -> None:
        given: dict[str, object] = {
            "id": ordinal,
            "role": "SLAVE" if ordinal else self._role,
            "name_servers": [f"127.0.0.1:{self._names.port}"],
            "network__port": self._ports.get(ordinal, 0),
            "network__ha_port": 0,
            "network__vip_port": -2,
            "network__ha_api_port": 0,
            "replication__secret_file": str(self._folder / "secret"),
            "replication__ack_timeout_s": 60.0,
        }
        self.brokers[ordinal] = broker = Broker(configuration(self._folder / f"member-{ordinal}", **given))
        await broker.start()
        assert broker.addresses is not None
        self._ports[ordinal] = broker.addresses.port

    async def stop(self, ordinal: int) -> None:
        await self.brokers.pop(ordinal).stop()

    async def state(self, ordinal: int) -> MemberState:
        found = await self.asked.state(ordinal)
        assert found is not None, self.asked.why
        return found

    async def seal(self, ordinal: int, epoch: int) -> MemberState:
        found = await self.asked.seal(ordinal, epoch)
        assert found is not None, self.asked.why
        return found

    async def joined(self) -> None:
        parts = self.brokers[0].parts
        assert parts is not None and isinstance(parts.group, MasterRole)
        tracker = parts.group.tracker
        await until(lambda: tracker.in_sync == [0, 1])

    def promise_on_disk(self, ordinal: int) -> int:
        found = load(RealDisk(), str(self._folder / f"member-{ordinal}" / "store"))
        assert found is not None
        return found.promise


@asynccontextmanager
async def paired(folder: Path, role: str = "SYNC_MASTER") -> AsyncIterator[Pair]:
    names = NameServer(NameServerSettings("127.0.0.1", 0, http_port=None))
    await names.start()
    pair = Pair(folder, names, role)
    try:
        await pair.start(0)
        await pair.start(1)
        await pair.joined()
        yield pair
    finally:
        await pair.asked.close()
        for ordinal in sorted(pair.brokers, reverse=True):
            await pair.stop(ordinal)
        await names.stop()


async def test_members_say_what_they_are_and_have(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        async with peer(pair.brokers[0]) as client:
            assert (await client.call(send("orders", b"hello"))).code == 0
        parts = pair.brokers[0].parts
        assert parts is not None
        master, slave = await pair.state(0), await pair.state(1)
        assert (master.role, slave.role) == (MemberRole.MASTER, MemberRole.SLAVE)
        assert master.is_writable and not slave.is_writable
        assert master.log_end == master.confirmed == slave.log_end == parts.store.written.offset > 0
        assert master.advance == slave.advance and master.epoch == slave.epoch == 1 and master.promise == 0
        assert master.cluster_uid == slave.cluster_uid and master.store_uid != slave.store_uid
        assert (master.member.ordinal, slave.member.ordinal) == (0, 1)


async def test_one_sealed_slave_silences_a_master_that_needs_it(tmp_path: Path) -> None:
    said: list[str] = []
    async with complaining(tmp_path, said) as pair:
        sealed = await pair.seal(1, 5)
        assert sealed.promise == pair.promise_on_disk(1) == 5 and sealed.role is MemberRole.NONE
        assert await pair.seal(1, 5) == sealed, "the same again is answered in the same way"
        assert await pair.asked.seal(1, 4) is None and "epoch 5 was promised" in pair.asked.why[1]
        parts = pair.brokers[0].parts
        assert parts is not None
        async with peer(pair.brokers[0]) as client:
            sent = asyncio.ensure_future(client.call(send("orders", b"never acknowledged")))
            await until(lambda: parts.store.written.offset > sealed.log_end)
            slave = pair.brokers[1].parts
            assert slave is not None and isinstance(slave.group, SlaveRole)
            follower = slave.group
            await until(lambda: len(said) > 1 or not follower.is_alone)  # the slave came again, and would not follow
            assert follower.is_alone
            assert not sent.done() and parts.store.confirmed.offset == sealed.confirmed
            master = await pair.seal(0, 5)
            answer = await sent
        assert answer.code == ResponseCode.SYSTEM_BUSY and "outcome is unknown" in (answer.remark or "")
        assert master.role is MemberRole.NONE and (await pair.state(1)).log_end == sealed.log_end


async def test_a_promise_outlives_its_process_and_the_next_mastership_begins_above_it(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        for ordinal in (1, 0):
            await pair.seal(ordinal, 40)
        for ordinal in (1, 0):
            await pair.stop(ordinal)
            assert pair.promise_on_disk(ordinal) == 40
        await pair.start(0)
        await pair.start(1)
        await pair.joined()
        assert (await pair.state(0)).epoch == (await pair.state(1)).epoch == 41
        async with peer(pair.brokers[0]) as client:
            assert (await client.call(send("orders", b"again"))).code == 0


async def test_a_slave_follows_no_master_below_its_promise(tmp_path: Path) -> None:
    said: list[str] = []
    async with complaining(tmp_path, said) as pair:
        await pair.seal(1, 40)
        await until(lambda: any("promised epoch 40" in text for text in said))
        slave = await pair.state(1)
        assert slave.role is MemberRole.NONE and slave.epoch == 1


@asynccontextmanager
async def complaining(folder: Path, said: list[str]) -> AsyncIterator[Pair]:
    """Start a pair; append the complaints of its slave to `said`."""
    async with paired(folder) as pair:
        parts = pair.brokers[1].parts
        assert parts is not None and parts.group is not None
        connector = parts.group._connector  # type: ignore[union-attr]
        assert connector is not None
        connector._say = lambda _, text: said.append(text)
        yield pair


async def test_a_sealed_async_master_acknowledges_nothing_and_says_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    async with paired(tmp_path, "ASYNC_MASTER") as pair:
        async with peer(pair.brokers[0]) as client:
            assert (await client.call(send("orders", b"before"))).code == 0
            parts = pair.brokers[0].parts
            assert parts is not None
            # An ASYNC_MASTER answers before its slave has it; readers see it when it does.
            await until(lambda: parts.store.confirmed.offset == parts.store.written.offset)
            sealed = await pair.seal(0, 7)
            answer = await client.call(send("orders", b"after"))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "sealed in epoch 7" in (answer.remark or "")
            found = await client.call(pull("orders", 0, 0))
            assert bodies(found) == [b"before"], "reading goes on"
        assert sealed.role is MemberRole.NONE and not sealed.is_writable and sealed.log_end == sealed.confirmed
        assert await pair.asked.seal(0, 6) is None


async def test_a_sealed_master_confirms_nothing_more(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        parts = pair.brokers[0].parts
        assert parts is not None and isinstance(parts.group, MasterRole)
        slave = await pair.seal(1, 7)
        async with peer(pair.brokers[0]) as client:
            sent = asyncio.ensure_future(client.call(send("orders", b"in one log only")))
            await until(lambda: parts.store.written.offset > slave.log_end)
            sealed = await pair.seal(0, 7)
            await sent
        end = parts.store.written.offset
        parts.group.acked(1, Ack(end, end, parts.group.asked))  # its word was on the way
        assert parts.group.tracker.confirmed == end, "or this test proves nothing"
        assert parts.store.confirmed.offset == sealed.confirmed < end


async def test_a_slave_that_is_about_to_change_its_log_puts_a_seal_off(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        parts = pair.brokers[1].parts
        assert parts is not None and isinstance(parts.group, SlaveRole)
        parts.group.is_reshaping = True
        assert await pair.asked.seal(1, 7) is None and "starts again" in pair.asked.why[1]
        assert pair.promise_on_disk(1) == 0 and (await pair.state(1)).role is MemberRole.SLAVE
        parts.group.is_reshaping = False
        assert (await pair.seal(1, 7)).promise == 7


async def test_a_seal_that_comes_while_a_slave_is_welcomed_counts(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        parts = pair.brokers[1].parts
        assert parts is not None and isinstance(parts.group, SlaveRole)
        state = await pair.state(1)
        welcome = Welcome(state.cluster_uid, 1, table_of([(1, 0)]), Step.FOLLOW, state.log_end)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        parts.group.adopt(welcome, lambda error: answer.set_result(str(error)))
        parts.group._member.fencing = 9
        assert "promised epoch 9" in await answer


async def test_an_orderly_stop_is_noted_for_the_next_start(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        root = str(tmp_path / "member-1" / "store")
        running = load(RealDisk(), root)
        assert running is not None and running.ending is Ending.UNKNOWN and not running.ran_sync_flush
        await pair.stop(1)
        stopped = load(RealDisk(), root)
        assert stopped is not None and stopped.ending is Ending.CLEAN and stopped.losses == 0


async def test_a_broker_that_is_no_member_has_no_such_door(tmp_path: Path) -> None:
    broker = Broker(configuration(tmp_path, network__ha_api_port=0))
    await broker.start()
    assert broker.member_lifecycle.ha_api_port is None
    await broker.stop()
    assert not (tmp_path / "store" / "gantry" / "vows.json").exists()
