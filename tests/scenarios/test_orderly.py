"""Orderly consumers against a real broker: order, hand-over, death."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.client.admin import Admin
from gantry.client.orderly import ConsumerSettings, OrderlyConsumer, OrderSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from gantry.errors import ConfigError
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, rebalance_every_s=0.5, commit_every_s=0.2)
# The ordinary proportions, long enough for a machine that stands still now and then, and asked for often.
STEADY = OrderSettings(suspend_s=0.05, renew_every_s=0.3, retry_every_s=0.1)
QUICK = replace(STEADY, lock_valid_s=1.0)
LEASE = {"clients__queue_lock_s": 2.0}  # for QUICK


class Work:
    """What was worked on, by whom, and whether ever two worked on one queue at one time."""

    def __init__(self) -> None:
        self.done: dict[int, list[bytes]] = defaultdict(list)  # queue -> bodies in the order of their success
        self.calls: list[tuple[str, bytes, int]] = []
        self.at_work: set[int] = set()
        self.overlaps = 0

    def listener(
        self, who: str, also: Callable[[ReceivedMessage], Awaitable[None]] | None = None
    ) -> Callable[[ReceivedMessage], Awaitable[None]]:
        async def work(message: ReceivedMessage) -> None:
            queue_id = message.queue.queue_id
            self.calls.append((who, message.body, message.attempt))
            self.overlaps += queue_id in self.at_work
            self.at_work.add(queue_id)
            try:
                await asyncio.sleep(0.002)
                if also is not None:
                    await also(message)
                self.done[queue_id].append(message.body)
            finally:
                self.at_work.discard(queue_id)

        return work

    @property
    def count(self) -> int:
        return sum(map(len, self.done.values()))


async def filled(cluster: Cluster, messages: int = 60, queues: int = 4) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("T", queues=queues)
    await send(cluster, messages)


async def send(cluster: Cluster, messages: int, start: int = 0) -> None:
    async with Producer("p", nameserver=cluster.nameserver) as producer:
        for number in range(start, start + messages):
            await producer.send(Message("T", b"%04d" % number), key=str(number % 8))


def member(
    cluster: Cluster, listener: Callable[[ReceivedMessage], Awaitable[None]], order: OrderSettings = STEADY
) -> OrderlyConsumer:
    return OrderlyConsumer(
        "g", nameserver=cluster.nameserver, subscription={"T": "*"}, listener=listener, settings=FIRST, order=order
    )


def assert_in_order(work: Work, count: int) -> None:
    bodies = [body for queue in work.done.values() for body in queue]
    assert sorted(set(bodies)) == [b"%04d" % number for number in range(count)]
    for queue in work.done.values():
        firsts = list(dict.fromkeys(queue))
        assert firsts == sorted(firsts)
    assert work.overlaps == 0


async def test_each_queue_is_worked_on_in_order_and_a_failure_holds_up_its_queue_only(tmp_path: Path) -> None:
    work = Work()

    async def stumble(message: ReceivedMessage) -> None:
        if message.body == b"0003" and message.attempt < 3:
            raise RuntimeError("not yet")
        if message.body == b"0005" and message.attempt == 1:
            await message.retry(0.01)

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster)
        async with member(cluster, work.listener("a", stumble)):
            await until(lambda: work.count >= 61)
    assert_in_order(work, 60)
    assert [attempt for _, body, attempt in work.calls if body == b"0003"] == [1, 2, 3]
    assert [attempt for _, body, attempt in work.calls if body == b"0005"] == [1, 2]


async def test_queues_change_hands_without_overlap_and_without_repeating(tmp_path: Path) -> None:
    work = Work()
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster, 40)
        async with member(cluster, work.listener("a")) as first:
            await until(lambda: len(first.queues) == 4)
            async with member(cluster, work.listener("b")) as second:
                await until(lambda: len(first.queues) == len(second.queues) == 2)
                await send(cluster, 40, 40)
                await until(lambda: work.count >= 80)
            await until(lambda: len(first.queues) == 4)
            await send(cluster, 20, 80)
            await until(lambda: work.count >= 100)
    assert_in_order(work, 100)
    assert work.count == 100
    assert {who for who, _, _ in work.calls} == {"a", "b"}


async def test_a_listener_at_work_ends_before_its_queue_goes_to_another_member(tmp_path: Path) -> None:
    work, go_on, entered = Work(), asyncio.Event(), asyncio.Event()

    async def hang(_: ReceivedMessage) -> None:
        entered.set()
        await go_on.wait()

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster, 1, queues=1)
        async with member(cluster, work.listener("a", hang)) as first:
            await entered.wait()
            # Sorts before the first member's id, whatever that is, so the only queue becomes its.
            second = member(cluster, work.listener("b"))
            second._identity.client_id = second._locks._client_id = second._rebalance._client_id = "0"
            async with second:
                await until(lambda: not first.queues)
                # The lock is renewed while the listener runs, and refused to the other all the time.
                counts = cluster.brokers["broker-a"].parts.locks.counts  # type: ignore[union-attr]
                refused, renewed = counts.refused, counts.renewed
                await until(lambda: counts.refused > refused + 1 and counts.renewed > renewed + 1)
                assert not second.queues
                go_on.set()
                await until(lambda: second.queues)
    assert_in_order(work, 1)
    assert work.calls == [("a", b"0000", 1)]


async def test_the_queues_of_a_member_that_died_go_to_another_when_its_locks_have_ended(tmp_path: Path) -> None:
    work, hanging = Work(), asyncio.Event()

    async def hang(_: ReceivedMessage) -> None:
        hanging.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path, **LEASE) as cluster:
        await filled(cluster, 20)
        first = member(cluster, work.listener("a", hang), QUICK)
        await first.start()
        await hanging.wait()
        died_at = asyncio.get_running_loop().time()
        await die(first)
        async with member(cluster, work.listener("b"), QUICK) as second:
            await until(lambda: len(second.queues) == 4)
            assert asyncio.get_running_loop().time() - died_at > QUICK.lock_valid_s
            await until(lambda: work.count == 20)
    assert_in_order(work, 20)


async def die(consumer: OrderlyConsumer) -> None:
    """As kill -9 does it: connections go, nobody says anything."""
    await consumer._session._remoting.close()
    await consumer._life._close()


@pytest.mark.slow
async def test_a_listener_that_outlives_the_lock_is_cancelled(tmp_path: Path) -> None:
    work, entered, cancelled = Work(), asyncio.Event(), asyncio.Event()

    async def hang(_: ReceivedMessage) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path, **LEASE) as cluster:
        await filled(cluster, 1, queues=1)
        async with member(cluster, work.listener("a", hang), QUICK) as consumer:
            await entered.wait()
            await cluster.stop("broker-a")
            await asyncio.wait_for(cancelled.wait(), HANG_S)
            assert consumer.queues == []
            await cluster.start("broker-a")
            entered.clear()
            await asyncio.wait_for(entered.wait(), HANG_S)


async def test_stopping_lets_a_listener_end_and_commits(tmp_path: Path) -> None:
    work, entered, go_on = Work(), asyncio.Event(), asyncio.Event()

    async def hang(_: ReceivedMessage) -> None:
        entered.set()
        await go_on.wait()

    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster, 1, queues=1)
        consumer = member(cluster, work.listener("a", hang))
        await consumer.start()
        await entered.wait()
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert [one.committed for one in await admin.progress("g", "T")] == [1]
        assert len(cluster.brokers["broker-a"].parts.locks) == 0  # type: ignore[union-attr]


def test_order_and_broadcast_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="broadcast"):
        OrderlyConsumer(
            "g",
            nameserver="127.0.0.1:9876",
            subscription={"T": "*"},
            listener=Work().listener("a"),
            settings=ConsumerSettings(broadcast=True),
        )


async def test_a_broker_that_restarts_knows_who_had_its_queues(tmp_path: Path) -> None:
    work = Work()
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await filled(cluster, 40)
        async with member(cluster, work.listener("a")) as first, member(cluster, work.listener("b")) as second:
            await until(lambda: len(first.queues) == len(second.queues) == 2)
            await until(lambda: work.count >= 40)
            owners = dict.fromkeys(first.queues, first.client_id)
            owners |= dict.fromkeys(second.queues, second.client_id)
            await cluster.stop("broker-a")
            await cluster.start("broker-a")
            parts = cluster.brokers["broker-a"].parts
            assert parts is not None
            now = asyncio.get_running_loop().time()
            for queue, client_id in owners.items():
                assert parts.locks.owner("g", (queue.topic, queue.queue_id), now) == client_id
            await send(cluster, 40, 40)
            await until(lambda: len({body for done in work.done.values() for body in done}) == 80)
    assert_in_order(work, 80)
