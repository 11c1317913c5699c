"""The commands of a first day, against a real standalone broker in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.patience import HANG_S
from testkit.process import GantryProcess


class Cluster:
    """A standalone broker and the commands against it."""

    def __init__(self, process: GantryProcess) -> None:
        self.process = process
        host, port = process.addresses["nameserver"]
        self.namesrv = f"{host}:{port}"

    def gantry(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return gantry(*arguments, stdin=stdin, namesrv=self.namesrv)

    def rows(self, *arguments: str, stdin: str = "") -> list[dict[str, object]]:
        done = self.gantry(*arguments, "--output", "json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, object]] = json.loads(done.stdout)
        return rows


def gantry(*arguments: str, stdin: str = "", namesrv: str = "127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gantry.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        check=False,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with GantryProcess(tmp_path_factory.mktemp("commands") / "data") as process:
        yield Cluster(process)


def test_what_is_produced_is_consumed_once_and_the_group_remembers(cluster: Cluster) -> None:
    sent = cluster.rows("produce", "first", "one", "two", "三", "--tags", "t", "--keys", "k1,k2")
    assert len(sent) == 3
    first = cluster.gantry("consume", "first", "--group", "g-first", "--count", "3", "--output", "json")
    received = [json.loads(line) for line in first.stdout.splitlines()]
    assert sorted(each["body"] for each in received) == ["one", "two", "三"]
    assert {each["message_id"] for each in received} == {row["message_id"] for row in sent}
    again = cluster.gantry("consume", "first", "--group", "g-first", "--idle", "0.5")
    assert (again.returncode, again.stdout) == (0, "")


def test_messages_are_chosen_by_sql_and_a_fault_in_it_is_told(cluster: Cluster) -> None:
    for tag in ("a", "b"):
        cluster.gantry("produce", "chosen", f"is {tag}", "--tags", tag)
    found = cluster.gantry("consume", "chosen", "--group", "g-chosen", "--sql", "TAGS = 'b'", "--count", "1")
    assert "is b" in found.stdout
    refused = cluster.gantry("consume", "chosen", "--group", "g-chosen", "--sql", "TAGS == 'b'")
    assert refused.returncode != 0 and "position 6" in refused.stderr and "single =" in refused.stderr


def test_every_line_of_stdin_is_a_message(cluster: Cluster) -> None:
    sent = cluster.rows("produce", "lines", stdin="".join(f"line {number}\n" for number in range(200)))
    assert len({row["message_id"] for row in sent}) == 200
    status = cluster.rows("topic", "status", "lines")
    assert sum(int(str(row["messages"])) for row in status) == 200


def test_a_topic_is_created_listed_and_deleted(cluster: Cluster) -> None:
    assert cluster.gantry("topic", "create", "made", "--queues", "3").returncode == 0
    assert [row["write_queues"] for row in cluster.rows("topic", "list") if row["topic"] == "made"] == [3]
    assert cluster.gantry("topic", "delete", "made").returncode == 0
    assert not [row for row in cluster.rows("topic", "list") if row["topic"] == "made"]


def test_a_topic_limits_its_messages_by_attributes(cluster: Cluster) -> None:
    created = cluster.gantry("topic", "create", "limited", "--attribute", "message.size.max=5")
    assert created.returncode == 0, created.stderr
    assert len(cluster.rows("produce", "limited", "12345")) == 1
    refused = cluster.gantry("produce", "limited", "123456")
    assert refused.returncode == 1
    assert "topic[limited] allows 5 (message.size.max)" in refused.stderr
    assert cluster.gantry("topic", "create", "limited", "--attribute", "message.size.max").returncode == 2


def test_rocketmqs_own_topics_and_groups_are_listed_only_when_asked_for(cluster: Cluster) -> None:
    cluster.rows("produce", "mine", "one")
    cluster.gantry("consume", "mine", "--group", "g-mine", "--count", "1")
    shown = {row["topic"] for row in cluster.rows("topic", "list")}
    assert "mine" in shown
    assert not {"SELF_TEST_TOPIC", "BenchmarkTest", "DefaultCluster", "broker-a", "%RETRY%g-mine"} & shown
    assert {"SELF_TEST_TOPIC", "broker-a", "mine"} <= {row["topic"] for row in cluster.rows("topic", "list", "--all")}
    groups = {row["group"] for row in cluster.rows("group", "list")}
    assert "g-mine" in groups
    assert "CID_RMQ_SYS_TRANS" not in groups
    assert "CID_RMQ_SYS_TRANS" in {row["group"] for row in cluster.rows("group", "list", "--all")}


def test_options_may_stand_between_the_topic_and_its_messages(cluster: Cluster) -> None:
    assert len(cluster.rows("produce", "between", "--keys", "order-8", "one", "--tags", "t", "two")) == 2
    assert len(cluster.rows("topic", "find", "between", "--key", "order-8")) == 2


def test_a_message_is_found_by_key_and_by_both_ids(cluster: Cluster) -> None:
    [sent] = cluster.rows("produce", "found", "here", "--keys", "order-7")
    [by_key] = cluster.rows("topic", "find", "found", "--key", "order-7")
    assert by_key["message_id"] == sent["message_id"]
    [by_id] = cluster.rows("topic", "find", "found", "--id", str(sent["message_id"]))
    [by_offset] = cluster.rows("topic", "find", "found", "--id", str(by_key["offset_message_id"]))
    assert by_id == by_offset == by_key
    assert by_key["broker"] == sent["broker"]
    missing = cluster.gantry("topic", "find", "found", "--key", "nobody")
    assert (missing.returncode, missing.stderr) == (1, "no such message\n")


def test_a_groups_progress_is_shown_and_set_back(cluster: Cluster) -> None:
    cluster.rows("produce", "progress", stdin="a\nb\nc\nd\n")
    cluster.gantry("consume", "progress", "--group", "g-progress", "--count", "4")
    done = cluster.rows("group", "progress", "g-progress", "--topic", "progress")
    assert sum(int(str(row["lag"])) for row in done) == 0
    [listed] = [row for row in cluster.rows("group", "list") if row["group"] == "g-progress"]
    assert (listed["topics"], listed["lag"], listed["members"]) == ("progress", 0, 0)
    cluster.rows("group", "reset", "g-progress", "progress", "--to", "first")
    again = cluster.gantry("consume", "progress", "--group", "g-progress", "--count", "4")
    assert len(again.stdout.splitlines()) == 4


def test_the_cluster_shows_its_broker_and_the_broker_its_figures(cluster: Cluster) -> None:
    [row] = cluster.rows("cluster", "list")
    assert (row["broker"], row["id"], row["answers"]) == ("broker-a", 0, True)
    info = cluster.gantry("cluster", "info", "broker-a", "--output", "json")
    assert "brokerVersionDesc" in json.loads(info.stdout)
    assert "version" in cluster.gantry("cluster", "list").stdout.lower()


def test_the_side_door_says_it_is_well(cluster: Cluster) -> None:
    host, port = cluster.process.addresses["http"]
    for path, expected in (("healthz", b"running"), ("readyz", b"running"), ("metrics", b"gantry_")):
        with urllib.request.urlopen(f"http://{host}:{port}/{path}", timeout=HANG_S) as answer:
            assert answer.status == 200
            assert expected in answer.read()


def test_a_store_that_stopped_in_order_is_verified_and_one_in_use_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with GantryProcess(folder) as process:
        cluster = Cluster(process)
        cluster.rows("produce", "kept", stdin="".join(f"{number}\n" for number in range(50)))
        in_use = gantry("store", "verify", str(folder))
        assert in_use.returncode == 1
        assert str(process.popen.pid) in in_use.stderr
        assert process.stop() == 0
    done = gantry("store", "verify", str(folder), "--output", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["records"], report["queue_entries"], report["faults"]) == (50, 50, 0)
    assert report["stopped_in_order"] is True
    assert (report["topics"], report["damaged"]) == ([{"topic": "kept", "messages": 50}], [])


def test_a_damaged_store_is_told_apart(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with GantryProcess(folder) as process:
        Cluster(process).rows("produce", "hurt", stdin="".join(f"body number {number}\n" for number in range(50)))
        process.stop()
    segment = folder / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    at = content.index(b"body number 20")
    content[at] ^= 0x20
    segment.write_bytes(content)
    done = gantry("store", "verify", str(folder))
    assert done.returncode == 1
    assert "damaged: segment" in done.stderr
    told = json.loads(gantry("store", "verify", str(folder), "--output", "json").stdout)
    assert told["faults"] == len(told["damaged"]) == 1 and told["damaged"][0].startswith("segment")


def test_sigterm_ends_it_with_exit_code_0_and_the_next_start_finds_an_orderly_store(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data") as process:
        assert process.stop() == 0
        assert "SIGTERM" in process.stderr()
    assert not (tmp_path / "data" / "abort").exists()


def test_a_port_in_use_names_its_holder_and_the_flag(cluster: Cluster, tmp_path: Path) -> None:
    taken = cluster.process.addresses["broker"][1]
    done = gantry(
        "standalone", f"--data={tmp_path / 'other'}", f"--broker-port={taken}", "--nameserver-port=0", "--http-port=0"
    )
    assert done.returncode == 2
    assert f"(pid {cluster.process.popen.pid})" in done.stderr
    assert "--broker-port" in done.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--set", "pull.cuont_max=3"], "pull.count_max"),
        (["--set", "pull.count_max=many"], "pull.count_max"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--flush", "SOMETIMES"], "SYNC_FLUSH"),
        (["--set", "role=SLAVE", "--set", "id=1"], "gantry broker --namesrv"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_one_line_and_exit_code_2(
    flags: list[str], text: str, tmp_path: Path
) -> None:
    done = gantry("standalone", "--data", str(tmp_path / "data"), *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_conf_of_rocketmq_starts_a_broker_and_its_idle_keys_are_named(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerName = shop\nbrokerIP1 = 127.0.0.1\nlistenPort = 0\nflushDiskType = SYNC_FLUSH\n"
        f"brokerIP2 = 10.0.0.1\nstorePathRootDir = {tmp_path / 'store'}\n"
    )
    command = ["broker", "--config", str(conf), "--bind", "127.0.0.1", "--vip-port=-2", "--http-port=-1"]
    with subprocess.Popen(
        [sys.executable, "-m", "gantry.cli.main", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as popen:
        assert popen.stdout is not None
        assert popen.stderr is not None
        assert popen.stdout.readline().startswith("ready broker=127.0.0.1:")
        popen.send_signal(signal.SIGTERM)
        said = popen.stderr.read()
        assert popen.wait(HANG_S) == 0
    assert "brokerIP2 has no meaning here" in said


def test_an_unreachable_name_server_is_said_with_what_to_look_at() -> None:
    done = gantry("topic", "list", "--timeout", "1")
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr
    assert "--namesrv" in done.stderr
