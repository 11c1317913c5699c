"""`gantry standalone` and `gantry broker` open a folder that was made with other sizes than they are set to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantry.broker.broker import Broker
from gantry.errors import StoreError
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from testkit.brokerplay import bodies, configuration, peer, pull, running_broker
from testkit.smallstore import message, opened, small


def _folder_of_rocketmq(folder: Path, segment_bytes: int) -> None:
    """A folder of RocketMQ's proportions without any file of ours in it."""
    root = folder / "store"
    sizes = {"segment_bytes": segment_bytes, "queue_file_entries": 500, "index_slots": 50, "index_entries": 200}
    store = opened(small(root, **sizes))
    store.append([message("orders", 0, b"%d" % number, keys=f"key{number}") for number in range(30)])
    store.close()
    for path in (root / "gantry").iterdir():
        path.unlink()


async def test_its_messages_are_there_and_new_ones_go_into_files_of_its_sizes(tmp_path: Path) -> None:
    _folder_of_rocketmq(tmp_path, 4 << 20)
    async with running_broker(tmp_path) as broker, peer(broker) as client:
        assert bodies(await client.call(pull("orders", 0))) == [b"%d" % number for number in range(30)]
        assert broker.parts is not None and broker.parts.store.settings.sizes == (4 << 20, 500, 50, 200)
    assert {path.stat().st_size for path in (tmp_path / "store" / "commitlog").iterdir()} == {4 << 20}


async def test_segments_too_small_for_the_largest_message_are_refused_with_the_key_to_set(tmp_path: Path) -> None:
    _folder_of_rocketmq(tmp_path, 1 << 20)

    async def play(body_bytes_max: int) -> None:
        broker = Broker(configuration(tmp_path, messages__body_bytes_max=body_bytes_max))
        try:
            await broker.start()
        finally:
            await broker.stop()

    with pytest.raises(StoreError, match=r"set messages.body_bytes_max .* to 491520 or less"):
        await play(1 << 20)
    await play(491_520)


async def test_a_hot_change_is_held_against_the_segments_of_the_folder(tmp_path: Path) -> None:
    _folder_of_rocketmq(tmp_path, 1 << 20)
    async with running_broker(tmp_path, messages__body_bytes_max=1000) as broker, peer(broker) as client:

        async def refused(body_bytes_max: int) -> str | None:
            lines = f"maxMessageSize={body_bytes_max}\n".encode()
            return (await client.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=lines))).remark

        assert "messages.body_bytes_max 491521: expected at most 491520" in str(await refused(491_521))
        assert not await refused(491_520)
