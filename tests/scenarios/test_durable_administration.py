"""What an administrator was told is done survives kill -9: the reply waits for the disk.  The same of two answers to
members of groups: the first offset in a queue, and a granted queue lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from gantry.store.disk import RealDisk, RealFile
from gantry.wire.codes import RequestCode, ResponseCode
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


def first_offset() -> Command:
    progress = {"consumerGroup": "packing", "topic": "orders", "queueId": 1, "commitOffset": 0}
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, **progress)


def where_to_begin() -> Command:
    return request(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="packing", topic="orders", queueId=2)


def popping() -> Command:
    asked = {"queueId": 3, "maxMsgNums": 1, "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 1}
    return request(RequestCode.POP_MESSAGE, consumerGroup="packing", topic="orders", **asked)


def locking(client_id: str = "a") -> Command:
    queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
    body: dict[str, object] = {"consumerGroup": "packing", "clientId": client_id, "mqSet": queues}
    return request(RequestCode.LOCK_BATCH_MQ, body)


@pytest.mark.parametrize(
    ("command", "held", "code"),
    [
        (first_offset, "consumerOffset.json", ResponseCode.SUCCESS),
        (where_to_begin, "consumerOffset.json", ResponseCode.SUCCESS),
        (popping, "consumerOffset.json", ResponseCode.POLLING_TIMEOUT),
        (locking, "queueLocks.json", ResponseCode.SUCCESS),
    ],
)
async def test_a_member_is_told_where_it_begins_and_what_it_locked_when_no_crash_undoes_it(
    tmp_path: Path, command: Callable[[], Command], held: str, code: int
) -> None:
    disk = SlowDisk()
    async with running_broker(tmp_path, disk) as broker, peer(broker) as member, peer(broker) as other:
        assert (await other.call(send("orders"))).code == 0
        await grown(other)
        disk.held = held
        await member.send(command())
        assert await asyncio.to_thread(disk.is_asked.wait, HANG_S)
        await other.ping()
        early = asyncio.ensure_future(member.receive())
        await other.ping()
        is_early = early.done()
        disk.may_sync.set()
        assert not is_early, "a kill -9 now would undo it"
        (answer,) = await early
        assert answer.code == code, answer.remark


async def test_an_owner_renews_its_lock_while_the_disk_hangs_and_nobody_gets_a_new_one(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running_broker(tmp_path, disk, messages__ack_wait_s=0.05) as broker, peer(broker) as member:
        assert (await member.call(send("orders"))).code == 0
        await grown(member)
        assert (await member.call(locking())).code == 0
        disk.held = "queueLocks.json"
        wanted = {"topic": "orders", "brokerName": "broker-a", "queueId": 1}
        body: dict[str, object] = {"consumerGroup": "packing", "clientId": "b", "mqSet": [wanted]}
        refused = await member.call(request(RequestCode.LOCK_BATCH_MQ, body))
        assert refused.code == ResponseCode.SYSTEM_ERROR and refused.remark is not None and "disk" in refused.remark
        assert (await member.call(locking())).code == 0
        disk.may_sync.set()
