"""Pops of a group that begins: they wait, and are answered, only when the disk has where it begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.metadata.savedtogether import SavedTogether
from gantry.model.topic import TopicConfig
from gantry.wire.codes import ResponseCode
from testkit.brokerplay import peer, running_broker, send
from testkit.patience import HANG_S
from testkit.popplay import GROUP, pop_request, popped
from testkit.turning import until


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_message_that_comes_while_the_begin_is_saved_is_popped_at_once(tmp_path: Path, order: str) -> None:
    """It wakes only what waits already, and this pop is about to."""
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client, peer(broker) as other:
        assert broker.parts is not None
        broker.parts.topics.ensure(TopicConfig("orders", read_queues=1, write_queues=1))
        firsts: SavedTogether = broker.parts.pops.service.context.firsts
        save, asked, go = firsts._save, asyncio.Event(), asyncio.Event()

        async def slow() -> bool:
            asked.set()
            await go.wait()
            return await save()

        firsts._save = slow
        popping = asyncio.create_task(client.call(pop_request(order=order, pollTime=10_000)))
        async with asyncio.timeout(HANG_S):
            await asked.wait()
            assert (await other.call(send("orders", b"m0"))).code == 0
            await until(lambda: broker.parts.store.queue_range("orders", 0) == (0, 1))  # type: ignore[union-attr]
            go.set()
        async with asyncio.timeout(HANG_S):
            (one,) = popped(await popping)
        assert one.body == b"m0"


@pytest.mark.parametrize("order", ["false", "true"])
async def test_messages_of_one_queue_come_when_the_begin_in_the_others_is_saved_too(tmp_path: Path, order: str) -> None:
    """A crash would let the group begin behind what the others got meanwhile: only the leases of this one are kept."""
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert broker.parts is not None
        assert (await client.call(send("orders", b"m0"))).code == 0
        firsts: SavedTogether = broker.parts.pops.service.context.firsts
        save, asked, go = firsts._save, asyncio.Event(), asyncio.Event()

        async def slow() -> bool:
            asked.set()
            await go.wait()
            return await save()

        firsts._save = slow
        popping = asyncio.create_task(client.call(pop_request(order=order, initMode=1)))
        async with asyncio.timeout(HANG_S):
            await until(lambda: asked.is_set() or popping.done())
        assert len(broker.parts.offsets.of(GROUP, "orders")) > 1 and not popping.done()
        go.set()
        async with asyncio.timeout(HANG_S):
            (one,) = popped(await popping)
        assert one.body == b"m0"


async def test_messages_do_not_come_when_the_disk_has_not_taken_the_begin(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert broker.parts is not None
        assert (await client.call(send("orders", b"m0"))).code == 0
        firsts: SavedTogether = broker.parts.pops.service.context.firsts
        save = firsts._save

        async def fails() -> bool:
            return False

        firsts._save = fails
        reply = await client.call(pop_request(initMode=1, invisibleTime=1000))
        assert (reply.code, reply.body) == (ResponseCode.SYSTEM_BUSY, b"")
        firsts._save = save
        async with asyncio.timeout(HANG_S):
            (one,) = popped(await client.call(pop_request(initMode=1, pollTime=10_000)))
        assert one.body == b"m0"


async def test_a_group_that_has_begun_does_not_wait_for_the_begin_of_another(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client, peer(broker) as other:
        assert broker.parts is not None
        broker.parts.topics.ensure(TopicConfig("orders", read_queues=1, write_queues=1))
        await client.call(pop_request(consumerGroup="begun", pollTime=0))
        firsts: SavedTogether = broker.parts.pops.service.context.firsts
        asked, go = asyncio.Event(), asyncio.Event()

        async def hangs() -> bool:
            asked.set()
            await go.wait()
            return False

        firsts._save = hangs
        beginning = asyncio.create_task(other.call(pop_request(consumerGroup="begins", pollTime=0)))
        async with asyncio.timeout(HANG_S):
            await asked.wait()
            answer = await client.call(pop_request(consumerGroup="begun", pollTime=0))
            assert answer.code == ResponseCode.POLLING_TIMEOUT and not beginning.done()
            go.set()
            assert (await beginning).code == ResponseCode.SYSTEM_BUSY
