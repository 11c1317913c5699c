"""A master and its slaves in one process: who finds whom, who serves what, and what a start has to wait for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.machine import Machine
from gantry.broker.parts import Parts
from gantry.broker.role.master_role import MasterRole
from gantry.broker.role.slave_role import SlaveRole
from gantry.clock import SystemClock
from gantry.metadata import journal
from gantry.metadata.clients import ConsumerGroup, Consumption
from gantry.model.subscription import Subscription
from gantry.model.topic import TopicConfig
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.transport.client import RemotingClient
from gantry.wire import bodies as json_bodies
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import bodies, configuration, oneway, peer, pull, send
from testkit.ports import VIP, free_port
from testkit.requests import request
from testkit.turning import until

CONSUMPTION = Consumption("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


class Group:
    """Brokers by id over one name server; each keeps its folder and its ports."""

    def __init__(self, folder: Path, names: NameServer) -> None:
        self.names = names
        self.brokers: dict[int, Broker] = {}
        self._folder = folder
        self._ports: dict[int, int] = {}
        (folder / "secret").write_text("a secret for tests")

    async def start(
        self, broker_id: int, role: str = "", machine: Machine | None = None, **changes: object
    ) -> Broker:
        role = role or ("SLAVE" if broker_id else "SYNC_MASTER")
        if broker_id not in self._ports:
            self._ports[broker_id] = free_port(VIP)  # held: others would take one that was only seen to be free
        given: dict[str, object] = {
            "name": "broker-a",
            "id": broker_id if role == "SLAVE" else 0,
            "role": role,
            "name_servers": [f"127.0.0.1:{self.names.port}"],
            "network__port": self._ports[broker_id],
            "network__ha_port": 0,
            "network__vip_port": -2,
            "replication__secret_file": str(self._folder / "secret"),
        }
        broker = Broker(configuration(self._folder / f"member-{broker_id}", **(given | changes)), machine=machine)
        self.brokers[broker_id] = broker
        await broker.start()
        return broker

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    def tracker(self) -> MasterRole:
        parts = self.brokers[0].parts
        assert parts is not None and isinstance(parts.group, MasterRole)
        return parts.group

    async def until_joined(self, count: int = 2) -> None:
        await until(lambda: len(self.tracker().tracker.in_sync) == count)

    def marks(self, broker_id: int) -> tuple[int, int]:
        parts = self.brokers[broker_id].parts
        assert parts is not None
        return parts.store.written.offset, parts.store.dispatched.offset


@asynccontextmanager
async def grouped(folder: Path) -> AsyncIterator[Group]:
    names = NameServer(NameServerSettings("127.0.0.1", 0, http_port=None))
    await names.start()
    group = Group(folder, names)
    try:
        yield group
    finally:
        for broker_id in sorted(group.brokers, reverse=True):
            await group.stop(broker_id)
        await names.stop()


async def test_a_slave_finds_its_master_by_the_name_server_and_clients_find_both(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0)
        slave = await group.start(1)
        await group.until_joined()
        assert master.addresses is not None and slave.addresses is not None
        client = RemotingClient()
        ask = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="broker-a")
        answer = await client.invoke(f"127.0.0.1:{group.names.port}", ask, 60)
        route = json_bodies.loads_object(answer.body)
        data = route["brokerDatas"]
        assert isinstance(data, list)
        assert data[0]["brokerAddrs"] == {"0": master.addresses.advertised, "1": slave.addresses.advertised}
        await client.close()


async def test_sync_flush_on_both_sides_is_waited_for(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        await group.start(0, store__flush="SYNC_FLUSH")
        slave = await group.start(1, store__flush="SYNC_FLUSH")
        await group.until_joined()
        assert slave.parts is not None
        async with peer(group.brokers[0]) as client:
            for number in range(20):
                assert (await client.call(send("orders", b"%d" % number))).code == 0
                assert slave.parts.store.flushed.offset == group.marks(0)[0], "answered before the slave's disk had it"


async def test_an_empty_slave_joins_although_producers_leave_the_master_no_time(tmp_path: Path) -> None:
    asked: list[float] = []

    def wanted_s() -> float:
        asked.append(SystemClock().monotonic())
        return asked[-1]  # all of the time that passes

    async with grouped(tmp_path) as group:
        master = await group.start(0, role="ASYNC_MASTER", machine=Machine(wanted_s=wanted_s))
        async with peer(master) as client:

            async def produce() -> None:
                await client.send(*[send("orders", bytes(100_000)) for _ in range(4)])
                await client.receive(4)

            for _ in range(100):
                await produce()
            slave = asyncio.ensure_future(group.start(1))
            while len(group.tracker().tracker.in_sync) < 2:
                await produce()
                await asyncio.sleep(0.02)  # without a reason but the disk's
            await slave
            assert asked, "the master gave way"
            await produce()
        await until(lambda: group.marks(1) == group.marks(0))


async def test_what_only_a_master_may_is_refused_by_a_slave_and_reading_is_not(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0)
        slave = await group.start(1)
        await group.until_joined()
        assert master.addresses is not None and slave.parts is not None
        async with peer(master) as client:
            answer = await client.call(send("orders", b"hello"))
        message_id = answer.ext["msgId"]
        await until(lambda: group.marks(1) == group.marks(0))
        where = master.addresses.advertised
        async with peer(slave) as client:
            for code, refused in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.NO_PERMISSION),
                (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
                (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE),
                (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY),
                (RequestCode.LOCK_BATCH_MQ, ResponseCode.NO_PERMISSION),
                (RequestCode.LIST_TRANSACTIONS, ResponseCode.NO_PERMISSION),
            ):
                answer = await client.call(request(code, tranStateTableOffset=0, commitLogOffset=0))
                assert answer.code == refused and where in (answer.remark or ""), (code, answer)
            answer = await client.call(send("orders", b"not here"))
            assert answer.code == ResponseCode.SYSTEM_BUSY and where in (answer.remark or "")
            await client.send(oneway(send("orders", b"nor this")))
            place = {"topic": "orders", "queueId": 0}
            assert (await client.call(request(RequestCode.GET_MAX_OFFSET, **place))).ext["offset"] == "1"
            assert (await client.call(request(RequestCode.GET_MIN_OFFSET, **place))).ext["offset"] == "0"
            at = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=int(message_id[16:], 16))
            assert (await client.call(at)).code == 0
            assert bodies(await client.call(pull("orders"))) == [b"hello"]
            # Everything was read: the master is there, and asked next.
            answer = await client.call(pull("orders", 1))
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.ext["suggestWhichBrokerId"] == "0"
        assert group.marks(1) == group.marks(0)


async def test_an_offset_that_a_slave_was_just_told_does_not_give_way_to_what_its_master_knew_before(
    tmp_path: Path
) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0)
        slave = await group.start(1)
        await group.until_joined()
        async with peer(master) as client:
            assert (await client.call(send("orders", b"hello"))).code == 0
        await until(lambda: group.marks(1) == group.marks(0))
        place = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        async with peer(slave) as client:
            await client.call(pull("orders", 0, consumerGroup="g"))
            assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=7, **place))).code == 0
            assert slave.parts is not None and isinstance(slave.parts.group, SlaveRole)
            slave.parts.group.apply(1 << 40, [[journal.OFFSET, "orders@g", {"0": 3}]])
            answer = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **place))
            assert answer.ext["offset"] == "7"


async def test_an_offset_that_the_master_refuses_does_not_stay_at_the_slave(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0)
        slave = await group.start(1)
        await group.until_joined()
        place = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        async with peer(master) as client:
            for body in (b"one", b"two"):
                assert (await client.call(send("orders", body))).code == 0
            await client.call(pull("orders", 0, consumerGroup="g"))
            assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **place))).code == 0
        await until(lambda: group.marks(1) == group.marks(0))
        assert slave.parts is not None
        offsets = slave.parts.offsets
        await until(lambda: offsets.query("g", "orders", 0) == 1)
        async with peer(slave) as client:
            await client.call(pull("orders", 0, consumerGroup="g"))
            assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=99, **place))).code == 0
        assert offsets.query("g", "orders", 0) == 99, "it does not know the end"
        await until(lambda: offsets.query("g", "orders", 0) == 1)


async def test_a_reader_far_behind_is_sent_to_the_slave(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master = await group.start(0, store__warm_bytes=4096)
        await group.start(1, store__warm_bytes=4096)
        await group.until_joined()
        async with peer(master) as client:
            await client.send(*[send("orders", bytes(1000)) for _ in range(20)])
            await client.receive(20)
            assert (await client.call(pull("orders", 0))).ext["suggestWhichBrokerId"] == "1"
            assert (await client.call(pull("orders", 19))).ext["suggestWhichBrokerId"] == "0"


async def test_a_master_that_starts_with_an_unconfirmed_tail_waits_for_its_slave(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        await group.until_joined()
        async with peer(group.brokers[0]) as client:
            assert (await client.call(send("orders", b"confirmed"))).code == 0
            await group.stop(1)
            assert (await client.call(send("orders", b"on one only"))).code in (11, 12)
        await group.stop(0)

        master = await group.start(0)
        assert master.parts is not None and not master.parts.activity.is_on
        async with peer(master) as client:
            assert bodies(await client.call(pull("orders"))) == [b"confirmed"]
            answer = await client.call(send("orders", b"too early"))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            # Who has read further in another life is not thrown back.
            assert (await client.call(pull("orders", 2))).code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (await client.call(request(RequestCode.LIST_TRANSACTIONS))).code == ResponseCode.NO_PERMISSION
            await group.start(1)
            parts = master.parts
            await until(lambda: parts.activity.is_on and parts.gate.refusal is None)
            assert bodies(await client.call(pull("orders", 1))) == [b"on one only"]
            assert (await client.call(send("orders", b"now"))).code == 0


async def test_an_empty_slave_begins_where_the_masters_log_does(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        small = {"store__segment_bytes": 1 << 20, "messages__body_bytes_max": 200_000}
        master = await group.start(0, role="ASYNC_MASTER", **small)
        assert master.parts is not None
        store = master.parts.store
        async with peer(master) as client:
            assert (await client.call(send("gone", b"expires with the first segment"))).code == 0
            for _ in range(6):
                await client.send(*[send("orders", bytes(100_000)) for _ in range(5)])
                await client.receive(5)
        await until(lambda: store.flushed.offset == store.written.offset)
        while store.reader.log_start == 0:
            store.tick(0)
            store.retention.dropping.drop_first()
            await asyncio.sleep(0.01)
        await group.start(1, **small)
        await until(lambda: group.brokers[1].starts_again)
        await group.stop(1)
        slave = await group.start(1, **small)
        await until(lambda: group.marks(1) == group.marks(0))
        assert slave.parts is not None and isinstance(slave.parts.group, SlaveRole)
        assert slave.parts.store.reader.log_start == store.reader.log_start > 0
        assert slave.parts.store.queue_range("orders", 0) == store.queue_range("orders", 0)
        # What comes next in a queue whose records are all gone does not begin at 0 again.
        assert slave.parts.store.queue_range("gone", 0) == store.queue_range("gone", 0) == (1, 1)


async def test_a_slave_whose_link_ends_after_a_topic_was_deleted_follows_on_without_a_start(tmp_path: Path) -> None:
    async with grouped(tmp_path) as group:
        master, slave = await group.start(0), await group.start(1)
        await group.until_joined()
        async with peer(master) as client:
            assert (await client.call(send("orders", b"of its first life"))).code == 0
            assert (await client.call(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders"))).code == 0
            assert (await client.call(send("other", b"message"))).code == 0
        await until(lambda: group.marks(0) == group.marks(1))
        links = group.tracker()._slave_links
        assert links is not None and slave.parts is not None and master.parts is not None
        former = links._by_place[1]
        former.end("a link that fails")
        await until(lambda: slave.starts_again or links._by_place.get(1, former) is not former)
        async with peer(master) as client:
            assert (await client.call(send("other", b"another"))).code == 0
        await until(lambda: slave.starts_again or group.marks(0) == group.marks(1))
        assert not slave.starts_again, "it would find the deletion otherwise than in the group, at every start"
        assert slave.parts.store.generations.life("orders") == master.parts.store.generations.life("orders") is not None


async def test_a_promoted_slave_knows_who_has_which_queue_who_filters_by_what_and_who_was_sent_elsewhere(
    tmp_path: Path,
) -> None:
    sql = Subscription("orders", "number > 3", version=7, expression_type="SQL92")
    key = ("orders", 2)

    def parts_of(group: Group, broker_id: int) -> Parts:
        parts = group.brokers[broker_id].parts
        assert parts is not None
        return parts

    def heard(parts: Parts, wanted: list[Subscription]) -> None:
        parts.filters.heard(None, ConsumerGroup("packing", CONSUMPTION), wanted)  # type: ignore[arg-type]

    async with grouped(tmp_path) as group:
        await group.start(0)
        await group.start(1)
        await group.until_joined()
        master, slave = parts_of(group, 0), parts_of(group, 1)
        master.topics.put(TopicConfig("orders"))
        now = master.clock.monotonic()
        assert master.locks.lock("packing", "one", key, now) and master.locks.lock("billing", "two", key, now)
        heard(master, [sql])
        for name in ("packing", "billing"):
            master.offsets.reset(name, "orders", 2, 0, marks=True)
        await until(lambda: slave.filters.get("orders", "packing") and len(slave.locks) == 2)
        await until(lambda: slave.offsets.is_reset("billing", "orders", 2))
        assert master.locks.unlock("billing", "two", key)
        master.offsets.take_reset("billing", "orders", 2, 5)
        master.offsets.take_reset("billing", "orders", 2, 0)
        await until(lambda: len(slave.locks) == 1 and not slave.offsets.is_reset("billing", "orders", 2))
        await group.stop(1)
        await group.stop(0)
        await group.start(1, "ASYNC_MASTER")
        parts = parts_of(group, 1)
        assert parts.locks.owner("packing", key, parts.clock.monotonic()) == "one"
        assert parts.locks.owner("billing", key, parts.clock.monotonic()) is None
        found = parts.filters.get("orders", "packing")
        assert found is not None and (found.expression, found.version) == ("number > 3", 7)
        assert parts.offsets.is_reset("packing", "orders", 2) and parts.offsets.query("packing", "orders", 2) == 0


async def test_a_master_that_does_not_know_yet_what_it_owes_drops_no_segment(tmp_path: Path) -> None:
    """Its tail is not confirmed, so nothing is read back; the oldest segment has a message that is not due yet."""
    every_hour = ",".join(f"{hour:02}" for hour in range(24))
    small = {"store__segment_bytes": 1 << 20, "messages__body_bytes_max": 200_000, "store__delete_hours": every_hour}
    async with grouped(tmp_path) as group:
        for broker_id in range(2):
            await group.start(broker_id, **small)
        await group.until_joined()
        async with peer(group.brokers[0]) as client:
            assert (await client.call(send("orders", b"in an hour", pairs={"DELAY": "17"}))).code == 0
            for _ in range(12):
                assert (await client.call(send("other", bytes(150_000)))).code == 0
            await group.stop(1)
            assert (await client.call(send("other", b"not confirmed"))).code
        await group.stop(0)
        oldest = min((tmp_path / "member-0").glob("**/commitlog/*"))
        os.utime(oldest, (1, 1))
        master = await group.start(0, **small)
        parts = master.parts
        assert parts is not None and not parts.activity.is_on
        store = parts.store
        await until(lambda: bool(store.retention.waiting or store.reader.log_start))
        await asyncio.sleep(0.2)
        assert store.reader.log_start == 0, "what was owed is gone"
        await group.start(1, **small)
        await until(lambda: parts.activity.is_on)
        assert store.retention.owed_from() is not None, "it was read back: it waits where it was, or was carried on"
