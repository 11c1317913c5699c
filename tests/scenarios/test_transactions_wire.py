"""Transactions over sockets: a real broker, raw peers, every frame looked at."""

from __future__ import annotations

from pathlib import Path

from gantry.broker.broker import Broker
from gantry.broker.metrics.exposition import Metrics
from gantry.leaves import properties, records
from gantry.leaves.frames import Command
from gantry.wire import bodies
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.brokerplay import Peer, batch, oneway, peer, pull, running_broker, send
from testkit.turning import until

GROUP = "payers"
NODE = 'cluster="DefaultCluster",node_id="broker-a",node_type="broker"'
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def half(topic: str, body: bytes, key: str, queue_id: int = 1, **pairs: str) -> Command:
    """What a stock client sends first."""
    request = send(topic, body, queue_id, {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP} | pairs, f="4")
    request.ext["a"] = GROUP
    return request


def end(answer: Command, kind: int, group: str = GROUP, **ext: str) -> Command:
    """What it sends last, naming the half by what the reply said."""
    fields = {
        "producerGroup": group,
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
        "commitOrRollback": str(kind),
        "fromTransactionCheck": "false",
        "msgId": answer.ext["transactionId"],
        "transactionId": answer.ext["transactionId"],
    }
    return Command(RequestCode.END_TRANSACTION, ext=fields | ext)


