"""How a queue changes hands, and how a consumer tells how far it is."""

from __future__ import annotations

import asyncio

import pytest

from gantry.client.consumer import ConsumerSettings, StartFrom
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.onequeue import FIRST, MEMBERS, OneQueue, member
from testkit.patience import HANG_S
from testkit.scripted import refuse
from testkit.turning import until


async def test_progress_is_committed_while_the_consumer_runs_and_only_when_it_moved() -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, commit_every_s=0.02, pull_wait_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster, settings) as consumer:
        for _ in range(10):
            await (await anext(consumer)).ack()
        await until(lambda: 10 in cluster.told())
        await asyncio.sleep(0.1)
        assert cluster.committed().count(10) <= 1


async def test_a_notice_makes_the_group_share_again_at_once() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster, member(cluster) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        cluster.others = ("0-comes-first",)
        for connection in cluster.connections("broker-a"):
            notice = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext={"consumerGroup": "g"})
            connection.send_oneway(notice)
        await until(lambda: consumer.queues == [])


async def test_every_pull_tells_how_far_the_consumer_is_unless_it_broadcasts() -> None:
    async def told(settings: ConsumerSettings) -> list[int]:
        async with OneQueue(count=20) as cluster, member(cluster, settings) as consumer:
            for _ in range(20):
                await (await anext(consumer)).ack()
            await until(lambda: cluster.pulls().count(20) >= 2)
            return cluster.told()

    async with asyncio.timeout(HANG_S):
        assert (await told(FIRST))[-1] == 20
        assert await told(ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, broadcast=True)) == []


async def test_what_is_in_work_when_its_queue_goes_to_another_may_end_and_counts_and_nothing_else_is_handed_out() -> (
    None
):
    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, handover_s=10.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster, settings) as consumer:
        first, second = await anext(consumer), await anext(consumer)
        cluster.others = ("0-comes-first",)
        consumer._source.members_changed()
        await until(lambda: consumer.queues == [])
        await first.ack()
        await second.ack()
        await until(lambda: cluster.told()[-1] == 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.05)


async def test_stopping_while_a_queue_goes_to_another_commits_what_ended_in_it() -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, handover_s=1000.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        async with member(cluster, settings) as consumer:
            first, _ = await anext(consumer), await anext(consumer)
            cluster.others = ("0-comes-first",)
            consumer._source.members_changed()
            await until(lambda: consumer.queues == [])
            await first.ack()
        assert cluster.told()[-1] == 1


async def test_a_queue_that_another_member_may_hold_begins_later_and_a_lone_member_begins_at_once() -> None:
    async with asyncio.timeout(HANG_S):
        settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, handover_s=1000.0)
        async with OneQueue(count=10, others=("z-comes-last",)) as cluster, member(cluster, settings) as consumer:
            await until(lambda: len(consumer.queues) == 1)
            await asyncio.sleep(0.05)
            assert cluster.pulls() == []
        async with OneQueue(count=10) as cluster, member(cluster, settings) as consumer:
            assert (await anext(consumer)).queue_offset == 0


async def test_after_a_broker_s_return_its_list_of_members_is_not_believed_at_once() -> None:
    async with asyncio.timeout(HANG_S):
        async with OneQueue(count=0, others=("0-comes-first",)) as cluster, member(cluster) as consumer:
            await until(lambda: len(cluster.asked("broker-a", MEMBERS)) == 1)
            cluster.others = ()  # the other one is not back yet
            for connection in cluster.connections("broker-a"):
                connection.abort("the broker restarts")
            consumer._source.members_changed()
            await until(lambda: len(consumer.queues) == 1)
            await asyncio.sleep(0.05)
            assert cluster.pulls() == []
            cluster.others = ("0-comes-first",)
            consumer._source.members_changed()
            await until(lambda: consumer.queues == [])
            assert cluster.pulls() == [] and cluster.told() == []


async def test_messages_of_a_queue_that_went_to_another_member_are_no_longer_handed_out_or_committed() -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=0.0, handover_s=0.0)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster, settings) as consumer:
        first = await anext(consumer)
        cluster.others = ("0-comes-first",)
        consumer._source.members_changed()
        await until(lambda: consumer.queues == [] and consumer._source._memory.bytes == 0)
        told = list(cluster.told())
        await first.ack()
        await consumer.commit()
        assert cluster.told() == told
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.05)


async def test_queues_are_kept_while_the_broker_does_not_say_who_is_in_the_group() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster, member(cluster) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        cluster.answers["broker-a", MEMBERS] = refuse(ResponseCode.SYSTEM_ERROR)
        asked = len(cluster.asked("broker-a", MEMBERS))
        consumer._source.members_changed()
        await until(lambda: len(cluster.asked("broker-a", MEMBERS)) > asked)
        assert len(consumer.queues) == 1
