"""Requests and replies between our clients over a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer, ProducerSettings
from gantry.client.requestreply import Reply
from gantry.errors import RefusedError
from gantry.wire.compression import Compression
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST)


def responder(cluster: Cluster, producer: Producer, prefix: bytes = b"") -> Consumer:
    async def answer(message: ReceivedMessage) -> None:
        await producer.reply(message, prefix + message.body.upper(), tags="done")

    return Consumer(
        "answers", nameserver=cluster.nameserver, subscription={"Ask": "*"}, listener=answer, settings=FIRST
    )


async def test_a_reply_reaches_the_request_it_belongs_to_whichever_broker_it_comes_through(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_cluster(tmp_path, groups=2) as cluster, Producer(
            "a", nameserver=cluster.nameserver
        ) as asker, Producer("r", nameserver=cluster.nameserver) as replier, responder(cluster, replier):
            words = [b"one", b"two", b"three", b"four"]
            replies: list[Reply] = await asyncio.gather(
                *(asker.request(Message("Ask", word), timeout_s=HANG_S) for word in words)
            )
            assert [one.body for one in replies] == [b"ONE", b"TWO", b"THREE", b"FOUR"]
            assert {one.tags for one in replies} == {"done"}
            assert not len(asker._waiting)


@pytest.mark.parametrize("kind", Compression)
async def test_a_long_reply_is_compressed_on_its_way(tmp_path: Path, kind: Compression) -> None:
    async with asyncio.timeout(HANG_S):
        settings = ProducerSettings(compression=kind)
        async with running_cluster(tmp_path) as cluster, Producer(
            "a", nameserver=cluster.nameserver, settings=settings
        ) as asker, Producer("r", nameserver=cluster.nameserver, settings=settings) as replier, responder(
            cluster, replier
        ):
            reply = await asker.request(Message("Ask", b"x" * 100_000), timeout_s=HANG_S)
            assert reply.body == b"X" * 100_000


async def test_a_reply_that_comes_too_late_is_refused_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_cluster(tmp_path, groups=2) as cluster, Producer(
            "a", nameserver=cluster.nameserver
        ) as asker, Producer("r", nameserver=cluster.nameserver) as replier:
            late: asyncio.Future[RefusedError] = asyncio.get_running_loop().create_future()
            gone = asyncio.Event()

            async def answer(message: ReceivedMessage) -> None:
                asking.cancel()
                await gone.wait()
                try:
                    await replier.reply(message, b"late")
                except RefusedError as error:
                    if not late.done():
                        late.set_result(error)

            async with Consumer(
                "answers", nameserver=cluster.nameserver, subscription={"Ask": "*"}, listener=answer, settings=FIRST
            ):
                asking = asyncio.ensure_future(asker.request(Message("Ask", b"?"), timeout_s=1000.0))
                await asyncio.wait([asking])
                assert asking.cancelled()
                assert not len(asker._waiting)
                gone.set()
                assert "no request waits" in str(await late)
            counts = [broker.parts.replies.counts.failed for broker in cluster.brokers.values() if broker.parts]
            assert counts == [1, 1], "each broker was asked once"


async def test_a_message_that_is_no_request_has_no_reply(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("a", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("Ask", b"plain"))
            refused: list[str] = []

            async def answer(message: ReceivedMessage) -> None:
                with pytest.raises(ValueError, match="is not a request"):
                    await producer.reply(message, b"?")
                refused.append(message.topic)

            async with Consumer(
                "answers", nameserver=cluster.nameserver, subscription={"Ask": "*"}, listener=answer, settings=FIRST
            ):
                await until(lambda: refused)
