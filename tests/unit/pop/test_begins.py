"""Where a group begins to pop that asks for the end (initMode 1), as gRPC's proxies and clients do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.metadata import offsettable
from gantry.wire.codes import ResponseCode
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.popplay import GROUP, ack_request, pop_request, popped

_OLD = {"name": "broker-a", "store__warm_bytes": 1 << 20}
_LARGE = b"." * 300_000


async def _sent(client: Peer, queue_id: int, *bodies: bytes) -> None:
    for body in bodies:
        assert (await client.call(send("orders", body, queue_id))).code == 0


async def _taken(client: Peer, group: str = GROUP) -> list[bytes]:
    """Pop and acknowledge until nothing comes."""
    found: list[bytes] = []
    while (reply := await client.call(pop_request(initMode=1, consumerGroup=group))).code == 0:
        for one in popped(reply, group):
            found.append(one.body[:3])
            assert (await client.call(ack_request(one, consumerGroup=group))).code == 0
    return found


async def test_a_group_that_pops_begins_at_the_first_message_of_a_queue_that_appeared_later(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_OLD) as broker, peer(broker) as client:
        await _sent(client, 0, b"one", b"two")
        assert await _taken(client) == [b"one", b"two"]
        assert broker.parts is not None
        broker.parts.offsets.follow(f"orders@{GROUP}", {"0": 2})  # it was away when queue 2 appeared
        await _sent(client, 2, b"new" + _LARGE, *[_LARGE] * 5)
        assert len(await _taken(client)) == 6


async def test_a_new_group_that_pops_an_old_queue_begins_with_its_last_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_OLD) as broker, peer(broker) as client:
        await _sent(client, 0, b"old" + _LARGE, *[_LARGE] * 5, b"end")
        assert await _taken(client) == [b"end"]


async def test_a_group_whose_begin_has_no_room_gets_no_messages_and_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, **_OLD) as broker, peer(broker) as client:
        await _sent(client, 0, b"one")
        assert broker.parts is not None
        monkeypatch.setattr(offsettable, "KEYS_MAX", len(broker.parts.offsets.keys()))
        refused = await client.call(pop_request(consumerGroup="late"))
        assert refused.code == ResponseCode.SYSTEM_BUSY and "no room for offsets" in (refused.remark or "")
        assert broker.parts.offsets.query("late", "orders", 0) == -1
        monkeypatch.undo()
        assert [one.body for one in popped(await client.call(pop_request(consumerGroup="late")), "late")] == [b"one"]
