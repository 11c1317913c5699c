"""Our own client and a group of real processes: readers go on at the slave while the master is dead, and come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.orderly import OrderlyConsumer, OrderSettings
from gantry.client.producer import Message, MessageQueue, Producer, ProducerSettings
from gantry.client.puller import Puller
from testkit.pairplay import Pair
from testkit.patience import HANG_S
from testkit.turning import until

GROUP = "readers"
SETTINGS = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=5.0, commit_every_s=0.2, queue_messages_max=20)
PATIENT = ProducerSettings(timeout_s=HANG_S)


@asynccontextmanager
async def paired(folder: Path, config: dict[str, str] | None = None) -> AsyncIterator[Pair]:
    """Start a master and its slave, with which a test may spend 4 * HANG_S."""
    with Pair(folder, role="ASYNC_MASTER", config=config) as pair:
        pair.start(0)
        pair.start(1)
        pair.until_writable("other")
        async with asyncio.timeout(4 * HANG_S):
            yield pair


def nameserver(pair: Pair) -> str:
    return "{}:{}".format(*pair.nameserver)


def reader(pair: Pair, seen: list[bytes], stop_at: list[int]) -> Consumer:
    """Notes what comes; holds back what is behind the `stop_at`th message."""

    async def listen(message: ReceivedMessage) -> None:
        while len(seen) >= stop_at[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        seen.append(message.body)

    return Consumer(
        GROUP, nameserver=nameserver(pair), subscription={"orders": "*"}, listener=listen, settings=SETTINGS
    )


async def on_the_slave(pair: Pair, count: int) -> None:
    """Until the slave shows so many messages in all queues."""

    def shown() -> int:
        with pair.client(1) as client:
            return sum(len(client.read("orders", queue)) for queue in range(4))

    await until(lambda: shown() >= count)


async def until_committed(puller: Puller, queue: MessageQueue, offset: int) -> None:
    """Until the master itself says that the group goes on there."""
    deadline = time.monotonic() + HANG_S
    while not (await puller.committed(queue) == offset and not puller._replicas._away):
        assert time.monotonic() < deadline, f"the slave does not hand on what it was told: {queue}"
        await asyncio.sleep(0.05)


async def test_a_consumer_reads_on_from_the_slave_of_a_dead_master_and_no_offset_is_lost(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        seen: list[bytes] = []
        stop_at = [30]
        wanted = [b"%d" % number for number in range(200)]
        async with Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
            for body in wanted[:100]:
                await producer.send(Message("orders", body))
            async with reader(pair, seen, stop_at):
                await until(lambda: len(seen) == 30)
                await on_the_slave(pair, 100)
                pair.members[0].kill()
                stop_at[0] = 1 << 30
                await until(lambda: set(seen) == set(wanted[:100]))
                # New messages while the reader comes back.
                sending = asyncio.gather(*(producer.send(Message("orders", body)) for body in wanted[100:]))
                await asyncio.to_thread(pair.start, 0)
                await sending
                await until(lambda: set(seen) == set(wanted))
            assert len(seen) <= len(wanted) + 30, "a few messages may come again, not all"
        # Nothing is left for anyone who comes next; a slave hands on what only it was told.
        async with Puller(GROUP, nameserver=nameserver(pair)) as puller:
            for queue in await puller.queues("orders"):
                await until_committed(puller, queue, await puller.max_offset(queue))


async def test_offsets_that_only_the_slave_heard_count_when_the_master_is_back(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        seen: set[int] = set()
        gate = asyncio.Event()

        async def listen(message: ReceivedMessage) -> None:
            if len(seen) >= 10:
                await gate.wait()
            seen.add(message.queue_offset)

        async with Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
            queue = MessageQueue("orders", "broker-a", 0)
            for number in range(100):
                await producer.send(Message("orders", b"%d" % number), queue=queue)
        async with Puller("nobody", nameserver=nameserver(pair)) as puller:
            end = await puller.max_offset(queue)  # a busy machine may have one sent twice
        consumer = Consumer(
            GROUP, nameserver=nameserver(pair), subscription={"orders": "*"}, listener=listen, settings=SETTINGS
        )
        async with consumer:
            await until(lambda: len(seen) >= 10)
            await on_the_slave(pair, end)
            pair.members[0].kill()
            gate.set()
            await until(lambda: len(seen) == end)
        # The consumer is gone, with the master still dead: the slave was told.
        with pair.client(1) as client:
            asked = {"consumerGroup": GROUP, "topic": "orders", "queueId": "0"}
            assert client.call(14, asked).ext["offset"] == str(end)
        await asyncio.to_thread(pair.start, 0)
        async with Puller(GROUP, nameserver=nameserver(pair)) as puller:
            await until_committed(puller, queue, end)


@pytest.mark.slow
async def test_members_keep_their_queues_while_the_master_is_away_and_when_it_is_back(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        seen: list[bytes] = []
        gate = [1 << 30]
        wanted = [b"%d" % number for number in range(120)]
        async with Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
            await producer.send(Message("orders", wanted[0]))
            async with reader(pair, seen, gate) as one, reader(pair, seen, gate) as other:
                await until(lambda: len(one.queues) == len(other.queues) == 2)
                shares = [one.queues, other.queues]
                for body in wanted[1:60]:
                    await producer.send(Message("orders", body))
                await on_the_slave(pair, 60)
                pair.members[0].kill()
                # Each asks again who is in the group: the slave knows both.
                for member in (one, other):
                    member._source.members_changed()
                await until(lambda: set(seen) == set(wanted[:60]))
                sending = asyncio.gather(*(producer.send(Message("orders", body)) for body in wanted[60:]))
                await asyncio.to_thread(pair.start, 0)
                await sending
                await until(lambda: set(seen) == set(wanted))
                for member in (one, other):
                    member._source.members_changed()
                await asyncio.sleep(0.5)
                await until(lambda: [one.queues, other.queues] == shares)


@pytest.mark.slow
async def test_a_reader_that_is_far_behind_is_sent_to_the_slave_and_comes_back_when_it_has_caught_up(
    tmp_path: Path,
) -> None:
    async with paired(tmp_path, {"store.warm_bytes": "65536"}) as pair:
        wanted = [b"%05d" % number + bytes(1000) for number in range(300)]
        queue = MessageQueue("orders", "broker-a", 0)
        async with Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
            for body in wanted:
                await producer.send(Message("orders", body), queue=queue)
        await on_the_slave(pair, 300)
        async with Puller(GROUP, nameserver=nameserver(pair)) as puller:
            seen: list[bytes] = []
            suggested: list[int] = []
            offset = 0
            # A slave is named once it has kept up for a moment.
            while (await puller.pull(queue, 0)).suggested == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            while offset < len(wanted):
                result = await puller.pull(queue, offset)
                offset = result.next_offset
                seen += [message.body for message in result.messages]
                suggested.append(result.suggested)
        assert seen == wanted
        assert suggested == sorted(suggested, reverse=True) and {*suggested} == {1, 0}


async def test_an_orderly_consumer_goes_on_in_order_while_its_locks_last(tmp_path: Path) -> None:
    async with paired(tmp_path) as pair:
        seen: list[bytes] = []
        gate = asyncio.Event()

        async def listen(message: ReceivedMessage) -> None:
            if len(seen) >= 10:
                await gate.wait()
            seen.append(message.body)

        wanted = [b"%d" % number for number in range(100)]
        # Locks that a busy machine does not outlive: nobody else wants them.
        order = OrderSettings(lock_valid_s=10 * HANG_S)
        async with Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
            for body in wanted:
                await producer.send(Message("orders", body), key="one")
            async with OrderlyConsumer(
                GROUP,
                nameserver=nameserver(pair),
                subscription={"orders": "*"},
                listener=listen,
                settings=SETTINGS,
                order=order,
            ):
                await until(lambda: len(seen) == 10)
                await on_the_slave(pair, 100)
                pair.members[0].kill()
                gate.set()
                await until(lambda: len(set(seen)) == 100)
                await asyncio.to_thread(pair.start, 0)
                await producer.send(Message("orders", b"last"), key="one")
                await until(lambda: b"last" in seen)
        # A busy machine may have one sent twice; that is no other order.
        assert list(dict.fromkeys(seen)) == [*wanted, b"last"]


async def test_a_producer_goes_on_soon_after_its_masters_return_and_not_with_the_next_poll_of_routes(
    tmp_path: Path,
) -> None:
    async with paired(tmp_path) as pair, Producer("p", nameserver=nameserver(pair), settings=PATIENT) as producer:
        await producer.send(Message("orders", b"before"))
        pair.members[0].kill()
        sending = asyncio.ensure_future(producer.send(Message("orders", b"meanwhile")))
        await asyncio.sleep(2.0)  # the pauses between attempts are as long as they get
        assert not sending.done()
        await asyncio.to_thread(pair.start, 0)
        # Less than two seconds where nothing else holds the machine up; the next poll of routes is 30 s away.
        await asyncio.wait_for(sending, 15.0)
