"""Start, stop, restart, failure: what a broker keeps, what it tells, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.broker.machine import Carrying, Machine
from gantry.broker.role.slave_role import SlaveRole
from gantry.errors import ConfigError, StoreError, SyncFailedError
from gantry.nameserver.server import NameServer
from gantry.nameserver.settings import NameServerSettings
from gantry.store import filenames
from gantry.store.disk import RealDisk, RealFile
from gantry.transport.client import RemotingClient
from gantry.wire import bodies as json_bodies
from gantry.wire.codes import RequestCode
from testkit.brokerplay import batch, bodies, configuration, peer, pull, running_broker, send
from testkit.patience import HANG_S
from testkit.requests import request

OFFSET = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}
SQL_FILTER = {"expressionType": "SQL92", "expression": "a = 1", "bornTime": 1, "clientVersion": 1, "deadTime": 0}


class BrittleFile(RealFile):
    """Its log cannot be made durable while the disk says so."""

    disk: BrittleDisk

    def sync_data(self) -> None:
        if "commitlog" in self.path and self.disk.breaks:
            raise SyncFailedError(f"{self.path}: Input/output error")
        if "commitlog" in self.path:
            assert self.disk.may_sync.wait(HANG_S)
        super().sync_data()


class BrittleDisk(RealDisk):
    """A disk whose log syncs fail, or wait, on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks = False
        self.may_sync = threading.Event()
        self.may_sync.set()

    def open(self, path: str, create: bool) -> RealFile:
        file = super().open(path, create)
        file.__class__ = BrittleFile
        file.disk = self
        return file


async def http(broker: Broker, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def test_messages_offsets_and_topics_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.send(*[send("orders", b"%d" % number) for number in range(5)])
        await client.receive(5)
        await client.call(pull("orders"))
        assert (
            await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=3, **OFFSET))
        ).code == 0
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"5"))).ext["queueOffset"] == "5"
        before, after = [bodies(await client.call(pull("orders", offset))) for offset in (0, 5)]
        assert before[:5] == [b"0", b"1", b"2", b"3", b"4"] and after == [b"5"]
        committed = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
        assert committed.ext["offset"] == "3"


async def test_an_orderly_stop_keeps_what_a_save_in_slices_has_begun_with(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        parts = broker.parts
        for _ in range(3):
            await client.call(send("orders", b"hello"))
        for number in range(40):
            parts.offsets.commit(f"g{number}", "orders", 0, 2)
            parts.locks.lock(f"g{number}", "me", ("orders", 0), parts.clock.monotonic())
            parts.modes.follow(f"orders@g{number}", {"topic": "orders", "consumerGroup": f"g{number}", "mode": "POP"})
        parts.filters.follow("orders@g0", SQL_FILTER)
        under_way = [table.saving() for table in (parts.offsets, parts.locks, parts.modes, parts.filters)]
        for saving in under_way:
            next(saving)
        parts.jobs.stop()
    async with running_broker(tmp_path) as broker:
        parts = broker.parts
        assert {parts.offsets.query(f"g{number}", "orders", 0) for number in range(40)} == {2}
        assert len(parts.modes.keys()) == 40 and parts.filters.keys() == ["orders@g0"]
        assert not parts.locks.lock("g39", "another", ("orders", 0), parts.clock.monotonic())
    assert len(under_way) == 4, "none of them was closed before"


async def test_two_brokers_on_one_folder_cannot_be(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        second = Broker(configuration(tmp_path))
        with pytest.raises(StoreError, match="process"):
            await second.start()
        await second.stop()


async def test_a_taken_port_is_found_before_the_store_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = Broker(configuration(tmp_path, network__port=port, network__vip_port=-2))
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use"):
            await broker.start()
        await broker.stop()
    assert not (tmp_path / "store").exists()


async def test_a_start_that_is_called_off_leaves_a_folder_that_opens(tmp_path: Path) -> None:
    for patience in range(12):
        broker = Broker(configuration(tmp_path, network__http_port=0))
        starting = asyncio.ensure_future(broker.start())
        for _ in range(patience):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        await broker.stop()
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(send("orders"))).code == 0


async def test_a_start_that_is_called_off_while_its_side_door_fails_complains_of_nothing(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for patience in range(12):
            broker = Broker(configuration(tmp_path, network__http_port=taken.getsockname()[1]))
            starting = asyncio.ensure_future(broker.start())
            for _ in range(patience):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
            if not starting.cancelled():
                assert isinstance(starting.exception(), ConfigError)
            await broker.stop()
            del broker, starting
            gc.collect()
    assert complaints == []


async def test_health_and_metrics_are_told_by_http(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, network__http_port=0, metrics__per_queue=True) as broker,
        peer(broker) as client,
    ):
        assert await http(broker, "healthz") == (200, "running\n")
        assert await http(broker, "readyz") == (200, "running\n")
        await client.send(send("orders"), send("no good!"), batch("orders", [(b"a", {}), (b"b", {})]))
        await client.receive(3)
        await client.call(pull("orders"))
        status, text = await http(broker, "metrics")
        assert status == 200
        for line in (
            "gantry_messages_appended_total 3.0",
            "gantry_messages_acked_total 3.0",
            'gantry_messages_refused_total{code="29"} 1.0',
            "gantry_messages_delivered_total 3.0",
            'gantry_topic_messages_total{topic="orders"} 3.0',
            'gantry_queue_offset{end="max",queue="0",topic="orders"} 3.0',
            'gantry_ack_wait_seconds_bucket{le="+Inf"} 3.0',
            "process_resident_memory_bytes",
        ):
            assert line in text
        again = await http(broker, "metrics")
        assert again == (status, text), "kept for a second"


async def test_healthz_answers_before_the_store_is_open(tmp_path: Path) -> None:
    broker = Broker(configuration(tmp_path, network__http_port=0))
    starting = asyncio.ensure_future(broker.start())
    for _ in range(10_000):
        if broker.http_port is not None:
            break
        await asyncio.sleep(0)
    health, ready = await asyncio.gather(http(broker, "healthz"), http(broker, "readyz"))
    assert health[0] == 200 and ready[0] in (200, 503)
    await starting
    await broker.stop()


async def test_no_send_is_acknowledged_before_the_disk_has_it(tmp_path: Path) -> None:
    disk = BrittleDisk()
    async with running_broker(tmp_path, disk, store__flush="SYNC_FLUSH") as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"durable"))).code == 0
        disk.may_sync.clear()
        await client.send(send("orders", b"waiting"), send("orders", b"hasty", pairs={"WAIT": "false"}))
        (hasty,) = await client.receive()
        assert (hasty.opaque, hasty.code) == (3, 0), "its producer did not want to wait"
        (invisible,) = [await client.call(pull("orders", 1))]
        assert invisible.code == 19, "what may still vanish is shown to nobody"
        disk.may_sync.set()
        (waited,) = await client.receive()
        assert (waited.opaque, waited.code) == (2, 0)


