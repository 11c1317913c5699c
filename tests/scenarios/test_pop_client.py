"""Consumers that pop, against real brokers: nothing is lost, nothing that was acknowledged comes again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, Sql, StartFrom
from gantry.client.deadletters import DeadLetters
from gantry.client.producer import Message, Producer
from gantry.client.simpleconsumer import PoppedMessage, SimpleConsumer
from gantry.model.subscription import GroupConfig
from testkit.clusterplay import running_cluster
from testkit.failoverplay import playing
from testkit.patience import HANG_S
from testkit.ports import free_port
from testkit.process import GantryProcess
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)
LONG_S = 600.0  # a lease that does not end in a test


def simple(nameserver: str, group: str = "g", **more: object) -> SimpleConsumer:
    given = {"subscription": {"T": "*"}, "start_from": StartFrom.FIRST, **more}
    return SimpleConsumer(group, nameserver=nameserver, **given)  # type: ignore[arg-type]


def popping(nameserver: str, group: str = "g", **more: object) -> Consumer:
    given = {"subscription": {"T": "*"}, "settings": FIRST, **more}
    return Consumer(group, nameserver=nameserver, mode="pop", **given)  # type: ignore[arg-type]


async def produced(nameserver: str, count: int, start: int = 0) -> None:
    """So many messages with numbers as bodies, tags by turns, and the number as a property."""
    async with Producer("p", nameserver=nameserver) as producer:
        for number in range(start, start + count):
            tags, properties = "ab"[number % 2], {"n": str(number)}
            await producer.send(Message("T", b"%d" % number, tags=tags, properties=properties))


async def drained(consumer: SimpleConsumer, count: int, invisible_s: float = LONG_S) -> list[PoppedMessage]:
    """So many messages, not settled."""
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await consumer.receive(invisible_s=invisible_s, wait_s=5.0)
    return found


async def dead_letters(letters: DeadLetters) -> list[bytes]:
    """The bodies of the group's dead letters, as soon as there are some."""
    while True:
        if "g" in await letters.groups():
            found = [letter.body() for one in await letters.queues("g") async for letter in letters.letters(one, 0)]
            if found:
                return found
        await asyncio.sleep(0.1)


def numbers(messages: list[PoppedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


async def test_what_was_sent_is_received_once_and_what_is_acknowledged_never_again(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path, groups=2) as cluster:
        await produced(cluster.nameserver, 100)
        async with simple(cluster.nameserver) as consumer:
            first = await drained(consumer, 100)
            assert numbers(first) == list(range(100))
            await consumer.ack(first[:90])
            for message in first[90:]:
                await consumer.change_invisible(message, 0)
            again = await drained(consumer, 10)
            assert numbers(again) == numbers(first[90:]) and {message.attempt for message in again} == {2}
            await consumer.ack(again)
        # A pop of a group that has everything finds nothing, and a new message.
        await produced(cluster.nameserver, 1, start=100)
        async with simple(cluster.nameserver) as consumer:
            (last,) = await drained(consumer, 1)
            assert (last.body, await consumer.receive(wait_s=0.0)) == (b"100", [])


@pytest.mark.parametrize(
    ("wanted", "expected"), [("a", range(0, 20, 2)), (Sql("n >= 15"), range(15, 20)), ("*", range(20))]
)
async def test_filters_let_through_what_they_should(tmp_path: Path, wanted: object, expected: range) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await produced(cluster.nameserver, 20)
        async with simple(cluster.nameserver, subscription={"T": wanted}) as consumer:
            found = await drained(consumer, len(expected))
            await consumer.ack(found)
            assert numbers(found) == list(expected) and await consumer.receive(wait_s=0.0) == []


async def test_a_failing_listener_is_called_again_until_it_succeeds_and_a_hopeless_message_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    calls: Counter[bytes] = Counter()

    async def listener(message: ReceivedMessage) -> None:
        calls[message.body] += 1
        if message.body == b"1" or (message.body == b"2" and message.attempt == 1):
            await message.retry(after_s=0.2)

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_group(GroupConfig("g", retry_times_max=1))
        await produced(cluster.nameserver, 5)
        async with popping(cluster.nameserver, listener=listener):
            await until(lambda: calls[b"2"] == 2 and len(calls) == 5)
            async with DeadLetters(nameserver=cluster.nameserver) as letters:
                bodies = await dead_letters(letters)
        assert bodies == [b"1"]
        assert calls[b"1"] == 2 and all(calls[body] == 1 for body in (b"0", b"3", b"4"))


async def test_two_consumers_share_the_messages_of_a_single_queue_and_none_is_handled_twice(tmp_path: Path) -> None:
    seen: Counter[bytes] = Counter()
    of_each: Counter[str] = Counter()

    def listener_of(name: str):  # type: ignore[no-untyped-def]
        async def listener(message: ReceivedMessage) -> None:
            seen[message.body] += 1
            of_each[name] += 1
            await asyncio.sleep(0.005)

        return listener

    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0, concurrency=2)
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic("T", queues=1)
        async with (
            popping(cluster.nameserver, listener=listener_of("a"), settings=settings),
            popping(cluster.nameserver, listener=listener_of("b"), settings=settings),
        ):
            await produced(cluster.nameserver, 200)
            await until(lambda: len(seen) == 200)
        assert set(seen.values()) == {1} and len(of_each) == 2


async def test_a_consumer_that_stops_leaves_what_it_did_not_begin_to_the_next_one_at_once(tmp_path: Path) -> None:
    settings = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0, pop_invisible_s=LONG_S)
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await produced(cluster.nameserver, 30)
        async with popping(cluster.nameserver, settings=settings) as consumer:
            for _ in range(10):
                await (await anext(consumer)).ack()
        async with simple(cluster.nameserver) as heir:
            assert len(numbers(await drained(heir, 20))) == 20


