"""A broadcasting member's progress: in its file, in RocketMQ's form, whole after any crash."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gantry.client.consumer import ConsumerSettings
from gantry.client.consuming import broadcast
from gantry.client.consuming.broadcast import LocalOffsets
from gantry.errors import ConfigError, OutcomeUnknownError
from gantry.model.route import MessageQueue
from testkit.onequeue import FIRST, OneQueue, member
from testkit.patience import HANG_S
from testkit.turning import until

QUEUE, OTHER = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
JAVA = b"""{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":0,
\t\t"topic":"T"
\t}:12
\t}
}"""


class Remote:
    """What the settings say."""

    async def start(self, queue: MessageQueue, settings: ConsumerSettings, now_ms: int) -> int:
        return 77


def offsets(folder: Path) -> LocalOffsets:
    return LocalOffsets(folder, "g", Remote())  # type: ignore[arg-type]


async def start(of: LocalOffsets, queue: MessageQueue = QUEUE) -> int:
    return await of.start(queue, ConsumerSettings(), 0)


async def test_a_queue_begins_where_the_member_stopped_or_where_the_settings_say(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        await offsets(tmp_path).commit(QUEUE, 5)
        again = offsets(tmp_path)
        assert (await start(again), await start(again, OTHER)) == (5, 77)


async def test_the_file_is_java_s_in_both_directions(tmp_path: Path) -> None:
    assert broadcast.read(JAVA) == {QUEUE: 12}
    written = broadcast.write({QUEUE: 12, OTHER: 3})
    assert written.startswith(b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12,')
    assert broadcast.read(written) == {QUEUE: 12, OTHER: 3}
    async with asyncio.timeout(HANG_S):
        path = offsets(tmp_path).path
        path.parent.mkdir()
        path.write_bytes(JAVA)
        assert await start(offsets(tmp_path)) == 12


async def test_commits_that_come_together_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(HANG_S):
        writes: list[bytes] = []
        usual = broadcast._replace
        monkeypatch.setattr(broadcast, "_replace", lambda path, text: (writes.append(text), usual(path, text)))
        of = offsets(tmp_path)
        await asyncio.gather(*(of.commit(MessageQueue("T", "b", number), number) for number in range(50)))
        assert len(writes) <= 2
        assert len(broadcast.read(writes[-1])) == 50


async def test_whatever_a_crash_leaves_can_be_read(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        of = offsets(tmp_path)
        await of.commit(QUEUE, 5)
        await of.commit(QUEUE, 6)
        of.path.write_bytes(of.path.read_bytes()[:-9])
        assert await start(offsets(tmp_path)) == 5
        of.path.unlink()
        assert await start(offsets(tmp_path)) == 5
        of.path.with_name("offsets.json.bak").write_bytes(b"[]")
        with pytest.raises(ConfigError, match="remove it"):
            await start(offsets(tmp_path))


async def test_a_file_that_cannot_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        of = offsets(tmp_path)
        (tmp_path / "g").write_text("in the way")
        with pytest.raises((OutcomeUnknownError, ConfigError)):
            await of.commit(QUEUE, 5)
        (tmp_path / "g").unlink()
        await of.commit(QUEUE, 5)
        assert await start(offsets(tmp_path)) == 5


async def test_a_commit_that_is_called_off_does_not_meet_the_next_one_in_the_file(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_S):
        offsets = LocalOffsets(tmp_path, "g", None)  # type: ignore[arg-type]
        for offset in range(30):
            called_off = asyncio.ensure_future(offsets.commit(QUEUE, offset))
            for _ in range(4):
                await asyncio.sleep(0)
            called_off.cancel()
        await offsets.commit(QUEUE, 99)
        assert broadcast.read(offsets.path.read_bytes()) == {QUEUE: 99}


async def test_a_broadcasting_member_goes_on_where_it_stopped_and_tells_no_broker(tmp_path: Path) -> None:
    settings = replace(FIRST, broadcast=True, offsets_folder=str(tmp_path), commit_every_s=0.02)
    async with asyncio.timeout(HANG_S), OneQueue(count=10) as cluster:
        async with member(cluster, settings) as consumer:
            for _ in range(4):
                await (await anext(consumer)).ack()
        async with member(cluster, settings) as consumer:
            message = await anext(consumer)
            assert message.queue_offset == 4
            await message.ack()
            await until(lambda: b":5" in (tmp_path / "g" / "offsets.json").read_bytes())
        assert cluster.committed() == []


async def test_a_disk_that_hangs_ends_no_commit_and_gathers_no_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    usual = broadcast._replace

    def hang(path: Path, text: bytes) -> None:
        assert go_on.wait(HANG_S)
        usual(path, text)

    monkeypatch.setattr(broadcast, "_replace", hang)
    monkeypatch.setattr(broadcast, "_WRITE_S", 0.02)
    of = offsets(tmp_path)
    async with asyncio.timeout(HANG_S):
        for offset in range(5):
            with pytest.raises(OutcomeUnknownError, match="check its disk"):
                await of.commit(QUEUE, offset)
        assert len(of._saving) <= 1
        go_on.set()
        monkeypatch.setattr(broadcast, "_WRITE_S", HANG_S)
        await of.commit(QUEUE, 9)
        await asyncio.sleep(0)
        assert not of._saving
        assert await start(offsets(tmp_path)) == 9
