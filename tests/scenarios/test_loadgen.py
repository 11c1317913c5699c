"""The load generator of the benchmarks: a figure counts only if what it says about replies and records is true."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import GantryProcess
from testkit.rawclient import MAX_OFFSET, PULL, RawClient, pull_fields

_SOURCE = Path(__file__).parent.parent / "bench" / "loadgen.c"
_UPDATE_TOPIC, _UPDATE_GROUP = 17, 200
_QUEUES = 8


@dataclass(frozen=True)
class _Play:
    program: Path
    broker: GantryProcess

    def load(self, **options: object) -> dict[str, object]:
        """Run it for 200 requests at least."""
        port = self.broker.broker[1]
        command = [str(self.program), "--port", str(port)]
        few = {"seconds": 30, "warmup": 0, "count": 200, "size": 100, "queues": _QUEUES}
        for name, value in {**few, **options}.items():
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.stdout, done.stderr
        result: dict[str, object] = json.loads(done.stdout)
        assert (done.returncode != 0) == (result["errors"] != 0)
        return result

    def make_topic(self, topic: str) -> None:
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(_QUEUES), "writeQueueNums": str(_QUEUES)}
        ext |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        with RawClient(self.broker.broker) as client:
            assert client.call(_UPDATE_TOPIC, ext).code == 0

    def stored(self, topic: str) -> int:
        with RawClient(self.broker.broker) as client:
            asked = [{"topic": topic, "queueId": str(queue)} for queue in range(_QUEUES)]
            return sum(int(client.call(MAX_OFFSET, ext).ext["offset"]) for ext in asked)


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Play]:
    folder = tmp_path_factory.mktemp("loadgen")
    program = folder / "loadgen"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(_SOURCE)], check=True)
    with GantryProcess(folder / "store") as broker:
        yield _Play(program, broker)


@pytest.mark.parametrize(
    "options",
    [
        {"window": 16, "connections": 4},
        {"window": 4, "per": 32},
        {"window": 4, "per": 32, "code": 320},
        {"window": 16, "binary": 1},
        {"properties": "KEYS\x01order\x02TAGS\x01paid\x02"},
    ],
    ids=["plain", "batch", "batch-320", "binary", "properties"],
)
def test_what_it_calls_answered_is_stored_and_read_back_as_sent(play: _Play, options: dict[str, object]) -> None:
    topic = "-".join(["stored", *options]) + str(options.get("code", ""))
    sent = play.load(mode="send", topic=topic, **options)
    assert sent["errors"] == 0 and play.stored(topic) == sent["answered"] > 0
    pulled = play.load(mode="pull", topic=topic, connections=_QUEUES)
    assert pulled["errors"] == 0 and pulled["messages"] > 0


@pytest.mark.parametrize("pulled", [b"y" * 99, b"y" * 100 + b"z"], ids=["length", "last-byte"])
def test_a_body_that_differs_from_what_was_sent_is_an_error(play: _Play, tmp_path: Path, pulled: bytes) -> None:
    topic, sent, expected = f"differs-{len(pulled)}", tmp_path / "sent", tmp_path / "expected"
    sent.write_bytes(b"y" * 101)
    expected.write_bytes(pulled)
    play.load(mode="send", topic=topic, body=sent)
    found = play.load(mode="pull", topic=topic, connections=_QUEUES, seconds=0.2, count=0, body=expected)
    assert found["first_error"] == "a record differs from what was sent: "


def test_topics_get_their_messages_in_turn(play: _Play) -> None:
    for binary in (0, 1):
        sent = play.load(mode="send", topic=f"turn{binary}-", topics=10, connections=4, window=8, binary=binary)
        shares = [play.stored(f"turn{binary}-{number:05d}") for number in range(10)]
        assert sent["errors"] == 0 and sum(shares) == sent["answered"]
        assert max(shares) - min(shares) <= 1


def test_pulls_begin_again_where_they_are_told_to(play: _Play) -> None:
    play.load(mode="send", topic="until", queues=1, connections=4, window=64, count=2000)
    pulled = play.load(mode="pull", topic="until", queues=1, batch=10, until=20, seconds=0.2, count=0)
    assert pulled["errors"] == 0 and pulled["messages"] > 20


def test_a_transaction_counts_when_its_commit_is_answered(play: _Play) -> None:
    play.make_topic("paired")
    pairs = play.load(mode="transact", topic="paired", connections=4, window=8)
    assert pairs["errors"] == 0 and play.stored("paired") == pairs["answered"]


def test_live_messages_arrive_all_and_no_sooner_than_they_are_due(play: _Play) -> None:
    play.make_topic("live")
    live = play.load(mode="live", topic="live", connections=_QUEUES + 4, rate=1000)
    assert live["errors"] == 0 and play.stored("live") == live["answered"] > 0
    assert 0 < live["p50_us"] <= live["p99_us"]


def test_messages_given_back_are_answered_and_those_that_do_not_exist_are_errors(play: _Play, tmp_path: Path) -> None:
    play.load(mode="send", topic="given")
    with RawClient(play.broker.broker) as client:
        group = {"groupName": "bench-back", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        assert client.call(_UPDATE_GROUP, {}, json.dumps(group).encode()).code == 0
        record = client.call(PULL, pull_fields("given", 0, 0)).body
    offsets = tmp_path / "offsets"
    offsets.write_text(f"{int.from_bytes(record[28:36], 'big')}\n")
    assert play.load(mode="back", topic="given", offsets=offsets, window=4)["errors"] == 0
    offsets.write_text("7\n")
    assert play.load(mode="back", topic="given", offsets=offsets, count=0, seconds=0.1)["errors"] != 0


def test_replies_that_are_refusals_are_errors(play: _Play) -> None:
    refused = play.load(mode="send", topic="bad*name", count=0, seconds=0.1)
    assert refused["errors"] == refused["answered"] and "send refused" in str(refused["first_error"])
