"""What an administrator was told is done survives kill -9: the reply waits for the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from gantry.store.disk import RealDisk, RealFile
from gantry.wire.codes import RequestCode
from testkit.brokerplay import Peer, peer, running_broker, send
from testkit.patience import HANG_S
from testkit.requests import request

FIELDS = {
    "topic": "bills",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


class SlowFile(RealFile):
    """Its sync waits while the disk holds files of its name."""

    disk: SlowDisk

    def sync_data(self) -> None:
        if self.disk.held and self.disk.held in self.path:
            self.disk.is_asked.set()
            assert self.disk.may_sync.wait(HANG_S)
        super().sync_data()


class SlowDisk(RealDisk):
    """Holds the sync of one file until `may_sync`."""

    def __init__(self) -> None:
        super().__init__()
        self.held = ""
        self.is_asked = threading.Event()
        self.may_sync = threading.Event()

    def open(self, path: str, create: bool) -> RealFile:
        file = super().open(path, create)
        file.__class__ = SlowFile
        file.disk = self
        return file


async def grown(client: Peer) -> None:
    """A group with an offset, both on the disk, so that deleting it has something to change."""
    group = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"packing"}')
    assert (await client.call(group)).code == 0
    progress = {"consumerGroup": "packing", "topic": "orders", "queueId": 0, "commitOffset": 1}
    assert (await client.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, **progress))).code == 0


def creating() -> Command:
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, **FIELDS)


def deleting() -> Command:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")


def making_a_group() -> Command:
    body = b'{"groupName":"billing","consumeEnable":false}'
    return Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def deleting_a_group() -> Command:
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="packing", cleanOffset="true")


@pytest.mark.parametrize(
    ("command", "held"),
    [
        (creating, "topics.json"),
        (deleting, "topics.json"),
        (deleting, "queues.json"),
        (making_a_group, "subscriptionGroup.json"),
        (deleting_a_group, "subscriptionGroup.json"),
        (deleting_a_group, "consumerOffset.json"),
    ],
)
async def test_a_topic_or_a_group_is_made_or_deleted_when_no_crash_undoes_it(
    tmp_path: Path, command: Callable[[], Command], held: str
) -> None:
    disk = SlowDisk()
    async with running_broker(tmp_path, disk) as broker, peer(broker) as admin, peer(broker) as other:
        assert (await other.call(send("orders"))).code == 0
        await grown(other)
        disk.held = held
        await admin.send(command())
        assert await asyncio.to_thread(disk.is_asked.wait, HANG_S)
        await other.ping()
        early = asyncio.ensure_future(admin.receive())
        await other.ping()
        assert not early.done(), "a kill -9 now would undo what was acknowledged"
        disk.may_sync.set()
        (answer,) = await early
        assert answer.code == 0


async def test_a_disk_that_does_not_take_it_is_told_to_the_administrator(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running_broker(tmp_path, disk, messages__ack_wait_s=0.05) as broker, peer(broker) as admin:
        disk.held = "topics.json"
        answer = await admin.call(creating())
        assert answer.code == 1 and answer.remark is not None and "a crash may undo it" in answer.remark
        disk.may_sync.set()
