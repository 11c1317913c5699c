"""Administration of one broker by its address: what it has, what is not there, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantry.client.brokeradmin import BrokerAdmin
from gantry.errors import RefusedError, UnreachableError
from gantry.model.route import MessageQueue
from gantry.model.subscription import GroupConfig
from gantry.model.topic import TopicConfig
from testkit.brokerplay import running_broker
from testkit.patience import HANG_S
from testkit.ports import free_port


@asynccontextmanager
async def broker_and_admin(folder: Path) -> AsyncIterator[tuple[BrokerAdmin, str]]:
    async with running_broker(folder) as broker, BrokerAdmin(HANG_S, HANG_S) as brokers:
        assert broker.addresses is not None
        yield brokers, f"127.0.0.1:{broker.addresses.port}"


async def test_a_topic_is_made_changed_and_deleted(tmp_path: Path) -> None:
    async with broker_and_admin(tmp_path) as (brokers, address):
        assert await brokers.topic(address, "tea") is None
        await brokers.put_topic(address, TopicConfig("tea", 4, 3), {"message.type": "FIFO", "cleanup.policy": "DELETE"})
        await brokers.put_topic(address, TopicConfig("tea", 5, 3), {"message.type": None, "message.size.max": "9"})
        found = await brokers.topic(address, "tea")
        assert found is not None and (found.read_queues, found.write_queues) == (5, 3)
        assert found.attributes == {"cleanup.policy": "DELETE", "message.size.max": "9"}
        assert max(await brokers.queue_range(address, MessageQueue("tea", "b", 0))) == 0
        await brokers.delete_topic(address, "tea")
        await brokers.delete_topic(address, "tea")
        assert await brokers.topic(address, "tea") is None


async def test_a_group_is_made_changed_and_deleted(tmp_path: Path) -> None:
    async with broker_and_admin(tmp_path) as (brokers, address):
        assert await brokers.group(address, "shop") is None
        await brokers.put_group(address, GroupConfig("shop", retry_times_max=3))
        found = await brokers.group(address, "shop")
        assert found is not None and found.retry_times_max == 3
        assert (await brokers.members(address, "shop"), await brokers.lag(address, "b", group="shop")) == (set(), [])
        await brokers.delete_group(address, "shop")
        assert await brokers.group(address, "shop") is None


async def test_what_is_refused_says_why(tmp_path: Path) -> None:
    async with broker_and_admin(tmp_path) as (brokers, address):
        with pytest.raises(RefusedError, match="conflict with system topic"):
            await brokers.put_topic(address, TopicConfig("TBW102"), {})
        with pytest.raises(RefusedError, match="does not exist"):
            await brokers.reset(address, "shop", "tea", 0)
        with pytest.raises(UnreachableError):
            await brokers.topic(f"127.0.0.1:{free_port()}", "tea")
