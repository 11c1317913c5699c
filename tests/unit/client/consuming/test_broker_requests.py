"""Resets and questions that come to consumers, over real sockets."""

from __future__ import annotations

import asyncio
import json

import pytest

from gantry.client.consumer import ReceivedMessage
from gantry.client.consuming.broker_requests import offsets_of
from gantry.client.orderly import OrderlyConsumer, OrderSettings
from gantry.leaves.frames import Command, encode
from gantry.model.route import MessageQueue
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import oneway, reply, request
from testkit.onequeue import FIRST, OneQueue, member, record
from testkit.patience import HANG_S
from testkit.scripted import ScriptedCluster
from testkit.turning import until

QUEUE = MessageQueue("T", "broker-a", 0)
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RESET, INFO = RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_RUNNING_INFO


def reset_to(offset: int, group: str = "g") -> Command:
    body = b'{"offsetTable":' + bodies.object_keyed([(QUEUE.to_json(), offset)]) + b"}"
    return oneway(RESET, {"topic": "T", "group": group, "timestamp": "0", "isForce": "true"}, body)


def tell(cluster: ScriptedCluster, command: Command) -> None:
    for connection in cluster.connections("broker-a"):
        connection.send_oneway(command)


async def info(cluster: ScriptedCluster, group: str = "g") -> Command:
    (connection,) = cluster.connections("broker-a")
    return await connection.invoke(request(INFO, {"consumerGroup": group, "clientId": "c"}), 30.0)


async def test_a_consumer_that_is_reset_drops_what_it_holds_and_begins_there() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster) as consumer:
        held = [await anext(consumer) for _ in range(3)]
        tell(cluster, reset_to(1))
        await until(lambda: 1 in cluster.pulls())
        again = [await anext(consumer) for _ in range(9)]
        assert [message.queue_offset for message in again] == list(range(1, 10))
        await held[2].ack()
        await consumer.commit()
        assert cluster.told()[-1] == 1, "what was in work before counts for nothing"
        for message in again:
            await message.ack()
        await consumer.commit()
        assert cluster.committed()[-1] == 10


async def test_messages_that_wait_are_skipped_by_a_reset_to_the_end() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster) as consumer:
        assert (await anext(consumer)).queue_offset == 0
        tell(cluster, reset_to(10))
        await until(lambda: cluster.told()[-1] == 10)
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()


async def test_an_answer_to_a_pull_of_before_the_reset_is_passed_over() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        usual = cluster.answers["broker-a", RequestCode.PULL_MESSAGE]
        late: list[Command] = []

        def pull(command: Command) -> Command | None:
            if command.ext["queueOffset"] == "0" and not late:
                late.append(command)
                return None
            return usual(command)

        cluster.answers["broker-a", RequestCode.PULL_MESSAGE] = pull
        async with member(cluster) as consumer:
            await until(lambda: bool(late))
            tell(cluster, reset_to(5))
            (connection,) = cluster.connections("broker-a")
            answer = usual(late[0])
            assert answer is not None
            connection.write(encode(answer))
            assert (await anext(consumer)).queue_offset == 5


async def test_an_orderly_consumer_leaves_a_message_that_fails_for_ever_when_it_is_reset() -> None:
    class Locking(OneQueue):
        def __init__(self) -> None:
            super().__init__(count=5)
            self.answers["broker-a", RequestCode.LOCK_BATCH_MQ] = lambda command: reply(
                command, body=bodies.dumps({"lockOKMQSet": json.loads(command.body)["mqSet"]})
            )

    seen: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 0:
            raise RuntimeError("sour")

    order = OrderSettings(suspend_s=30.0, renew_every_s=0.05, retry_every_s=0.02)
    async with (
        asyncio.timeout(HANG_S),
        Locking() as cluster,
        OrderlyConsumer(
            "g",
            nameserver=cluster.nameserver,
            subscription={"T": "*"},
            listener=listener,
            settings=FIRST,
            order=order,
        ),
    ):
        await until(lambda: seen == [0])
        tell(cluster, reset_to(2))
        await until(lambda: seen == [0, 2, 3, 4])
        found = bodies.loads_object((await info(cluster)).body)
        assert found["properties"]["PROP_CONSUME_ORDERLY"] == "true"  # type: ignore[index]


