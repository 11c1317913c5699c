"""What a pull consumer asks of brokers, and what it makes of refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantry.client.consuming.pulledqueue import PulledQueue
from gantry.client.pullconsumer import ConsumerSettings, MessageQueue, PullConsumer
from gantry.errors import ConfigError, RefusedError
from gantry.leaves.frames import Command
from gantry.wire import heartbeat
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import reply
from testkit.onequeue import COMMIT, FIRST, OneQueue
from testkit.patience import HANG_S
from testkit.scripted import refuse
from testkit.turning import until

LITE = RequestCode.LITE_PULL_MESSAGE
QUEUE = MessageQueue("T", "broker-a", 0)
QUICK = replace(FIRST, commit_every_s=0.02)


class Lite(OneQueue):
    """One queue that is pulled by 361."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.answers["broker-a", LITE] = self.answers["broker-a", RequestCode.PULL_MESSAGE]


def puller(cluster: OneQueue, **more: object) -> PullConsumer:
    return PullConsumer("g", nameserver=cluster.nameserver, settings=QUICK, **more)  # type: ignore[arg-type]


async def test_without_a_subscription_it_is_nobody_s_member() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster:
        async with puller(cluster) as consumer:
            await consumer.assign([QUEUE])
            assert len(await consumer.poll()) == 3
        codes = {command.code for _, command in cluster.received}
        assert LITE in codes
        assert not codes & {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.PULL_MESSAGE}


async def test_with_one_it_says_that_it_asks_by_itself() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster:
        async with puller(cluster, subscription={"T": "*"}) as consumer:
            assert len(await consumer.poll()) == 3
        (beat, *_) = cluster.asked("broker-a", RequestCode.HEART_BEAT)
        assert heartbeat.read(beat.body).consumers[0].consume_type == "CONSUME_ACTIVELY"
        assert cluster.asked("broker-a", RequestCode.UNREGISTER_CLIENT)


async def test_a_refused_commit_is_raised_to_anyone_who_asked_for_it_and_tried_again_otherwise() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster, puller(cluster) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll()
        cluster.answers["broker-a", COMMIT] = refuse(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(RefusedError):
            await consumer.commit()
        refused = len(cluster.committed())
        await until(lambda: len(cluster.committed()) > refused)
        del cluster.answers["broker-a", COMMIT]
        await consumer.commit()
        asked = len(cluster.committed())
        rounds, usual = [0], consumer._commit_quietly

        async def counted(one: PulledQueue) -> None:
            await usual(one)
            rounds[0] += 1

        consumer._commit_quietly = counted  # type: ignore[method-assign]
        await until(lambda: rounds[0] == 3)
        assert len(cluster.committed()) <= asked + 1, "what was committed is committed again only by one under way"


async def test_a_poll_that_waits_ends_with_the_consumer() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=0) as cluster:
        consumer = puller(cluster)
        await consumer.start()
        await consumer.assign([QUEUE])
        polling = asyncio.ensure_future(consumer.poll(1000.0))
        await asyncio.sleep(0)
        await consumer.stop()
        assert await polling == []


async def test_pauses_are_kept_by_name() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster, puller(cluster) as consumer:
        consumer.pause(QUEUE)
        await consumer.assign([QUEUE])
        assert (consumer.paused, consumer.queues) == ([QUEUE], [QUEUE])
        await until(lambda: [c for c in cluster.asked("broker-a", LITE) if c.ext["queueOffset"] == "3"])  # all are here
        assert await consumer.poll(0.0) == []
        consumer.resume(QUEUE)
        assert len(await consumer.poll()) == 3
        await consumer.assign([])
        assert consumer.queues == []


def test_a_pull_consumer_does_not_broadcast() -> None:
    with pytest.raises(ConfigError, match="broadcast"):
        PullConsumer("g", nameserver="127.0.0.1:9876", settings=ConsumerSettings(broadcast=True))


async def test_a_commit_that_was_due_before_a_reset_does_not_undo_it() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster:
        consumer = PullConsumer("g", nameserver=cluster.nameserver, settings=replace(FIRST, commit_every_s=1e6))
        await consumer.start()
        await consumer.assign([QUEUE])
        assert len(await consumer.poll()) == 3
        assert await consumer.poll(0.0) == []  # all three are done
        usual = cluster.answers["broker-a", LITE]
        ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "3"}

        def move(command: Command) -> Command | None:
            is_behind = command.ext["queueOffset"] == "3"
            return reply(command, ResponseCode.PULL_OFFSET_MOVED, ext=ext) if is_behind else usual(command)

        cluster.answers["broker-a", LITE] = move
        await until(lambda: consumer.position(QUEUE) == 0)
        await consumer.stop()
        assert cluster.committed() == []


async def test_seeks_that_meet_leave_one_reader_of_the_queue_at_the_last_place() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster:
        consumer = puller(cluster)
        await consumer.start()
        await consumer.assign([QUEUE])
        await asyncio.gather(consumer.seek(QUEUE, 1), consumer.seek(QUEUE, 2))
        assert [message.queue_offset for message in await consumer.poll()] == [2]
        await consumer.stop()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("gantry-pull")]


async def test_a_queue_that_is_shared_out_during_a_seek_begins_at_the_place_that_was_sought() -> None:
    async with asyncio.timeout(HANG_S), Lite(count=3) as cluster, puller(cluster, subscription={"T": "*"}) as consumer:
        assert len(await consumer.poll()) == 3
        seeking = asyncio.ensure_future(consumer.seek(QUEUE, 1))
        await asyncio.sleep(0)
        assert consumer.queues == [QUEUE], "sharing out would begin it where the group stopped"
        await seeking
        assert [message.queue_offset for message in await consumer.poll()] == [1, 2]
