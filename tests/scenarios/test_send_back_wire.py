"""Request 36 and its substitute over a socket, with real delays: what a consumer of the group gets, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, peer, pull, running_broker, send, stored
from testkit.patience import HANG_S
from testkit.turning import until

GROUP = "readers"
RETRY, DLQ = "%RETRY%readers", "%DLQ%readers"


def back(record: records.Record, level: int = 0, **ext: str) -> Command:
    fields = {"offset": str(record.log_offset), "group": GROUP, "delayLevel": str(level), "originTopic": "orders"}
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=fields | ext)


async def found(client: Peer, topic: str, count: int) -> list[records.Record]:
    """The records of a topic's queue 0 when there are so many."""
    there: list[records.Record] = []
    async with asyncio.timeout(HANG_S):
        while len(there) < count:
            await asyncio.sleep(0.05)
            reply = await client.call(pull(topic, consumerGroup=GROUP))
            there = stored(reply.body)
    assert len(there) == count
    return there


async def first_message(client: Peer) -> records.Record:
    await client.call(send("orders", b"sour", pairs={"UNIQ_KEY": "K1", "TAGS": "a", "KEYS": "o-1"}))
    (record,) = await found(client, "orders", 1)
    return record


async def test_it_comes_again_in_the_retry_topic_when_its_delay_has_passed_and_not_before(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_broker(tmp_path, delays__levels="1s 2s") as broker, peer(broker) as client:
            record = await first_message(client)
            assert (await client.call(back(record))).code == 0
            (again,) = await found(client, RETRY, 1)
            assert again.store_ms - record.store_ms >= 2000
            said = properties.parse(again.properties)
            assert (again.body, again.reconsume_times) == (b"sour", 1)
            assert (said["UNIQ_KEY"], said["TAGS"], said["KEYS"], said["RETRY_TOPIC"]) == ("K1", "a", "o-1", "orders")
            assert (await client.call(back(again, level=1))).code == 0
            _, third = await found(client, RETRY, 2)
            assert third.reconsume_times == 2
            assert len(third.properties) == len(again.properties)
            parts = broker.parts
            assert parts is not None and parts.redeliveries.retried == {(GROUP, "orders"): 2}


async def test_what_a_java_consumer_sends_instead_obeys_the_same_rules(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_broker(tmp_path, delays__levels="1s") as broker, peer(broker) as client:
        record = await first_message(client)
        pairs = properties.parse(record.properties) | {"RETRY_TOPIC": "orders", "DELAY": "4"}
        assert (await client.call(send(RETRY, b"sour", pairs=pairs, j="1", l="16"))).code == 0
        (again,) = await found(client, RETRY, 1)
        assert (again.reconsume_times, properties.parse(again.properties)["UNIQ_KEY"]) == (1, "K1")
        assert again.store_ms - record.store_ms >= 1000

        assert (await client.call(send(RETRY, b"sour", pairs=pairs, j="17", l="16"))).code == 0
        (dead,) = await found(client, DLQ, 1)
        said = properties.parse(dead.properties)
        assert (said["DLQ_ORIGIN_TOPIC"], said["DLQ_ORIGIN_MESSAGE_ID"], said["UNIQ_KEY"]) == ("orders", "K1", "K1")
        unknown = await client.call(send("%RETRY%nobody", b"sour", pairs=pairs, j="1", l="16"))
        assert unknown.code == 26
        parts = broker.parts
        assert parts is not None
        assert (parts.redeliveries.retried, parts.redeliveries.dead) == (
            {(GROUP, "orders"): 1},
            {(GROUP, "orders"): 1},
        )


async def test_a_forged_request_changes_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S), running_broker(tmp_path) as broker, peer(broker) as client:
        record = await first_message(client)
        half_pairs = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "H"}
        assert (await client.call(send("orders", b"half", pairs=half_pairs, f="4"))).code == 0
        parts = broker.parts
        assert parts is not None
        half = parts.store.reader.entry("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
        assert half is not None
        end = parts.store.written.offset
        forged = [
            (back(record, offset=str(record.log_offset + 4)), 1),
            (back(record, offset=str(end)), 1),
            (back(record, offset="-1"), 1),
            (back(record, offset=str(half[0]), originTopic=""), 1),
            (back(record, originTopic="bills"), 1),
            (back(record, group="nobody"), 26),
            (back(record, offset="soon"), 1),
        ]
        for request, code in forged:
            assert (await client.call(request)).code == code, request.ext
        assert parts.store.written.offset == end
        assert parts.topics.get(DLQ) is None
        # The group is dropped while its consumer still works.
        assert (await client.call(Command(207, ext={"groupName": GROUP, "cleanOffset": "false"}))).code == 0
        assert (await client.call(back(record))).code == 26
        assert (await client.call(send("orders"))).code == 0


async def test_a_restart_between_the_answer_and_the_delay_changes_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        async with running_broker(tmp_path, delays__levels="3s") as broker, peer(broker) as client:
            record = await first_message(client)
            assert (await client.call(back(record))).code == 0
        async with running_broker(tmp_path, delays__levels="3s") as broker, peer(broker) as client:
            await until(lambda: broker.parts is not None)
            (again,) = await found(client, RETRY, 1)
            assert again.store_ms - record.store_ms >= 3000