async def test_a_reset_of_another_group_or_one_that_cannot_be_read_changes_nothing() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=3) as cluster, member(cluster) as consumer:
        messages = [await anext(consumer) for _ in range(3)]
        tell(cluster, reset_to(0, group="other"))
        tell(cluster, oneway(RESET, {"topic": "T", "group": "g"}, b"[]"))
        assert (await info(cluster)).code == 0
        for message in messages:
            await message.ack()
        await consumer.commit()
        assert cluster.told()[-1] == 3


async def test_a_consumer_says_how_it_goes() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster, member(cluster) as consumer:
        held = [await anext(consumer) for _ in range(10)]
        await held[0].ack()
        await until(lambda: 10 in cluster.pulls())
        answer = await info(cluster)
        found = bodies.loads_object(answer.body)
        assert answer.code == 0
        assert found["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"  # type: ignore[index]
        table = found["mqTable"]
        assert isinstance(table, dict)
        queues = {MessageQueue.from_json(json.loads(key)): row for key, row in table.items()}
        assert queues[QUEUE]["cachedMsgCount"] == 9
        assert (queues[QUEUE]["cachedMsgMinOffset"], queues[QUEUE]["cachedMsgMaxOffset"]) == (1, 9)
        topics = [row["topic"] for row in found["subscriptionSet"]]  # type: ignore[index, attr-defined]
        assert "T" in topics
        assert (await info(cluster, group="other")).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}}',
        b'{"offsetTable":[{"brokerName":"broker-a","queueId":0,"topic":"T","offset":7}]}',
    ],
)
def test_both_forms_of_a_reset_are_read(body: bytes) -> None:
    assert offsets_of(body) == {QUEUE: 7}


async def asked_directly(cluster: ScriptedCluster, body: bytes, group: str = "g") -> Command:
    (connection,) = cluster.connections("broker-a")
    ext = {"consumerGroup": group, "clientId": "c", "msgId": "x", "brokerName": "broker-a"}
    return await connection.invoke(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, body), 30.0)


async def test_a_message_that_a_tool_brings_is_consumed_and_moves_nothing() -> None:
    async with asyncio.timeout(HANG_S):
        seen: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"raises":
                raise LookupError("no such order")
            if message.body == b"again":
                await message.retry()

        async with OneQueue(count=0) as cluster, member(cluster, FIRST, listener=listener) as consumer:
            await until(lambda: bool(consumer.queues))
            results = []
            for body in (b"good", b"raises", b"again"):
                answer = await asked_directly(cluster, record(7, body))
                assert answer.code == 0
                results.append(json.loads(answer.body))
            assert [one["consumeResult"] for one in results] == ["CR_SUCCESS", "CR_THROW_EXCEPTION", "CR_LATER"]
            assert results[1]["remark"] == "LookupError: no such order" and results[0]["order"] is False
            assert (await asked_directly(cluster, b"nonsense")).code == ResponseCode.SYSTEM_ERROR
            assert seen == [b"good", b"raises", b"again"] and cluster.asked("broker-a", SEND_BACK) == []


async def test_who_takes_messages_by_iterating_cannot_be_given_one() -> None:
    async with asyncio.timeout(HANG_S), OneQueue(count=0) as cluster, member(cluster) as consumer:
        await until(lambda: bool(consumer.queues))
        assert (await asked_directly(cluster, record(7))).code == ResponseCode.SYSTEM_ERROR


async def test_a_consumer_says_where_it_is_and_what_it_did() -> None:
    async with asyncio.timeout(HANG_S):

        async def listener(message: ReceivedMessage) -> None:
            if message.body == b"0":
                raise LookupError("once")

        async with OneQueue(count=3) as cluster, member(cluster, FIRST, listener=listener) as consumer:
            await until(lambda: bool(consumer.queues))
            (connection,) = cluster.connections("broker-a")
            status = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

            async def where() -> list[object]:
                answer = await connection.invoke(request(status, {"topic": "T", "group": "g"}), 30.0)
                table = bodies.loads_object(answer.body)["messageQueueTable"]
                assert isinstance(table, dict)
                return list(table.values())

            async def told() -> bool:
                found = bodies.loads_object((await info(cluster)).body)["statusTable"]
                assert isinstance(found, dict)
                return bool(found) and found["T"]["consumeFailedMsgs"] == 1 and found["T"]["pullTPS"] > 0

            for _ in range(1000):
                if await told() and await where() == [3]:
                    return
                await asyncio.sleep(0.03)
            raise AssertionError((await info(cluster)).body)
