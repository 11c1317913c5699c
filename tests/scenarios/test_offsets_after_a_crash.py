"""A group's offset may be durable while the messages it counts are not: ASYNC_FLUSH and a power cut."""

from __future__ import annotations

import json
from pathlib import Path

from gantry.store import filenames
from gantry.wire.codes import RequestCode
from testkit.brokerplay import bodies, peer, pull, running_broker, send
from testkit.requests import request

OFFSET = {"consumerGroup": "readers", "topic": "orders", "queueId": 0}


async def _two_messages(folder: Path) -> None:
    async with running_broker(folder) as broker, peer(broker) as client:
        for body in (b"0", b"1"):
            assert (await client.call(send("orders", body))).code == 0
        assert (await client.call(pull("orders"))).code == 0
        assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, **OFFSET, commitOffset=2))).code == 0


def _left_by_a_crash(folder: Path, offset: int) -> None:
    """Change the folder of a stopped broker into one after a crash; the offset of its group is `offset`."""
    root = str(folder / "store")
    table = Path(filenames.config(root, "consumerOffset.json"))
    document = json.loads(table.read_text())
    document["offsetTable"] = {"orders@readers": {"0": offset}, "gone@readers": {"3": 7}}
    table.write_text(json.dumps(document))
    Path(filenames.abort(root)).touch()


async def test_a_group_that_was_further_than_what_the_power_cut_left_misses_nothing_that_comes_then(
    tmp_path: Path,
) -> None:
    await _two_messages(tmp_path)
    _left_by_a_crash(tmp_path, 5)
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        for number in range(2, 6):
            assert (await client.call(send("orders", b"%d" % number))).code == 0
        answer = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
        assert answer.ext["offset"] == "2"
        assert bodies(await client.call(pull("orders", 2))) == [b"2", b"3", b"4", b"5"]
        gone = OFFSET | {"topic": "gone", "queueId": 3}
        assert (await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **gone))).ext["offset"] == "0"


async def test_an_offset_within_its_queue_is_what_it_was(tmp_path: Path) -> None:
    await _two_messages(tmp_path)
    _left_by_a_crash(tmp_path, 1)
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        answer = await client.call(request(RequestCode.QUERY_CONSUMER_OFFSET, **OFFSET))
        assert answer.ext["offset"] == "1"
