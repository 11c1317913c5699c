"""Dashboards of RocketMQ 5 and of its exporter find their names and labels at our /metrics, within bounds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.broker.metrics import exposition, popmetrics
from gantry.broker.metrics.exposition import Metrics
from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.producer import Message, Producer
from gantry.errors import Refusal
from gantry.leaves import frames
from testkit.brokerplay import peer, running_broker, send
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.popplay import ack_request, pop_request, popped
from testkit.turning import until

FROM_FIRST = ConsumerSettings(start_from=StartFrom.FIRST, redeliveries_max=0, commit_every_s=0.05)
WANTED = {"orders": "*"}
MESSAGES = 8


async def shown(broker: Broker) -> str:
    """A fresh exposition: each Metrics keeps its own for a second."""
    return (await Metrics(lambda: broker.parts).text()).decode()


def value(text: str, name: str, **labels: str) -> float:
    """The only series of this name with these labels among others."""
    found = []
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        if series.partition("{")[0] == name:
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', series))
            if labels.items() <= pairs.items():
                found.append(float(number))
    assert len(found) == 1, (name, labels, found)
    return found[0]


async def worked(cluster: Cluster) -> tuple[Broker, str]:
    """Orders that one group consumed and another one stopped in the middle of; and what /metrics says of them."""
    got = asyncio.Event()

    async def fail(message: object) -> None:
        got.set()
        raise ValueError("this one cannot")

    async with Producer("orders-service", nameserver=cluster.nameserver) as producer:
        for number in range(MESSAGES):
            await producer.send(Message("orders", b"%d" % number))
        at = cluster.nameserver
        broken = Consumer("broken", nameserver=at, subscription=WANTED, listener=fail, settings=FROM_FIRST)
        reader = Consumer("readers", nameserver=at, subscription=WANTED, settings=FROM_FIRST)
        async with broken, reader:
            for _ in range(MESSAGES):
                async with asyncio.timeout(HANG_S):
                    await (await anext(aiter(reader))).ack()
            await asyncio.wait_for(got.wait(), HANG_S)
            (broker,) = cluster.brokers.values()
            assert broker.parts is not None
            offsets, dead = broker.parts.offsets, broker.parts.redeliveries.dead
            for group in ("readers", "broken"):
                await until(lambda group=group: sum(offsets.of(group, "orders").values()) == MESSAGES)
            await until(lambda: sum(dead.values()) == MESSAGES)
            for _ in range(2):
                for _ in broker.parts.statistics.sampling():
                    pass
            return broker, await shown(broker)


async def test_names_of_rocketmq_5_carry_its_labels(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        broker, text = await worked(cluster)
        node = {"node_type": "broker", "node_id": "broker-a", "cluster": broker.parts.live.current.cluster}
        came = {**node, "topic": "orders", "message_type": "normal", "is_system": "false"}
        went = {**node, "topic": "orders", "consumer_group": "readers", "is_retry": "false", "is_system": "false"}
        assert value(text, "rocketmq_messages_in_total", **came) == MESSAGES
        assert value(text, "rocketmq_throughput_in_total", **came) > MESSAGES
        assert value(text, "rocketmq_messages_out_total", **went) == MESSAGES
        assert value(text, "rocketmq_throughput_out_total", **went) > MESSAGES
        assert value(text, "rocketmq_consumer_lag_messages", **went) == 0
        assert value(text, "rocketmq_consumer_lag_latency", **went) == 0
        assert value(text, "rocketmq_consumer_lag_latency_milliseconds", **went) == 0
        dead = {**node, "topic": "orders", "consumer_group": "broken", "is_system": "false"}
        assert value(text, "rocketmq_send_to_dlq_messages_total", **dead) == MESSAGES
        assert value(text, "rocketmq_producer_connections", **node, protocol_type="remoting") == 1
        assert value(text, "rocketmq_consumer_connections", consumer_group="readers", consume_mode="push") == 1
        assert value(text, "rocketmq_broker_permission", **node) == 6
        assert value(text, "rocketmq_topic_number", **node) == value(text, "gantry_topics")
        assert value(text, "rocketmq_consumer_group_number", **node) == value(text, "gantry_consumer_groups")
        disk = {**node, "storage_type": "local", "storage_medium": "disk"}
        assert value(text, "rocketmq_storage_size_bytes", **disk) > 0
        assert value(text, "rocketmq_storage_message_reserve_time_milliseconds", **disk) >= 0


async def test_names_of_the_exporter_carry_its_labels(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        broker, text = await worked(cluster)
        here = {"cluster": broker.parts.live.current.cluster, "broker": "broker-a"}
        reader = {**here, "topic": "orders", "group": "readers"}
        assert value(text, "rocketmq_producer_offset", **here, topic="orders") == MESSAGES
        assert value(text, "rocketmq_consumer_offset", **reader) == MESSAGES
        assert value(text, "rocketmq_message_accumulation", **reader) == 0
        assert value(text, "rocketmq_group_get_latency_by_storetime", **reader) == 0
        diff = {"group": "readers", "topic": "orders", "countOfOnlineConsumers": "1", "msgModel": "1"}
        assert value(text, "rocketmq_group_diff", **diff) == 0
        assert value(text, "rocketmq_topic_dlq_offset", **here, group="broken") == MESSAGES
        assert value(text, "rocketmq_group_dlqdiff", group="broken") == MESSAGES
        address = broker.parts.statistics.address
        assert value(text, "rocketmq_broker_tps", **here, brokerIP=address) >= 0
        assert value(text, "rocketmq_brokeruntime_msg_put_total_today_now", brokerIP=address) >= MESSAGES
        buckets = [name for name in text.splitlines() if name.startswith("rocketmq_brokeruntime_pmdt_")]
        assert sum(float(line.rpartition(" ")[2]) for line in buckets) >= MESSAGES


async def test_a_message_that_waits_is_told_of_with_its_age(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        broker, _ = await worked(cluster)
        async with Admin(nameserver=cluster.nameserver) as admin:
            async with Producer("orders-service", nameserver=cluster.nameserver) as producer:
                sent = await producer.send(Message("orders", b"late"))
                await admin.commit("readers", sent.queue, sent.queue_offset)
                await asyncio.sleep(0.01)
            text = await shown(broker)
            assert value(text, "gantry_group_lag_messages", consumer_group="readers", topic="orders") == 1
            seconds = value(text, "gantry_group_lag_seconds", consumer_group="readers", topic="orders")
            waited_ms = value(text, "rocketmq_consumer_lag_latency", consumer_group="readers", topic="orders")
            assert seconds >= 0.01 and abs(waited_ms - seconds * 1000) <= 0.5


async def test_a_deleted_topic_takes_its_series_along(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        broker, text = await worked(cluster)
        assert "rocketmq_messages_out_total{" in text and 'topic="orders"' in text
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.delete_topic("orders")
        rocketmq = [line for line in (await shown(broker)).splitlines() if line.startswith("rocketmq_")]
        counters = ("rocketmq_send_to_dlq", "rocketmq_commit", "rocketmq_rollback")
        assert not [each for each in rocketmq if 'topic="orders"' in each and not each.startswith(counters)]


async def test_rocketmqs_names_can_be_switched_off(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, metrics__rocketmq=False) as cluster:
        _, text = await worked(cluster)
        assert "rocketmq_" not in text.replace("rocketmq-exporter", "")
        assert value(text, "gantry_topic_messages_total", topic="orders") == MESSAGES


async def test_without_series_by_topic_no_name_of_a_user_is_shown(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, metrics__per_topic=False) as cluster:
        _, text = await worked(cluster)
        for name in ("orders", "readers", "broken"):
            assert name not in text
        assert value(text, "rocketmq_messages_out_total", is_retry="false") == 2 * MESSAGES
        assert value(text, "rocketmq_consumer_offset") == 2 * MESSAGES


async def test_a_family_stops_at_its_bound_and_the_text_says_which(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, metrics__series_max=3) as cluster:
        async with Producer("p", nameserver=cluster.nameserver) as producer:
            for number in range(5):
                await producer.send(Message(f"topic-{number}", b""))
        (broker,) = cluster.brokers.values()
        text = await shown(broker)
        assert len(re.findall("^rocketmq_messages_in_total{", text, re.MULTILINE)) == 3
        assert value(text, "gantry_metrics_cut", metric="rocketmq_messages_in") == 1


async def test_the_whole_text_has_a_bound_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path) as cluster:
        (broker,) = cluster.brokers.values()
        monkeypatch.setattr(exposition, "SERIES_MAX", 50)
        text = await shown(broker)
        series = [line for line in text.splitlines() if line.startswith(("gantry_", "rocketmq_"))]
        names = {re.sub("_(bucket|count|sum)$", "", line.partition("{")[0].partition(" ")[0]) for line in series}
        assert len(names) <= 51 + 1
        assert value(text, "gantry_metrics_cut", metric="rocketmq_broker_tps") == 1


async def test_others_get_their_turns_while_a_long_text_is_made(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        (broker,) = cluster.brokers.values()
        assert broker.parts is not None
        for number in range(2000):
            broker.parts.store.begin_queue(f"topic-{number}", 0, 7)
        turns = 0
        making = asyncio.ensure_future(shown(broker))
        while not making.done():
            await asyncio.sleep(0)
            turns += 1
        assert await making and turns > 50


async def test_names_of_rocketmq_5_tell_what_became_of_popped_messages(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        for number in range(3):
            assert (await client.call(send("orders", b"%d" % number))).code == 0
        first = popped(await client.call(pop_request(invisible_ms=300)))
        assert len(first) == 3
        assert (await client.call(ack_request(first[0]))).code == 0
        assert broker.parts is not None
        counts = broker.parts.pops.service.counts
        await until(lambda: counts.revived == 2)
        await until(lambda: any(kind == "ACK" for _, _, kind, _ in counts.handled))
        text = await shown(broker)
        node = {"node_type": "broker", "node_id": "broker-a", "cluster": broker.parts.live.current.cluster}
        of_group = {**node, "consumer_group": "workers", "topic": "orders"}
        came = {**of_group, "put_status": "PUT_OK"}
        name = "rocketmq_pop_revive_in_message_total"
        queues = len({one.queue_id for one in first})
        assert value(text, name, revive_message_type="CK", **came) == queues
        assert value(text, name, revive_message_type="ACK", **came) == 1
        assert value(text, "rocketmq_pop_revive_retry_messages_total", **came) == 2
        queue = {**of_group, "queue_id": first[0].handle.split(" ")[3]}
        name = "rocketmq_pop_revive_out_message_total"
        assert value(text, name, revive_message_type="CK", **queue) == queues
        assert value(text, name, revive_message_type="ACK", **queue) == 1
        for name in ("rocketmq_pop_revive_latency", "rocketmq_pop_revive_latency_milliseconds"):
            assert value(text, name, **node, queue_id=queue["queue_id"]) == 0


async def test_an_ended_lease_that_waits_is_late(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"m"))).code == 0
        assert broker.parts is not None
        pops = broker.parts.pops
        append = pops.service.append

        def full(sends: Sequence[frames.Send], **more: bool) -> int | Refusal:
            return Refusal(14, "the disk is full") if sends[0].topic.startswith("%RETRY%") else append(sends, **more)

        pops.service.append = full  # type: ignore[method-assign]
        (one,) = popped(await client.call(pop_request(invisible_ms=50)))
        queue_id = one.handle.split(" ")[3]
        topic = pops.service.rules.revive_topic
        store = broker.parts.store
        await until(lambda: (store.queue_range(topic, int(queue_id)) or (0, 0))[1] > 0)
        await until(lambda: dict(popmetrics.revive_late_ms(broker.parts))[queue_id,] >= 20)
        assert dict(popmetrics.revive_lag(broker.parts))[queue_id,] == 1
