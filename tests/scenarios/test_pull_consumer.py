"""Pull consumers against a real broker: positions, pauses, commits, shares."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.producer import Message, Producer
from gantry.client.pullconsumer import ConsumerSettings, MessageQueue, PullConsumer, Sql, StartFrom, StoredMessage
from gantry.errors import ConfigError
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, rebalance_every_s=0.5, commit_every_s=0.1, handover_s=0.2)


async def filled(cluster: Cluster, messages: int = 40, queues: int = 2) -> list[MessageQueue]:
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("T", queues=queues)
    found = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(queues)]
    async with Producer("p", nameserver=cluster.nameserver) as producer:
        for number in range(messages):
            tags = "odd" if number // queues % 2 else "even"
            await producer.send(Message("T", b"%d" % number, tags=tags), queue=found[number % queues])
    return found


def puller(cluster: Cluster, settings: ConsumerSettings = FIRST, auto_commit: bool = True) -> PullConsumer:
    return PullConsumer("g", nameserver=cluster.nameserver, settings=settings, auto_commit=auto_commit)


async def polled(consumer: PullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            found += await consumer.poll(1.0, count - len(found))
    return found


async def committed(cluster: Cluster) -> dict[int, int]:
    async with Admin(nameserver=cluster.nameserver) as admin:
        return {one.queue.queue_id: one.committed for one in await admin.progress("g", "T")}


async def test_everything_of_the_assigned_queues_comes_in_order_and_the_next_poll_says_that_it_is_done(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        queues = await filled(cluster)
        async with puller(cluster) as consumer:
            await consumer.assign(queues)
            found = await polled(consumer, 40)
            for queue in queues:
                offsets = [one.queue_offset for one in found if one.queue_id == queue.queue_id]
                assert offsets == list(range(20))
            assert await consumer.poll(0.05) == []
        assert await committed(cluster) == {0: 20, 1: 20}


async def test_what_the_last_poll_gave_is_not_done_until_somebody_says_so(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        queues = await filled(cluster)
        async with puller(cluster) as consumer:
            await consumer.assign(queues[:1])
            assert len(await polled(consumer, 8)) == 8
        assert (await committed(cluster))[0] <= 7
        async with puller(cluster, auto_commit=False) as consumer:
            await consumer.assign(queues[:1])
            first = await polled(consumer, 1)
            assert consumer.position(queues[0]) == first[0].queue_offset + 1
            await consumer.poll(0.0)
            before = await consumer.committed(queues[0])
            assert before is None or before <= first[0].queue_offset
            await consumer.commit()
            after = await consumer.committed(queues[0])
            assert after is not None and after > first[0].queue_offset


async def test_seeking_goes_back_and_forth(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        queue, _ = await filled(cluster)
        async with puller(cluster) as consumer:
            await consumer.assign([queue])
            stamps = [one.store_ms for one in await polled(consumer, 20)]
            await consumer.seek(queue, 15)
            assert [one.queue_offset for one in await polled(consumer, 5)] == [15, 16, 17, 18, 19]
            await consumer.seek_to_first(queue)
            assert (await polled(consumer, 1))[0].queue_offset == 0
            await consumer.seek_to_last(queue)
            await until(lambda: consumer.position(queue) == 20)
            assert await consumer.poll(0.05) == []
            await consumer.seek_to_time(queue, stamps[10])
            assert (await polled(consumer, 1))[0].queue_offset <= 10
            with pytest.raises(ConfigError, match="does not have"):
                await consumer.seek(MessageQueue("T", "broker-a", 1), 0)


async def test_a_paused_queue_gives_nothing_and_loses_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        one, other = await filled(cluster)
        async with puller(cluster) as consumer:
            await consumer.assign([one, other])
            consumer.pause(one)
            assert {message.queue_id for message in await polled(consumer, 20)} == {1}
            assert await consumer.poll(0.05) == []
            consumer.resume(one)
            assert [message.queue_offset for message in await polled(consumer, 20)] == list(range(20))


async def test_members_with_a_subscription_share_the_queues(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster)
        settings = replace(FIRST, commit_every_s=0.05)

        def member() -> PullConsumer:
            return PullConsumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "odd"}, settings=settings
            )

        async with member() as first:
            found = await polled(first, 20)
            assert {message.tags for message in found} == {"odd"}
            await first.poll(0.0)
            async with member() as second:
                await until(lambda: len(first.queues) == len(second.queues) == 1)
                assert first.queues != second.queues
            await until(lambda: len(first.queues) == 2)
            with pytest.raises(ConfigError, match="subscription"):
                await first.assign([])


@pytest.mark.parametrize(("start", "first"), [(StartFrom.FIRST, 0), (StartFrom.TIMESTAMP, 0), (StartFrom.LAST, None)])
async def test_a_new_group_begins_where_its_settings_say(tmp_path: Path, start: StartFrom, first: int | None) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path, store__warm_bytes=1) as cluster:
        queue, _ = await filled(cluster)
        async with puller(cluster, ConsumerSettings(start_from=start)) as consumer:
            await consumer.assign([queue])
            if first is None:
                await until(lambda: consumer.position(queue) == 20)
            else:
                assert (await polled(consumer, 1))[0].queue_offset == first


async def test_assigned_queues_may_be_filtered_by_tags_and_by_properties(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        queues = await filled(cluster)
        async with puller(cluster) as consumer:
            await consumer.assign(queues, "odd")
            assert {message.tags for message in await polled(consumer, 20)} == {"odd"}
            for queue in queues:
                await consumer.seek_to_first(queue)
            await consumer.assign(queues, Sql("TAGS = 'even'"))
            for queue in queues:
                await consumer.seek_to_first(queue)
            assert {message.tags for message in await polled(consumer, 20)} == {"even"}
