"""What producers send to a real broker, and what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.leaves import properties
from testkit.brokerplay import batch, bodies, oneway, peer, pull, running_broker, send, send_v1, stored


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_run_of_sends_is_answered_one_by_one_and_stored_in_order(tmp_path: Path, flush: str) -> None:
    async with running_broker(tmp_path, store__flush=flush) as broker, peer(broker) as client:
        await client.send(*[send("orders", b"%d" % number) for number in range(50)])
        replies = await client.receive(50)
        assert {reply.code for reply in replies} == {0}
        assert [int(reply.ext["queueOffset"]) for reply in replies] == list(range(50))
        assert len({reply.ext["msgId"] for reply in replies}) == 50
        found = await client.call(pull("orders", maxMsgNums="64"))
        assert bodies(found) == [b"%d" % number for number in range(50)]


async def test_both_header_styles_and_the_vip_port_lead_to_the_same_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client, peer(broker, vip=True) as vip:
        first = await client.call(send_v1("orders", b"long names"))
        second = await vip.call(send("orders", b"letters"))
        assert (first.ext["queueOffset"], second.ext["queueOffset"]) == ("0", "1")
        assert bodies(await vip.call(pull("orders"))) == [b"long names", b"letters"]


async def test_a_message_is_stored_with_what_rocketmq_adds(tmp_path: Path) -> None:
    async with running_broker(tmp_path, cluster="c1") as broker, peer(broker) as client:
        reply = await client.call(send("orders", pairs={"TAGS": "a", "KEYS": "k1"}))
        (record,) = stored((await client.call(pull("orders"))).body)
        pairs = properties.parse(bytes(record.properties))
        assert pairs["CLUSTER"] == "c1" and pairs["MSG_REGION"] == "DefaultRegion" and pairs["TRACE_ON"] == "true"
        assert len(pairs["UNIQ_KEY"]) == 32 and reply.ext["transactionId"] == pairs["UNIQ_KEY"]
        assert record.born_host[:4] == bytes([127, 0, 0, 1])
        assert broker.addresses is not None and record.store_host == broker.addresses.packed


async def test_a_one_way_send_is_stored_and_never_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.send(oneway(send("orders", b"quiet")), oneway(send("bad topic!")), send("orders", b"loud"))
        (reply,) = await client.receive()
        assert reply.opaque == 3 and reply.ext["queueOffset"] == "1"
        assert bodies(await client.call(pull("orders"))) == [b"quiet", b"loud"]


async def test_a_batch_is_one_request_with_one_reply_and_many_records(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        reply = await client.call(batch("orders", [(b"a", {"TAGS": "x"}), (b"b", {}), (b"c", {"UNIQ_KEY": "id-c"})]))
        assert reply.code == 0 and reply.ext["queueOffset"] == "0"
        assert len(reply.ext["msgId"].split(",")) == 3
        found = stored((await client.call(pull("orders"))).body)
        assert [record.body for record in found] == [b"a", b"b", b"c"]
        assert properties.parse(bytes(found[2].properties))["UNIQ_KEY"] == "id-c"
        only_x = await client.call(pull("orders", subscription="x"))
        assert bodies(only_x) == [b"a"]


async def test_the_batch_flag_decides_and_not_the_code(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(batch("orders", [(b"a", {}), (b"b", {})], code=310))).code == 0
        assert (await client.call(batch("orders", [(b"a", {})], m="false"))).code == 0
        found = await client.call(pull("orders"))
        assert [len(body) for body in bodies(found)] == [1, 1, 23]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (send("bad topic!"), 29, "characters"),
        (send("x" * 128), 29, "127"),
        (send("SCHEDULE_TOPIC_XXXX"), 16, "forbidden"),
        (send("orders", queue_id=4), 29, "queueId[4] is illegal"),
        (send("orders", c="nowhere", b="unknown"), 17, "not exist"),
        (send("orders", pairs={"DELAY": "soon"}), 13, "DELAY is no number"),
        (send("orders", pairs={"TIMER_DELAY_SEC": "999999"}), 13, "259200 s ahead are allowed"),
        (send("orders", pairs={"TRAN_MSG": "true", "TIMER_DELIVER_MS": "x"}), 13, "TIMER_DELIVER_MS is no number"),
        (send("orders", f="12"), 13, "only the broker"),
        (send("orders", bytes((1 << 20) + 1)), 13, "body"),
        (send("orders", pairs={"p": "x" * 33000}), 13, "properties"),
        (send("%RETRY%nobody"), 26, "nobody"),
        (batch("orders", [(b"a", {"DELAY": "1"})]), 13, "message 0"),
        (batch("orders", []), 13, "batch"),
        (batch("%RETRY%readers", [(b"a", {})]), 13, "retry"),
    ],
)
async def test_what_may_not_go_in_is_refused_with_code_and_remark(
    tmp_path: Path, request_: object, code: int, words: str
) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(send("orders"))).code == 0
        reply = await client.call(request_)  # type: ignore[arg-type]
        assert reply.code == code and reply.remark is not None and words in reply.remark
        assert (await client.call(pull("orders", 1))).code == 19, "nothing of a refused send may be stored"


async def test_refused_messages_do_not_stop_the_others_of_their_run(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.send(send("orders", b"1"), send("no good!"), send("orders", b"2"), batch("orders", [(b"3", {})]))
        replies = {reply.opaque: reply.code for reply in await client.receive(4)}
        assert replies == {1: 0, 2: 29, 3: 0, 4: 0}
        assert bodies(await client.call(pull("orders"))) == [b"1", b"2", b"3"]


async def test_any_queue_means_all_queues_in_turn(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.send(*[send("orders", queue_id=-1) for _ in range(8)])
        queues = sorted(reply.ext["queueId"] for reply in await client.receive(8))
        assert queues == ["0", "0", "1", "1", "2", "2", "3", "3"]


async def test_a_redelivery_too_many_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert (await client.call(pull("%RETRY%readers"))).code == 17
        allowed = await client.call(send("%RETRY%readers", b"again", j="16"))
        too_often = await client.call(send("%RETRY%readers", b"dead", j="17", i="DELAY\x019\x02"))
        assert (allowed.code, too_often.code) == (0, 0)
        assert bodies(await client.call(pull("%DLQ%readers"))) == [b"dead"]
