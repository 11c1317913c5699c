"""`gantry dlq` against a broker: what it shows, and what a replay brings to whom."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gantry.cli import dlq
from gantry.cli.errors import report
from gantry.client.admin import Admin
from gantry.client.consumer import Consumer, ConsumerSettings, StartFrom
from gantry.client.deadletters import DeadLetter
from gantry.client.producer import Message, Producer
from gantry.model.topic import PERM_WRITE
from testkit.clusterplay import Cluster, running_cluster
from testkit.patience import HANG_S
from testkit.typed import read

FIRST = ConsumerSettings(start_from=StartFrom.FIRST, pull_wait_s=1.0)


async def gantry_dlq(cluster: Cluster, *arguments: str) -> int:
    """The exit code of `gantry dlq`."""
    parser = argparse.ArgumentParser()
    dlq.configure(parser)
    parsed = parser.parse_args([*arguments, "--namesrv", cluster.nameserver, "--output", "json"])
    return await asyncio.to_thread(report, lambda: dlq.run(parsed))


async def let_die(cluster: Cluster, count: int, group: str = "g") -> list[str]:
    """Messages of T that the group gave up; their ids in the order of their deaths."""
    async with Producer("p", nameserver=cluster.nameserver) as producer:
        for number in range(count):
            await producer.send(Message("T", b"sour %d" % number, tags="a", properties={"colour": "red"}), key="k")
    async with Consumer(group, nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FIRST) as consumer:
        ids = []
        for _ in range(count):
            message = await anext(consumer)
            await message.give_up()
            ids.append(message.message_id)
    return ids


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What was printed."""
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


@pytest.mark.shows("dlq show --count", "dlq show --id", "dlq ls --group")
async def test_dead_letters_are_counted_listed_and_shown_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        assert await gantry_dlq(cluster, "ls") == 0
        assert rows(capsys) == []
        ids = await let_die(cluster, 3)
        assert await gantry_dlq(cluster, "ls") == 0
        (row,) = rows(capsys)
        assert {key: row[key] for key in ("group", "broker", "queue", "messages", "notReplayed")} == {
            "group": "g",
            "broker": "broker-a",
            "queue": 0,
            "messages": 3,
            "notReplayed": 3,
        }
        assert await gantry_dlq(cluster, "ls", "--group", "other") == 0
        assert rows(capsys) == []
        assert await gantry_dlq(cluster, "show", "g", "--count", "2") == 0
        listed = rows(capsys)
        assert [one["id"] for one in listed] == ids[:2]
        assert (listed[0]["topic"], listed[0]["tags"], listed[0]["redelivered"], listed[0]["replays"]) == (
            "T",
            "a",
            0,
            0,
        )
        assert await gantry_dlq(cluster, "show", "g", "--id", ids[1]) == 0
        one = json.loads(capsys.readouterr().out)
        assert (one["body"], one["properties"]["colour"]) == ("sour 1", "red")
        assert await gantry_dlq(cluster, "show", "g", "--id", "nobody") == 1
        assert await gantry_dlq(cluster, "show", "nobody") == 0


