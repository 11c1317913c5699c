"""Pops and notifications that wait in a running broker, and leases that it renews, over its sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.leaves.frames import Command
from gantry.pop import owners
from gantry.pop.parts import PopParts
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.patience import HANG_S
from testkit.popplay import GROUP, TOPIC, Popped, ack_request, pop_request, popped
from testkit.turning import until

_QUICK = {"name": "broker-a"}
_LONG = {"pollTime": 60_000}


def pops_of(broker: Broker) -> PopParts:
    assert broker.parts is not None
    return broker.parts.pops


async def held(broker: Broker, count: int) -> None:
    """Wait until so many requests are held."""
    async with asyncio.timeout(HANG_S):
        await until(lambda: len(pops_of(broker).polling.held) == count)


async def topic_made(client: Peer) -> Popped:
    """Make the topic and the group with one message that is popped; return it."""
    assert (await client.call(send(TOPIC, b"first"))).code == 0
    (one,) = popped(await client.call(pop_request()))
    return one


def notification(**fields: object) -> Command:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "pollTime": 60_000, "bornTime": 0}
    return request(RequestCode.NOTIFICATION, {name: str(value) for name, value in (ext | fields).items()})


def polling_info(queue_id: int = -1) -> Command:
    return request(RequestCode.POLLING_INFO, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)})


def keep(client_id: str, *groups: str) -> Command:
    body = json.dumps({"clientId": client_id, "groups": groups}).encode()
    return request(RequestCode.KEEP_POP_OWNERS, {}, body)


async def test_a_message_that_comes_answers_one_pop_of_those_that_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        await topic_made(client)
        await waiting.send(pop_request(**_LONG), pop_request(**_LONG))
        await held(broker, 2)
        assert (await client.call(polling_info())).ext["pollingNum"] == "2"
        assert (await client.call(send(TOPIC, b"second"))).code == 0
        (reply,) = await waiting.receive()
        assert [one.body for one in popped(reply)] == [b"second"]
        assert (await client.call(polling_info())).ext["pollingNum"] == "1"


async def test_a_message_whose_lease_ended_answers_a_pop_that_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        assert (await client.call(send(TOPIC, b"first"))).code == 0
        assert popped(await client.call(pop_request(invisible_ms=300)))
        await waiting.send(pop_request(**_LONG))
        (reply,) = await waiting.receive()
        assert [(one.body, one.times) for one in popped(reply)] == [(b"first", 1)]


async def test_a_filter_is_asked_before_a_pop_is_tried(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        await topic_made(client)
        await waiting.send(pop_request(exp="wanted", **_LONG))
        await held(broker, 1)
        tried = pops_of(broker).polling.held.counts.tried
        for _ in range(5):
            await client.call(send(TOPIC, b"other", pairs={"TAGS": "other"}))
        assert pops_of(broker).polling.held.counts.tried == tried
        await client.call(send(TOPIC, b"mine", pairs={"TAGS": "wanted"}))
        (reply,) = await waiting.receive()
        assert [one.body for one in popped(reply)] == [b"mine"]


async def test_a_pop_whose_time_is_over_is_told_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await topic_made(client)
        reply = await client.call(pop_request(pollTime=300))
        assert (reply.code, set(reply.ext)) == (210, {"popTime", "invisibleTime", "reviveQid", "restNum"})
        await client.call(send(TOPIC, b"second"))
        assert [one.body for one in popped(await client.call(pop_request()))] == [b"second"]


async def test_too_many_are_refused_and_one_that_goes_away_makes_room(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK, pop__held_per_queue_max=2) as broker, peer(broker) as client:
        await topic_made(client)
        async with peer(broker) as waiting:
            await waiting.send(pop_request(**_LONG), pop_request(**_LONG), notification(), notification())
            await held(broker, 4)
            reply = await client.call(pop_request(**_LONG))
            assert (reply.code, "popTime" in reply.ext) == (209, True)
            assert (await client.call(notification())).ext == {"hasMsg": "false", "pollingFull": "true"}
        await held(broker, 0)
        await client.send(pop_request(**_LONG))
        await held(broker, 1)


async def test_room_in_a_full_queue_answers_a_pop_that_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK, pop__leases_max=32) as broker, peer(broker) as client:
        for number in range(33):
            await client.call(send(TOPIC, b"m%d" % number, queue_id=0))
        first = popped(await client.call(pop_request()))
        assert len(first) == 32
        async with peer(broker) as waiting:
            await waiting.send(pop_request(**_LONG))
            await held(broker, 1)
            await client.call(ack_request(first[0]))
            (reply,) = await waiting.receive()
            assert [one.body for one in popped(reply)] == [b"m32"]


async def test_a_reset_answers_a_pop_that_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        await topic_made(client)
        await waiting.send(pop_request(**_LONG))
        await held(broker, 1)
        ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
        assert (await client.call(request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))).code == 0
        (reply,) = await waiting.receive()
        assert [one.body for one in popped(reply)] == [b"first"]


async def test_a_stop_answers_all_that_wait(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        await topic_made(client)
        await waiting.send(pop_request(**_LONG), notification())
        await held(broker, 2)
        stopping = asyncio.ensure_future(broker.stop())
        first, second = await waiting.receive(2)
        assert sorted([first.code, second.code]) == [0, 210]
        await stopping


async def test_a_notification_says_whether_a_pop_would_find_messages_and_takes_none(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client, peer(broker) as waiting:
        await topic_made(client)
        assert (await client.call(notification(pollTime=100))).ext == {"hasMsg": "false", "pollingFull": "false"}
        await waiting.send(notification(), notification(exp="wanted"))
        await held(broker, 2)
        await client.call(send(TOPIC, b"second"))
        (reply,) = await waiting.receive()
        assert reply.ext == {"hasMsg": "true", "pollingFull": "false"}
        assert len(pops_of(broker).polling.held) == 1
        assert (await client.call(notification(pollTime=0))).ext["hasMsg"] == "true"
        assert [one.body for one in popped(await client.call(pop_request()))] == [b"second"]
        assert (await client.call(notification(topic="nowhere"))).code == 17
        assert (await client.call(notification(queueId=99))).code == 29


async def test_a_lease_is_renewed_while_its_owner_lives_and_its_handle_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "RENEWED_MS", 400)
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        table = pops_of(broker).owners.owners
        table.begin(-owners.SILENCE_S_MAX)  # no owner counts as alive without having said so
        assert (await client.call(keep("alive", GROUP))).code == 0
        for body in (b"kept", b"left"):
            assert (await client.call(send(TOPIC, body, queue_id=0))).code == 0
        (kept,) = popped(await client.call(pop_request(1, 300, gantryOwner="alive")))
        (left,) = popped(await client.call(pop_request(1, 300, gantryOwner="dead")))
        async with asyncio.timeout(HANG_S):
            await until(lambda: table.renewed >= 2)
        await client.send(pop_request(**_LONG))
        (reply,) = await client.receive()
        assert [(one.body, one.times) for one in popped(reply)] == [(left.body, 1)]
        assert (await client.call(ack_request(kept))).ext["gantryVerdict"] == "open"


async def test_what_an_owner_has_becomes_visible_when_it_ends_also_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        for number in range(4):
            assert (await client.call(send(TOPIC, b"m%d" % number, queue_id=0))).code == 0
        mine = popped(await client.call(pop_request(3, gantryOwner="me")))
        popped(await client.call(pop_request(gantryOwner="other")))
        await client.call(ack_request(mine[0]))
        ended = request(RequestCode.END_POP_OWNER, {"clientId": "me", "consumerGroup": GROUP})
        assert (await client.call(ended)).code == 0
        assert (await client.call(ack_request(mine[1]))).ext["gantryVerdict"] == "stale"
        assert pops_of(broker).service.book.open == 3
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        bodies: list[bytes] = []
        while len(bodies) < 2:
            bodies += [one.body for one in popped(await client.call(pop_request(**_LONG)))]
        assert sorted(bodies) == [b"m1", b"m2"]
        assert (await client.call(pop_request(pollTime=100))).code == 210


async def test_what_is_no_owner_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        assert (await client.call(keep("", GROUP))).code == 29
        assert (await client.call(keep("me", "no/group"))).code == 29
        assert (await client.call(request(RequestCode.KEEP_POP_OWNERS, {}, b"[]"))).code == 1
        assert (await client.call(request(RequestCode.END_POP_OWNER, {}))).code == 1
        assert (await client.call(request(RequestCode.END_POP_OWNER, {"clientId": ""}))).code == 29
