"""Topics that change while messages come and go: deleted and made again, more queues, fewer queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.errors import GantryError
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import Peer, bodies, peer, pull, running_broker, send
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

_TOPIC = "orders"
_PRODUCERS = 3


def _update(read: int, write: int) -> Command:
    ext = {"topic": _TOPIC, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": str(read), "writeQueueNums": str(write), "topicSysFlag": "0", "order": "false"}
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext)


class _Load:
    """Producers that send numbered bodies, the generation first, until told to stop."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.generation = 0
        self.taken: list[tuple[int, bytes]] = []  # (generation when the answer came, body)
        self.is_on = True

    async def run(self, name: int) -> None:
        async with peer(self.broker) as client:
            number = 0
            while self.is_on:
                number += 1
                asked = self.generation
                body = b"%d/%d/%d" % (asked, name, number)
                if (await client.call(send(_TOPIC, body, queue_id=number % 2))).code == ResponseCode.SUCCESS:
                    self.taken.append((self.generation, body))


async def _whole_queue(client: Peer, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        reply = await client.call(pull(_TOPIC, len(found), queue_id))
        if reply.code != ResponseCode.SUCCESS:
            return found
        found += bodies(reply)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_topic_deleted_and_made_again_under_load_begins_at_zero_without_an_old_message(
    tmp_path: Path, flush: str
) -> None:
    async with asyncio.timeout(2 * HANG_S):
        async with running_broker(tmp_path, store__flush=flush) as broker, peer(broker) as admin, peer(broker) as held:
            parts = broker.parts
            assert parts is not None and (await admin.call(_update(3, 3))).code == 0
            load = _Load(broker)
            tasks = [asyncio.create_task(load.run(name)) for name in range(_PRODUCERS)]
            for generation in range(1, 4):
                await until(lambda: sum(body.startswith(b"%d/" % load.generation) for _, body in load.taken) > 60)
                # To the third queue nobody sends.
                await held.send(pull(_TOPIC, 0, 2, sysFlag="6", suspendTimeoutMillis="60000"))
                await until(lambda: len(parts.pulls.held) == 1)
                delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": _TOPIC})
                # What is sent from now on may come before or behind it; what was answered before must not be seen.
                load.generation = generation
                assert (await admin.call(delete)).code == 0
                (answer,) = await held.receive()
                assert answer.code != ResponseCode.SUCCESS, "a held pull returns, with nothing of the topic that went"
                assert (await admin.call(_update(3, 3))).code == 0
            await until(lambda: sum(body.startswith(b"3/") for _, body in load.taken) > 60)
            load.is_on = False
            await asyncio.gather(*tasks)
            found = [await _whole_queue(admin, queue_id) for queue_id in (0, 1)]
            seen = {body for queue in found for body in queue}
            old = {body for generation, body in load.taken if generation < 3}
            assert len(seen) == sum(map(len, found)) > 60 and not old & seen
            assert {body[:1] for body in seen} <= {b"2", b"3"}
            stale = await admin.call(pull(_TOPIC, 1_000_000))
            assert stale.code == ResponseCode.PULL_OFFSET_MOVED and stale.ext["nextBeginOffset"] == "0"
        async with running_broker(tmp_path, store__flush=flush) as broker, peer(broker) as admin:
            assert [await _whole_queue(admin, queue_id) for queue_id in (0, 1)] == found


async def test_queues_come_and_go_under_load_and_each_message_is_consumed_once(tmp_path: Path) -> None:
    settings = ConsumerSettings(
        start_from=StartFrom.FIRST, pull_wait_s=1.0, rebalance_every_s=0.3, commit_every_s=0.2, handover_s=0.2
    )
    async with (
        asyncio.timeout(3 * HANG_S),
        running_cluster(tmp_path) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        peer(cluster.brokers["broker-a"]) as admin,
    ):
        assert (await admin.call(_update(2, 2))).code == 0
        sent: set[bytes] = set()
        got: Counter[bytes] = Counter()
        queues: set[int] = set()
        is_on = True

        async def produce() -> None:
            number = 0
            while is_on:
                number += 1
                try:
                    await producer.send(Message(_TOPIC, b"%d" % number))
                except GantryError:
                    continue  # of a queue that is gone: refused, and the route is asked for again
                sent.add(b"%d" % number)

        async def consume(consumer: Consumer) -> None:
            async for message in consumer:
                got[message.body] += 1
                queues.add(message.queue.queue_id)
                await message.ack()

        async with Consumer(
            "g", nameserver=cluster.nameserver, subscription={_TOPIC: "*"}, settings=settings
        ) as consumer:
            reading, writing = asyncio.create_task(consume(consumer)), asyncio.create_task(produce())
            await until(lambda: len(got) > 50)
            assert (await admin.call(_update(6, 6))).code == 0
            producer_saw = len(sent)
            await until(lambda: len(sent) > producer_saw + 100)
            # Nobody writes to the others any more, but they are read until they are empty.
            assert (await admin.call(_update(6, 1))).code == 0
            producer_saw = len(sent)
            await until(lambda: len(sent) > producer_saw + 100)
            is_on = False
            await writing
            await until(lambda: sent <= set(got))
            assert (await admin.call(_update(1, 1))).code == 0
            reading.cancel()
        assert queues >= {0, 1}
        again = {body: count for body, count in got.items() if count > 1}
        assert not again, f"read more than once: {again}"


async def test_more_queues_are_found_by_a_producer_and_a_consumer_that_are_running(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(_update(2, 2))).code == 0
        assert (await client.call(send(_TOPIC, b"a", queue_id=5))).code != 0
        assert (await client.call(_update(8, 8))).code == 0
        assert (await client.call(send(_TOPIC, b"b", queue_id=5))).code == 0
        assert (await client.call(_update(8, 2))).code == 0
        assert bodies(await client.call(pull(_TOPIC, 0, 5))) == [b"b"], "fewer to write, all to read"
        assert (await client.call(_update(2, 2))).code == 0
        assert (await client.call(send(_TOPIC, b"c", queue_id=5))).code != 0
        assert (await client.call(_update(8, 8))).code == 0
        assert (await client.call(send(_TOPIC, b"d", queue_id=5))).code == 0
        assert bodies(await client.call(pull(_TOPIC, 0, 5))) == [b"b", b"d"], "it goes on where it was"