async def test_a_late_disk_means_outcome_unknown_with_the_header_filled(tmp_path: Path) -> None:
    disk = BrittleDisk()
    late = {"store__flush": "SYNC_FLUSH", "messages__ack_wait_s": 0.05}
    async with running_broker(tmp_path, disk, **late) as broker, peer(broker) as client:
        disk.may_sync.clear()
        reply = await client.call(send("orders", b"slow"))
        assert reply.code == 10 and reply.ext["queueOffset"] == "0" and reply.ext["msgId"]
        disk.may_sync.set()


async def test_a_failed_sync_acknowledges_nothing_and_ends_the_broker(tmp_path: Path) -> None:
    disk = BrittleDisk()
    ended = asyncio.Event()
    config = configuration(tmp_path, store__flush="SYNC_FLUSH", messages__ack_wait_s=0.1)
    broker = Broker(config, on_failed=ended.set, machine=Machine(disk=disk))
    await broker.start()
    async with peer(broker) as client:
        assert (await client.call(send("orders", b"safe"))).code == 0
        disk.breaks = True
        await client.send(send("orders", b"lost"))
        async with asyncio.timeout(HANG_S):
            await ended.wait()
        assert broker.failure is not None and "Input/output error" in broker.failure
        (reply,) = await client.receive()
        assert reply.code == 10, "stored, but nobody may call it safe"
        refused = await client.call(send("orders", b"too late"))
        assert refused.code == 14
    await broker.stop()
    assert (tmp_path / "store" / "abort").exists(), "the next start has to look"
    async with running_broker(tmp_path) as second, peer(second) as client:
        assert bodies(await client.call(pull("orders")))[0] == b"safe"


async def test_name_servers_know_the_broker_and_each_new_topic_at_once(tmp_path: Path) -> None:
    name_server = NameServer(NameServerSettings(host="127.0.0.1", port=0, http_port=None))
    await name_server.start()
    address = f"127.0.0.1:{name_server.port}"
    asking = RemotingClient()

    async def route(topic: str) -> dict[str, object] | None:
        question = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        answer = await asking.invoke(address, question, 5.0)
        return json_bodies.loads_object(answer.body) if answer.code == 0 else None

    # The second name server never answers; that costs the start its time-out and nothing else.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    servers = f"{address};127.0.0.1:{silent.getsockname()[1]}"
    async with running_broker(tmp_path, name_servers=servers, registration__timeout_s=0.5) as broker:
        assert broker.addresses is not None and broker.parts is not None
        assert await route("TBW102") is not None
        assert await route("orders") is None
        async with peer(broker) as client:
            fields = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2}
            made = request(17, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false", **fields)
            assert (await client.call(made)).code == 0
        found = await route("orders")
        assert found is not None
        (data,) = found["brokerDatas"]  # type: ignore[misc]
        assert data["brokerAddrs"] == {"0": broker.addresses.advertised}
        assert broker.parts.registration.is_registered[address]
    assert await route("orders") is None, "a broker that stops says goodbye"
    silent.close()
    await asking.close()
    await name_server.stop()


async def test_a_broker_that_is_asked_to_stop_closes_its_store_no_matter_who_wants_another_life_by_then(
    tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"a secret for tests, long enough")
    changes = {"role": "SLAVE", "id": 1, "replication__secret_file": str(tmp_path / "secret")}
    carrying = Carrying()
    broker = Broker(configuration(tmp_path, **changes), machine=Machine(carrying=carrying))
    await broker.start()
    assert broker.parts is not None and isinstance(broker.parts.group, SlaveRole)
    abort, restart = filenames.abort(broker.parts.store.settings.root), broker.parts.group.outside.restart
    disk = RealDisk()
    assert disk.exists(abort)
    await broker.stop(lambda line: restart("the register names this member the master"))
    assert not broker.starts_again and not carrying.is_full and not disk.exists(abort)


async def test_a_broker_that_stops_is_not_ready_before_it_ends_anything(tmp_path: Path) -> None:
    broker = Broker(configuration(tmp_path))
    assert broker._readiness()[0] is False
    await broker.start()
    assert broker._readiness()[0]
    seen: list[tuple[int, bool]] = []
    await broker.stop(lambda line: seen.append((line, broker._readiness()[0])))
    assert seen[0] == (1, False) and not any(is_ready for _, is_ready in seen)
