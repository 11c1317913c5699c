"""Requests about popped messages that are wrong: each gets RocketMQ's code, and nothing else happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from gantry.wire.bodies import dumps
from gantry.wire.codes import RequestCode
from testkit.brokerplay import peer, running_broker, send
from testkit.popplay import ack_request, change_request, pop_request, popped

_LONG = str((1 << 63) - 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"maxMsgNums": 33}, 29),
        ({"maxMsgNums": 0}, 29),
        ({"maxMsgNums": -(1 << 31)}, 29),
        ({"invisibleTime": 0}, 29),
        ({"invisibleTime": _LONG}, 29),
        ({"topic": "missing"}, 17),
        ({"topic": "x" * 5000}, 17),
        ({"queueId": 8}, 29),
        ({"consumerGroup": "no group\0"}, 26),
        ({"exp": "a && b (", "expType": "SQL92"}, 23),
        ({"expType": "other"}, 23),
        ({"queueId": "many"}, 1),
        ({"invisibleTime": "9" * 40}, 1),
        ({"bornTime": _LONG, "pollTime": _LONG}, 0),
        ({"gantryOwner": "x" * 60_000}, 29),
    ],
)
async def test_a_wrong_pop_is_refused(tmp_path: Path, fields: dict[str, object], code: int) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"m0"))).code == 0
        reply = await client.call(pop_request(**fields))  # type: ignore[arg-type]
        assert reply.code == code, reply.remark
        if code != 1:
            assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= reply.ext.keys()
        if code:
            assert len(popped(await client.call(pop_request()))) == 1


async def test_pops_need_the_timer(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a", delays__times=False) as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"m0"))).code == 0
        assert (await client.call(pop_request())).code == 1


def no_lease(answer: Command) -> list[str]:
    """What Java's client reads of any answer to a change; it logs an error with a stack for each that is not there."""
    return [answer.ext[name] for name in ("popTime", "invisibleTime", "reviveQid")]


async def test_a_wrong_handle_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        assert (await client.call(send("orders", b"m0"))).code == 0
        (one,) = popped(await client.call(pop_request()))
        wrong: list[tuple[dict[str, object], int]] = [
            ({"topic": "missing"}, 17),
            ({"queueId": 8}, 13),
            ({"queueId": -1}, 13),
            ({"offset": 2}, 208),
            ({"offset": -1}, 208),
            ({"offset": _LONG}, 208),
            ({"extraInfo": ""}, 29),
            ({"extraInfo": "1 2 3"}, 29),
            ({"extraInfo": "x" * 60_000}, 29),
            ({"extraInfo": one.handle.replace("broker-a", "broker-b")}, 29),
            ({"extraInfo": one.handle[:-1] + "1"}, 29),
            ({"offset": "soon"}, 1),
        ]
        for fields, code in wrong:
            assert (await client.call(ack_request(one, **fields))).code == code, fields
            if code != 1:
                refused = await client.call(change_request(one, 60_000, **fields))
                assert (refused.code, no_lease(refused)) == (code, ["0", "0", "0"]), fields
        for invisible_ms in (-1, 1 << 62):
            refused = await client.call(change_request(one, invisible_ms))
            assert (refused.code, no_lease(refused)) == (29, ["0", "0", "0"])
        other = await client.call(ack_request(one, group="others"))
        assert (other.code, other.ext["gantryVerdict"]) == (0, "done")
        assert (await client.call(ack_request(one))).ext["gantryVerdict"] == "open"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        dumps({"acks": []}),
        dumps({"acks": [1]}),
        dumps({"acks": [{}]}),
        dumps({"acks": [{"c": "g", "t": "orders", "so": -1, "q": 0, "pt": 1, "it": 1, "b": "AQ=="}]}),
        dumps({"acks": [{"c": "g", "t": "orders", "so": 0, "q": 0, "pt": 1, "it": 1, "b": "!"}]}),
        dumps({"acks": [{"c": "g", "t": "orders", "so": 0, "q": 0, "pt": 1, "it": 1, "b": [1000]}]}),
        dumps({"acks": [{"c": "g", "t": "orders", "so": 0, "q": 0, "pt": 1, "it": 1, "b": "A" * 40_000}]}),
        dumps({"acks": [{"c": "g", "t": "orders", "so": 0, "q": 0, "pt": 1, "it": 1, "b": "/////x8="}]}),  # 37 messages
        dumps({"acks": [{"c": "g", "t": "orders", "r": "7", "so": 0, "q": 0, "pt": 1, "it": 1, "b": "AQ=="}]}),
        dumps({"acks": [{}] * 5000}),
    ],
)
async def test_a_wrong_batch_is_refused(tmp_path: Path, body: bytes) -> None:
    async with running_broker(tmp_path, name="broker-a") as broker, peer(broker) as client:
        reply = await client.call(Command(RequestCode.BATCH_ACK_MESSAGE, body=body))
        assert reply.code in (1, 29, 208) and reply.remark


async def test_nobody_forges_a_lease(tmp_path: Path) -> None:
    async with running_broker(tmp_path, name="broker-a", cluster="c") as broker, peer(broker) as client:
        for topic in ("rmq_sys_REVIVE_LOG_c", "rmq_sys_REVIVE_LOG_other", "rmq_sys_wheel_timer"):
            reply = await client.call(send(topic, b"{}", pairs={"TAGS": "ack", "TIMER_DELAY_SEC": "1"}))
            assert reply.code == 16
