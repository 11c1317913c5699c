"""Retention over the wire: deleting by hand, looking before, and consumers that read what is being deleted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.cli.main import main
from gantry.client.admin import Admin
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import Peer, bodies, peer, pull, running_broker, send
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

_TOPIC = "orders"
_BODY = b"x" * 8000
_SMALL = {
    "store__segment_bytes": 128 << 10,
    "messages__body_bytes_max": 32 << 10,
    "store__queue_file_entries": 10,
    "store__delete_hours": [],
    "store__flush": "SYNC_FLUSH",
}


async def _filled(broker: Broker, client: Peer, count: int = 60) -> None:
    for number in range(count):
        assert (await client.call(send(_TOPIC, b"%04d" % number + _BODY))).code == 0
    store = broker.parts.store if broker.parts is not None else None
    assert store is not None
    for path in (Path(store.settings.root) / "commitlog").iterdir():
        os.utime(path, (0, 0))


def _log_start(broker: Broker) -> int:
    assert broker.parts is not None
    return broker.parts.store.stats().log_start


async def test_rocketmq_s_requests_for_deleting_delete_what_is_old_enough(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S), running_broker(tmp_path, **_SMALL) as broker, peer(broker) as client:
        await _filled(broker, client)
        shown = json.loads((await client.call(Command(RequestCode.SHOW_RETENTION))).body)
        starts = [one["start"] for one in shown["segments"]]
        assert starts == [at * (128 << 10) for at in range(len(starts))]
        assert all(one["goes"] and one["expired"] and not one["owed"] for one in shown["segments"])
        assert len(shown["segments"]) >= 3 and _log_start(broker) == 0, "looking deletes nothing"
        queue = tmp_path / "store/consumequeue/orders/0"
        await until(lambda: queue.is_dir() and len(list(queue.iterdir())) == 6)
        for code in (329, 306, 316):
            assert (await client.call(Command(code))).code == 0
        await until(lambda: _log_start(broker) == len(shown["segments"]) * (128 << 10))
        await until(lambda: len(list(queue.iterdir())) < 6)
        gone = await client.call(pull(_TOPIC, 0))
        assert gone.code == ResponseCode.PULL_OFFSET_MOVED
        low = int(gone.ext["nextBeginOffset"])
        assert bodies(await client.call(pull(_TOPIC, low)))[0].startswith(b"%04d" % low)


async def test_a_reply_that_is_under_way_survives_its_segment(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_broker(tmp_path, **_SMALL) as broker, peer(broker) as client, peer(broker) as slow:
            await _filled(broker, client, 150)
            pulls = 40
            for _ in range(pulls):
                await slow.send(pull(_TOPIC, 0, maxMsgNums="15"))
            assert (await client.call(Command(RequestCode.DELETE_EXPIRED_COMMITLOG))).code == 0
            await until(lambda: _log_start(broker) >= 4 * (128 << 10))
            replies = await slow.receive(pulls)
            whole = [reply for reply in replies if reply.code == ResponseCode.SUCCESS]
            assert whole and all(body[4:] == _BODY for reply in whole for body in bodies(reply))
            assert (await client.call(pull(_TOPIC, 0))).code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_consumer_that_is_far_behind_goes_on_where_the_log_begins(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_broker(tmp_path, store__warm_bytes=1, **_SMALL) as broker, peer(broker) as client:
            await _filled(broker, client, 100)
            async with peer(broker) as reader:
                assert (await client.call(Command(RequestCode.DELETE_EXPIRED_COMMITLOG))).code == 0
                offset, seen = 0, []
                while offset < 100:
                    reply = await reader.call(pull(_TOPIC, offset, maxMsgNums="3"))
                    found = bodies(reply) if reply.code == ResponseCode.SUCCESS else []
                    assert found == [b"%04d" % (offset + at) + _BODY for at in range(len(found))]
                    assert int(reply.ext["nextBeginOffset"]) > offset or not found
                    seen += found
                    offset = int(reply.ext["nextBeginOffset"])
                assert seen[-1][:4] == b"0099" and len(set(seen)) == len(seen)


@pytest.mark.shows("store clean --dry-run")
@pytest.mark.parametrize("is_dry", [True, False])
async def test_the_command_shows_what_would_go_and_deletes_it_unless_told_not_to(tmp_path: Path, is_dry: bool) -> None:
    began = time.monotonic()
    async with asyncio.timeout(2 * HANG_S), running_cluster(tmp_path, **_SMALL) as cluster:
        broker = cluster.brokers["broker-a"]
        async with peer(broker) as client:
            await _filled(broker, client)
        words = ["store", "clean", "--namesrv", cluster.nameserver, "--output", "json", "--timeout", "60"]
        out, said = StringIO(), StringIO()

        def run() -> int:
            with redirect_stdout(out), redirect_stderr(said):
                return main([*words, *(["--dry-run"] if is_dry else [])])

        assert await asyncio.to_thread(run) == 0, said.getvalue()
        rows = json.loads(out.getvalue())
        assert len(rows) >= 3 and all(row["goes"] and row["broker"] == "broker-a" for row in rows)
        assert "the disk is" in said.getvalue() and ("being deleted" in said.getvalue()) is not is_dry
        if is_dry:
            async with Admin(nameserver=cluster.nameserver) as admin:
                (seen,) = await admin.retention()
            assert seen.log_start == 0 and _log_start(broker) == 0
        else:
            await until(lambda: _log_start(broker) == len(rows) * (128 << 10))
    assert time.monotonic() - began < 4 * HANG_S


@pytest.mark.shows("store clean --broker")
async def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S), running_cluster(tmp_path) as cluster:
        said = StringIO()

        def run() -> int:
            with redirect_stderr(said):
                return main(["store", "clean", "--namesrv", cluster.nameserver, "--broker", broker])

        broker = "nobody"
        assert await asyncio.to_thread(run) == 1 and "gantry cluster list" in said.getvalue()
        broker = "broker-a"
        assert await asyncio.to_thread(run) == 0 and "broker-a: the disk is" in said.getvalue()
