"""Filters from one end to the other: what a broker delivers, to raw requests and to our client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gantry.broker.metrics.exposition import Metrics
from gantry.client.consumer import Consumer, ConsumerSettings, Sql, StartFrom
from gantry.client.producer import Message, Producer
from gantry.client.pullconsumer import PullConsumer
from gantry.client.puller import Puller, PullStatus
from gantry.errors import RefusedError
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import Peer, bodies, peer, pull, running_broker, send
from testkit.clusterplay import running_cluster
from testkit.patience import HANG_S
from testkit.requests import request
from testkit.turning import until

BY_HEARTBEAT = {"sysFlag": "0", "subscription": "", "expressionType": ""}
FROM_FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)


async def ask(client: Peer, command: Command) -> Command:
    """The reply, whatever the broker tells the consumer meanwhile."""
    await client.send(command)
    while True:
        (reply,) = await client.receive()
        if reply.is_response:
            return reply


async def beat(client: Peer, *wanted: tuple[str, str, int], group: str = "readers", name: str = "c") -> Command:
    """A heartbeat of a consumer that filters topics by SQL."""
    subscriptions = [
        {"topic": topic, "subString": text, "expressionType": "SQL92", "subVersion": version}
        for topic, text, version in wanted
    ]
    consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": subscriptions}
    return await ask(client, request(RequestCode.HEART_BEAT, {"clientID": name, "consumerDataSet": [consumer]}))


async def send_numbers(client: Peer, topic: str, *numbers: int) -> None:
    for number in numbers:
        await ask(client, send(topic, b"%d" % number, pairs={"n": str(number)}))


async def polled(consumer: PullConsumer, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            found |= {message.body for message in await consumer.poll(1.0)}
    return found


async def test_sql_said_by_heartbeat_filters_pulls_and_a_restart_keeps_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await send_numbers(client, "T", *range(6))
        await beat(client, ("T", "n > 3", 7))
        reply = await ask(client, pull("T", subVersion="7", **BY_HEARTBEAT))
        assert (bodies(reply), reply.ext["nextBeginOffset"]) == ([b"4", b"5"], "6")
        reply = await ask(client, pull("T", subVersion="8", **BY_HEARTBEAT))
        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    kept = json.loads((tmp_path / "store" / "config" / "consumerFilter.json").read_text())
    assert kept["filterDataByTopic"]["T"]["groupFilterData"]["readers"]["expression"] == "n > 3"
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert broker.parts is not None
        assert broker.parts.filters.get("T", "readers") is not None
        await beat(client, ("T", "n > 3", 7))
        reply = await ask(client, pull("T", subVersion="7", **BY_HEARTBEAT))
        assert bodies(reply) == [b"4", b"5"]


async def test_sql_that_does_not_compile_has_rocketmq_s_codes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await send_numbers(client, "T", 1)
        assert (await beat(client, ("T", "n >", 7))).code == ResponseCode.SUCCESS
        reply = await ask(client, pull("T", subVersion="7", **BY_HEARTBEAT))
        assert reply.code == ResponseCode.FILTER_DATA_NOT_EXIST
        reply = await ask(client, pull("T", subscription="n >", expressionType="SQL92"))
        assert reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "position 3" in (reply.remark or "")
        subscription = {"topic": "T", "subString": "n >", "expressionType": "SQL92"}
        body: dict[str, object] = {"clientId": "c", "group": "readers", "subscriptionData": subscription}
        reply = await ask(client, request(RequestCode.CHECK_CLIENT_CONFIG, body))
        assert reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (reply.remark or "").startswith("Invalid MessageSelector. ")


async def test_a_held_pull_with_sql_is_woken_by_what_it_wants(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client, peer(broker) as reader:
        await send_numbers(client, "T", 1)
        wait = {"sysFlag": "6", "suspendTimeoutMillis": "15000", "subscription": "n > 3", "expressionType": "SQL92"}
        await reader.send(pull("T", 1, **wait))
        await send_numbers(client, "T", 2, 3, 4)
        (reply,) = await reader.receive()
        assert (bodies(reply), reply.ext["nextBeginOffset"]) == ([b"4"], "4")


async def test_members_that_subscribe_differently_are_in_the_metrics_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as one, peer(broker) as other:
        await beat(one, ("T", "n > 3", 1), name="one")
        await beat(other, ("T", "n > 4", 2), name="other")
        assert broker.parts is not None
        assert broker.parts.disagreements.found == {("readers", "T"): 2}
        text = (await Metrics(lambda: broker.parts).text()).decode()
        assert 'gantry_subscription_disagreements{group="readers",topic="T"} 2.0' in text
        assert "members of group readers subscribe differently to topic T" in caplog.text
        await beat(one, ("T", "n > 4", 3), name="one")
        assert broker.parts.disagreements.found == {}


async def test_our_consumer_takes_tags_and_sql(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
        for number in range(20):
            sent = await producer.send(
                Message("T", b"%d" % number, tags="ab"[number % 2], properties={"n": str(number)})
            )
            await producer.send(Message("U", b"%d" % number, tags="ab"[number % 2], properties={"n": str(number)}))
        wanted = {"T": Sql("n BETWEEN 3 AND 5 AND TAGS = 'b'"), "U": "a"}
        got: set[tuple[str, bytes]] = set()
        consumer = Consumer("g", nameserver=cluster.nameserver, subscription=wanted, settings=FROM_FIRST)
        async with consumer:
            async for message in consumer:
                got.add((message.topic, message.body))
                await message.ack()
                if len(got) == 12:
                    break
        assert got == {("T", b"3"), ("T", b"5")} | {("U", b"%d" % number) for number in range(0, 20, 2)}
        async with Puller("g", nameserver=cluster.nameserver) as puller:
            (found,) = [
                message.body
                for queue in await puller.queues("T")
                for message in (await puller.pull(queue, 0, tags=Sql("n = 7"))).messages
            ]
            assert found == b"7"
            result = await puller.pull(sent.queue, 0, tags=Sql("n = 99"))
            assert result.status is PullStatus.NO_MATCH


async def test_our_pull_consumer_takes_sql_assigned_or_subscribed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number, properties={"n": str(number)}))
        async with PullConsumer("g", nameserver=cluster.nameserver, settings=FROM_FIRST) as consumer:
            await consumer.assign(await consumer.topic_queues("T"), Sql("n < 3"))
            assert await polled(consumer, 3) == {b"0", b"1", b"2"}
        async with PullConsumer(
            "h", nameserver=cluster.nameserver, subscription={"T": Sql("n > 17")}, settings=FROM_FIRST
        ) as consumer:
            assert await polled(consumer, 2) == {b"18", b"19"}


async def test_a_consumer_with_sql_that_does_not_compile_does_not_start(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
        await producer.send(Message("T", b"x"))
        consumer = Consumer("g", nameserver=cluster.nameserver, subscription={"T": Sql("n => 3")})
        with pytest.raises(RefusedError, match="position 3") as refused:
            await consumer.start()
        assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_broadcasting_group_leaves_no_offsets_at_the_broker(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer("p", nameserver=cluster.nameserver) as producer:
        await producer.send(Message("T", b"x"))
        settings = ConsumerSettings(start_from=StartFrom.FIRST, broadcast=True, commit_every_s=0.05)
        consumers = [
            Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=settings) for _ in "ab"
        ]
        for consumer in consumers:
            async with consumer:
                message = await anext(consumer)
                await message.ack()
                await consumer.commit()
        parts = cluster.brokers["broker-a"].parts
        assert parts is not None
        await until(lambda: parts.clients.consumer_group("g") is None)
        assert [key for key in parts.offsets.all() if key[0] == "g"] == []
