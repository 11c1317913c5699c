"""The client against a real broker and a real name server: what a user of the library sees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.puller import Puller, PullStatus
from gantry.errors import RefusedError
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

FROM_FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0, retry_delays_s=(0.01,))


async def received(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """So many messages, acked."""
    found: list[ReceivedMessage] = []
    async for message in consumer:
        found.append(message)
        await message.ack()
        if len(found) == count:
            return found
    raise AssertionError("the consumer ended")


async def test_what_is_sent_is_received_as_it_was(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            sent = Message("Orders", b"x" * 10_000, tags="paid", keys=("o-1", "o-2"), properties={"shop": "7"}, flag=3)
            result = await producer.send(sent)
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"Orders": "*"}, settings=FROM_FIRST
            ) as consumer:
                (message,) = await received(consumer, 1)
            assert (message.body, message.tags, message.keys) == (b"x" * 10_000, "paid", ("o-1", "o-2"))
            assert message.properties["shop"] == "7"
            assert message.stored.flag == 3
            assert message.message_id == result.message_id
            assert message.stored.offset_message_id == result.offset_message_ids[0]
            assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)


async def test_a_batch_is_stored_together_with_an_id_for_each(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        Puller("g", nameserver=cluster.nameserver) as puller,
    ):
        result = await producer.send_batch([Message("T", bytes([n]), tags="abc"[n]) for n in range(3)])
        assert len(result.message_ids) == len(result.offset_message_ids) == 3
        found = await puller.pull(result.queue, result.queue_offset, wait_s=5.0)
        assert [one.body for one in found.messages] == [b"\0", b"\1", b"\2"]
        assert tuple(one.message_id for one in found.messages) == result.message_ids
        assert [one.tags for one in found.messages] == ["a", "b", "c"]


async def test_a_oneway_message_arrives(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            await producer.send(Message("T", b"first"))
            await producer.send_oneway(Message("T", b"second"))
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FROM_FIRST
            ) as consumer:
                assert sorted(message.body for message in await received(consumer, 2)) == [b"first", b"second"]


async def test_messages_with_one_key_share_a_queue_and_keep_their_order(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path, groups=2) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):
        results = [await producer.send(Message("T", b"%d" % n), key="customer-7") for n in range(10)]
        assert len({result.queue for result in results}) == 1
        assert [result.queue_offset for result in results] == list(range(10))
        others = [await producer.send(Message("T", b"x")) for _ in range(8)]
        assert len({result.queue for result in others}) == 8
        assert results[0].queue in await producer.queues("T")


async def test_only_the_tags_that_were_subscribed_come(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            for tag in ("paid", "open", "refunded", "lost", "Aa", "BB"):  # "Aa" and "BB" have the same hash
                await producer.send(Message("T", tag.encode(), tags=tag), key="one queue")
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "paid || refunded || BB"}, settings=FROM_FIRST
            ) as consumer:
                found = [message.body for message in await received(consumer, 3)]
            assert found == [b"paid", b"refunded", b"BB"]


async def test_a_group_goes_on_where_it_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            for n in range(6):
                await producer.send(Message("T", b"%d" % n), key="one queue")
            subscription = {"T": "*"}
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription=subscription, settings=FROM_FIRST
            ) as consumer:
                assert [message.body for message in await received(consumer, 4)] == [b"0", b"1", b"2", b"3"]
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription=subscription, settings=FROM_FIRST
            ) as consumer:
                assert [message.body for message in await received(consumer, 2)] == [b"4", b"5"]


async def test_a_producer_and_a_consumer_outlive_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FROM_FIRST) as consumer,
    ):
        await producer.send(Message("T", b"before"))
        assert [message.body for message in await received(consumer, 1)] == [b"before"]
        await cluster.stop("broker-a")
        sending = asyncio.ensure_future(producer.send(Message("T", b"after"), timeout_s=HANG_S))
        await cluster.start("broker-a")
        await sending
        assert [message.body for message in await received(consumer, 1)] == [b"after"]


async def test_an_unfinished_message_holds_progress_and_comes_again(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            for n in range(3):
                await producer.send(Message("T", b"%d" % n), key="one queue")
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FROM_FIRST
            ) as consumer:
                first = await anext(consumer)
                await (await anext(consumer)).ack()
                await (await anext(consumer)).ack()
                assert first.body == b"0"
            async with Consumer(
                "g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FROM_FIRST
            ) as consumer:
                assert [message.body for message in await received(consumer, 3)] == [b"0", b"1", b"2"]


async def test_a_listener_that_fails_gets_the_message_again_until_it_succeeds(tmp_path: Path) -> None:
    attempts: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        attempts.append((message.body, message.attempt))
        if message.body == b"bad" and message.attempt < 3:
            raise RuntimeError("not yet")
        if len(attempts) == 4:
            done.set()

    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path, delays__levels="1s") as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):
        await producer.send(Message("T", b"bad"), key="one queue")
        await producer.send(Message("T", b"good"), key="one queue")
        async with Consumer(
            "g", nameserver=cluster.nameserver, subscription={"T": "*"}, listener=listener, settings=FROM_FIRST
        ):
            await done.wait()
        assert sorted(attempts) == [(b"bad", 1), (b"bad", 2), (b"bad", 3), (b"good", 1)]
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert sum(one.lag for one in await admin.progress("g", "T")) == 0


async def test_members_share_the_queues_and_take_over_from_one_that_leaves(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S), running_cluster(tmp_path, groups=2) as cluster:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic("T", queues=4)

        def member() -> Consumer:
            return Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FROM_FIRST)

        async with member() as staying:
            await until(lambda: len(staying.queues) == 8)
            async with member() as leaving:
                await until(lambda: len(staying.queues) == len(leaving.queues) == 4)
                assert not set(staying.queues) & set(leaving.queues)
            await until(lambda: len(staying.queues) == 8)


async def test_every_message_comes_while_members_come_and_go(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        seen: dict[bytes, int] = {}

        async def listener(message: ReceivedMessage) -> None:
            seen[message.body] = seen.get(message.body, 0) + 1

        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:

            def member() -> Consumer:
                return Consumer(
                    "g", nameserver=cluster.nameserver, subscription={"T": "*"}, listener=listener, settings=FROM_FIRST
                )

            async def send(start: int, end: int) -> None:
                await asyncio.gather(*(producer.send(Message("T", b"%d" % n)) for n in range(start, end)))

            await send(0, 50)
            async with member() as first:
                await until(lambda: len(first.queues) == 4)
                async with member() as second:
                    await until(lambda: len(first.queues) == len(second.queues) == 2)
                    await send(50, 150)
                await send(150, 200)
                await until(lambda: len(seen) == 200)


async def test_broadcasting_members_get_everything_each(tmp_path: Path) -> None:
    async with asyncio.timeout(2 * HANG_S):
        settings = ConsumerSettings(start_from=StartFrom.FIRST, broadcast=True, pull_wait_s=1.0)
        async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
            for n in range(8):
                await producer.send(Message("T", b"%d" % n))

            async def member() -> list[bytes]:
                async with Consumer(
                    "g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=settings
                ) as consumer:
                    return sorted(message.body for message in await received(consumer, 8))

            assert await asyncio.gather(member(), member()) == [[b"%d" % n for n in range(8)]] * 2


@pytest.mark.parametrize(("start", "expected"), [(StartFrom.FIRST, b"old"), (StartFrom.TIMESTAMP, b"new")])
async def test_a_new_group_begins_where_it_was_told(tmp_path: Path, start: StartFrom, expected: bytes) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        Puller("look", nameserver=cluster.nameserver) as puller,
    ):
        result = await producer.send(Message("T", b"old"), key="one queue")
        old = await puller.pull(result.queue, result.queue_offset, wait_s=5.0)
        while True:  # until the broker's clock has gone on
            result = await producer.send(Message("T", b"new"), key="one queue")
            found = await puller.pull(result.queue, result.queue_offset, wait_s=5.0)
            if found.messages[0].store_ms > old.messages[0].store_ms:
                break
        instant_ms = old.messages[0].store_ms + 1
        settings = ConsumerSettings(start_from=start, start_timestamp_ms=instant_ms, pull_wait_s=1.0)
        async with Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=settings) as consumer:
            assert (await anext(consumer)).body == expected


async def test_a_pull_says_how_it_ended_and_where_to_go_on(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        Puller("g", nameserver=cluster.nameserver) as puller,
    ):
        queue = (await producer.send(Message("T", b"0", tags="a"))).queue
        await puller.commit(queue, 0)  # the group does not exist yet
        found = await puller.pull(queue, 0, wait_s=5.0)
        assert (found.status, found.next_offset, found.messages[0].body) == (PullStatus.FOUND, 1, b"0")
        assert (await puller.pull(queue, 1)).status is PullStatus.NO_NEW_MESSAGE
        filtered = await puller.pull(queue, 0, tags="b")
        assert (filtered.status, filtered.next_offset) == (PullStatus.NO_MATCH, 1)
        illegal = await puller.pull(queue, 100)
        assert (illegal.status, illegal.next_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
        waiting = asyncio.ensure_future(puller.pull(queue, 1, wait_s=10.0))
        await producer.send(Message("T", b"1"), queue=queue)
        assert (await waiting).messages[0].body == b"1"
        assert (await puller.min_offset(queue), await puller.max_offset(queue)) == (0, 2)
        await puller.commit(queue, 1)
        assert await puller.committed(queue) == 1


async def test_administration_sees_what_there_is(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(2 * HANG_S),
        running_cluster(tmp_path, groups=2) as cluster,
        Admin(nameserver=cluster.nameserver) as admin,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):
        seen = await admin.cluster()
        assert sorted(seen.groups) == ["broker-a", "broker-b"]
        info = await admin.runtime_info(seen.masters()["broker-a"])
        assert "brokerVersionDesc" in info
        await admin.create_topic("T", queues=3)
        assert "T" in await admin.topics()
        assert len((await admin.route("T")).queues_to_read("T")) == 6
        await admin.create_group("g")
        assert "g" in await admin.groups()
        result = await producer.send(Message("T", b"x", keys="k-1"))
        await admin.commit("g", result.queue, 1)
        progress = {one.queue: one for one in await admin.progress("g", "T")}
        assert (progress[result.queue].committed, progress[result.queue].lag) == (1, 0)
        assert await admin.consumed_topics("g") == ["T"]
        found = await admin.message_by_offset_id(result.offset_message_ids[0])
        assert found is not None
        assert found.message_id == result.message_id
        while not await admin.messages_by_key("T", "k-1"):
            pass  # the index follows the acknowledgement
        assert [one.message_id for one in await admin.messages_by_id("T", result.message_id)] == [result.message_id]
        assert await admin.members("g") == []
        await admin.delete_group("g")
        assert "g" not in await admin.groups()
        await admin.delete_topic("T")
        with pytest.raises(RefusedError):
            await admin.route("T")
