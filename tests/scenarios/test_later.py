"""Delayed messages from our producer to our consumers, and taken back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.errors import RefusedError
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S

FIRST = ConsumerSettings(start_from=StartFrom.FIRST)


async def test_a_message_comes_at_its_time_and_one_that_was_taken_back_never(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            begun_ms = time.time_ns() // 1_000_000
            kept = await producer.send(Message("T", b"kept", delay_s=1.0))
            gone = await producer.send(Message("T", b"gone", deliver_at_ms=begun_ms + 800))
            assert kept.recall_handle and gone.recall_handle
            await producer.recall(gone.recall_handle)
            await producer.send(Message("T", b"level", delay_level=1))
            await producer.send(Message("T", b"now"))
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FIRST
            ) as consumer:
                found: dict[bytes, int] = {}
                while len(found) < 3:
                    message = await anext(consumer)
                    found[message.body] = message.stored.store_ms
                    await message.ack()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(consumer), 0.2)
            assert set(found) == {b"kept", b"level", b"now"}
            assert found[b"kept"] >= begun_ms + 1000
            with pytest.raises(RefusedError):
                await producer.recall(kept.recall_handle)
