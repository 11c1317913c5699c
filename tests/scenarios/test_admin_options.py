"""What each option of topic, group, lag and store does, and what commands say that make, change or delete something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.commandline import Done, name_server, run
from testkit.process import GantryProcess

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with GantryProcess(tmp_path_factory.mktemp("options") / "data") as process:
        host, port = process.addresses["nameserver"]
        with name_server(f"{host}:{port}"):
            yield


def well(*arguments: str) -> Done:
    done = run(*arguments)
    assert done.code == 0, done
    return done


def rows(*arguments: str) -> Rows:
    found: Rows = json.loads(well(*arguments, "--output", "json").out)
    return found


def consumed(topic: str, group: str, count: int) -> None:
    well("topic", "create", topic, "--queues", "2")
    well("produce", topic, *map(str, range(count)))
    well("consume", topic, "--group", group, "--count", str(count))


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_what_is_made_changed_or_deleted_is_said_with_an_exit_code(kind: str) -> None:
    assert well(kind, "create", "tea").out == f"{kind}/tea created\n"
    assert well(kind, "create", "tea").out == f"{kind}/tea unchanged\n"
    assert json.loads(well(kind, "delete", "tea", "--output", "json").out) == {kind: "tea", "result": "deleted"}
    again = run(kind, "delete", "tea")
    assert (again.code, again.out) == (1, "") and f"{kind}/tea is not there" in again.err


@pytest.mark.shows("topic create --queues", "topic create --perm", "topic create --attribute")
def test_a_topic_is_as_it_was_asked_for() -> None:
    well("topic", "create", "asked", "--queues", "3", "--perm", "r")
    (row,) = [row for row in rows("topic", "list") if row["topic"] == "asked"]
    assert (row["read_queues"], row["write_queues"], row["readable"], row["writable"]) == (3, 3, True, False)
    words = ["topic", "create", "asked", "--queues", "3", "--attribute", "message.size.max=5"]
    assert well(*words).out == "topic/asked changed\n" and well(*words).out == "topic/asked unchanged\n"
    refused = run("produce", "asked", "123456")
    assert refused.code == 1 and "message.size.max" in refused.err
    assert run("topic", "create", "asked", "--attribute", "message.size.max").code == 2


@pytest.mark.shows("topic create --cluster", "topic delete --cluster")
@pytest.mark.shows("group create --cluster", "group delete --cluster")
@pytest.mark.parametrize("kind", ["topic", "group"])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_only_the_cluster_that_is_named_is_touched(kind: str, verb: str) -> None:
    name = f"in-{verb}"
    if verb == "delete":
        well(kind, "create", name)
    elsewhere = run(kind, verb, name, "--cluster", "Other")
    assert elsewhere.code == 3 and "cluster Other" in elsewhere.err
    assert (verb == "delete") == (name in {row[kind] for row in rows(kind, "list")})
    assert well(kind, verb, name, "--cluster", "DefaultCluster").out == f"{kind}/{name} {verb}d\n"


@pytest.mark.shows("topic list --all", "group list --all", "lag --all")
def test_rocketmqs_own_are_shown_on_demand() -> None:
    consumed("seen", "g-seen", 1)
    for words, name, own in (
        (["topic", "list"], "topic", "SELF_TEST_TOPIC"),
        (["group", "list"], "group", "CID_RMQ_SYS_TRANS"),
    ):
        assert own not in {row[name] for row in rows(*words)}
        assert own in {row[name] for row in rows(*words, "--all")}
    assert len(rows("lag", "--all")) >= len(rows("lag")) > 0


@pytest.mark.shows("topic find --key", "topic find --id")
def test_a_message_is_found_by_its_key_or_its_id() -> None:
    (sent,) = rows("produce", "found", "x", "--keys", "order-7")
    (by_key,) = rows("topic", "find", "found", "--key", "order-7")
    (by_id,) = rows("topic", "find", "found", "--id", sent["message_id"])
    assert by_key == by_id and by_id["body"] == "x"
    assert run("topic", "find", "found", "--key", "nothing").code == 1


@pytest.mark.shows("lag --group", "lag --topic", "lag --behind", "lag --sum", "group progress --topic")
def test_lag_is_narrowed_and_summed() -> None:
    consumed("lag-a", "g-lag", 3)
    consumed("lag-b", "g-lag", 2)
    consumed("lag-c", "g-lag-other", 1)
    well("produce", "lag-a", "more")
    assert {(row["topic"], row["group"]) for row in rows("lag", "--topic", "lag-b")} == {("lag-b", "g-lag")}
    assert {row["topic"] for row in rows("lag", "--group", "g-lag")} >= {"lag-a", "lag-b"}
    assert {row["topic"] for row in rows("lag", "--group", "g-lag-other", "--topic", "lag-c")} == {"lag-c"}
    assert "lag-c" not in {row["topic"] for row in rows("lag", "--group", "g-lag")}
    assert [(row["topic"], row["lag"]) for row in rows("lag", "--group", "g-lag", "--behind")] == [("lag-a", 1)]
    sums = {row["topic"]: row["queues"] for row in rows("lag", "--group", "g-lag", "--sum")}
    assert sums["lag-a"] == sums["lag-b"] == 2
    assert {row["topic"] for row in rows("group", "progress", "g-lag", "--topic", "lag-a")} == {"lag-a"}


@pytest.mark.shows(
    "group reset --to", "group reset --to-time", "group reset --to-offset", "group reset --dry-run",
    "group reset --queue",
)  # fmt: skip
def test_a_group_is_moved_where_and_only_where_it_is_told() -> None:
    consumed("moved", "g-moved", 6)

    def places() -> list[int]:
        return [row["committed"] for row in rows("group", "progress", "g-moved", "--topic", "moved")]

    ends = places()
    reset = ["group", "reset", "g-moved", "moved"]
    rows(*reset, "--to", "first", "--dry-run")
    assert places() == ends
    rows(*reset, "--to-offset", "1", "--queue", "1")
    assert places() == [ends[0], 1]
    rows(*reset, "--to-time", "1h")
    assert places() == [0, 0]
    rows(*reset, "--to", "last")
    assert places() == ends
    missing = run(*reset, "--to", "first", "--queue", "99")
    assert (missing.code, missing.out) == (1, "") and "--queue 99" in missing.err
    assert places() == ends


@pytest.mark.shows("store verify --output")
def test_a_check_of_a_folder_is_told_to_programs(tmp_path: Path) -> None:
    with GantryProcess(tmp_path / "data") as process:
        process.stop()
    assert json.loads(well("store", "verify", str(tmp_path / "data"), "--output", "json").out)["faults"] == 0
    assert "stopped_in_order" in well("store", "verify", str(tmp_path / "data"), "--output", "table").out
