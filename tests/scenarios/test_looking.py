"""Commands that look and change nothing, and resets of groups at work, against a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gantry.client.admin import Admin, Target
from gantry.client.consumer import Consumer, ConsumerSettings, ReceivedMessage, StartFrom
from gantry.client.producer import Message, Producer
from gantry.errors import RefusedError
from gantry.model.route import MessageQueue
from testkit.patience import HANG_S
from testkit.process import GantryProcess


class Cluster:
    """A standalone broker and the commands against it."""

    def __init__(self, process: GantryProcess) -> None:
        host, port = process.addresses["nameserver"]
        self.namesrv = f"{host}:{port}"
        self.command = [sys.executable, "-m", "gantry.cli.main"]
        self.environment = {**os.environ, "NAMESRV_ADDR": self.namesrv}

    def gantry(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env=self.environment,
            check=False,
        )

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        done = self.gantry(*arguments, "--output", "json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, object]] = json.loads(done.stdout)
        return rows

    def lines(self, *arguments: str) -> list[dict[str, object]]:
        done = self.gantry(*arguments, "--output", "json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def offsets(self) -> list[dict[str, object]]:
        """Everything that any group ever committed, the tools' own group too."""
        return self.rows("lag", "--all")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with GantryProcess(tmp_path_factory.mktemp("looking") / "data") as process:
        yield Cluster(process)


def test_lag_is_what_is_left_queue_by_queue(cluster: Cluster) -> None:
    cluster.gantry("topic", "create", "lagging", "--queues", "2")
    cluster.rows("produce", "lagging", *"abcdef")
    cluster.gantry("consume", "lagging", "--group", "g-lag", "--count", "6")
    cluster.rows("produce", "lagging", *"ghij")
    rows = cluster.rows("lag", "--group", "g-lag", "--topic", "lagging")
    assert [row["queue"] for row in rows] == [0, 1]
    assert sum(int(str(row["lag"])) for row in rows) == 4
    assert all(int(str(row["max_offset"])) - int(str(row["committed"])) == row["lag"] for row in rows)
    assert all(str(row["last"]).startswith("20") for row in rows)
    [summed] = cluster.rows("lag", "--topic", "lagging", "--sum")
    assert (summed["group"], summed["queues"], summed["lag"]) == ("g-lag", 2, 4)
    cluster.rows("group", "reset", "g-lag", "lagging", "--to", "last")
    behind = cluster.gantry("lag", "--topic", "lagging", "--behind")
    assert (behind.returncode, behind.stderr) == (0, "no group is behind\n")


def test_peek_shows_messages_from_a_place_or_a_moment_on_and_leaves_no_trace(cluster: Cluster) -> None:
    cluster.gantry("topic", "create", "peeked", "--queues", "1")
    cluster.rows("produce", "peeked", *[f"m{number}" for number in range(50)])
    before = cluster.offsets()
    bodies = [line["body"] for line in cluster.lines("peek", "peeked", "--count", "3")]
    assert bodies == ["m47", "m48", "m49"]
    found = cluster.lines("peek", "peeked", "--queue", "0", "--offset", "5", "--count", "40")
    assert [line["offset"] for line in found] == list(range(5, 45))
    moment = found[-1]["store_ms"]
    assert cluster.lines("peek", "peeked", "--time", f"@{moment}")[0]["store_ms"] == moment
    assert cluster.lines("peek", "peeked", "--time", "1h", "--count", "1")[0]["body"] == "m0"
    assert cluster.gantry("peek", "peeked", "--queue", "7").returncode == 1
    assert cluster.gantry("peek", "peeked", "--time", "soon").returncode == 2
    assert cluster.offsets() == before
    assert "peeked" not in {row["topics"] for row in cluster.rows("group", "list", "--all")}


def test_tail_prints_what_comes_and_leaves_no_trace(cluster: Cluster) -> None:
    cluster.rows("produce", "tailed", "before")
    before = cluster.offsets()
    tail = subprocess.Popen(
        [*cluster.command, "tail", "tailed", "--count", "3", "--output", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cluster.environment,
    )
    try:
        assert tail.stderr is not None
        assert "watching 4 queues" in tail.stderr.readline()
        cluster.rows("produce", "tailed", "one", "two", "three")
        out, _ = tail.communicate(timeout=HANG_S)
    finally:
        tail.kill()
        tail.wait()
    assert sorted(json.loads(line)["body"] for line in out.splitlines()) == ["one", "three", "two"]
    last = cluster.lines("tail", "tailed", "--last", "10", "--count", "4")
    assert sorted(str(line["body"]) for line in last) == ["before", "one", "three", "two"]
    assert cluster.gantry("tail", "tailed", "--idle", "0.2").returncode == 0
    assert cluster.offsets() == before


def test_a_reset_can_be_looked_at_first(cluster: Cluster) -> None:
    cluster.gantry("topic", "create", "dry", "--queues", "1")
    cluster.rows("produce", "dry", *"abcd")
    cluster.gantry("consume", "dry", "--group", "g-dry", "--count", "4")
    [row] = cluster.rows("group", "reset", "g-dry", "dry", "--to-offset", "1", "--dry-run")
    assert (row["from"], row["to"], row["left"]) == (4, 1, 3)
    assert cluster.rows("lag", "--group", "g-dry", "--topic", "dry")[0]["committed"] == 4
    cluster.rows("group", "reset", "g-dry", "dry", "--to-offset", "1")
    assert cluster.rows("lag", "--group", "g-dry", "--topic", "dry")[0]["committed"] == 1
    cluster.rows("group", "reset", "g-dry", "dry", "--to-time", "1h")
    assert cluster.rows("lag", "--group", "g-dry", "--topic", "dry")[0]["committed"] == 0


async def test_a_group_at_work_goes_back_and_forward_and_what_it_committed_before_counts_for_nothing(
    cluster: Cluster,
) -> None:
    queue = MessageQueue("moved", "broker-a", 0)
    seen: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async def until_seen(expected: list[str]) -> None:
        deadline = time.monotonic() + HANG_S
        while seen != expected:
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.02)

    async with asyncio.timeout(HANG_S):
        settings = ConsumerSettings(start_from=StartFrom.FIRST, commit_every_s=0.05, concurrency=1)
        namesrv = cluster.namesrv
        async with Admin(nameserver=namesrv) as admin, Producer("p", nameserver=namesrv) as producer:
            await admin.create_topic("moved", queues=1)
            for number in range(4):
                await producer.send(Message("moved", b"m%d" % number))
            consumer = Consumer(
                "g-moved", nameserver=namesrv, subscription={"moved": "*"}, listener=listener, settings=settings
            )
            async with consumer:
                await until_seen(["m0", "m1", "m2", "m3"])
                assert await admin.reset("g-moved", "moved", Target(queue_id=0, offset=2)) == {queue: 2}
                await until_seen(["m0", "m1", "m2", "m3", "m2", "m3"])
                [member] = (await admin.consumer_connections("g-moved"))["broker-a"]
                assert (member.client_id, member.language) == (consumer.client_id, "PYTHON")
                info = await admin.running_info("g-moved", consumer.client_id)
                assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"  # type: ignore[index]
                with pytest.raises(RefusedError, match="not online"):
                    await admin.running_info("g-moved", "nobody")
            [lag] = await admin.lag(group="g-moved", topic="moved")
            assert (lag.committed, lag.lag) == (4, 0)
