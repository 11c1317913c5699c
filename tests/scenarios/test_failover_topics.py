"""Topics whose past is not plain, across a change of the master: made by themselves, made again, expired, cloned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gantry.leaves.frames import Command
from gantry.replication.haapi import CLONE
from gantry.store import queuetable
from gantry.wire.codes import RequestCode, ResponseCode
from scenarios.test_failover import are_equal, handed_over, ordered
from testkit.brokerplay import bodies, peer, pull, send
from testkit.failoverplay import FailoverPlay, playing
from testkit.turning import until

GROUP = "readers"
SMALL = {
    "store__segment_bytes": 128 << 10,
    "messages__body_bytes_max": 32 << 10,
    "store__queue_file_entries": 10,
    "store__delete_hours": [],
    "store__flush": "SYNC_FLUSH",
}


def made(topic: str) -> Command:
    ext = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    ext |= {"readQueueNums": "2", "writeQueueNums": "2", "topicSysFlag": "0", "order": "false"}
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext)


async def asked(group: FailoverPlay, *commands: Command) -> list[Command]:
    """What the master answers."""
    async with peer(group.broker(group.master)) as client:
        return [await client.call(command) for command in commands]


async def done(group: FailoverPlay, *commands: Command) -> list[dict[str, str]]:
    """The fields of answers that all are successes."""
    answers = await asked(group, *commands)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * len(commands), answers
    return [answer.ext for answer in answers]


async def handed_to(group: FailoverPlay, target: int) -> None:
    await handed_over(group, target)
    await until(lambda: group.master == target and group.takes_writes())


async def lost(group: FailoverPlay) -> None:
    """The master goes, another one leads."""
    former = group.master
    await group.processes[former].stop()
    await until(group.takes_writes)
    assert group.master != former


async def test_a_queue_keeps_its_id_and_attributes_at_the_masters_that_follow(tmp_path: Path) -> None:
    attributes = {"gantry.queue.id": "0123456789abcdef", "gantry.queue.life_s": "60", "message.type": "DELAY"}
    queue = made("jobs")
    queue.ext["attributes"] = ",".join(f"+{name}={value}" for name, value in attributes.items())
    async with playing(tmp_path, **SMALL) as group:
        await done(group, queue)
        await handed_to(group, 1)
        (found,) = await asked(group, Command(RequestCode.GET_TOPIC_CONFIG, ext={"topic": "jobs"}))
        assert json.loads(found.body)["attributes"] == attributes
        await lost(group)
        (found,) = await asked(group, Command(RequestCode.GET_TOPIC_CONFIG, ext={"topic": "jobs"}))
        assert json.loads(found.body)["attributes"] == attributes


async def test_a_topic_that_came_with_its_first_message_goes_on_at_the_next_master(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        await done(group, send("Auto", b"one", queue_id=1))
        parts = group.broker(group.master).parts
        assert parts is not None
        config = parts.topics.get("Auto")
        await lost(group)
        parts = group.broker(group.master).parts
        assert parts is not None and config is not None
        found = parts.topics.get("Auto")
        assert found is not None and found.to_json() == config.to_json()
        (told,) = await done(group, send("Auto", b"two", queue_id=1))
        assert told["queueOffset"] == "1"


async def test_a_topic_that_was_made_again_shows_nothing_of_its_former_life_at_the_next_master(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:
        commit = {"consumerGroup": GROUP, "topic": "T", "queueId": "0", "commitOffset": "2"}
        query = {"consumerGroup": GROUP, "topic": "T", "queueId": "0"}
        readers = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"readers"}')
        await done(group, readers, made("T"), send("T", b"old"), send("T", b"older"))
        await done(group, Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=commit))
        await done(group, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": "T"}), made("T"))
        (told,) = await done(group, send("T", b"new"))
        assert told["queueOffset"] == "0"
        await lost(group)
        (got,) = await asked(group, pull("T", 0))
        assert bodies(got) == [b"new"]
        (kept,) = await asked(group, Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=query))
        assert kept.code == ResponseCode.QUERY_NOT_FOUND or kept.ext["offset"] == "0"


@pytest.mark.slow
@pytest.mark.parametrize("looked_at_once", [1000, 1])
async def test_a_queue_whose_records_have_all_expired_goes_on_where_it_ended_also_at_a_clone_that_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at_once: int
) -> None:
    monkeypatch.setattr(queuetable, "_LOOKED_AT_ONCE", looked_at_once)  # 1: as with a thousand times the queues
    async with playing(tmp_path, **SMALL) as group:
        await done(group, *(send("Q", b"%d" % number) for number in range(5)))
        await done(group, *(send("T", b"x" * 8000) for _ in range(60)))
        await until(lambda: are_equal(group))
        first = group.broker(group.master).parts
        assert first is not None
        for path in (Path(first.store.settings.root) / "commitlog").iterdir():
            os.utime(path, (0, 0))
        await done(group, Command(329))  # delete what has expired
        await until(lambda: first.store.stats().log_start >= 128 << 10)
        (gone,) = await asked(group, pull("Q", 0))
        assert gone.code != ResponseCode.SUCCESS, "its records were in the first segment"

        master, clone = group.master, (group.master + 1) % 3
        await group.processes[clone].stop()
        await until(lambda: clone not in group.tracker.in_sync)
        group.processes[clone].start()
        await until(lambda: group.processes[clone].broker is not None)
        assert (await ordered(group, CLONE, clone))[0] == 200
        await until(lambda: group.tracker.in_sync == [0, 1, 2])
        for target, offset in ((clone, 5), (3 - master - clone, 6), (master, 7)):
            await handed_to(group, target)
            (told,) = await done(group, send("Q", b"more"))
            assert told["queueOffset"] == str(offset), target
