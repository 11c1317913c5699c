"""Messages that somebody has in hand: when a consumer stops, when they come again, when it is too late for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from gantry.client.consumer import Consumer, ReceivedMessage
from gantry.client.pullconsumer import PullConsumer
from gantry.errors import ClosedError
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.onequeue import FIRST, OneQueue, member
from testkit.patience import HANG_S
from testkit.scripted import refuse
from testkit.turning import until

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
PATIENT = replace(FIRST, stop_timeout_s=60.0)


def iterating(consumer: Consumer, gate: asyncio.Event, said: list[object]) -> asyncio.Task[None]:
    """A task that handles the messages of a consumer, each of them when the gate is open."""

    async def work() -> None:
        async for message in consumer:
            said.append(message)
            await gate.wait()
            said.append(await message.ack())

    return asyncio.ensure_future(work())


async def test_stopping_waits_for_the_message_that_another_task_has_in_hand() -> None:
    said: list[object] = []
    gate = asyncio.Event()
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        consumer = member(cluster, PATIENT)
        await consumer.start()
        worker = iterating(consumer, gate, said)
        await until(lambda: said)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        gate.set()
        await stopping
        await worker
        assert said[1:] == [True] and cluster.told()[-1] == 1


async def test_a_stop_does_not_wait_for_the_message_of_a_task_that_stops_the_consumer_too() -> None:
    has_one, may_stop = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        consumer = member(cluster, replace(FIRST, stop_timeout_s=3600.0))
        await consumer.start()

        async def leaving() -> None:
            async for _ in consumer:
                has_one.set()
                await may_stop.wait()
                break
            await consumer.stop()

        worker = asyncio.ensure_future(leaving())
        await has_one.wait()
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0.01)
        assert not stopping.done()
        may_stop.set()
        await asyncio.gather(worker, stopping)
        assert cluster.told()[-1] == 0


async def test_what_is_acked_after_the_time_for_stopping_is_told_that_it_is_too_late() -> None:
    said: list[object] = []
    gate = asyncio.Event()
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        consumer = member(cluster, replace(FIRST, stop_timeout_s=0.01))
        await consumer.start()
        worker = iterating(consumer, gate, said)
        await until(lambda: said)
        await consumer.stop()
        gate.set()
        with pytest.raises(ClosedError, match="too late"):
            await worker
        (message,) = said
        assert isinstance(message, ReceivedMessage)
        for late in (message.retry, message.give_up):
            with pytest.raises(ClosedError, match="too late"):
                await late()
        assert not cluster.asked("broker-a", SEND_BACK)


async def test_an_ack_that_no_commit_tells_any_more_is_told_that_it_is_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    gate = asyncio.Event()
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        consumer = member(cluster, replace(FIRST, stop_timeout_s=0.01))
        await consumer.start()
        worker = iterating(consumer, gate, said)
        await until(lambda: said)

        async def committing(_: object) -> None:
            gate.set()
            await asyncio.wait([worker])

        monkeypatch.setattr(consumer._source, "_commit", committing)
        await consumer.stop()
        with pytest.raises(ClosedError, match="too late"):
            await worker


async def test_one_that_stops_the_consumer_does_not_wait_for_what_it_has_in_hand_itself() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster, member(cluster, PATIENT) as consumer:
        await anext(consumer)


async def test_an_ack_after_a_reset_returns_false() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster, member(cluster) as consumer:
        message = await anext(consumer)
        consumer._source.move({message.queue: 0})
        assert await message.ack() is False
        again = await anext(consumer)
        assert await again.ack() is True and await again.ack() is True


async def test_messages_of_a_queue_that_moved_do_not_pile_up_while_nobody_takes_them() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=20) as cluster, member(cluster) as consumer:
        queue = MessageQueue("T", "broker-a", 0)
        await until(lambda: queue in consumer._source._intakes)
        intake, _ = consumer._source._intakes[queue]
        for _ in range(5):
            await until(lambda: intake.info().count == 20)
            consumer._source.move({queue: 0})
        await until(lambda: intake.info().count == 20)
        assert len(consumer._source._ready.items) == 20
        assert [(await anext(consumer)).queue_offset for _ in range(20)] == list(range(20))


async def test_the_first_call_of_a_message_that_is_retried_in_place_does_not_ack_the_second() -> None:
    calls: list[ReceivedMessage] = []
    first_may_end = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        calls.append(message)
        if len(calls) == 1:
            await message.retry(after_s=0)
            await first_may_end.wait()
            return
        first_may_end.set()
        await asyncio.Event().wait()  # it never succeeds

    settings = replace(FIRST, stop_timeout_s=0.01)
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        cluster.answers["broker-a", SEND_BACK] = refuse(ResponseCode.SYSTEM_ERROR)
        async with member(cluster, settings, listener=listener):
            await until(lambda: len(calls) == 2 and calls[0].is_over)
            assert await calls[0].ack() is False
        assert 1 not in cluster.told()
        assert [one.attempt for one in calls] == [1, 2]


async def test_a_retry_that_is_cancelled_is_kept() -> None:
    async with asyncio.timeout(HANG_S):
        async with OneQueue(count=1) as cluster, member(cluster, replace(FIRST, retry_delays_s=(0.0,))) as consumer:
            cluster.answers["broker-a", SEND_BACK] = lambda _: None
            message = await anext(consumer)
            retrying = asyncio.ensure_future(message.retry())
            await until(lambda: cluster.asked("broker-a", SEND_BACK))
            retrying.cancel()
            again = await anext(consumer)
            assert again.queue_offset == message.queue_offset and again.attempt == 2


async def test_a_pull_consumer_that_was_stopped_says_so() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=1) as cluster:
        consumer = PullConsumer("g", nameserver=cluster.nameserver, settings=FIRST)
        await consumer.start()
        await consumer.assign([MessageQueue("T", "broker-a", 0)])
        await consumer.stop()
        for call in (consumer.poll, consumer.commit):
            with pytest.raises(ClosedError):
                await call()