async def heartbeat(client: Peer, group: str = GROUP) -> None:
    """Join the producer group."""
    beat = {"clientID": "me", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    answer = await client.call(Command(RequestCode.HEART_BEAT, body=bodies.dumps(beat)))
    assert answer.code == 0


async def pulled(client: Peer, topic: str, queue_id: int = 1) -> list[records.Record]:
    """What consumers of a queue see."""
    answer = await client.call(pull(topic, 0, queue_id))
    found, at = [], 0
    while at < len(answer.body):
        found.append(records.view(answer.body, at, len(answer.body)))
        at += found[-1].size
    return found


def open_count(broker: Broker) -> int:
    assert broker.parts is not None
    return len(broker.parts.transactions.book.open)


async def test_a_half_is_invisible_until_its_commit_and_delivered_once_however_often_that_comes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        await client.call(send("orders", b"first", 1))
        answer = await client.call(half("orders", b"paid", "k1", TAGS="red", KEYS="bill-7"))
        assert answer.code == 0
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("1", "0")
        assert [found.body for found in await pulled(client, "orders")] == [b"first"]
        assert open_count(broker) == 1
        for _ in range(3):
            assert (await client.call(end(answer, COMMIT))).code == 0
        conflict = await client.call(end(answer, ROLLBACK))
        assert conflict.code == ResponseCode.TRANSACTION_SHOULD_COMMIT
        first, paid = await pulled(client, "orders")
        assert (first.body, paid.body) == (b"first", b"paid")
        pairs = properties.parse(paid.properties)
        assert {pairs[name] for name in ("UNIQ_KEY", "__transactionId__")} == {"k1"}
        assert (pairs["TRAN_MSG"], pairs["TAGS"], pairs["KEYS"]) == ("true", "red", "bill-7")
        assert paid.sys_flag & 0xC == 8
        assert paid.prepared_offset == int(answer.ext["msgId"][-16:], 16)
        assert open_count(broker) == 0


async def test_a_rollback_is_final(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answer = await client.call(half("orders", b"paid", "k1"))
        assert (await client.call(end(answer, ROLLBACK))).code == 0
        assert (await client.call(end(answer, COMMIT))).code == ResponseCode.TRANSACTION_SHOULD_ROLLBACK
        assert (await client.call(end(answer, ROLLBACK))).code == 0
        assert await pulled(client, "orders") == []


async def test_outcomes_are_known_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answers = [await client.call(half("orders", b"%d" % number, f"k{number}")) for number in range(6)]
        for number, answer in enumerate(answers[:4]):
            assert (await client.call(end(answer, COMMIT if number % 2 else ROLLBACK))).code == 0
    for _ in range(2):
        async with running_broker(tmp_path) as broker, peer(broker) as client:
            assert open_count(broker) == 2
            for number, answer in enumerate(answers[:4]):
                same, other = (COMMIT, ROLLBACK) if number % 2 else (ROLLBACK, COMMIT)
                assert (await client.call(end(answer, same))).code == 0
                assert (await client.call(end(answer, other))).code in (200, 201)
            assert [found.body for found in await pulled(client, "orders")] == [b"1", b"3"]


async def test_a_member_of_the_group_that_never_sent_it_is_asked_and_its_answer_counts(tmp_path: Path) -> None:
    settings = {"transactions__check_interval_s": 0.1, "transactions__immunity_s": 0.0}
    async with running_broker(tmp_path, **settings) as broker:
        async with peer(broker) as dead:
            answer = await dead.call(half("orders", b"paid", "k1", queue_id=2))
        async with peer(broker) as other:
            await heartbeat(other)
            (question,) = await other.receive()
            assert question.code == RequestCode.CHECK_TRANSACTION_STATE and question.is_oneway
            shown = records.view(question.body, 0, len(question.body))
            assert (shown.topic, shown.queue_id, shown.body) == ("orders", 2, b"paid")
            assert properties.parse(shown.properties)["TRANSACTION_CHECK_TIMES"] == "1"
            assert question.ext["transactionId"] == question.ext["msgId"] == "k1"
            assert question.ext["offsetMsgId"] == answer.ext["msgId"]
            quoted = {name: question.ext[name] for name in ("tranStateTableOffset", "commitLogOffset")}
            commit = end(answer, COMMIT, fromTransactionCheck="true", **quoted)
            await other.send(oneway(commit))
            await until(lambda: open_count(broker) == 0)
            assert broker.parts is not None and broker.parts.transactions.counts.answered == 1
            assert [found.body for found in await pulled(other, "orders", 2)] == [b"paid"]


async def test_forged_ends_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        normal = await client.call(send("orders", b"normal", 1))
        answer = await client.call(half("orders", b"paid", "k1"))
        other = await client.call(half("orders", b"other", "k2"))
        stored = await client.call(Command(33, ext={"offset": str(int(answer.ext["msgId"][-16:], 16))}))
        hiding = await client.call(send("orders", b"xx" + stored.body, 1))
        log_offset = int(answer.ext["msgId"][-16:], 16)
        inside = int(hiding.ext["msgId"][-16:], 16) + 88 + 2
        for forged in (
            {"producerGroup": "strangers"},
            {"commitLogOffset": str(log_offset + 1)},
            {"commitLogOffset": str(int(normal.ext["msgId"][-16:], 16))},
            {"commitLogOffset": str(inside)},
            {"commitLogOffset": str(1 << 40)},
            {"commitLogOffset": "-1"},
            {"commitLogOffset": str(int(other.ext["msgId"][-16:], 16))},
            {"tranStateTableOffset": other.ext["queueOffset"]},
            {"tranStateTableOffset": "2"},
            {"tranStateTableOffset": "2", "commitLogOffset": str(inside)},
            {"tranStateTableOffset": "-1"},
            {"tranStateTableOffset": str((1 << 63) - 1)},
        ):
            for kind in (COMMIT, ROLLBACK):
                refused = await client.call(end(answer, kind, **forged))
                assert refused.code == ResponseCode.SYSTEM_ERROR and refused.remark, forged
        assert open_count(broker) == 2
        assert len(await pulled(client, "orders")) == 2
        assert (await client.call(end(answer, UNKNOWN))).code == 0
        assert open_count(broker) == 2
        assert broker.parts is not None
        assert broker.parts.transactions.counts.refused == {"wrong group": 2, "wrong offset": 14, "no such half": 8}


async def test_a_half_in_a_batch_and_one_that_says_it_is_committed_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answer = await client.call(batch("orders", [(b"a", {"TRAN_MSG": "true"})]))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        answer = await client.call(send("orders", b"x", 1, f="8"))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert open_count(broker) == 0


async def test_a_half_of_3_2_6_that_says_so_in_its_sys_flag_alone_is_a_half(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answer = await client.call(send("orders", b"old", 1, {"UNIQ_KEY": "k"}, f="4"))
        assert open_count(broker) == 1
        assert (await client.call(end(answer, COMMIT, "producers"))).code == 0
        (old,) = await pulled(client, "orders")
        assert properties.parse(old.properties)["TRAN_MSG"] == "true"


async def test_metrics_tell_what_happened_to_transactions(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answers = [await client.call(half("orders", b"paid", f"k{number}")) for number in range(3)]
        plain = send("orders", b"plain", 1)
        plain.ext["a"] = GROUP
        await client.call(plain)
        await client.call(end(await client.call(half("bills", b"paid", "b")), COMMIT))
        await client.call(end(answers[0], COMMIT))
        await client.call(end(answers[1], ROLLBACK))
        await client.call(end(answers[1], COMMIT))
        text = (await Metrics(lambda: broker.parts).text()).decode()
        for line in (
            'gantry_transactions_open{topic="orders"} 1.0',
            'gantry_transactions_committed_total{topic="orders"} 1.0',
            'gantry_transactions_rolled_back_total{topic="orders"} 1.0',
            'gantry_transaction_ends_refused_total{reason="contradicts an earlier end"} 1.0',
            "gantry_transaction_finish_seconds_count 2.0",
            'gantry_transaction_checks_total{result="alone"} 0.0',
            'gantry_transactions_moved_total{kind="given_up"} 0.0',
            'gantry_transaction_group_violations_total{kind="plain sends",producer_group="payers"} 1.0',
            f'rocketmq_half_messages{{{NODE},topic="orders"}} 1.0',
            f'rocketmq_commit_messages_total{{{NODE},topic="orders"}} 1.0',
            f'rocketmq_rollback_messages_total{{{NODE},topic="orders"}} 1.0',
            'rocketmq_finish_message_latency_bucket{cluster="DefaultCluster",le="+Inf",node_id="broker-a",',
            f'rocketmq_finish_message_latency_count{{{NODE},topic="bills"}} 1.0',
        ):
            assert line in text, line


async def test_metrics_of_transactions_are_sums_where_series_per_topic_are_switched_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, metrics__per_topic=False) as broker, peer(broker) as client:
        for number, topic in enumerate(["orders", "bills", "orders"]):
            await client.call(half(topic, b"open", f"o{number}"))
            await client.call(end(await client.call(half(topic, b"paid", f"k{number}")), COMMIT))
        text = (await Metrics(lambda: broker.parts).text()).decode()
        assert "orders" not in text and "bills" not in text
        for line in (
            'gantry_transactions_open{topic=""} 3.0',
            'gantry_transactions_committed_total{topic=""} 3.0',
            f'rocketmq_half_messages{{{NODE},topic=""}} 3.0',
            f'rocketmq_commit_messages_total{{{NODE},topic=""}} 3.0',
            f'rocketmq_finish_message_latency_count{{{NODE},topic=""}} 3.0',
            "gantry_transaction_finish_seconds_count 3.0",
        ):
            assert line in text, line
