"""What the operator is told by its environment, and what it refuses there."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import pytest

from gantry_operator import settings
from gantry_operator.settings import from_environment, with_options

IMAGE = {"GANTRY_OPERATOR_BROKER_IMAGE": "brokers:1"}


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("VOLUME_GROUP", "", "volume_group", 10001),
        ("VOLUME_GROUP", "platform", "volume_group", None),
        ("VOLUME_GROUP", "1000650000", "volume_group", 1000650000),
        ("LOG_LEVEL", "", "log_level", logging.INFO),
        ("LOG_LEVEL", "debug", "log_level", logging.DEBUG),
        ("NAMESPACES", "one, two,", "namespaces", ("one", "two")),
        ("HTTP_PORT", "8081", "http_port", 8081),
    ],
)
def test_a_variable_sets_what_it_names(name: str, text: str, field: str, value: object) -> None:
    assert getattr(from_environment(IMAGE | {f"GANTRY_OPERATOR_{name}": text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BROKER_IMAGE", ""), ("HTTP_PORT", "0"), ("HTTP_PORT", "http"), ("VOLUME_GROUP", "0"), ("VOLUME_GROUP", "-1"),
        ("VOLUME_GROUP", "staff"), ("VOLUME_GROUP", "2147483648"), ("LOG_LEVEL", "INFO"), ("LOG_LEVEL", "trace"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_meant_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"GANTRY_OPERATOR_{name}"):
        from_environment(IMAGE | {f"GANTRY_OPERATOR_{name}": text})


def test_an_option_overrides_its_variable_and_leaves_the_others() -> None:
    environment = IMAGE | {"GANTRY_OPERATOR_HTTP_PORT": "8081", "GANTRY_OPERATOR_LEASE": "held"}
    told = from_environment(with_options(environment, ["--http-port=8082", "--log-level", "debug"]))
    assert (told.http_port, told.log_level, told.lease) == (8082, logging.DEBUG, "held")
    assert told.broker_image == "brokers:1"


def test_every_variable_has_an_option_and_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert settings.__doc__ is not None
    variables = set(re.findall(r"^GANTRY_OPERATOR_(\w+)", settings.__doc__, re.MULTILINE))
    with pytest.raises(SystemExit) as ended:
        with_options({}, ["--help"])
    listed = re.findall(r"^  --([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert ended.value.code == 0 and {each.upper().replace("-", "_") for each in listed} == variables


@pytest.mark.parametrize("arguments", [["--log-levels=debug"], ["--log"], ["debug"]])
def test_an_option_that_is_not_known_ends_the_operator_before_it_begins(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "gantry_operator.main", *arguments]
    done = subprocess.run(command, env=os.environ | IMAGE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and arguments[0].partition("=")[0] in done.stderr, done.stderr


def test_the_operator_listens_to_its_options() -> None:
    command = [sys.executable, "-m", "gantry_operator.main", "--http-port=many"]
    done = subprocess.run(command, env=os.environ | IMAGE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "HTTP_PORT 'many': expected a port" in done.stderr, done.stderr
