"""Pops and acknowledgements of a running broker, over its sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.patience import HANG_S
from testkit.popplay import (
    Popped,
    ack_request,
    batch_ack_request,
    change_request,
    changed,
    pop_request,
    popped,
)
from testkit.turning import until

_QUICK = {"name": "broker-a"}


async def filled(client: Peer, count: int) -> None:
    for number in range(count):
        assert (await client.call(send("orders", b"m%d" % number))).code == 0


async def popped_until(client: Peer, count: int, request: Command) -> list[Popped]:
    """Pop until so many messages came."""
    found: list[Popped] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            reply = await client.call(request)
            found += popped(reply) if reply.code == 0 else []
            await asyncio.sleep(0.02)
    return found


async def test_a_popped_message_comes_again_when_its_time_is_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 5)
        first = popped(await client.call(pop_request(invisible_ms=300)))
        assert sorted(one.body for one in first) == [b"m0", b"m1", b"m2", b"m3", b"m4"]
        assert (await client.call(pop_request())).code == 210
        done = await client.call(ack_request(first[0]))
        assert (done.code, done.ext["gantryVerdict"]) == (0, "open")
        again = await popped_until(client, 4, pop_request())
        assert sorted(one.body for one in again) == sorted(one.body for one in first[1:])
        assert {one.times for one in again} == {1}
        assert all(one.handle.split(" ")[4] == "1" and "1ST_POP_TIME" in one.properties for one in again)
        stale = await client.call(ack_request(first[1]))
        assert (stale.code, stale.ext["gantryVerdict"]) == (0, "stale")
        assert not (await client.call(batch_ack_request(again))).body
        assert broker.parts is not None and broker.parts.pops.service.book.open == 0


async def test_a_message_whose_time_a_client_changed_has_no_owner_that_renews_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 2)
        first, _ = popped(await client.call(pop_request(gantryOwner="c1")))
        assert broker.parts is not None
        book = broker.parts.pops.service.book
        assert {lease.owner for lease in book.all()} == {"c1"}
        answer = await client.call(change_request(first, 600_000))
        changed_ms = int(answer.ext["popTime"])
        assert [lease.owner for lease in book.all() if lease.key.pop_ms == changed_ms] == [""]


async def test_a_changed_time_makes_a_new_handle(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 1)
        (one,) = popped(await client.call(pop_request()))
        reply = await client.call(change_request(one, 200))
        assert reply.code == 0
        newer = changed(one, reply)
        assert (await client.call(change_request(one, 5000))).code == 208
        stale = await client.call(ack_request(one))
        assert (stale.code, stale.ext["gantryVerdict"]) == (0, "stale")
        (again,) = await popped_until(client, 1, pop_request())
        assert (again.body, again.times) == (b"m0", 1)
        assert (await client.call(ack_request(newer))).ext["gantryVerdict"] == "stale"
        assert (await client.call(ack_request(again))).ext["gantryVerdict"] == "open"
        assert (await client.call(ack_request(again))).ext["gantryVerdict"] == "done"


async def test_a_handle_with_the_ninth_word_of_a_proxy_is_the_handle(tmp_path: Path) -> None:
    """Apache's proxy adds the log offset to every handle that it acknowledges or changes."""
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 2)
        found = popped(await client.call(pop_request()))
        first, second = (one._replace(handle=f"{one.handle} 8137945") for one in found)
        assert (await client.call(ack_request(first))).ext["gantryVerdict"] == "open"
        reply = await client.call(change_request(second, 60_000))
        assert reply.code == 0
        assert (await client.call(ack_request(changed(second, reply)))).ext["gantryVerdict"] == "open"
        assert broker.parts is not None and broker.parts.pops.service.book.open == 0


async def test_a_message_may_be_given_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 1)
        (one,) = popped(await client.call(pop_request(invisible_ms=200)))
        for _ in range(2):
            assert (await client.call(ack_request(one, RequestCode.FORWARD_TO_DLQ))).code == 0
        assert broker.parts is not None
        assert broker.parts.store.queue_range("%DLQ%workers", 0) == (0, 1)


async def test_a_message_whose_attempts_are_used_up_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 1)
        body = b'{"groupName":"workers","retryMaxTimes":1}'
        assert (await client.call(Command(200, body=body))).code == 0
        for times in range(2):
            (one,) = await popped_until(client, 1, pop_request(invisible_ms=50))
            assert one.times == times
        assert broker.parts is not None
        store = broker.parts.store
        async with asyncio.timeout(HANG_S):
            await until(lambda: store.queue_range("%DLQ%workers", 0) == (0, 1))
        assert (await client.call(pop_request())).code == 210


async def test_what_a_filter_passes_over_is_not_read_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK, store__flush="SYNC_FLUSH") as broker, peer(broker) as client:
        for number in range(9):
            tag = "ab"[number % 3 == 0]
            reply = await client.call(send("orders", b"m%d" % number, queue_id=0, pairs={"TAGS": tag}))
            assert reply.code == 0
        for expression, kind in (("b", "TAG"), ("TAGS = 'b'", "SQL92")):
            wish = {"exp": expression, "expType": kind, "consumerGroup": f"by-{kind}"}
            got = popped(await client.call(pop_request(**wish)), f"by-{kind}")
            assert [one.offset for one in got] == [0, 3, 6]
            assert (await client.call(pop_request(**wish))).code == 210
            offset = Command(14, ext={"consumerGroup": f"by-{kind}", "topic": "orders", "queueId": "0"})
            assert (await client.call(offset)).ext["offset"] == "9"


async def test_leases_outlive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        await filled(client, 6)
        first = popped(await client.call(pop_request(invisible_ms=1500)))
        assert (await client.call(batch_ack_request(first[:2]))).code == 0
    async with running_broker(tmp_path, **_QUICK) as broker, peer(broker) as client:
        assert (await client.call(ack_request(first[2]))).ext["gantryVerdict"] == "open"
        again = await popped_until(client, 3, pop_request())
        assert sorted(one.body for one in again) == sorted(one.body for one in first[3:])
        assert (await client.call(pop_request())).code == 210
