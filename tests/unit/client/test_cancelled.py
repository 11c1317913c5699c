"""A call of an asyncio client that is cancelled, at whichever of its waits, leaves a client that works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ReceivedMessage
from gantry.client.orderly import OrderlyConsumer
from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.client.pullconsumer import PullConsumer
from gantry.client.transaction import Outcome, StoredMessage, TransactionProducer, TransactionSettings
from gantry.model.route import MessageQueue
from gantry.wire.codes import RequestCode
from testkit.interrupting import Cancelled
from testkit.onequeue import FIRST, PULL, OneQueue, member
from testkit.patience import HANG_S
from testkit.scripted import body
from testkit.turning import until

SHORT, LONG = b"later", b"cancelled" * 10_000
QUEUE = MessageQueue("T", "broker-a", 0)
STEPS_MAX = 100
Client = PullConsumer | OrderlyConsumer | TransactionProducer | Consumer
PATIENT = ProducerSettings(timeout_s=3600.0, attempt_timeout_s=3600.0, compress_over_bytes=None)
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
Calls = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]  # what is cancelled, what has to work


@asynccontextmanager
async def sends(cluster: OneQueue) -> AsyncIterator[Calls]:
    async with Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer:
        yield (lambda: producer.send(Message("T", LONG))), (lambda: producer.send(Message("T", SHORT)))


@asynccontextmanager
async def sends_oneway(cluster: OneQueue) -> AsyncIterator[Calls]:
    async with Producer("p", nameserver=cluster.nameserver, settings=PATIENT) as producer:
        yield (lambda: producer.send_oneway(Message("T", LONG))), (lambda: producer.send(Message("T", SHORT)))


@asynccontextmanager
async def transacts(cluster: OneQueue) -> AsyncIterator[Calls]:
    async def checker(_: StoredMessage) -> Outcome:
        return Outcome.UNKNOWN

    settings = TransactionSettings(sending=PATIENT)
    async with TransactionProducer("p", checker, nameserver=cluster.nameserver, settings=settings) as producer:

        async def one(content: bytes) -> None:
            async with producer.transaction(Message("T", content)):
                await asyncio.sleep(0)

        async def works() -> None:
            assert not producer._open, "a block that was cancelled does not run any more"
            await one(SHORT)

        yield (lambda: one(LONG)), works


@asynccontextmanager
async def retries(cluster: OneQueue) -> AsyncIterator[Calls]:
    held: list[ReceivedMessage] = []
    async with member(cluster, replace(FIRST, retry_delays_s=(0.0,))) as consumer:

        async def takes() -> None:
            held.append(await anext(consumer))
            await held[-1].retry()
            held.append(await anext(consumer))
            await held[-1].ack()

        async def works() -> None:
            for message in held:
                await message.ack()
            while not any(intake.progress == 3 for intake, _ in consumer._intakes.values()):
                await (await anext(consumer)).ack()

        yield takes, works


@asynccontextmanager
async def polls(cluster: OneQueue) -> AsyncIterator[Calls]:
    cluster.answers["broker-a", RequestCode.LITE_PULL_MESSAGE] = cluster.answers["broker-a", PULL]
    async with PullConsumer("g", nameserver=cluster.nameserver, settings=FIRST) as consumer:
        await consumer.assign([QUEUE])

        async def takes() -> None:
            await consumer.seek(QUEUE, 0)
            await consumer.poll(count_max=1)
            await consumer.commit()
            await consumer.seek(QUEUE, 1)
            await consumer.poll(count_max=1)

        async def works() -> None:
            await consumer.seek(QUEUE, 0)
            seen: list[bytes] = []
            while len(seen) < 3:
                seen += [one.body for one in await consumer.poll()]
            assert seen == [b"0", b"1", b"2"]

        yield takes, works


@asynccontextmanager
async def administers(cluster: OneQueue) -> AsyncIterator[Calls]:
    async with Admin(nameserver=cluster.nameserver) as admin:
        yield (lambda: admin.cluster()), (lambda: admin.cluster())


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("client", [sends, sends_oneway, transacts, retries, polls, administers])
async def test_whatever_was_cancelled_the_next_call_works(
    client: Callable[[OneQueue], AbstractAsyncContextManager[Calls]], is_warm: bool
) -> None:
    async with asyncio.timeout(HANG_S):
        steps = 0
        for at in range(STEPS_MAX):
            async with OneQueue(count=3) as cluster, client(cluster) as (cancelled, works):
                if is_warm:
                    await works()
                    if client is retries:
                        return  # its three messages are done
                interrupted = Cancelled(cancelled(), at)  # type: ignore[arg-type]
                task = asyncio.ensure_future(_awaited(interrupted))
                await asyncio.wait([task])
                assert task.cancelled() or task.exception() is None
                await works()
                bodies = {bytes(command.body) for _, command in cluster.received if command.code in SENDS}
                assert bodies <= {SHORT, LONG}
                if not interrupted.came:
                    break
                steps += 1
        assert 0 < steps < STEPS_MAX or (client is sends_oneway and is_warm)


async def _listener(_: ReceivedMessage) -> None:
    """Nothing."""


def makers(cluster: OneQueue) -> tuple[Callable[[], Client], ...]:
    """Clients of each kind that has a start."""
    cluster.answers["broker-a", RequestCode.LOCK_BATCH_MQ] = body({"lockOKMQSet": []})
    where = cluster.nameserver
    return (
        lambda: member(cluster),
        lambda: PullConsumer("g", nameserver=where, subscription={"T": "*"}),
        lambda: OrderlyConsumer("g", nameserver=where, subscription={"T": "*"}, listener=_listener),
        lambda: TransactionProducer("p", _listener, nameserver=where),  # type: ignore[arg-type]
    )


async def test_a_start_that_is_cancelled_leaves_no_task_behind() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster:
        for make in makers(cluster):
            for at in range(STEPS_MAX):
                before, made = asyncio.all_tasks(), make()
                interrupted = Cancelled(made.__aenter__(), at)
                task = asyncio.ensure_future(_awaited(interrupted))
                await asyncio.wait([task])
                if not interrupted.came:
                    await made.stop()
                    break
                assert task.cancelled()
                await until(lambda before=before: not asyncio.all_tasks() - before)


async def test_a_stop_that_is_cancelled_leaves_neither_task_nor_connection_behind() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster:
        for make in makers(cluster):
            for at in range(0, STEPS_MAX, 3):
                before, made = asyncio.all_tasks(), make()
                await made.start()
                await until(lambda: cluster.connections("broker-a"))
                interrupted = Cancelled(made.stop(), at)
                await asyncio.wait([asyncio.ensure_future(_awaited(interrupted))])
                await until(lambda before=before: not asyncio.all_tasks() - before)
                await until(lambda: not cluster.connections("broker-a"))
                if not interrupted.came:
                    break


async def _awaited(one: Cancelled) -> object:
    return await one
