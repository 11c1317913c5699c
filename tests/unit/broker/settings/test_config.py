"""Four sources make one frozen tree, and what cannot be meant is refused by name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantry.broker import part_settings
from gantry.broker.settings import loading
from gantry.broker.settings.config import HOT, KEYS, BrokerConfig, Role
from gantry.broker.settings.ports import Addresses
from gantry.broker.settings.profiles import PROFILES
from gantry.broker.settings.sources import flat, replaced
from gantry.errors import ConfigError
from gantry.store.settings import Flush
from gantry_operator.api.brokercluster import PROMISES
from testkit.sources import ROOT


def file(folder: Path, text: str, name: str = "broker.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_defaults_are_rocketmqs_and_pass_their_own_check() -> None:
    loaded, notices = loading.load()
    assert loaded == BrokerConfig() and notices == []
    assert (loaded.network.port, loaded.store.segment_bytes, loaded.role) == (10911, 1 << 30, Role.ASYNC_MASTER)


def test_the_tree_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        loading.load()[0].name = "other"  # type: ignore[misc]


def test_a_stronger_source_wins(tmp_path: Path) -> None:
    path = file(tmp_path, "name: of-file\ncluster: of-file\nnetwork: {port: 1, idle_s: 2}\nstore:\n  root: /of/file\n")
    environment = {"GANTRY_CLUSTER": "of-environment", "GANTRY_NETWORK_PORT": "3", "GANTRY_NETWORK_IDLE_S": "4"}
    loaded, _ = loading.load(
        path, environment, {"network.idle_s": 5, "store.flush": None}, {"name": "of-base", "id": 0}
    )
    assert (loaded.name, loaded.cluster, loaded.store.root) == ("of-file", "of-environment", "/of/file")
    assert (loaded.network.port, loaded.network.idle_s) == (3, 5.0)


def test_values_are_read_in_the_units_people_write() -> None:
    environment = {
        "GANTRY_STORE_SEGMENT_BYTES": "64 MiB",
        "GANTRY_STORE_FLUSH": "sync_flush",
        "GANTRY_METRICS_PER_QUEUE": "yes",
        "GANTRY_NAME_SERVERS": "a:1; b:2",
        "GANTRY_STORE_DISK_USED_MAX": "0.5",
    }
    loaded, _ = loading.load(environment=environment)
    assert loaded.store.segment_bytes == 64 << 20 and loaded.store.flush is Flush.SYNC
    assert loaded.metrics.per_queue is True and loaded.name_servers == ("a:1", "b:2")
    assert loaded.store.disk_used_max == 0.5


@pytest.mark.parametrize("key", [key for key, entry in KEYS.items() if isinstance(entry.default, str | tuple)])
def test_a_text_that_has_no_bytes_in_utf_8_is_refused(key: str) -> None:
    undecodable = b"file:/\xff".decode("utf-8", "surrogateescape")
    with pytest.raises(ConfigError, match=rf"variable .*: {key} 'file:/\\udcff': expected .*, in UTF-8"):
        loading.load(environment={f"GANTRY_{key.replace('.', '_').upper()}": undecodable})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stoer: {root: /x}", ["stoer.root", "store.root"]),
        ("store: {segment_byte: 1}", ["segment_byte", "store.segment_bytes"]),
        ("port: 1", ["port is not known", "network.port"]),
        ("network: {port: many}", ["network.port", "a whole number", "'many'"]),
        ("network: {port: true}", ["network.port", "a whole number"]),
        ("metrics: {per_queue: perhaps}", ["metrics.per_queue", "true or false"]),
        ("store: {flush: NEVER}", ["store.flush", "SYNC_FLUSH, ASYNC_FLUSH"]),
        ("network: {idle_s: .nan}", ["network.idle_s", "a number"]),
        ("name: [a]", ["name", "a name of 1 to 100 characters"]),
        ("name_servers: [1]", ["name_servers", "0 to 64 of: HOST:PORT"]),
        ("- a\n- b", ["keys and values"]),
        ("a: [", ["not YAML"]),
        ("role: SLAVE", ["SLAVE", "replication.secret_file"]),
        ("role: SYNC_MASTER", ["SYNC_MASTER", "haSecretFile"]),
        ("id: 1", ["id 1", "a master's id is 0"]),
        (
            "replication: {min_in_sync: 65}",
            ["replication.min_in_sync '65'", "1 to 64, or 0 (2 under SYNC"],
        ),
        ("permission: 5", ["permission '5'", "one of 2 (write), 4 (read), 6 (both)"]),
        ("store: {segment_bytes: 4097KiB}", ["two bodies"]),
        ("store: {disk_used_max: 75}", ["store.disk_used_max '75'", "a number from 0.01 to 1"]),
        ("store: {delete_hours: ['25']}", ["hours from 00 to 23"]),
        ("network: {port: 70000}", ["65535"]),
        ("network: {port: -1}", ["network.port '-1'", "1 to 65535, or 0 (any free one)"]),
        ("network: {vip_port: -3}", ["network.vip_port '-3'", "-2 (none)"]),
        ("network: {http_port: 65536}", ["network.http_port '65536'", "65535"]),
        ("name: yes", ["name 'True'", "a name of"]),  # YAML 1.1 takes it for a truth value
        ("store: 5", ["store '5'", "keys below it"]),
        ("name:", ["name without a value"]),
        ("store: {root: /a}\nstore.root: /b", [":2: store.root was set before, in ", ":1; keep one"]),
        ("a: &a {b: *a}", ["not deeper"]),
        ("flushDiskType: x", ["flushDiskType is not known; that is RocketMQ's name, here it is store.flush"]),
        ("profile: durable", ["role SYNC_MASTER", "secret_file", "[role from profile durable]"]),
        ("profile: safe", ["profile 'safe'", "one of none, durable, replicated, fast"]),
        ("replication: {register: 'lease:only'}", ["lease:NAMESPACE/NAME"]),
        ("replication: {members: [host]}", ["replication.members", "HOST:PORT"]),
        ("delays: {levels: 1w}", ["delays.levels", "1w"]),
        ("network: {output_bytes_high: 2MiB, output_bytes_max: 1MiB}", ["network.output_bytes_high 2 MiB"]),
        ("network: {output_bytes_max: 5183KiB}", ["at least 5184 KiB", "pull.bytes_max 4 MiB", "or lower the others"]),
        ("role: SLAVE\nid: 64\nreplication: {secret_file: s}", ["id 64", "a slave's 1 to 63"]),
        ("unknown: {}", ["unknown is not known"]),
        ("unknown: {<<: {}}", ["unknown is not known"]),
        ("store: {root: {}}", ["store.root without a value"]),
        ('messages: {region: "a\\x01b"}', ["messages.region", "control characters"]),
        ('name_servers: ["\\ud800:1"]', ["name_servers", "HOST:PORT"]),
        ("? [a]\n: 1", [":1: expected the name of a key"]),
        (f"id: 0x{'f' * 9999}", ["id a whole number of 39996 bits: expected a whole number from 0"]),
        (f"name: 0x{'f' * 9999}", ["name a whole number of 39996 bits: expected a name of 1 to 100"]),
        (f"profile: 0x{'f' * 9999}", ["profile a whole number of 39996 bits: expected one of none"]),
        (f"name_servers: [0x{'f' * 9999}]", ["name_servers with a whole number that is too long", "HOST:PORT"]),
        (f"? 0x{'f' * 9999}\n: 1", [":1: 0xfff", "is not known"]),
        (f"id: {'9' * 5000}", [":1: id '999", "cannot be read as int or is too large"]),
        (f"network: {{idle_s: {'1:' * 3000}1.5}}", [":1: network.idle_s '1:1", "cannot be read as float"]),
        ("name: 2026-13-01", [":1: name '2026-13-01'", "put quotes around a text"]),
        ("metrics: {per_queue: !!bool maybe}", ["metrics.per_queue 'maybe'", "cannot be read as bool"]),
        (f"a: {'[' * 2000}", ["not deeper"]),
        ("store: {index_slots: 100000000, index_entries: 100000000}", ["less than 2 GiB"]),
        ("store: {flush_interval_ms: 1KiB}", ["1KiB", "of milliseconds from 1"]),
        ("standalone: {nameserver_port: 99999}", ["standalone.nameserver_port '99999'", "65535"]),
    ],
)
def test_what_cannot_be_meant_is_an_error_that_says_where_and_what(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        loading.load(file(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_a_profile_is_one_word_for_three_keys_and_weaker_than_each_of_them(tmp_path: Path) -> None:
    text = "profile: durable\nreplication: {secret_file: /secret}\n"
    loaded, _ = loading.load(file(tmp_path, text), base={"store.flush": "ASYNC_FLUSH"})
    assert (loaded.store.flush, loaded.role, loaded.replication.min_in_sync) == (Flush.SYNC, Role.SYNC_MASTER, 2)
    loaded, _ = loading.load(file(tmp_path, text), {"GANTRY_PROFILE": "FAST"}, {"store.flush": "SYNC_FLUSH"})
    assert (loaded.store.flush, loaded.role, loaded.replication.min_in_sync) == (Flush.SYNC, Role.ASYNC_MASTER, 1)


def test_a_broker_alone_has_only_its_disk_for_a_profile() -> None:
    loaded, _ = loading.load(flags={"profile": "durable"}, is_standalone=True)
    assert (loaded.store.flush, loaded.role) == (Flush.SYNC, Role.ASYNC_MASTER)
    with pytest.raises(ConfigError, match="this broker is alone; choose durable or fast"):
        loading.load(flags={"profile": "replicated"}, is_standalone=True)
    loaded, _ = loading.load(flags={"profile": "replicated", "replication.secret_file": "/secret"}, is_standalone=True)
    assert loaded.role is Role.SYNC_MASTER


def test_the_profiles_of_a_cluster_mean_the_same() -> None:
    theirs = {str(profile): (each.flush, each.role, each.min_in_sync) for profile, each in PROMISES.items()}
    assert theirs == {str(profile): tuple(each) for profile, each in PROFILES.items()}


def test_every_fault_is_told_with_the_place_where_it_stands(tmp_path: Path) -> None:
    path = file(tmp_path, "# first\nstore:\n  flush_interval_ms: -5\n  segment_bytes: 1MiB\npull: {held_max: 0}\n")
    with pytest.raises(ConfigError) as caught:
        loading.load(path, {"GANTRY_NETWORK_PORT": "many"}, {"id": "x"}, spoken={"id": "--set id"})
    assert str(caught.value).split("; ") == [
        f"{path}:3: store.flush_interval_ms '-5': expected a whole number of milliseconds from 1 to 3600000",
        f"{path}:5: pull.held_max '0': expected a whole number of pulls from 1 to 10000000",
        "environment variable GANTRY_NETWORK_PORT: network.port 'many': expected a whole number from 1 to 65535, "
        "or 0 (any free one)",
        "--set id: id 'x': expected a whole number from 0 to 64",
    ]


def test_a_rule_between_keys_says_where_they_were_set(tmp_path: Path) -> None:
    path = file(tmp_path, "store:\n  segment_bytes: 1MiB\n")
    with pytest.raises(ConfigError, match=f"two bodies of .*_max 4 MiB .store.segment_bytes from {path}:2]"):
        loading.load(path)
    path = file(tmp_path, "\nmaxMessageSize=-1\n", "broker.conf")
    with pytest.raises(ConfigError, match=f"{path}:2: maxMessageSize=-1: messages.body_bytes_max '-1': .* 12 MiB"):
        loading.load(path)


def test_an_unknown_key_names_its_file_and_an_unknown_variable_itself(tmp_path: Path) -> None:
    path = file(tmp_path, "nmae: x")
    with pytest.raises(ConfigError, match=f"{path}:1: nmae is not known; the nearest known key is name"):
        loading.load(path)
    with pytest.raises(ConfigError, match="GANTRY_STOER_ROOT is not known; the nearest known key is GANTRY_STORE_ROOT"):
        loading.load(environment={"GANTRY_STOER_ROOT": "x"})
    with pytest.raises(ConfigError, match="cannot read"):
        loading.load(str(tmp_path / "missing.yaml"))


def test_variables_that_kubernetes_or_the_leaves_put_there_are_no_keys() -> None:
    environment = {
        "GANTRY_BROKER_SERVICE_HOST": "10.0.0.1",
        "GANTRY_BROKER_SERVICE_PORT_HTTP": "1",
        "GANTRY_BROKER_PORT": "tcp://10.0.0.1:10911",
        "GANTRY_BROKER_PORT_10911_TCP_ADDR": "10.0.0.1",
        "GANTRY_PURE": "1",
        "GANTRY_CACHE": "/var/cache",
        "PATH": "/bin",
    }
    assert loading.load(environment=environment)[0] == BrokerConfig()


def test_make_gives_its_tests_no_variable_that_the_brokers_which_they_start_refuse() -> None:
    found = re.findall(r"\bGANTRY_\w+(?= ?:?=)", (ROOT / "Makefile").read_text())
    assert found
    loading.load(environment=dict.fromkeys(found, "1"))


def test_a_section_without_keys_is_none(tmp_path: Path) -> None:
    assert loading.load(file(tmp_path, "store:\n# root: /x\npull: {}\nname: a\n"))[0].name == "a"


def test_what_was_changed_at_run_time_outlives_another_life_in_the_same_process() -> None:
    changed = {"permission": 4, "messages.body_bytes_max": 1 << 20, "topics.check_message_type": True}
    assert changed.keys() == HOT
    addresses = Addresses("127.0.0.1", 1, None, "127.0.0.1:1", bytes(8))
    live = replaced(BrokerConfig(), changed, "test")
    kept = flat(part_settings.settled(BrokerConfig(), addresses, (None, None), live))
    assert {key: kept[key] for key in HOT} == changed and kept["network.port"] == 1


def test_every_key_has_one_type_that_the_loader_knows() -> None:
    assert KEYS.keys() == flat(BrokerConfig()).keys()
    assert replaced(BrokerConfig(), {}, "nobody") == BrokerConfig()
    assert KEYS.keys() >= HOT


@pytest.mark.parametrize(
    ("made", "section"), [(part_settings.pull_settings, "pull"), (part_settings.client_limits, "clients")]
)
def test_a_key_reaches_the_limit_of_its_name(made: Callable[[BrokerConfig], Any], section: str) -> None:
    keys = {key for key in KEYS if key.startswith(f"{section}.") and key.endswith(("_max", "_default"))}
    numbers = {key: 10_000 + number for number, key in enumerate(sorted(keys))}
    given = made(replaced(BrokerConfig(), numbers, "test"))
    names = {field.name for field in dataclasses.fields(given)}
    for key, number in numbers.items():
        name = key.partition(".")[2]
        if name in names:
            assert getattr(given, name) == number, key
    assert names & {key.partition(".")[2] for key in numbers}
