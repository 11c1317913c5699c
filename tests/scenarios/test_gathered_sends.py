"""Sends that leave together, at a real broker: what is stored is what single sends store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from gantry.client.producer import Message, Producer, ProducerSettings, SendResult
from gantry.client.puller import Puller
from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.model.message import StoredMessage
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, peer
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S

_MADE_UP = frozenset({"UNIQ_KEY"})


def _messages(topic: str) -> list[Message]:
    """Of every shape that may be gathered, and some that may not."""
    plain = [Message(topic, b"%d" % number, tags="t", keys=("k", f"k-{number}"), flag=number) for number in range(30)]
    odd = [
        Message(topic, b""), Message(topic, b"no tags"), Message(topic, "茶".encode(), properties={"名": "茶"}),
        Message(topic, b"negative", flag=-7), Message(topic, b"c" * 9000), Message(topic, bytes(range(256)) * 15),
    ]  # fmt: skip
    return [*plain[:10], *odd, *plain[10:]]


async def _sent(cluster: Cluster, topic: str, batches: bool) -> list[SendResult]:
    """The results in the order of the calls."""
    settings = ProducerSettings(batches=batches)
    async with Producer("p", nameserver=cluster.nameserver, settings=settings) as producer:
        await producer.send(Message("other", b"connects"))
        await producer.queues(topic)
        return await asyncio.gather(*(producer.send(one, key="one queue") for one in _messages(topic)))


def _requests(cluster: Cluster) -> int:
    """How many sends the broker has taken, a batch as one."""
    parts = cluster.brokers["broker-a"].parts
    assert parts is not None
    counts = parts.router.requests
    return counts[RequestCode.SEND_MESSAGE_V2] + counts[RequestCode.SEND_BATCH_MESSAGE]


async def _stored(cluster: Cluster, topic: str) -> list[StoredMessage]:
    async with Puller("g", nameserver=cluster.nameserver) as puller:
        found: list[StoredMessage] = []
        for queue in await puller.queues(topic):
            end = await puller.max_offset(queue)
            offset = 0
            while offset < end:
                result = await puller.pull(queue, offset, count_max=100)
                found += result.messages
                offset = result.next_offset
        return found


def _same_of_all(message: StoredMessage) -> StoredMessage:
    """Without what differs between any two sends."""
    kept = {name: value for name, value in message.properties.items() if name not in _MADE_UP}
    return replace(
        message, topic="", properties=kept, log_offset=0, size=0, born_ms=0, born_host="", store_ms=0,
        offset_message_id="",
    )  # fmt: skip


async def test_what_is_stored_and_answered_does_not_depend_on_how_it_travelled(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        together = await _sent(cluster, "together", True)
        assert _requests(cluster) == 5, "one connects, the first and the compressed one are alone, two batches"
        await _sent(cluster, "singly--", False)
        stored, single = await _stored(cluster, "together"), await _stored(cluster, "singly--")
        assert [one.message_id for one in stored] == [one.message_id for one in together], "in the order of the calls"
        assert [one.queue_offset for one in stored] == [one.queue_offset for one in together]
        assert [(one.offset_message_id,) for one in stored] == [one.offset_message_ids for one in together]
        assert [one.size for one in stored] == [one.size for one in single], "nothing is stored twice"
        assert [_same_of_all(one) for one in stored] == [_same_of_all(one) for one in single]


async def test_a_message_that_a_topic_does_not_take_is_refused_alone(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        broker = cluster.brokers["broker-a"]
        async with peer(broker) as admin, Producer("p", nameserver=cluster.nameserver) as producer:
            await _make(admin, "small", "+message.size.max=100")
            await producer.send(Message("small", b"connects"))
            bodies = [b"x" * 50, b"x" * 101, b"x" * 52, b"x" * 53]
            sends = [producer.send(Message("small", body)) for body in [b"", *bodies]]
            results = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(one) for one in results[1:]] == [SendResult, RefusedError, SendResult, SendResult]
        found = sorted(len(one.body) for one in await _stored(cluster, "small"))
        assert found == [0, 8, 50, 52, 53], "each once"


async def _make(admin: Peer, topic: str, attributes: str) -> None:
    ext = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": "1", "writeQueueNums": "1", "topicSysFlag": "0", "order": "false"}
    ext["attributes"] = attributes
    answer = await admin.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
    assert answer.code == 0, answer.remark