def process_on(folder: Path, ports: dict[str, str]) -> GantryProcess:
    return GantryProcess(folder, ports)


async def test_after_kill_minus_nine_the_acknowledged_stay_acknowledged_and_old_receipts_still_count(
    tmp_path: Path,
) -> None:
    ports = {"network.port": str(free_port()), "standalone.nameserver_port": str(free_port())}
    nameserver = f"127.0.0.1:{ports['standalone.nameserver_port']}"
    async with asyncio.timeout(2 * HANG_S):
        process = await asyncio.to_thread(process_on, tmp_path / "data", ports)
        try:
            async with Admin(nameserver=nameserver) as admin:
                await admin.create_topic("T", queues=4)
                await admin.create_group("g")
            await produced(nameserver, 60)
            async with simple(nameserver, timeout_s=HANG_S) as consumer:
                messages = await drained(consumer, 60)
                await consumer.ack(messages[:20])
                await asyncio.to_thread(process.kill)
                acking = asyncio.ensure_future(consumer.ack(messages[20:40]))
                with process:  # closes its pipe
                    process = await asyncio.to_thread(process_on, tmp_path / "data", ports)
                await acking
                for message in messages[40:]:
                    await consumer.change_invisible(message, 0)
                again = await drained(consumer, 20)
                assert numbers(again) == numbers(messages[40:])
                await consumer.ack(again)
                assert await consumer.receive(wait_s=2.0) == []
        finally:
            process.__exit__(None, None, None)


async def test_after_a_failover_leases_and_acknowledgements_are_those_of_the_old_master(tmp_path: Path) -> None:
    async with asyncio.timeout(3 * HANG_S), playing(tmp_path, handover_s=0) as group:
        nameserver = f"127.0.0.1:{group.names.port}"
        await produced(nameserver, 40)
        async with simple(nameserver, timeout_s=HANG_S) as consumer:
            messages = await drained(consumer, 40)
            await consumer.ack(messages[:20])
            await group.processes[group.master].stop()
            await until(group.takes_writes)
            await consumer.ack(messages[20:30])
            for message in messages[30:]:
                await consumer.change_invisible(message, 0)
            again = await drained(consumer, 10)
            assert numbers(again) == numbers(messages[30:])
            await consumer.ack(again)
            assert await consumer.receive(wait_s=2.0) == []
