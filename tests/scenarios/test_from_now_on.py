"""A new group that begins at the end of an old queue: what is sent right behind start() is received."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.consuming.offsets import RemoteOffsets
from gantry.client.orderly import OrderlyConsumer
from gantry.client.producer import Message, Producer
from gantry.client.pullconsumer import PullConsumer
from gantry.client.simpleconsumer import SimpleConsumer
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


class Reading(NamedTuple):
    """A consumer of some kind, and what waits for its next bodies."""

    consumer: AbstractAsyncContextManager[object]
    next: Callable[[], Awaitable[list[bytes]]]


def in_order(settings: ConsumerSettings, nameserver: str) -> Reading:
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def note(message: ReceivedMessage) -> None:
        found.put_nowait(message.body)

    async def following() -> list[bytes]:
        return [await found.get()]

    about = {"nameserver": nameserver, "subscription": {"T": "*"}, "settings": settings}
    return Reading(OrderlyConsumer("g", listener=note, **about), following)  # type: ignore[arg-type]


def pulling(settings: ConsumerSettings, nameserver: str) -> Reading:
    consumer = PullConsumer("g", nameserver=nameserver, subscription={"T": "*"}, settings=settings)

    async def following() -> list[bytes]:
        return [one.body for one in await consumer.poll()]

    return Reading(consumer, following)


def popping(settings: ConsumerSettings, nameserver: str) -> Reading:
    consumer = Consumer("g", nameserver=nameserver, subscription={"T": "*"}, settings=settings, mode="pop")

    async def following() -> list[bytes]:
        message = await anext(consumer)
        await message.ack()
        return [message.body]

    return Reading(consumer, following)


def receiving(settings: ConsumerSettings, nameserver: str) -> Reading:
    about = {"nameserver": nameserver, "subscription": {"T": "*"}, "start_from": settings.start_from}
    consumer = SimpleConsumer("g", **about)  # type: ignore[arg-type]

    async def following() -> list[bytes]:
        messages = await consumer.receive()
        await consumer.ack(messages)
        return [one.body for one in messages]

    return Reading(consumer, following)


@pytest.mark.parametrize("make", [in_order, pulling, popping, receiving])
async def test_every_kind_of_consumer_begins_with_its_start(
    tmp_path: Path, make: Callable[[ConsumerSettings, str], Reading]
) -> None:
    async with asyncio.timeout(HANG_S), AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(tmp_path, **OLD))
        admin = await stack.enter_async_context(Admin(nameserver=cluster.nameserver))
        await admin.create_topic("T", queues=2)
        producer = await stack.enter_async_context(Producer("p", nameserver=cluster.nameserver))
        for number in range(40):
            await producer.send(Message("T", os.urandom(100_000)), queue=MessageQueue("T", "broker-a", number % 2))
        reading = make(ConsumerSettings(start_from=StartFrom.LAST), cluster.nameserver)
        await stack.enter_async_context(reading.consumer)
        committed = {one.queue.queue_id: one.committed for one in await admin.lag(group="g") if one.queue.topic == "T"}
        assert committed == {0: 20, 1: 20}, "where the group begins is stored"
        for number in range(8):
            await producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", "broker-a", number % 2))
        found: list[bytes] = []
        while len(found) < 8:
            found += await reading.next()
        assert sorted(found) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("start_from", [StartFrom.LAST, StartFrom.TIMESTAMP], ids=["last", "time"])
async def test_a_later_begin_of_another_member_skips_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_from: StartFrom
) -> None:
    """Both members are told that the group has no offset; the second one has begun when the first one goes on."""
    settings = ConsumerSettings(start_from=start_from, start_timestamp_ms=1 << 50)
    queue = MessageQueue("T", "broker-a", 0)
    has_asked, may_go_on = asyncio.Event(), asyncio.Event()
    by_settings = RemoteOffsets._by_settings

    async def by_settings_later(offsets: RemoteOffsets, *given: Any) -> int:
        if not has_asked.is_set():
            has_asked.set()
            await may_go_on.wait()
        return await by_settings(offsets, *given)

    async with asyncio.timeout(HANG_S), AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(tmp_path, **OLD))
        admin = await stack.enter_async_context(Admin(nameserver=cluster.nameserver))
        await admin.create_topic("T", queues=1)
        producer = await stack.enter_async_context(Producer("p", nameserver=cluster.nameserver))
        for _ in range(30):
            await producer.send(Message("T", os.urandom(100_000)), queue=queue)
        members = [pulling(settings, cluster.nameserver) for _ in range(2)]
        monkeypatch.setattr(RemoteOffsets, "_by_settings", by_settings_later)
        starting = asyncio.ensure_future(members[0].consumer.__aenter__())
        await has_asked.wait()
        await stack.enter_async_context(members[1].consumer)
        await producer.send(Message("T", b"behind the start"), queue=queue)
        may_go_on.set()
        await starting
        stack.push_async_exit(members[0].consumer)
        assert (await admin.progress("g", "T"))[0].committed == 30
        found: list[bytes] = []
        while not found:
            for one in members:
                found += await one.next()
        assert found == [b"behind the start"]


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
