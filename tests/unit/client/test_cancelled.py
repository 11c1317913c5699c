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
            while not any(intake.progress == 3 for intake, _ in consumer._source._intakes.values()):
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


async def _awaited(one: Cancelled) -> object:
    return await one
