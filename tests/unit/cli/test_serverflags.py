from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantry.broker.settings.config import KEYS, BrokerConfig
from gantry.cli.serverflags import MEMBERSHIP, NETWORK, STORE, add_server_flags, load_config, port_flags
from gantry.errors import ConfigError
from gantry.store.settings import Flush


@pytest.fixture(autouse=True)
def _logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _loaded(*arguments: str, base: dict[str, object] | None = None) -> BrokerConfig:
    parser = argparse.ArgumentParser()
    add_server_flags(parser, STORE, NETWORK, MEMBERSHIP)
    return load_config(parser.parse_args(list(arguments)), base or {})


def test_a_flag_is_stronger_than_the_environment_and_that_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("name: from-file\ncluster: from-file\nnetwork:\n  port: 1\n")
    monkeypatch.setenv("GANTRY_CLUSTER", "from-environment")
    monkeypatch.setenv("GANTRY_NETWORK_PORT", "2")
    config = _loaded("--config", str(file), "--broker-port", "3", base={"name": "from-command"})
    assert (config.name, config.cluster, config.network.port) == ("from-file", "from-environment", 3)


def test_set_reaches_every_key() -> None:
    config = _loaded("--set", "pull.count_max=64", "--set", "store.flush=SYNC_FLUSH", "--namesrv", "a:1;b:2")
    assert (config.pull.count_max, config.store.flush) == (64, Flush.SYNC)
    assert config.name_servers == ("a:1", "b:2")


def test_set_without_a_value_is_an_error_that_quotes_it() -> None:
    with pytest.raises(ConfigError, match=r"'pull\.count_max': expected KEY=VALUE"):
        _loaded("--set", "pull.count_max")


def test_every_port_that_is_taken_has_something_to_type_for_another_one() -> None:
    config = _loaded("--set", "replication.secret_file=/secret", "--broker-port", "700")
    typed = port_flags(config)
    assert len(typed) == sum(key.endswith("port") for key in KEYS)
    assert typed["--broker-port"] == 700 and typed["--vip-port"] == 698
    assert typed["--set network.ha_port=PORT"] == 701 and typed["--set network.ha_api_port=PORT"] == 9405
    assert "--set network.ha_port=PORT" not in port_flags(_loaded())
