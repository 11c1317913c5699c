"""What the operator is told by its environment, and what it refuses there."""

from __future__ import annotations

import logging

import pytest

from gantry_operator.settings import from_environment

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
