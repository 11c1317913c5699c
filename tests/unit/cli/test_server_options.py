"""What each option of the servers changes: a key of the configuration, a setting, or how they log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantry.broker.settings.profiles import Profile
from gantry.cli import broker, coordinator, local, nameserver, standalone
from gantry.cli.logs import JsonLines
from gantry.nameserver.settings import NameServerSettings
from gantry.replication.timers import TIMERS
from gantry.store.settings import Flush
from testkit.commandline import run

SERVERS = {"standalone": standalone, "broker": broker, "nameserver": nameserver, "coordinator": coordinator}
HOSTS = ("h0:9405", "h1:9405", "h2:9405")


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Servers that would have been started; logging is afterwards as it was."""
    made: list[Any] = []

    def serve(make: Callable[[Callable[[], None]], Any], *_: Any, **__: Any) -> int:
        made.append(make(lambda: None))
        return 0

    for module in (*SERVERS.values(), local):
        monkeypatch.setattr(module, "serve", serve)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield made
    root.handlers[:] = handlers
    root.setLevel(level)


def words(server: str, tmp_path: Path) -> list[str]:
    """What the server needs at least."""
    if server == "coordinator":
        (tmp_path / "secret").write_text("0" * 64)
        (tmp_path / "secret").chmod(0o600)
        where = ["--register", f"file:{tmp_path}/a.json", "--secret-file", str(tmp_path / "secret")]
        return [server, "--group", "broker-a", *where, "--members", ",".join(HOSTS)]
    if server.startswith("local"):
        links = ["--links", "direct"] if server == "local up" else []
        return [*server.split(" "), "--dir", str(tmp_path / "cluster"), *links]
    return [server]


@pytest.mark.shows("broker --bind", "broker --advertise", "broker --broker-port", "broker --vip-port")
@pytest.mark.shows("broker --http-port", "broker --flush", "broker --name", "broker --cluster", "broker --set")
@pytest.mark.shows("standalone --bind", "standalone --advertise", "standalone --broker-port", "standalone --vip-port")
@pytest.mark.shows("standalone --http-port", "standalone --flush", "standalone --name", "standalone --cluster")
@pytest.mark.shows("standalone --set", "broker --data", "standalone --data", "broker --profile", "standalone --profile")
@pytest.mark.parametrize("server", ["standalone", "broker"])
@pytest.mark.parametrize(
    ("flag", "value", "key", "expected"),
    [
        ("--bind", "127.0.0.9", "network.bind", "127.0.0.9"),
        ("--advertise", "10.0.0.7", "network.advertise", "10.0.0.7"),
        ("--broker-port", "1234", "network.port", 1234),
        ("--vip-port", "1235", "network.vip_port", 1235),
        ("--http-port", "1236", "network.http_port", 1236),
        ("--flush", "SYNC_FLUSH", "store.flush", Flush.SYNC),
        ("--name", "broker-z", "name", "broker-z"),
        ("--cluster", "Z", "cluster", "Z"),
        ("--profile", "fast", "profile", Profile.FAST),
        ("--set", "pull.count_max=7", "pull.count_max", 7),
        ("--data", "/nowhere/data", "store.root", "/nowhere/data"),
    ],
)
def test_a_flag_is_its_key(
    server: str, flag: str, value: str, key: str, expected: object, made: list[Any]
) -> None:
    assert run(server, f"{flag}={value}").code == 0
    found: Any = made[0]._config
    for name in key.split("."):
        found = getattr(found, name)
    assert str(found) == str(expected)


