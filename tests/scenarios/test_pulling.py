"""What consumers ask of a real broker: pulls, held pulls, offsets, look-ups."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import batch, bodies, oneway, peer, pull, running_broker, send, stored
from testkit.requests import request

WAIT = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_held_pull_is_answered_by_the_next_message(tmp_path: Path, flush: str) -> None:
    async with (
        running_broker(tmp_path, store__flush=flush) as broker,
        peer(broker) as client,
        peer(broker) as reader,
    ):
        await client.call(send("orders", b"first"))
        await reader.send(pull("orders", 1, **WAIT))
        await client.call(send("orders", b"elsewhere", queue_id=1))
        await client.call(send("orders", b"second"))
        (reply,) = await reader.receive()
        assert reply.code == ResponseCode.SUCCESS and bodies(reply) == [b"second"]
        assert reply.ext["nextBeginOffset"] == "2"


async def test_a_held_pull_ends_without_news_when_its_time_is_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(send("orders"))
        reply = await client.call(pull("orders", 1, sysFlag="6", suspendTimeoutMillis="50"))
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        assert (reply.ext["minOffset"], reply.ext["maxOffset"]) == ("0", "1")


async def test_held_pulls_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(send("orders"))
        await client.send(pull("orders", 1, **WAIT))
        await client.ping()
        stopping = asyncio.ensure_future(broker.stop())
        (reply,) = await client.receive()
        assert reply.code == ResponseCode.PULL_NOT_FOUND
        await stopping


async def test_each_reply_says_where_to_go_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(batch("orders", [(b"a", {"TAGS": "x"}), (b"b", {"TAGS": "y"})]))
        nothing = await client.call(pull("orders", 0, subscription="z"))
        assert (nothing.code, nothing.ext["nextBeginOffset"]) == (20, "2")
        beyond = await client.call(pull("orders", 9))
        assert (beyond.code, beyond.ext["nextBeginOffset"]) == (21, "2")
        end = await client.call(pull("orders", 2))
        assert (end.code, end.ext["nextBeginOffset"]) == (19, "2")


async def test_consumer_offsets_are_committed_and_asked_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(send("orders"))
        await client.call(pull("orders"))
        where = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}
        young = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **where))
        assert (young.code, young.ext["offset"]) == (0, "0"), "everybody begins a young queue at its beginning"
        await client.send(oneway(request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **where)))
        committed = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **where))
        assert committed.ext["offset"] == "1"


async def test_queues_are_measured_and_messages_found_by_offset_and_key(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        sent = await client.call(send("orders", b"wanted", pairs={"KEYS": "k1 k2"}))
        await client.call(send("orders", b"other"))
        highest = await client.call(request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0))
        lowest = await client.call(request(RequestCode.GET_MIN_OFFSET, topic="orders", queueId=0))
        assert (highest.ext["offset"], lowest.ext["offset"]) == ("2", "0")
        log_offset = int(sent.ext["msgId"][16:], 16)
        seen = await client.call(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=log_offset))
        assert [record.body for record in stored(seen.body)] == [b"wanted"]
        asked = {"topic": "orders", "key": "k2", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 50}
        found = await client.call(request(RequestCode.QUERY_MESSAGE, **asked))
        assert [record.body for record in stored(found.body)] == [b"wanted"]


async def test_a_record_faked_inside_a_body_is_not_believed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(send("orders", b"real"))
        (real,) = stored((await client.call(pull("orders"))).body)
        # A copy of a stored record, corrected to stand where it will stand: inside the body of the next message.
        template = bytearray((await client.call(pull("orders"))).body)
        at = real.size + 88
        template[28:36] = at.to_bytes(8, "big")
        reply = await client.call(send("orders", bytes(template)))
        assert int(reply.ext["msgId"][16:], 16) == real.size
        seen = await client.call(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=at))
        assert seen.code == ResponseCode.SYSTEM_ERROR and not seen.body