@pytest.mark.shows("dlq replay --dry-run", "dlq replay --count", "dlq replay --again", "dlq replay --rate")
async def test_a_replay_reaches_the_group_alone_with_ids_kept_and_replays_counted_and_goes_on_where_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, paced = [], dlq.paced

    def watched(letters: AsyncIterator[DeadLetter], rate: float) -> AsyncIterator[DeadLetter]:
        rates.append(rate)
        return paced(letters, rate)

    monkeypatch.setattr(dlq, "paced", watched)
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        ids = await let_die(cluster, 3)
        assert await gantry_dlq(cluster, "replay", "g", "--dry-run") == 0
        out, err = capsys.readouterr()
        assert [one["id"] for one in json.loads(out)] == ids
        assert err == "3 would be replayed\n"
        assert await gantry_dlq(cluster, "replay", "g", "--count", "1") == 0
        assert [one["id"] for one in rows(capsys)] == ids[:1]
        assert await gantry_dlq(cluster, "replay", "g", "--rate", "1000") == 0
        replayed = rows(capsys)
        assert [one["id"] for one in replayed] == ids[1:] and rates[-1] == 1000
        assert {one["target"] for one in replayed} == {"%RETRY%g"}
        assert await gantry_dlq(cluster, "replay", "g") == 0
        assert rows(capsys) == []
        assert await gantry_dlq(cluster, "replay", "g", "--again", "--dry-run") == 0
        assert [one["id"] for one in rows(capsys)] == ids

        async with Consumer("g", nameserver=cluster.nameserver, subscription={"T": "*"}, settings=FIRST) as member:
            again = [await anext(member) for _ in ids]
            assert sorted(one.message_id for one in again) == sorted(ids)
            for one in again:
                assert (one.topic, one.attempt, one.tags) == ("T", 1, "a")
                assert (one.properties["GANTRY_REPLAYS"], one.properties["colour"]) == ("1", "red")
                assert "DLQ_ORIGIN_TOPIC" not in one.properties
            await again[0].give_up()
            for one in again[1:]:
                await one.ack()
        capsys.readouterr()
        # Nobody else got it: the topic has what was sent to it, and no more.
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert sum(one.max_offset for one in await admin.progress("g", "T")) == 3
        assert await gantry_dlq(cluster, "show", "g") == 0
        assert [one["replays"] for one in rows(capsys)] == [0, 0, 0, 1]


async def test_the_lines_of_the_document_do_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [one.text for one in read("broker/docs/redelivery.md") if one.kind == "gantry"]
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        ids = await let_die(cluster, 3, "billing")
        for line in lines:
            _, command, *words = shlex.split(line.replace(" ID ", f" {ids[0]} "))
            assert command == "dlq" and await gantry_dlq(cluster, *words) == 0, line
            assert rows(capsys), line


@pytest.mark.shows("dlq replay --to", "dlq replay --id")
async def test_some_can_be_chosen_and_sent_to_their_topic_for_everybody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        ids = await let_die(cluster, 3)
        assert await gantry_dlq(cluster, "replay", "g", "--to", "topic", "--id", ids[2], "--id", "nobody") == 1
        out, err = capsys.readouterr()
        (row,) = json.loads(out)
        assert (row["id"], row["target"]) == (ids[2], "T")
        assert "no dead letter nobody" in err
        # What was chosen by hand does not move where the next replay begins.
        assert await gantry_dlq(cluster, "replay", "g", "--dry-run") == 0
        assert [one["id"] for one in rows(capsys)] == ids
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert len(await admin.messages_by_id("T", ids[2])) == 2


async def test_a_replay_that_is_refused_says_so_and_the_next_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        ids = await let_die(cluster, 2)
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.delete_group("g")
            assert await gantry_dlq(cluster, "replay", "g") == 1
            out, err = capsys.readouterr()
            assert json.loads(out) == []
            assert "broken off" in err and "group not exist" in err
            await admin.create_group("g")
            assert await gantry_dlq(cluster, "replay", "g") == 0
            assert [one["id"] for one in rows(capsys)] == ids


async def test_a_topic_that_an_older_broker_made_unreadable_says_how_to_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(HANG_S), running_cluster(tmp_path) as cluster:
        await let_die(cluster, 1)
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic("%DLQ%g", queues=1, perm=PERM_WRITE)
            assert await gantry_dlq(cluster, "show", "g") == 1
            assert "gantry topic create '%DLQ%g'" in capsys.readouterr().err
            await admin.create_topic("%DLQ%g", queues=1)
            assert await gantry_dlq(cluster, "show", "g") == 0


def test_a_name_that_no_group_can_have_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    dlq.configure(parser)
    parsed = parser.parse_args(["show", "no blanks"])
    assert report(lambda: dlq.run(parsed)) == 2
    assert "gantry:" in capsys.readouterr().err
