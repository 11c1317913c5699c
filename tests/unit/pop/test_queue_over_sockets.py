"""HTTP queues of a running broker, over its sockets: what their server asks for."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gantry.leaves.frames import Command
from gantry.model import httpqueue
from gantry.wire.bodies import loads
from gantry.wire.codes import RequestCode
from testkit.brokerplay import peer, running_broker, send
from testkit.patience import HANG_S
from testkit.popplay import ack_request, pop_request, popped
from testkit.turning import until

QUEUE, GROUP = "jobs", httpqueue.GROUP
ID = "0123456789abcdef"


def made(**attributes: object) -> Command:
    """UPDATE_AND_CREATE_TOPIC with the attributes of a queue."""
    given = {httpqueue.ID: ID} | {f"{httpqueue.PREFIX}{name}": value for name, value in attributes.items()}
    ext = {"topic": QUEUE, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": "16", "writeQueueNums": "16", "topicSysFlag": "0", "order": "false"}
    ext["attributes"] = ",".join(f"+{name}={value}" for name, value in given.items())
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext)


def taken(count: int = 16, invisible_ms: int = 30_000, **fields: object) -> Command:
    """A pop as the server of HTTP queues sends it."""
    return pop_request(
        count, invisible_ms, **{"consumerGroup": GROUP, "topic": QUEUE, "gantryOrder": "priority"} | fields
    )


async def test_a_pop_that_waits_is_woken_by_a_redelivery_of_any_priority(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client, peer(broker) as other:
        assert (await client.call(made())).code == 0
        assert (await client.call(send(QUEUE, b"m", queue_id=11))).code == 0
        (one,) = popped(await client.call(taken(invisible_ms=400)), GROUP)
        assert broker.parts is not None
        held = broker.parts.pops.polling.held
        waiting = asyncio.create_task(other.call(taken(pollTime=int(HANG_S * 1000))))
        await until(lambda: len(held) == 1)
        (again,) = popped(await asyncio.wait_for(waiting, HANG_S), GROUP)
        assert (again.body, again.queue_id, again.times) == (b"m", 11, 1)
        assert (await client.call(ack_request(one, group=GROUP))).ext["gantryVerdict"] == "stale"
        waiting = asyncio.create_task(other.call(taken(pollTime=int(HANG_S * 1000))))
        await until(lambda: len(held) == 1)
        assert (await client.call(send(QUEUE, b"n", queue_id=3))).code == 0
        assert [one.body for one in popped(await asyncio.wait_for(waiting, HANG_S), GROUP)] == [b"n"]


async def test_a_queue_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(made(life_s=3600))).code == 0
        for queue_id in (9, 2):
            born_ms = str(int(time.time() * 1000))
            assert (await client.call(send(QUEUE, b"%d" % queue_id, queue_id=queue_id, g=born_ms))).code == 0
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert broker.parts is not None
        config = broker.parts.topics.get(QUEUE)
        assert config is not None and config.attributes == {httpqueue.ID: ID, httpqueue.LIFE_S: "3600"}
        assert [one.body for one in popped(await client.call(taken()), GROUP)] == [b"2", b"9"]


async def test_a_notification_says_nothing_of_messages_whose_life_is_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(made(life_s=5))).code == 0
        assert (await client.call(send(QUEUE, b"old", queue_id=3))).code == 0
        ext = {"consumerGroup": GROUP, "topic": QUEUE, "queueId": "-1", "bornTime": "0", "pollTime": "0"}
        asked = await client.call(Command(RequestCode.NOTIFICATION, ext=ext))
        assert (asked.code, asked.ext["hasMsg"]) == (0, "false")
        now_ms = str(int(time.time() * 1000))
        assert (await client.call(send(QUEUE, b"young", queue_id=3, g=now_ms))).code == 0
        assert (await client.call(Command(RequestCode.NOTIFICATION, ext=ext))).ext["hasMsg"] == "true"


async def test_a_delayed_message_gets_another_time_over_the_wire(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(made())).code == 0
        pairs = {"TIMER_DELAY_MS": str(6 * 86_400_000), "UNIQ_KEY": "K"}
        sent = await client.call(send(QUEUE, b"m", queue_id=15, pairs=pairs))
        ext = {"topic": QUEUE, "recallHandle": sent.ext["recallHandle"], "delayMs": "60000"}
        answer = await client.call(Command(RequestCode.RETIME_DELAYED, ext=ext))
        assert answer.code == 0 and answer.ext["recallHandle"] != sent.ext["recallHandle"]
        assert (await client.call(Command(RequestCode.RETIME_DELAYED, ext=ext))).code == 604
        ext |= {"recallHandle": answer.ext["recallHandle"], "delayMs": "0"}
        assert (await client.call(Command(RequestCode.RETIME_DELAYED, ext=ext))).ext["recallHandle"] == ""
        (one,) = popped(await client.call(taken(pollTime=int(HANG_S * 1000))), GROUP)
        assert (one.body, one.queue_id, one.properties["UNIQ_KEY"]) == (b"m", 15, "K")


async def test_the_numbers_of_a_queue_over_the_wire(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        ext = {"topic": QUEUE, "consumerGroup": GROUP}
        assert (await client.call(Command(RequestCode.QUEUE_STATS, ext=ext))).code == 17
        assert (await client.call(made())).code == 0
        for queue_id in (0, 5, 15):
            assert (await client.call(send(QUEUE, b"m", queue_id=queue_id))).code == 0
        assert (await client.call(send(QUEUE, b"m", pairs={"TIMER_DELAY_MS": "60000", "UNIQ_KEY": "K"}))).code == 0
        assert len(popped(await client.call(taken(1)), GROUP)) == 1
        counted = await client.call(Command(RequestCode.QUEUE_STATS, ext=ext))
        assert loads(counted.body) == {"active": 2, "inactive": 1, "delayed": 1}


async def test_a_queue_that_is_made_again_has_nothing_of_the_former_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(made())).code == 0
        for queue_id in (0, 7):
            assert (await client.call(send(QUEUE, b"old", queue_id=queue_id))).code == 0
        later = await client.call(send(QUEUE, b"old", pairs={"TIMER_DELAY_MS": "60000", "UNIQ_KEY": "K"}))
        assert len(popped(await client.call(taken(1, 100)), GROUP)) == 1
        retry = f"%RETRY%{GROUP}_{QUEUE}"
        assert broker.parts is not None
        store = broker.parts.store
        await until(lambda: store.queue_range(retry, 0) == (0, 1))
        assert (await client.call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": QUEUE}))).code == 0
        assert broker.parts.topics.get(retry) is None
        assert (await client.call(made())).code == 0
        ext = {"topic": QUEUE, "consumerGroup": GROUP}
        counted = await client.call(Command(RequestCode.QUEUE_STATS, ext=ext))
        assert loads(counted.body) == {"active": 0, "inactive": 0, "delayed": 0}
        ext = {"topic": QUEUE, "recallHandle": later.ext["recallHandle"], "delayMs": "1"}
        assert (await client.call(Command(RequestCode.RETIME_DELAYED, ext=ext))).code == 604
        assert (await client.call(Command(RequestCode.RECALL_MESSAGE, ext=ext))).code == 604
        assert (await client.call(send(QUEUE, b"new"))).code == 0
        assert [one.body for one in popped(await client.call(taken()), GROUP)] == [b"new"]