@pytest.mark.shows("broker --config", "standalone --config", "broker --namesrv", "standalone --nameserver-port")
@pytest.mark.parametrize("server", ["standalone", "broker"])
def test_a_file_and_name_servers(server: str, made: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("name: from-file\n")
    where = ["--namesrv", "a:1;b:2"] if server == "broker" else ["--nameserver-port", "77"]
    assert run(server, "--config", str(file), *where).code == 0
    config = made[0]._config
    assert config.name == "from-file"
    assert config.name_servers == ("a:1", "b:2") if server == "broker" else config.standalone.nameserver_port == 77


@pytest.mark.shows("nameserver --bind", "nameserver --nameserver-port", "nameserver --http-port", "nameserver --kv")
@pytest.mark.shows("nameserver --await-brokers")
def test_a_name_server_listens_and_keeps_where_it_is_told(made: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    flags = ["--bind", "127.0.0.9", "--nameserver-port", "77", "--http-port", "78", "--kv", str(file)]
    assert run("nameserver", *flags).code == 0
    assert made[0]._settings == NameServerSettings("127.0.0.9", 77, "127.0.0.9", 78, file)
    assert run("nameserver", "--await-brokers").code == 0
    assert made[1]._settings.awaits_brokers and not made[0]._settings.awaits_brokers


@pytest.mark.shows("coordinator --group", "coordinator --register", "coordinator --members", "coordinator --role")
@pytest.mark.shows("coordinator --min-in-sync", "coordinator --preferred", "coordinator --secret-file")
@pytest.mark.shows("coordinator --cluster-uid", "coordinator --failover-timers", "coordinator --output")
@pytest.mark.shows("coordinator --register-server", "coordinator --register-token-file")
@pytest.mark.shows("coordinator --register-ca-file")
def test_a_coordinator_watches_what_its_flags_say(made: list[Any], tmp_path: Path) -> None:
    base = words("coordinator", tmp_path)
    assert {"--group", "--register", "--members", "--secret-file"} <= set(base)
    policy = ["--role", "ASYNC_MASTER", "--min-in-sync", "2", "--preferred", "1", "--cluster-uid", "u"]
    lease = ["--register-server", "https://h:1", "--register-token-file", "/t", "--register-ca-file", "/c"]
    assert run(*base, *policy, *lease, "--failover-timers", "fast", "--output", "json").code == 0
    plan = made[0]._plan
    ((name, (watched, register)),) = plan.groups.items()
    assert (name, watched.addresses, watched.cluster_uid) == ("broker-a", HOSTS, "u")
    assert plan.secret_file == str(tmp_path / "secret") and watched.timers == TIMERS["fast"]
    assert (watched.policy.min_in_sync, watched.policy.preferred) == (2, 1) and not watched.policy.is_sync_master
    assert (register.register, register.register_server) == (f"file:{tmp_path}/a.json", "https://h:1")
    assert (register.register_token_file, register.register_ca_file) == ("/t", "/c")
    assert made[0]._line is coordinator.json_line
    run(*base, "--output", "text")
    assert made[1]._line is coordinator.text_line


@pytest.mark.shows("coordinator --config")
def test_a_coordinator_watches_the_groups_of_a_file(made: list[Any], tmp_path: Path) -> None:
    words("coordinator", tmp_path)
    file = tmp_path / "groups.yaml"
    group = f'{{register: "file:{tmp_path}/a.json", members: ["h0:1"], role: ASYNC_MASTER}}'
    file.write_text(f"secret-file: {tmp_path}/secret\ngroups:\n  a: {group}\n  b: {group}\n")
    assert run("coordinator", "--config", str(file)).code == 0
    assert sorted(made[0]._plan.groups) == ["a", "b"]


@pytest.mark.parametrize("server", [*SERVERS, "local up", "local wires"])
def test_logs_have_the_form_and_the_level_that_was_asked_for(server: str, tmp_path: Path) -> None:
    if server == "local wires":
        assert run(*words("local up", tmp_path)).code == 0
    root = logging.getLogger()
    for form, level in (("json", "error"), ("plain", "debug")):
        assert run(*words(server, tmp_path), "--log-format", form, "--log-level", level).code == 0
        assert root.level == getattr(logging, level.upper())
        assert isinstance(root.handlers[0].formatter, JsonLines) == (form == "json")
