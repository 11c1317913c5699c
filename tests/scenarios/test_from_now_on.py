"""A new group that begins at the end of an old queue: what is sent right behind start() is received."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.model.route import MessageQueue
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S

OLD = {"store__warm_bytes": 1 << 20}


@pytest.mark.parametrize("broadcast", [False, True])
@pytest.mark.parametrize("start_from", [StartFrom.LAST, StartFrom.TIMESTAMP])
async def test_what_is_sent_behind_the_start_comes(tmp_path: Path, broadcast: bool, start_from: StartFrom) -> None:
    settings = ConsumerSettings(broadcast=broadcast, start_from=start_from, start_timestamp_ms=1 << 50)
    async with asyncio.timeout(HANG_S), AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(tmp_path, **OLD))
        names = cluster.nameserver
        admin = await stack.enter_async_context(Admin(nameserver=names))
        await admin.create_topic("T", queues=2)
        producer = await stack.enter_async_context(Producer("p", nameserver=names))
        for number in range(40):
            await producer.send(Message("T", os.urandom(100_000)), queue=MessageQueue("T", "broker-a", number % 2))
        consumer = Consumer("g", nameserver=names, subscription={"T": "*"}, settings=settings)
        await stack.enter_async_context(consumer)
        for number in range(8):
            await producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", "broker-a", number % 2))
        found = sorted([(await anext(consumer)).body[:4] for _ in range(8)])
        assert found == [b"%d" % number for number in range(8)]


async def test_a_start_without_its_topic_does_not_wait_for_it(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        begun = asyncio.get_running_loop().time()
        async with Consumer("g", nameserver=cluster.nameserver, subscription={"missing": "*"}):
            assert asyncio.get_running_loop().time() - begun < 4.0


async def test_a_broker_that_a_group_has_not_begun_to_read_counts_whole(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path, groups=2) as cluster, AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(nameserver=cluster.nameserver))
        producer = await stack.enter_async_context(Producer("p", nameserver=cluster.nameserver))
        await admin.create_topic("T", queues=1)
        for name in ("broker-a", "broker-b"):
            for _ in range(3):
                await producer.send(Message("T", b"one"), queue=MessageQueue("T", name, 0))
        await admin.create_group("g")
        await admin.commit("g", MessageQueue("T", "broker-a", 0), 3)
        found = {one.queue.broker_name: (one.committed, one.lag) for one in await admin.lag()}
        assert found == {"broker-a": (3, 0), "broker-b": (-1, 3)}
