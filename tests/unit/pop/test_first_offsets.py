"""Pops of a group that begins: they wait for messages only when the disk has where it begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.metadata.savedtogether import SavedTogether
from gantry.model.topic import TopicConfig
from testkit.brokerplay import peer, running_broker, send
from testkit.patience import HANG_S
from testkit.popplay import pop_request, popped
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
