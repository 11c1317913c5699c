"""A topic is deleted and made again while readers are in the middle: none skips, none sees the old one again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from gantry.broker.broker import Broker
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.pullconsumer import PullConsumer
from gantry.errors import GantryError
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import Peer, bodies, peer, pull, running_broker, send
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.turning import until

_TOPIC = "orders"


def _make(queues: int = 2) -> Command:
    ext = {"topic": _TOPIC, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": str(queues), "writeQueueNums": str(queues), "topicSysFlag": "0", "order": "false"}
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext)


async def _make_again(admin: Peer, queues: int = 2) -> None:
    assert (await admin.call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": _TOPIC}))).code == 0
    assert (await admin.call(_make(queues))).code == 0


async def _send(client: Peer, name: bytes, count: int) -> None:
    for number in range(count):
        assert (await client.call(send(_TOPIC, b"%s/%d" % (name, number)))).code == 0


def _query(group: str) -> Command:
    return Command(RequestCode.QUERY_CONSUMER_OFFSET, ext={"consumerGroup": group, "topic": _TOPIC, "queueId": "0"})


def _commit(group: str, offset: int) -> Command:
    ext = {"consumerGroup": group, "topic": _TOPIC, "queueId": "0", "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext)


async def test_a_reader_in_the_middle_is_moved_to_the_beginning_and_its_old_progress_counts_for_nothing(
    tmp_path: Path,
) -> None:
    async def _make_first(admin: Peer) -> None:
        assert (await admin.call(_make())).code == 0
        await _send(admin, b"old", 20)

    async def _is_moved(member: Peer) -> None:
        for _ in range(2):
            answer = await member.call(pull(_TOPIC, 20, consumerGroup="g"))
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
            # Messages of the old topic that end only now, and a pull that says so on the side.
            assert (await member.call(_commit("g", 20))).code == 0
        aside = await member.call(pull(_TOPIC, 0, consumerGroup="g", commitOffset="20", sysFlag="5"))
        assert bodies(aside) == [b"new/%d" % number for number in range(30)]
        assert (await member.call(_query("g"))).ext["offset"] == "0", "who follows begins at the beginning"
        assert (await member.call(_commit("g", 31))).code == ResponseCode.INVALID_PARAMETER
        assert (await member.call(_query("g"))).ext["offset"] == "0", "nobody can have got beyond the end"
        assert (await member.call(_commit("g", 30))).code == 0
        assert (await member.call(_query("g"))).ext["offset"] == "30"

    async with asyncio.timeout(HANG_S):
        async with running_broker(tmp_path) as broker, peer(broker) as admin, peer(broker) as member:
            await _make_first(admin)
            assert len(bodies(await member.call(pull(_TOPIC, 0, consumerGroup="g")))) == 20
            assert (await member.call(_commit("g", 8))).code == 0
            await _make_again(admin)
            await _send(admin, b"new", 30)
            assert (await member.call(_commit("g", 20))).code == 0
            await _is_moved(member)
        # As much is known after a restart, if nobody had come in between.
        async with running_broker(tmp_path) as broker, peer(broker) as admin, peer(broker) as member:
            await _make_again(admin)
            await _send(admin, b"new", 30)
        async with running_broker(tmp_path) as broker, peer(broker) as member:
            await _is_moved(member)


async def test_a_member_that_comes_later_begins_at_the_beginning_and_a_new_group_as_it_likes(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_broker(tmp_path) as broker, peer(broker) as admin:
        assert (await admin.call(_make())).code == 0
        await _send(admin, b"old", 3)
        assert bodies(await admin.call(pull(_TOPIC, 0, consumerGroup="g")))
        assert (await admin.call(_commit("g", 3))).code == 0
        await _make_again(admin)
        await _send(admin, b"new", 5)
        asked = Command(0, ext={"setZeroIfNotFound": "false"}).ext
        first = await admin.call(Command(_query("g").code, ext=_query("g").ext | asked))
        assert (first.code, first.ext["offset"]) == (0, "0")
        other = await admin.call(Command(_query("h").code, ext=_query("h").ext | asked))
        assert other.code == ResponseCode.QUERY_NOT_FOUND
        assert bodies(await admin.call(pull(_TOPIC, 4, consumerGroup="h"))) == [b"new/4"]
        assert len(bodies(await admin.call(pull(_TOPIC, 0, consumerGroup="g")))) == 5
        assert bodies(await admin.call(pull(_TOPIC, 2, consumerGroup="g")))[0] == b"new/2", "told once only"


def test_a_crash_between_the_two_files_drops_the_offsets_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "consumerOffset.json"

    async def before() -> bytes:
        async with running_broker(tmp_path) as broker, peer(broker) as admin:
            assert (await admin.call(_make())).code == 0
            await _send(admin, b"old", 3)
            assert bodies(await admin.call(pull(_TOPIC, 0, consumerGroup="g")))
            assert (await admin.call(_commit("g", 3))).code == 0
        return path.read_bytes()

    async def delete() -> None:
        async with running_broker(tmp_path) as broker, peer(broker) as admin:
            await _make_again(admin)

    async def after() -> None:
        async with running_broker(tmp_path) as broker, peer(broker) as admin:
            await _send(admin, b"new", 5)
            answer = await admin.call(pull(_TOPIC, 3, consumerGroup="g"))
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")

    old = asyncio.run(asyncio.wait_for(before(), HANG_S))
    asyncio.run(asyncio.wait_for(delete(), HANG_S))
    assert json.loads(path.read_bytes())["topicGenerations"] == {_TOPIC: 1}
    path.write_bytes(old)
    asyncio.run(asyncio.wait_for(after(), HANG_S))


class _Reading:
    """What one consumer got, by body; counts only what came after the topic was made again."""

    def __init__(self) -> None:
        self.got: Counter[bytes] = Counter()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def take(self, body: bytes) -> None:
        """One message; who may not go on holds it, and the window behind it fills."""
        await self.may_go_on.wait()
        self.got[body] += 1

    async def listen(self, consumer: Consumer) -> None:
        async for message in consumer:
            await self.take(message.body)
            await message.ack()

    async def poll(self, consumer: PullConsumer) -> None:
        while True:
            for message in await consumer.poll(0.2):
                await self.take(message.body)
            await consumer.commit()


async def test_consumers_at_work_in_every_way_get_all_of_the_new_topic(tmp_path: Path) -> None:
    """Sharing, broadcasting and polling; none waits in a held pull when it is made again, and all are far in."""
    settings = ConsumerSettings(
        start_from=StartFrom.FIRST,
        pull_wait_s=0.3,
        rebalance_every_s=0.3,
        commit_every_s=0.2,
        handover_s=0.2,
        queue_messages_max=8,
    )
    everywhere = ConsumerSettings(
        start_from=StartFrom.FIRST,
        pull_wait_s=0.3,
        rebalance_every_s=0.3,
        queue_messages_max=8,
        broadcast=True,
        offsets_folder=str(tmp_path / "local"),
    )
    async with asyncio.timeout(2 * HANG_S), running_cluster(tmp_path) as cluster:
        broker: Broker = cluster.brokers["broker-a"]
        where, every = cluster.nameserver, {_TOPIC: "*"}
        async with (
            peer(broker) as admin,
            Producer("p", nameserver=cluster.nameserver) as producer,
        ):
            assert (await admin.call(_make())).code == 0
            async with (
                Consumer("shared", settings=settings, nameserver=where, subscription=every) as shared,
                Consumer("all", settings=everywhere, nameserver=where, subscription=every) as broadcasting,
                PullConsumer("polled", settings=settings, nameserver=where, subscription=every) as polled,
            ):
                readings = [_Reading(), _Reading(), _Reading()]
                tasks = [
                    asyncio.create_task(readings[0].listen(shared)),
                    asyncio.create_task(readings[1].listen(broadcasting)),
                    asyncio.create_task(readings[2].poll(polled)),
                ]
                old = await _produce(producer, b"old", 40)
                await until(lambda: all(old <= set(reading.got) for reading in readings))
                for reading in readings:
                    reading.may_go_on.clear()
                old |= await _produce(producer, b"more", 40)
                await _make_again(admin)
                # More than there was: an offset of the old topic is in the middle of the new one.
                new = await _produce(producer, b"new", 160)
                for reading in readings:
                    reading.may_go_on.set()
                await until(lambda: all(new <= set(reading.got) for reading in readings))
                for reading in readings:
                    again = {body: count for body, count in reading.got.items() if body in old and count > 1}
                    assert not again, "nothing of the old topic comes again"
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _produce(producer: Producer, name: bytes, count: int) -> set[bytes]:
    sent: set[bytes] = set()
    while len(sent) < count:
        body = b"%s/%d" % (name, len(sent))
        try:
            await producer.send(Message(_TOPIC, body))
        except GantryError:
            await asyncio.sleep(0.05)
            continue
        sent.add(body)
    return sent
