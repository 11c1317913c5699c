"""Every field of a BrokerCluster has an effect, read back from what runs: here from brokers and failover loops.

What only nodes can show (pods, volumes, members that come and go) is read back by tests/e2e/test_changes.py.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantry.clock import SystemClock
from gantry.failover.asking import AskedMembers
from gantry.replication.haproof import Keys
from gantry_operator.api import lenient
from gantry_operator.api.brokercluster import BrokerCluster, read
from gantry_operator.api.schema import Schema, definition
from gantry_operator.api.wishes import FORCE
from gantry_operator.desired import doors, policies
from gantry_operator.desired.brokers import settings
from gantry_operator.doors import own_part
from gantry_operator.doorseen import door_seen
from gantry_operator.snapshot import GroupSeen
from gantry_operator.watching import order_of
from testkit.kube.clusters import document
from testkit.kube.effects import EFFECTS, Effect, found, wanted
from testkit.patience import HANG_S
from testkit.ports import free_port
from testkit.sources import ROOT

SECRET = base64.b64encode(b"s" * 32)


def fields(schema: Schema, path: str) -> Iterator[str]:
    for name, each in schema["properties"].items():
        is_folder = each["type"] == "object" and "properties" in each and "requests" not in each["properties"]
        yield from fields(each, f"{path}.{name}") if is_folder else (f"{path}.{name}",)


def with_changes(changes: Mapping[str, Any], **annotations: str) -> BrokerCluster:
    made = document()
    merge(made["spec"], changes)
    made["metadata"]["annotations"] = annotations
    return read(made)


def merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


def test_every_field_has_an_effect_that_is_read_back_and_every_test_that_is_named_exists() -> None:
    spec = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(fields(spec, "spec")) == set(EFFECTS)
    source = (ROOT / "tests" / "e2e" / "test_changes.py").read_text()
    for path, effect in EFFECTS.items():
        ways = [each for each in effect[1:] if each]
        assert len(ways) == 1, path
        assert f"def {effect.shown_by or 'test_'}" in source


@pytest.mark.parametrize("path", [path for path, effect in EFFECTS.items() if effect.guard])
def test_the_policy_of_brokers_does_as_the_field_says(path: str) -> None:
    """What it means for connections: test_policies."""
    effect = EFFECTS[path]
    assert effect.guard is not None
    name, value = effect.guard
    _, before = policies.objects(with_changes({}), "gantrymq-system")
    _, after = policies.objects(with_changes(wanted({path: effect})), "gantrymq-system")
    assert before != after and found(after, name) == value


@pytest.mark.parametrize("path", [path for path, effect in EFFECTS.items() if effect.door])
def test_the_doors_are_as_the_field_says(path: str) -> None:
    effect, component = EFFECTS[path], path.split(".")[1]
    assert effect.door is not None
    kind, where, value = effect.door

    def built(changes: Mapping[str, Any]) -> dict[str, Any]:
        made = document()
        made["spec"][component] = {"users": {"secretName": "users"}} if component == "queues" else {}
        merge(made["spec"], changes)
        cluster = lenient.read(made)
        (door,) = cluster.doors
        shape = doors.DoorShape(door_seen(cluster, door, None, None).replicas, "digest")
        own = own_part(cluster, door.kind)
        objects = [*doors.objects(cluster, door), doors.deployment(cluster, door, cluster.image, shape, own)]
        return next(each for each in objects if each["kind"] == kind)

    assert found(built(wanted({path: effect})), where) == value
    if value is not True:  # what is always so
        assert built(wanted({path: effect})) != built({})


@pytest.mark.parametrize("path", [path for path, effect in EFFECTS.items() if effect.loop])
def test_the_failover_loop_does_as_the_field_says(path: str) -> None:
    effect = EFFECTS[path]
    assert effect.loop is not None
    name, value = effect.loop

    def ordered(changes: Mapping[str, Any]) -> object:
        (group,) = with_changes(changes, **{FORCE: "b0/1@1"}).groups()
        return found(order_of(GroupSeen(group, None, {})), name)

    assert ordered(wanted({path: effect})) == value != ordered({})


def running(cluster: BrokerCluster, folder: Path) -> dict[str, object]:
    """What a member of the first group says that it runs with: a process, with ports and folders of this machine."""
    folder.mkdir()
    (group,) = cluster.groups()
    (folder / "key").write_bytes(SECRET)
    (folder / "broker.yaml").write_text(yaml.safe_dump(settings(group) | {"store.segment_bytes": "16MiB"}))
    port = free_port()
    here = {
        "network.port": 0, "network.vip_port": -2, "network.ha_port": 0, "network.ha_api_port": port,
        "network.http_port": -1, "network.bind": "127.0.0.1", "network.advertise": "127.0.0.1",
        "store.root": folder / "store", "replication.secret_file": folder / "key", "replication.ordinal": 0,
        "replication.register": f"file:{folder / 'register'}", "store.index_slots": 1000, "store.index_entries": 4000,
    }  # fmt: skip
    environment = {f"GANTRY_{key.replace('.', '_').upper()}": str(value) for key, value in here.items()}
    command = [sys.executable, "-m", "gantry.cli.main", "broker", "--config", str(folder / "broker.yaml")]
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        return asyncio.run(told_by(group.name, port))
    except TimeoutError as error:
        raise AssertionError((folder / "stderr").read_text()[-2000:]) from error
    finally:
        process.kill()
        process.wait()


async def told_by(group: str, port: int) -> dict[str, object]:
    asked = AskedMembers("", group, lambda _: f"127.0.0.1:{port}", Keys(SECRET), SystemClock(), 10.0)
    try:
        async with asyncio.timeout(HANG_S):
            while (config := await asked.config(0)) is None:  # noqa: ASYNC110  a process that starts tells nobody
                await asyncio.sleep(0.2)
            return dict(config)
    finally:
        await asked.close()


def apart(effects: Mapping[str, Effect]) -> list[dict[str, Effect]]:
    """Fields that do not speak of the same key together: each process shows as many as it can."""
    batches: list[dict[str, Effect]] = []
    for path, effect in effects.items():
        assert effect.running is not None
        for batch in batches:
            if all(each.running is not None and each.running[0] != effect.running[0] for each in batch.values()):
                batch[path] = effect
                break
        else:
            batches.append({path: effect})
    return batches


def test_a_running_broker_has_what_each_field_says(tmp_path: Path) -> None:
    batches = apart({path: effect for path, effect in EFFECTS.items() if effect.running})
    usual = running(with_changes({}), tmp_path / "usual")
    for number, batch in zip(itertools.count(), batches, strict=False):
        config = running(with_changes(wanted(batch)), tmp_path / str(number))
        for path, effect in batch.items():
            assert effect.running is not None
            key, value = effect.running
            name, counts, _ = key.partition(".#")
            told, before = config[name], usual[name]
            assert (len(told) if counts and isinstance(told, list) else told) == value, path
            assert told != before, path
