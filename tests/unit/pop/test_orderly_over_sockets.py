"""Orderly pops of a running broker, over its sockets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gantry.leaves.frames import Command
from gantry.model.subscription import GroupConfig
from gantry.wire.codes import RequestCode, ResponseCode
from gantry.wire.command import request
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.popplay import (
    GROUP,
    Popped,
    ack_request,
    batch_ack_request,
    change_request,
    pop_request,
    popped,
)

NAMED = {"name": "broker-a"}
LONG_MS = 600_000


async def filled(client: Peer, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        assert (await client.call(send("orders", b"m%d" % number))).code == 0


def in_order(count: int = 32, invisible_ms: int = LONG_MS, **fields: object) -> Command:
    return pop_request(count, invisible_ms, order="true", **fields)


async def taken(client: Peer, request: Command) -> list[Popped]:
    """The messages of one pop, maybe none."""
    reply = await client.call(request)
    assert reply.code in (0, ResponseCode.POLLING_TIMEOUT)
    return popped(reply) if reply.code == 0 else []


def bodies(messages: Sequence[Popped]) -> list[bytes]:
    return [one.body for one in messages]


async def verdict(client: Peer, request: Command) -> str:
    reply = await client.call(request)
    assert reply.code == 0, reply.remark
    return reply.ext["gantryVerdict"]


async def consumed(client: Peer) -> int:
    """The group's consumer offset of queue 0."""
    ask = {"consumerGroup": GROUP, "topic": "orders", "queueId": "0"}
    reply = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, ask))
    return int(reply.ext["offset"]) if reply.code == 0 else -1


async def test_a_queue_is_locked_until_its_batch_is_acknowledged_and_goes_on_behind_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 5)
        first = await taken(client, in_order(3))
        assert bodies(first) == [b"m0", b"m1", b"m2"]
        assert all(one.handle.split(" ")[3] == "999" for one in first)
        assert await taken(client, in_order()) == []
        for one in first[:2]:
            assert await verdict(client, ack_request(one)) == "open"
        assert await taken(client, in_order()) == []
        assert await verdict(client, ack_request(first[2])) == "open"
        assert await verdict(client, ack_request(first[2])) == "done"
        assert bodies(await taken(client, in_order())) == [b"m3", b"m4"]


async def test_what_is_not_acknowledged_comes_again_alone_and_its_old_handle_does_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 4)
        first = await taken(client, in_order(3, invisible_ms=LONG_MS))
        assert await verdict(client, ack_request(first[1])) == "open"
        for one in (first[0], first[2]):
            assert (await client.call(change_request(one, 0))).ext["gantryVerdict"] == "open"
        reply = await client.call(in_order())
        again = popped(reply)
        assert bodies(again) == [b"m0", b"m2", b"m3"]
        assert reply.ext["orderCountInfo"] == "0 qo0%0 1;0 qo0%2 1;0 0 0"
        assert await verdict(client, ack_request(first[0])) == "stale"
        assert await taken(client, in_order()) == []
        reply = await client.call(batch_ack_request(again))
        assert (reply.code, reply.body) == (0, b"")
        assert await taken(client, in_order()) == []


async def test_a_repeated_attempt_gets_its_batch_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 2)
        first = await taken(client, in_order(attemptId="a"))
        assert await taken(client, in_order(attemptId="b")) == []
        reply = await client.call(in_order(attemptId="a"))
        assert bodies(popped(reply)) == bodies(first)
        assert reply.ext["orderCountInfo"] == "0 0 0"
        assert await verdict(client, ack_request(first[0])) == "stale"


async def test_a_foreign_offset_is_illegal_and_a_change_without_effect_has_zeros(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 3)
        first = await taken(client, in_order(2))
        words = first[1].handle.split(" ")
        foreign = first[1]._replace(offset=2, handle=" ".join([*words[:7], "2"]))
        reply = await client.call(ack_request(foreign))
        assert (reply.code, reply.remark) == (
            ResponseCode.MESSAGE_ILLEGAL,
            "offset is illegal, key:orders@workers@0, offset:2, not in the group's batch",
        )
        changed = await client.call(change_request(first[0], 5_000))
        assert changed.ext["popTime"] == words[1] and int(changed.ext["invisibleTime"]) >= 5_000
        assert changed.ext["reviveQid"] == "999"
        assert await verdict(client, ack_request(first[0])) == "open"
        changed = await client.call(change_request(first[0], 5_000))
        assert (changed.code, changed.ext["popTime"], changed.ext["invisibleTime"]) == (0, "0", "0")


