"""Peers that break the protocol or do not keep up: they hurt themselves and nobody else."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from gantry.leaves import frames
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from testkit.brokerplay import bodies, peer, pull, running_broker, send

_NESTED = b'{"code":310,"extFields":' + b"[" * 5000 + b"]" * 5000 + b"}"


def _frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header + body
    )


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        (17 << 20).to_bytes(4, "big") + bytes(8),
        b"\xff\xff\xff\xff" + bytes(8),
        bytes(8),
        _frame(b"not json"),
        _frame(b'{"code":"\xff\xfe"}'),
        _frame(_NESTED),
        _frame(b"[]"),
        _frame(b"{}", kind=7),
        (10).to_bytes(4, "big") + (99).to_bytes(4, "big") + bytes(6),
        random.Random(1).randbytes(4096),
    ],
)
async def test_bytes_that_are_no_frames_close_their_connection_only(tmp_path: Path, nonsense: bytes) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as good, peer(broker) as bad:
        await bad.send_bytes(nonsense)
        assert await bad.gone()
        assert (await good.call(send("orders", b"fine"))).code == 0
        assert bodies(await good.call(pull("orders"))) == [b"fine"]


async def test_half_a_frame_is_waited_for_and_then_served(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        data = frames.encode(send("orders", b"in pieces"))
        for at in range(0, len(data), 50):
            await client.send_bytes(data[at : at + 50])
            await asyncio.sleep(0)
        assert (await client.receive())[0].code == 0


@pytest.mark.parametrize("code", [10, 310, 320, 11, 361])
async def test_a_header_without_its_fields_is_answered_by_name_and_keeps_the_connection(
    tmp_path: Path, code: int
) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        reply = await client.call(Command(code, ext={"topic": "orders"}))
        assert reply.code == 1 and reply.remark is not None and "missing" in reply.remark
        assert (await client.call(send("orders", g="soon"))).remark == "header field g is no 64-bit integer: 'soon'"
        assert (await client.call(send("orders"))).code == 0


async def test_an_unknown_code_is_refused_with_a_remark(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        unknown = await client.call(Command(4242))
        assert unknown.code == 3 and unknown.remark is not None and "4242 not supported" in unknown.remark
        later = await client.call(Command(513))
        assert later.code == 3 and later.remark is not None and "use ordinary topics" in later.remark


async def test_a_bad_body_is_a_bad_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        for body in (b"", b"{", b"[1]", b"\xff"):
            reply = await client.call(Command(34, body=body))
            assert reply.code == 1 and (reply.remark or "").startswith("body is "), (body, reply)
        # RocketMQ: a number is taken for a text, as its JSON library does.
        assert (await client.call(Command(34, body=json.dumps({"clientID": 7}).encode()))).code == 0
        assert (await client.call(send("orders"))).code == 0
        assert broker.parts is not None and not broker.parts.router.errors, "a bad request is no bug of ours"


_TIGHT = {
    "network__output_bytes_max": 1 << 20,
    "network__output_bytes_high": 1 << 18,
    "pull__bytes_max": 512 << 10,
    "messages__body_bytes_max": 512 << 10,
}


async def test_a_peer_that_reads_gets_all_it_asks_for_whatever_it_asks_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_TIGHT) as broker, peer(broker) as client:
        for queue in range(4):
            assert (await client.call(send("orders", bytes(400_000), queue_id=queue, pairs={"KEYS": "k"}))).code == 0
        left = set(range(4))
        while left:
            asked = sorted(left)
            await client.send(*(pull("orders", queue_id=queue) for queue in asked))
            replies = await client.receive(len(asked))
            assert replies[0].code == 0, "each round brings something"
            left -= {queue for queue, reply in zip(asked, replies, strict=True) if reply.code == 0}
        asked_for = {"topic": "orders", "key": "k", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        found = await client.call(Command(RequestCode.QUERY_MESSAGE, ext=asked_for))
        assert found.code == 0 and 400_000 < len(found.body) < 1 << 20


async def test_a_peer_that_never_reads_is_cut_off_and_nobody_else_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_TIGHT) as broker, peer(broker) as good, peer(broker) as greedy:
        assert (await good.call(send("orders", bytes(200_000)))).code == 0
        assert broker.parts is not None
        connections = broker.parts.server.connections
        data = frames.encode(pull("orders"))
        for _ in range(400):
            try:
                await asyncio.wait_for(greedy.send_bytes(data * 20), 0.2)
            except ConnectionError:
                break  # cut off
            except TimeoutError:  # no longer read from, unless the machine was slow
                if sum(one.is_writable for one in connections) == 1:
                    break
            assert (await good.call(send("orders", b"meanwhile", queue_id=1))).code == 0
        assert (await good.call(send("orders", b"afterwards", queue_id=1))).code == 0
        keeping_up = [one for one in connections if one.is_writable]
        assert len(keeping_up) == 1, "the greedy one is cut off, or gets nothing more"
