"""kill -9, or a power cut, right behind the answer to a group's first offset in a queue, or to a granted queue lock.

Also of a master and its slave at once, where the slave leads afterwards.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantry.leaves.frames import Command
from gantry.metadata.offset_handlers import OffsetHandlers
from gantry.metadata.offsets import NOT_COMMITTED, Offsets
from gantry.metadata.savedtogether import SavedTogether
from gantry.metadata.starts import GroupStarts
from gantry.store.background import InlineBackground
from gantry.store.statefile import JsonState
from gantry.wire.codes import RequestCode, ResponseCode
from testkit.pairplay import Pair, until
from testkit.process import GantryProcess
from testkit.pullplay import PullPlay
from testkit.rawclient import RawClient
from testkit.requests import answered, request
from testkit.simdisk import Faults, PowerCut, SimDisk

_CONFIG = {
    "name": "broker-a",
    "store.warm_bytes": str(1 << 20),
    "store.index_slots": "1000",
    "store.index_entries": "4000",
}
_QUEUE = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
_DICE = 6


def _sent(client: RawClient, bodies: list[bytes]) -> None:
    for body in bodies:
        client.send("orders", 0, body)
        reply = client.reply()
        assert reply is not None and reply.code == 0


def _is_taken(client: RawClient) -> bool:
    client.send("orders", 0, b"one")
    reply = client.reply()
    return reply is not None and reply.code == 0


def _locked(client: RawClient, member: str) -> list[Any]:
    queues = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
    body = json.dumps({"consumerGroup": "readers", "clientId": member, "mqSet": queues}).encode()
    answer = client.call(RequestCode.LOCK_BATCH_MQ, {}, body)
    assert answer.code == 0, answer.remark
    found: list[Any] = json.loads(answer.body)["lockOKMQSet"]
    return found


def test_a_group_that_began_at_the_end_begins_there_after_kill_9_and_skips_nothing(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        _sent(client, [b"." * 100_000] * 15)  # an old queue: a new group may begin at its end
        group = b'{"groupName":"readers","consumeEnable":true}'
        assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE).code == ResponseCode.QUERY_NOT_FOUND
        assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**_QUEUE, "commitOffset": "15"}).code == 0
        process.kill()
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        _sent(client, [b"new"] * 3)
        assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE).ext["offset"] == "15"
        process.stop()


def test_a_granted_queue_is_its_owners_after_kill_9(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        _sent(client, [b"one"])
        assert len(_locked(client, "owner")) == 1
        process.kill()
    with GantryProcess(tmp_path / "data", _CONFIG) as process, RawClient(process.broker) as client:
        assert _locked(client, "other") == []
        assert len(_locked(client, "owner")) == 1
        process.stop()


def _begun(client: RawClient, group: str = "readers") -> None:
    _sent(client, [b"one"] * 3)
    config = json.dumps({"groupName": group, "consumeEnable": True}).encode()
    assert client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config).code == 0
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**_QUEUE, "commitOffset": "3"}).code == 0


def _reset(client: RawClient) -> None:
    fields = {"topic": "orders", "group": "readers", "timestamp": "0", "isForce": "true"}
    assert client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == 0


def _popped(client: RawClient) -> None:
    mode = {"topic": "orders", "consumerGroup": "readers", "mode": "POP", "popShareQueueNum": 0}
    assert client.call(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode()).code == 0


def _offset(client: RawClient) -> str:
    return str(client.call(RequestCode.QUERY_CONSUMER_OFFSET, _QUEUE).ext["offset"])


def _modes(client: RawClient) -> bytes:
    return bytes(client.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}).body)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda client: None, lambda client: _offset(client) == "3"),
        (lambda client: _locked(client, "owner"), lambda client: _locked(client, "other") == []),
        pytest.param(_reset, lambda client: _offset(client) == "0", marks=pytest.mark.slow),
        pytest.param(_popped, lambda client: b"POP" in _modes(client), marks=pytest.mark.slow),
    ],
    ids=["first offset", "lock", "reset", "mode"],
)
def test_what_was_answered_is_on_the_slaves_disk_when_all_are_killed_and_it_leads(
    tmp_path: Path, change: Callable[[RawClient], object], holds: Callable[[RawClient], bool]
) -> None:
    with Pair(tmp_path, config={"clients.offsets_save_s": "600"}) as pair:
        pair.start(0)
        pair.start(1)
        pair.until_writable()
        with pair.client(0) as client:
            _begun(client)
            change(client)
        pair.members[0].kill()
        pair.members[1].kill()
        pair.start(1, role="SYNC_MASTER", replication__min_in_sync="1")
        with pair.client(1) as client:
            until(lambda: _is_taken(client), "it leads")
            assert holds(client)


class _Member:
    """A member of a group that begins in queue after queue, over a table on a simulated disk."""

    def __init__(self, disk: SimDisk) -> None:
        self.play = PullPlay()
        state = JsonState("/store/config/consumerOffset.json", disk, InlineBackground().housekeeper)
        self.play.offsets = offsets = Offsets(state, self.play.clock)
        self.play.commits.offsets = offsets
        starts = GroupStarts(offsets, self.play.topics, self.play.store, 1 << 20)

        async def save() -> bool:
            await offsets.saved()
            return state.error is None

        firsts = SavedTogether(lambda: offsets.firsts.count, save)
        about = offsets, self.play.topics, self.play.groups, starts, self.play.commits, firsts
        self.handlers = OffsetHandlers(*about, self.play.clients)
        self.play.groups.ensure("g")

    def ask(self, code: RequestCode, **fields: int) -> Command:
        handler = self.handlers.query if code == RequestCode.QUERY_CONSUMER_OFFSET else self.handlers.update
        return answered(handler(self.play.connection, request(code, consumerGroup="g", topic="T", **fields)))

    def begin(self, told: dict[int, int]) -> None:
        """Begin in each queue of T; `told` gets what was answered."""
        for queue_id in range(4):
            self.play.send("one", "two", queue_id=queue_id)
            if queue_id % 2:
                answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, queueId=queue_id)
                told[queue_id] = int(answer.ext["offset"])
            elif self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queueId=queue_id, commitOffset=2).code == 0:
                told[queue_id] = 2


def test_a_power_cut_at_any_operation_leaves_every_first_offset_that_was_answered() -> None:
    at, is_cut = 0, True
    while is_cut:
        at, is_cut, told = at + 1, False, dict[int, int]()
        disk = SimDisk()
        disk.faults = Faults(power_cut_at=at)
        try:
            _Member(disk).begin(told)
        except PowerCut:
            is_cut = True
        for seed in range(_DICE):
            after = _Member(disk.crash(random.Random(seed))).play.offsets
            found = {queue_id: after.query("g", "T", queue_id) for queue_id in told}
            assert found == told, f"cut at {at}, dice {seed}: {found} found, {told} was answered"
            assert NOT_COMMITTED not in found.values()
    assert at > 20 and len(told) == 4