async def test_used_up_attempts_end_in_the_dead_letter_topic_and_the_queue_goes_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 3)
        assert broker.parts is not None
        broker.parts.groups.put(GroupConfig(GROUP, retry_times_max=2))
        for times in range(3):
            found = await taken(client, in_order(2))
            assert bodies(found) == [b"m0", b"m1"], times
            for one in found:
                await client.call(change_request(one, 0))
        assert bodies(await taken(client, in_order(2))) == [b"m1", b"m2"]
        dead = await taken(client, pop_request(topic=f"%DLQ%{GROUP}", consumerGroup="undertaker"))
        assert bodies(dead) == [b"m0"]
        assert dead[0].properties["DLQ_ORIGIN_TOPIC"] == "orders"
        assert broker.parts.pops.service.counts.dead == 1


async def test_a_dead_letter_that_was_asked_for_is_made_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 2)
        first = await taken(client, in_order())
        forward = ack_request(first[0], RequestCode.FORWARD_TO_DLQ)
        assert await verdict(client, forward) == "open" and await verdict(client, forward) == "done"
        assert await verdict(client, ack_request(first[1])) == "open"
        dead = await taken(client, pop_request(topic=f"%DLQ%{GROUP}", consumerGroup="undertaker"))
        assert bodies(dead) == [b"m0"]


async def test_the_lock_counts_and_acknowledgements_survive_an_orderly_stop(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 4)
        first = await taken(client, in_order(3))
        assert await verdict(client, ack_request(first[1])) == "open"
        await client.call(change_request(first[0], 0))
        await client.call(change_request(first[2], 0))
        second = await taken(client, in_order(2))
        assert bodies(second) == [b"m0", b"m2"]
    document = json.loads((tmp_path / "store" / "config" / "consumerOrderInfo.json").read_text())
    assert document["table"]["orders@workers"]["0"]["o"] == [0, 1, 2]
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        assert await taken(client, in_order()) == []
        assert await verdict(client, ack_request(second[0])) == "open"
        await client.call(change_request(second[1], 0))
        reply = await client.call(in_order())
        assert bodies(popped(reply)) == [b"m2", b"m3"]
        assert reply.ext["orderCountInfo"] == "0 qo0%2 2;0 0 0"


async def test_a_folder_of_rocketmq_keeps_its_lock(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 3)
    theirs = b'{"table":{"orders@workers":{0:{"popTime":5,"i":4000000000000,"o":[0,1],"cm":2,"l":5,"a":"x"}}}}'
    (tmp_path / "store" / "config" / "consumerOrderInfo.json").write_bytes(theirs)
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        assert await taken(client, in_order()) == []
        assert bodies(await taken(client, in_order(attemptId="x"))) == [b"m0", b"m2"]


async def test_a_reset_group_begins_again_whatever_it_has_popped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        await filled(client, 3)
        first = await taken(client, in_order(2))
        for one in first:
            assert await verdict(client, ack_request(one)) == "open"
        third = await taken(client, in_order())
        ask = {"topic": "orders", "group": GROUP, "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "1"}
        assert (await client.call(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ask))).code == 0
        assert await verdict(client, ack_request(third[0])) == "stale"
        assert bodies(await taken(client, in_order())) == [b"m1", b"m2"]
    async with running_broker(tmp_path, **NAMED) as broker, peer(broker) as client:
        assert await consumed(client) == 1 and await taken(client, in_order()) == []


async def test_the_group_is_behind_what_it_acknowledged_from_the_answer_on(tmp_path: Path) -> None:
    late = {"store__flush": "ASYNC_FLUSH", "store__flush_interval_ms": 60_000}
    async with running_broker(tmp_path, **NAMED, **late) as broker, peer(broker) as client:
        await filled(client, 3)
        for number, one in enumerate(await taken(client, in_order()), 1):
            assert await verdict(client, ack_request(one)) == "open"
            assert await consumed(client) == number
